"""Exported spans, read by others: `test.py SPANGAP`. A meter keeps spans whose every value is known; it exports them as Parquet, and each
reader has to find what was sent: counts, ids, times, attributes of every type."""

import importlib
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from otlp import field, fixed64, varint

KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"]
STATUS = ["unset", "ok", "error"]
COLUMNS = [
    "trace_id", "span_id", "parent_span_id", "service", "name", "kind", "start", "duration_ns", "status", "status_message",
    "trace_state", "scope_name", "scope_version", "resource_attributes", "attributes", "events", "links",
]
SPANS = 60_000
begun = time.monotonic()


def say(text):
    print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)


def integer(number, value):
    return varint(number << 3) + varint(value & (1 << 64) - 1)


def text(number, value):
    return field(number, value.encode())


def any_value(value):
    if isinstance(value, bool):
        return integer(2, value)
    if isinstance(value, int):
        return integer(3, value)
    if isinstance(value, float):
        return varint(4 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, bytes):
        return field(7, value)
    if isinstance(value, list):
        return field(5, b"".join(field(1, any_value(one)) for one in value))
    if isinstance(value, dict):
        return field(6, attributes(1, value))
    return text(1, value)


def attributes(number, values):
    return b"".join(field(number, text(1, key) + field(2, any_value(value))) for key, value in values.items())


def as_text(value):
    """How a value is written into a map of text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class Spans:
    """Spans as they are sent, and as rows."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows = {}

    def value(self):
        r = self.random
        return r.choice([
            "", "SELECT 1", "käse \u2603 \"quoted\"\n", True, False, 0, -5, 1 << 62, 0.5, 1e300, b"\x00\xff", ["a", 2], {"deep": 1},
        ])

    def span(self, service, resource, scope):
        r = self.random
        trace, id, parent = (r.getrandbits(8 * n).to_bytes(n, "big") for n in (16, 8, 8))
        parent = parent if r.random() < 0.7 else b""
        start = time.time_ns() - r.randrange(10**9)
        # One that ends before it starts is kept as well.
        end = start + r.choice([0, 1, 12_345_678, -5])
        kind, status = r.randrange(6), r.randrange(3)
        message = "it broke" if status == 2 else ""
        state = r.choice(["", "vendor=1"])
        name = f"/shop.Cart/{r.randrange(50)}"
        of_span = {f"key.{n}": self.value() for n in range(r.randrange(4))}
        encoded = field(1, trace) + field(2, id) + (text(3, state) if state else b"") + (field(4, parent) if parent else b"")
        encoded += text(5, name) + integer(6, kind) + fixed64(7, start) + fixed64(8, end) + attributes(9, of_span)
        events, links = None, None
        if r.random() < 0.2:
            encoded += field(11, fixed64(1, start + 1) + text(2, "exception") + attributes(3, {"n": 1}))
            events = [{"time_unix_nano": start + 1, "name": "exception", "attributes": {"n": 1}}]
        if r.random() < 0.2:
            encoded += field(13, field(1, trace) + field(2, id))
            links = [{"trace_id": trace.hex(), "span_id": id.hex(), "attributes": {}}]
        encoded += field(15, (text(2, message) if message else b"") + integer(3, status)) if status else b""
        self.rows[id.hex()] = {
            "trace_id": trace.hex(), "span_id": id.hex(), "parent_span_id": parent.hex() or None, "service": service, "name": name,
            "kind": KINDS[kind], "start": start, "duration_ns": end - start, "status": STATUS[status], "status_message": message or None,
            "trace_state": state or None, "scope_name": scope, "scope_version": "1.2" if scope else None,
            "resource_attributes": {key: as_text(value) for key, value in resource.items()},
            "attributes": {key: as_text(value) for key, value in of_span.items()}, "events": events, "links": links,
        }  # fmt: skip
        return encoded

    def request(self, count):
        r = self.random
        service = r.choice(["web", "cart", None])
        resource = ({"service.name": service} if service else {}) | {"host.name": "h1", "process.pid": r.randrange(100)}
        scope = r.choice(["instrumentation", None])
        of_scope = field(1, text(1, scope) + text(2, "1.2")) if scope else b""
        spans = b"".join(field(2, self.span(service, resource, scope)) for _ in range(count))
        return field(1, field(1, attributes(1, resource)) + field(2, of_scope + spans))


def plain(row):
    """A row of a reader, in the form of those that were sent."""
    row = dict(row)
    for key in ("resource_attributes", "attributes"):
        row[key] = dict(row[key])
    for key in ("events", "links"):
        row[key] = json.loads(row[key]) if row[key] else None
    return row


def by_duckdb(duckdb, path):
    columns = ", ".join("epoch_ns(start) AS start" if name == "start" else f'"{name}"' for name in COLUMNS)
    found = duckdb.sql(f"SELECT {columns} FROM read_parquet('{path}')").fetchall()
    slow = duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}') WHERE attributes['key.0'] = 'SELECT 1'").fetchall()[0][0]
    return [dict(zip(COLUMNS, row)) for row in found], slow


