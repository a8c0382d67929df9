"""Questions over 14 days of 10,000 pairs: `bench.py SPANGAP [ROUNDS]`. The tables have what one meter sends in that time, apart from the finer
rows that these questions do not read; a real meter is asked through its API. The engine is chdb, in one process behind front.py."""

import atexit
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

spangap, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
PAIRS, DAYS, HERE = 10_000, 14, os.path.dirname(os.path.abspath(__file__))
folder = tempfile.mkdtemp(prefix="spangap-bench-clickhouse.")
# From 11:37 of one day to the same of another: hours at both ends, then ten minutes, then minutes.
day0 = 20_000 * 86_400
begin, end = day0 + 11 * 3600 + 37 * 60, day0 + DAYS * 86_400 + 11 * 3600 + 36 * 60 + 59

running = []


def end_all():
    """Also after an error: what goes on running would keep the pipes of whoever started this."""
    for process in running:
        process.terminate()
    for process in running:
        process.wait()
    shutil.rmtree(folder)


atexit.register(end_all)
front = subprocess.Popen([sys.executable, f"{HERE}/front.py", f"{folder}/tables", "0"], stdout=subprocess.PIPE, text=True)
running.append(front)
url = front.stdout.readline().strip()


def sql(statement):
    return urllib.request.urlopen(urllib.request.Request(url, statement.encode())).read().decode()


def cpu_s():
    """CPU time of the engine so far."""
    return sum(map(int, open(f"/proc/{front.pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def fill():
    schema = open(f"{HERE}/../../crates/meter/src/clickhouse/schema.sql").read()
    for statement in re.sub(r"^--.*$", "", schema, flags=re.M).split(";"):
        if statement.strip():
            sql(statement)

    def distribution(name, width, first):
        calls = f"arrayMap(i -> toUInt64(1 + cityHash64(number, i) % 50), range({width}))"
        return f"""arrayMap(i -> toInt16({first} + i + number % 5), range({width})) AS {name}_bucket, {calls} AS {name}_calls,
            0 AS {name}_zero, arraySum({name}_calls) AS {name}_count,
            toUInt128({name}_count) * (900000 + cityHash64(number) % 200000) AS {name}_sum_ns, 1000 + number % 77 AS {name}_min_ns,
            90000000 + cityHash64(number) % 777777 AS {name}_max_ns, {name}_max_ns AS {name}_max_low_ns"""

    shapes = [("gap", 24, -160), ("client", 20, -130), ("server", 20, -132), ("request_leg", 22, -176), ("response_leg", 22, -176), ("mate_delay", 12, -50)]
    columns = ", ".join(distribution(*shape) for shape in shapes)

    # As `pair_id` in crates/meter/src/clickhouse/columns.rs.
    named = "concat(reinterpretAsFixedString(toUInt64(length({0}))), {0})"
    digest = f"substring(SHA256(concat({named.format('client')}, {named.format('server')}, {named.format('method')})), 1, 16)"

    def rows(step, first, count):
        for at in range(0, count, 10):
            some = min(10, count - at)
            sql(f"""INSERT INTO spangap_pairs SELECT {step} AS step_s, toDateTime({first + step * at} + {step} * intDiv(number, {PAIRS})) AS start,
                7 AS meter, {digest} AS pair, concat('client-', toString(number % 100)) AS client,
                concat('server-', toString(intDiv(number % {PAIRS}, 100))) AS server, '' AS method, {columns}, 50000, 7000000, [14, 4], [1, 2], 3, 0, 10, 0,
                arrayMap(i -> toUInt64(90000000 - i * 1000 + number % 9999), range(20)), arrayMap(i -> toDateTime(start + 60 * (i % 60)), range(20)), 1
                FROM numbers({PAIRS * some})""")
        sql(f"INSERT INTO spangap_intervals SELECT {step}, toDateTime({first} + {step} * number), 7, 'bench' FROM numbers({count})")

    rows(86_400, day0, DAYS + 1)
    for day in (day0, day0 + DAYS * 86_400):
        rows(3600, day, 24)
        rows(600, day + 11 * 3600, 6)
        rows(60, day + 11 * 3600 + 1800, 10)


begun = time.time()
fill()
print(f"filled in {time.time() - begun:.0f} s")
for line in sql("SELECT step_s, count() FROM spangap_pairs GROUP BY step_s ORDER BY step_s").splitlines():
    print("rows of {} s: {}".format(*line.split("\t")))
print("bytes on disk, and of active parts:", sql("SELECT sum(bytes_on_disk), count() FROM system.parts WHERE active AND table = 'spangap_pairs'").strip())

os.makedirs(f"{folder}/data")
with open(f"{folder}/clickhouse.toml", "w") as settings:
    settings.write(f'url = "{url}"\nname = "asked"\n')
meter = subprocess.Popen(
    [spangap, "meter", "--data", f"{folder}/data", "--clickhouse", f"{folder}/clickhouse.toml", "--http", "127.0.0.1:0",
     "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
running.append(meter)
page = next(line.split()[1] for line in meter.stdout if line.startswith("page "))

QUESTIONS = {
    "table, 50 rows, most time lost first": ("pairs", {"top": 50}),
    "table, 50 rows with 30 steps each, as the page asks": ("pairs", {"top": 50, "steps": 30}),
    "table of one service": ("pairs", {"service": "client-7", "top": 50}),
    "timeline of all pairs": ("timeline", {}),
    "one pair over time": ("pair", {"client": "client-7", "server": "server-7"}),
    "20 worst calls": ("worst", {}),
    "table, by the p99 of the gap": ("pairs", {"top": 50, "sort": "gap_p99"}),
}
ends = random.sample(range(60), rounds)
for name, (path, asked) in QUESTIONS.items():
    times, before_s = [], cpu_s()
    for second in ends:
        # Another second, the same minutes: no answer is shared.
        query = urllib.parse.urlencode({**asked, "meters": "all", "from": begin, "to": end - second})
        began = time.time()
        answer = json.load(urllib.request.urlopen(f"{page}api/v1/{path}?{query}"))
        times.append(time.time() - began)
    if path == "pairs" and "service" not in asked:
        assert answer["matching"]["pairs"] == PAIRS, answer["matching"]
    print(f"{name}: median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f} s; CPU time of the engine {(cpu_s() - before_s) / rounds:.2f} s", flush=True)
