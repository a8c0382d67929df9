"""A day of a fleet, through one meter: 10,000 services with three instances each, 30,000 pairs of them, 1,000,000 pair-minutes.

Every minute of the day has its own pairs, some 694, a few of them in every minute and most in some minutes of the day. Messages carry the
timestamps of the day: a meter that reads them from Kafka takes its time from them, so that it counts, closes and sums up all 1,440 minutes
within a minute or two. About one call in a hundred has no SERVER span. Afterwards the fleet goes on at its own pace, for what the clock costs."""

import itertools
import random
import sqlite3
import struct
import time

from load import Load
from otlp import CLIENT, SERVER, field, varint
from stage import Meter, until

SERVICES, INSTANCES, NODES, PAIRS, PARTITIONS = 10_000, 3, 1_000, 30_000, 4
MINUTES, PAIR_MINUTES, CALLS = 1_440, 1_000_000, 3
# An instance sends its spans every five seconds, and a Collector in front of Kafka makes a message of what came meanwhile.
FLUSH_S, LIVE_S = 5, 120
SPAN = struct.Struct("<2s16s2s8s2s8s18sB1sQ1sQ")


def instance_head(number):
    """Everything of a ResourceSpans with one span before the span."""
    service = f"service-{number // INSTANCES:05}"
    attributes = {
        "service.name": service,
        "service.version": "1.18.3",
        "service.instance.id": f"{service}-{number % INSTANCES}",
        "k8s.pod.name": f"{service}-6d4cf56db6-{number % INSTANCES}",
        "k8s.node.name": f"node-{number % NODES:04}",
        "telemetry.sdk.language": "go",
    }
    resource = field(1, b"".join(field(1, field(1, key.encode()) + field(2, field(1, value.encode()))) for key, value in attributes.items()))
    span = varint(2 << 3 | 2) + varint(SPAN.size)
    spans = varint(2 << 3 | 2) + varint(len(span) + SPAN.size) + span
    return varint(1 << 3 | 2) + varint(len(resource) + len(spans) + SPAN.size) + resource + spans