def by_pyarrow(pyarrow, path):
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(path)
    at = table.schema.get_field_index("start")
    table = table.set_column(at, "start", table["start"].cast(pyarrow.int64()))
    rows = table.to_pylist()
    assert parquet.ParquetFile(path).metadata.num_row_groups > 1, "expected several row groups"
    return rows, sum(dict(row["attributes"]).get("key.0") == "SELECT 1" for row in rows)


def by_clickhouse(chdb, path):
    columns = ", ".join("toUnixTimestamp64Nano(assumeNotNull(start)) AS start" if name == "start" else name for name in COLUMNS)
    settings = "SETTINGS output_format_json_quote_64bit_integers = 0"
    lines = str(chdb.query(f"SELECT {columns} FROM file('{path}', Parquet) {settings}", "JSONEachRow")).splitlines()
    slow = chdb.query(f"SELECT count() FROM file('{path}', Parquet) WHERE attributes['key.0'] = 'SELECT 1'", "CSV")
    return [json.loads(line) for line in lines], int(str(slow))


READERS = {"duckdb": ("DuckDB", by_duckdb), "pyarrow": ("pyarrow", by_pyarrow), "chdb": ("ClickHouse's engine", by_clickhouse)}


def same(sent, found):
    """Values within maps are text; JSON may be spaced differently, and numbers written differently."""
    if not isinstance(sent, dict):
        return sent == found
    if set(sent) != set(found):
        return False
    return all(sent[key] == found[key] or as_json(sent[key]) == as_json(found[key]) for key in sent)


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def compare(reader, found, slow, sent):
    found = {row["span_id"]: plain(row) for row in found}
    if len(found) != len(sent):
        raise SystemExit(f"parquet: {reader} finds {len(found)} spans, expected {len(sent)}")
    for id, row in sent.items():
        for key, value in row.items():
            if not same(value, found[id][key]):
                raise SystemExit(f"parquet: {reader}: span {id}: {key} is {found[id][key]!r}, expected {value!r}")
    expected = sum(row["attributes"].get("key.0") == "SELECT 1" for row in sent.values())
    if slow != expected:
        raise SystemExit(f"parquet: {reader} finds {slow} spans by an attribute, expected {expected}")
    say(f"ok: {reader}: {len(found)} spans with {len(COLUMNS)} columns each as they were sent; {slow} of them found by an attribute")


def main():
    spangap = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="spangap-parquet-") as work:
        out = Path(work) / "out"
        ports = ["--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"]
        command = [spangap, "meter", "--keep-spans", "30m", "--keep-dir", f"{work}/spans", *ports]
        with open(out, "wb") as stdout, open(Path(work) / "log", "wb") as log:
            meter = subprocess.Popen(command, stdout=stdout, stderr=log, stdin=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while "ready" not in out.read_text():
                if meter.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"parquet: the meter did not start: {(Path(work) / 'log').read_text()}")
                time.sleep(0.05)
            lines = dict(line.split(" ", 1) for line in out.read_text().splitlines() if " " in line)
            spans = Spans(1)
            while len(spans.rows) < SPANS:
                body = spans.request(500)
                request = urllib.request.Request(f"http://{lines['otlp/http']}/v1/traces", body, {"content-type": "application/x-protobuf"})
                urllib.request.urlopen(request, timeout=60).read()
            get = lambda path: urllib.request.urlopen(lines["page"] + path, timeout=120).read()
            while json.loads(get("api/v1/coverage"))["kept"]["spans"] < SPANS:
                time.sleep(0.05)
            path = Path(work) / "spans.parquet"
            asked = time.monotonic()
            path.write_bytes(get(f"api/v1/spans.parquet?from={int(time.time()) - 600}&to={int(time.time()) + 60}"))
            say(f"{SPANS} spans exported in {time.monotonic() - asked:.1f} s: {path.stat().st_size / SPANS:.0f} bytes a span")
            none = Path(work) / "none.parquet"
            none.write_bytes(get("api/v1/spans.parquet?from=0&to=1000"))
            try:
                get("api/v1/spans.parquet?from=2&to=1")
                raise SystemExit("parquet: a window that ends before it begins was taken")
            except urllib.error.HTTPError as error:
                assert error.code == 400, error
            for module, (reader, read) in READERS.items():
                try:
                    library = importlib.import_module(module)
                except ImportError as error:
                    say(f"not run: {reader}: {error}; scripts/setup.sh parquet fetches it")
                    continue
                compare(reader, *read(library, path), spans.rows)
                if module == "duckdb":
                    assert by_duckdb(library, none) == ([], 0), "expected an empty file"
        finally:
            meter.terminate()
            meter.wait()


if __name__ == "__main__":
    main()