class Fleet:
    """The calls of the fleet, and what a meter should say about them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        numbers = list(itertools.product(range(SERVICES), range(PAIRS // SERVICES)))
        self.pairs = [(client, (client + 1 + self.random.randrange(SERVICES - 1)) % SERVICES) for client, _ in numbers]
        self.pairs = list(dict.fromkeys(self.pairs))
        self.random.shuffle(self.pairs)
        self.heads = [instance_head(number) for number in range(SERVICES * INSTANCES)]
        self.calls, self.lost_ns = [0] * len(self.pairs), [0] * len(self.pairs)
        self.spans = self.alone = self.pair_minutes = 0
        self.late = []

    def active(self, count):
        """The pairs of one minute: some are nearly always among them."""
        chosen = set()
        while len(chosen) < count:
            chosen.add(int(len(self.pairs) * self.random.random() ** 3))
        self.pair_minutes += count
        return chosen

    def halves(self, pair, at_ns):
        r = self.random
        ids = r.randbytes(40)
        trace, client_id, server_id, entry_id = ids[:16], ids[16:24], ids[24:32], ids[32:]
        gap_ns, server_ns = int(r.lognormvariate(12.8, 0.5)), int(r.lognormvariate(15.2, 0.8))
        client, server = (service * INSTANCES + r.randrange(INSTANCES) for service in self.pairs[pair])
        # Clocks of nodes differ by up to 2 ms.
        starts = at_ns + client % NODES * 2000, at_ns + gap_ns // 2 + server % NODES * 2000
        spans = [
            self.heads[client] + self.span(trace, client_id, entry_id, CLIENT, starts[0], gap_ns + server_ns),
            self.heads[server] + self.span(trace, server_id, client_id, SERVER, starts[1], server_ns),
        ]
        return trace[0] % PARTITIONS, spans, gap_ns

    @staticmethod
    def span(trace, own, parent, kind, start, duration):
        name = b"\x2a\x0f/shop.Cart/Add\x00\x30"
        return SPAN.pack(b"\x0a\x10", trace, b"\x12\x08", own, b"\x22\x08", parent, name, kind, b"\x39", start, b"\x41", start + duration)

    def minute(self, unix_s, count):
        """Messages of a minute: when, to which partition, what. SERVER spans that come with the next flush wait for it."""
        r = self.random
        flushes = 60 // FLUSH_S
        slots = [[[] for _ in range(PARTITIONS)] for _ in range(flushes + 1)]
        for partition, span in self.late:
            slots[0][partition].append(span)
        for pair in self.active(count):
            for number in range(1 + int(r.expovariate(1 / (CALLS - 0.5)))):
                slot = r.randrange(flushes)
                at_ns = int((unix_s + slot * FLUSH_S + 4 * r.random()) * 1e9)
                partition, spans, gap_ns = self.halves(pair, at_ns)
                slots[slot][partition].append(spans[0])
                self.spans += 1
                # A pair's first call in a minute is whole: without any, it would have no pair-minute.
                if number > 0 and r.random() < 0.015:
                    self.alone += 1
                    continue
                self.spans += 1
                slots[slot + (r.random() < 0.5)][partition].append(spans[1])
                self.calls[pair] += 1
                self.lost_ns[pair] += gap_ns
        self.late = [(partition, span) for partition, spans in enumerate(slots.pop()) for span in spans]
        for slot, parts in enumerate(slots):
            for partition, spans in enumerate(parts):
                if spans:
                    yield unix_s + slot * FLUSH_S + 4.9, partition, b"".join(spans)

    def rest(self, unix_s):
        for partition in range(PARTITIONS):
            spans = [span for at, span in self.late if at == partition]
            if spans:
                yield unix_s, partition, b"".join(spans)
        self.late = []


def per_minute(minute):
    """Active pairs, so that they sum to PAIR_MINUTES."""
    return PAIR_MINUTES * (minute + 1) // MINUTES - PAIR_MINUTES * minute // MINUTES


def usage(meter):
    """CPU seconds so far, resident bytes now and at most."""
    fields = open(f"/proc/{meter.process.pid}/stat").read().rsplit(")", 1)[1].split()
    status = dict(line.split(":", 1) for line in open(f"/proc/{meter.process.pid}/status"))
    resident = [int(status[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")]
    return (int(fields[11]) + int(fields[12])) / 100, *resident


def compare(fleet, meter, what, say):
    """Every pair that has a row of its own to the nanosecond, and those that are `other` by their sum."""
    names = {(f"service-{client:05}", f"service-{server:05}"): at for at, (client, server) in enumerate(fleet.pairs)}
    left = {at for at, calls in enumerate(fleet.calls) if calls}
    of_others, own = [0, 0], 0
    for offset in itertools.count(0, 10_000):
        rows = meter.get(f"api/v1/pairs?from={meter.day[0]}&to={meter.day[1]}&by=pair&top=10000&offset={offset}")["pairs"]
        if not rows:
            break
        for row in rows:
            found = row["calls"], row["lost_ns_total"]
            at = names.get((row["client"], row["server"]))
            if at is None:
                of_others = [sum(each) for each in zip(of_others, found)]
                continue
            own += 1
            wanted = fleet.calls[at], fleet.lost_ns[at]
            assert found == wanted, (row["client"], row["server"], found, wanted)
            left.discard(at)
    assert of_others == [sum(fleet.calls[at] for at in left), sum(fleet.lost_ns[at] for at in left)], of_others
    say(f"ok: {what}: {sum(fleet.calls):,} calls, {own:,} pairs by name and {len(left):,} in `other`, every count and sum as in the truth")


def ask(meter, what, path, say):
    """Three times, each for a second less of the same minutes: no answer is shared."""
    begin, end = meter.day
    took = []
    for number in range(3):
        began, before = time.monotonic(), usage(meter)[0]
        meter.get(f"api/v1/{path}from={begin}&to={end - number}")
        took.append((time.monotonic() - began, usage(meter)[0] - before))
    walls = sorted(wall for wall, _ in took)
    say(f"{what}: {walls[1]:.2f} s ({walls[0]:.2f} to {walls[2]:.2f}), CPU {sum(cpu for _, cpu in took) / 3:.2f} s")


def stored(meter, say):
    """What the history has, from its own file."""
    path = meter.folder / "data" / "history.sqlite"
    history = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    minutes = 0
    sums = "SELECT step_s, sum(row_count), sum(stats_bytes), sum(worst_bytes) FROM bucket WHERE unix_s BETWEEN ? AND ? GROUP BY step_s ORDER BY step_s"
    for step_s, rows, stats, worst in history.execute(sums, meter.day):
        minutes = rows if step_s == 60 else minutes
        say(f"rows of {step_s} s: {rows:,}, statistics {stats / rows:.0f} bytes each, worst calls {worst / rows:.0f}")
    history.close()
    size = sum(each.stat().st_size for each in path.parent.glob("history.sqlite*"))
    say(f"history: {size / 1e6:,.0f} MB, {size / max(minutes, 1):.0f} bytes for each of {minutes:,} pair-minutes, coarser rows included")
    return minutes


def through(spangap, broker, work, topic, fleet, options, day, say):
    """One meter reads the day, answers, and is started again."""
    settings = f'brokers = ["{broker.address()}"]\ntopic = "{topic}"\ngroup = "{topic}-{len(options)}"\nstart = "earliest"\n'
    meter = Meter(spangap, work, f"fleet{len(options)}", settings)
    meter.options, meter.day, meter.patience_s = options, day, 120
    say(f"--- one meter, {' '.join(options) or 'default limits'}")
    meter.start()
    began = time.monotonic()
    until("the day is read", lambda: len(meter.partitions()) == PARTITIONS and meter.has_read_all(), 540)
    took = time.monotonic() - began
    cpu, resident, peak = usage(meter)
    say(f"read in {took:.0f} s, CPU {cpu:.1f} s: {cpu / fleet.spans * 1e6:.2f} us a span, start and history included; resident {resident >> 20} MiB, at most {peak >> 20} MiB")
    compare(fleet, meter, "the day", say)
    coverage = meter.get("api/v1/coverage")
    spans = coverage["spans"]
    alone = spans["pending"] + spans["expired_client_only"]
    assert (spans["joined"], alone, spans["expired_server_only"]) == (2 * sum(fleet.calls), fleet.alone, 0), spans
    for note in coverage["notes"]:
        say(f"it says: {note}")
    say(f"calls in `other`, past the limit of pairs: {coverage['calls_in_other']:,}; calls without legs: {coverage['calls_without_legs']:,}")
    for limit in coverage["limits"]:
        if limit["cut"] or limit["forgotten"] or limit["refused"] or limit["used"] >= limit["limit"] * 0.9:
            say(f"limit {limit['name']}: {limit['used']:,} of {limit['limit']:,}; cut {limit['cut']:,}, forgotten {limit['forgotten']:,}, refused {limit['refused']:,}")
    ask(meter, "the table, 50 rows, time lost first", "pairs?top=50&", say)
    ask(meter, "the table by the p99 of the gap", "pairs?top=50&sort=gap_p99&", say)
    ask(meter, "the timeline", "timeline?", say)
    ask(meter, "the worst calls", "worst?", say)
    say(f"resident {usage(meter)[1] >> 20} MiB, at most {usage(meter)[2] >> 20} MiB after these questions")
    return meter


def live(meter, load, fleet, say):
    """The fleet goes on, at its own pace. Nothing is compared any more: a machine that pauses would make the producer late."""
    begun, before, spans, count = time.time(), usage(meter)[0], fleet.spans, per_minute(0)
    for number in range(LIVE_S // 60):
        for due_s, partition, content in fleet.minute(begun + 60 * number, count):
            time.sleep(max(0.0, due_s - time.time()))
            write(load, time.time(), partition, content)
    took, cpu = time.time() - begun, usage(meter)[0] - before
    say(f"{took:.0f} s at the pace of the day, {(fleet.spans - spans) / took:.0f} spans/s: CPU {cpu / took:.3f} s a second, resident {usage(meter)[1] >> 20} MiB")


def again(meter, fleet, say):
    """Stops it and starts it again."""
    began = time.monotonic()
    meter.stop()
    say(f"stopped in {time.monotonic() - began:.1f} s")
    minutes = stored(meter, say)
    began = time.monotonic()
    meter.start()
    ready = time.monotonic() - began
    meter.get(f"api/v1/pairs?from={meter.day[0]}&to={meter.day[1]}&top=50")
    table = time.monotonic() - began
    until("it reads on", lambda: len(meter.partitions()) == PARTITIONS and meter.has_read_all())
    cpu, resident, _ = usage(meter)
    say(f"started again: ready after {ready:.1f} s, the table of the day after {table:.1f} s, all read after {time.monotonic() - began:.1f} s; CPU {cpu:.1f} s, resident {resident >> 20} MiB")
    compare(fleet, meter, "the history", say)
    return minutes


def write(load, unix_s, partition, content):
    load.producer.produce(load.topic, content, partition=partition, timestamp=int(unix_s * 1000))
    load.producer.poll(0)
    load.messages += 1


def day(spangap, broker, create, work, say):
    """The measurement: `scripts/kafka.sh fleet`."""
    begin = (int(time.time()) // 60 - MINUTES - 10) * 60
    create("fleet", PARTITIONS)
    fleet, load = Fleet(seed=1), Load(broker.address(), "fleet", PARTITIONS, seed=1, codec="lz4")
    for minute in range(MINUTES):
        for at_s, partition, content in fleet.minute(begin + 60 * minute, per_minute(minute)):
            while len(load.producer) > 2_000:
                load.producer.poll(0.05)
            write(load, at_s, partition, content)
    for at_s, partition, content in fleet.rest(begin + 60 * MINUTES):
        write(load, at_s, partition, content)
    load.finish()
    say(f"{MINUTES / 60:.0f} h of {SERVICES:,} services with {SERVICES * INSTANCES:,} instances: {fleet.pair_minutes:,} pair-minutes of {sum(map(bool, fleet.calls)):,} pairs, {fleet.spans:,} spans in {load.messages:,} messages")
    ends = (begin, begin + 60 * MINUTES - 1)
    for options in [], ["--max-pairs", "50000", "--history-size", "8GiB"]:
        meter = through(spangap, broker, work, "fleet", fleet, options, ends, say)
        minutes = again(meter, fleet, say)
        # Past a limit, the minutes of several pairs are those of one.
        assert minutes == PAIR_MINUTES if options else minutes <= PAIR_MINUTES, minutes
        if options:
            live(meter, load, fleet, say)
        meter.stop()
