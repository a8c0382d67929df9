"""The real Collector's kafka exporter before a meter, and what a span costs by way of Kafka and by OTLP."""

import http.client
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from load import Load
from otlp import CLIENT, SERVER, field, fixed64, protobuf, varint
from stage import Meter, free_ports, until

PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Collector:
    """Takes OTLP over HTTP, and writes to a topic, as deploy/collector/to-kafka.yaml has it."""

    def __init__(self, program, work, broker, topic, encoding):
        grpc, self.http, metrics = free_ports(3)
        more = [f"receivers::otlp::protocols::grpc::endpoint: 127.0.0.1:{grpc}", f"receivers::otlp::protocols::http::endpoint: 127.0.0.1:{self.http}"]
        more.append("service::telemetry::metrics::level: none")
        command = [program, "--config", "deploy/collector/to-kafka.yaml", *(word for each in more for word in ("--config", f"yaml:{each}"))]
        env = {**os.environ, "BROKERS": broker.address(), "TOPIC": topic, "ENCODING": encoding}
        self.log = Path(work) / f"collector-{topic}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
        until("the Collector", self.is_ready)

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"kafka: the Collector ended:\n{self.log.read_text()[-3000:]}")
        socket.create_connection(("127.0.0.1", self.http), 1).close()
        return True

    def send(self, request):
        post = urllib.request.Request(f"http://127.0.0.1:{self.http}/v1/traces", request, PROTOBUF)
        with urllib.request.urlopen(post, timeout=60) as answer:
            assert answer.status == 200

    def stop(self):
        """It has to end by itself, with all that it holds sent."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        assert status == 0, self.log.read_text()[-3000:]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def calls(load, count):
    """Requests with the halves of calls, in any order, and the truth. Requests in OTLP can be concatenated."""
    halves, truth = [], {}
    for _ in range(count):
        pair, spans, is_negative, gap_ns = load.halves()
        halves += [protobuf(service, span) for service, span in spans]
        counts = truth.setdefault(pair, {"calls": 0, "lost_ns_total": 0, "negative": 0})
        if is_negative:
            counts["negative"] += 1
        else:
            counts["calls"] += 1
            counts["lost_ns_total"] += gap_ns
    load.random.shuffle(halves)
    return [b"".join(halves[at : at + 100]) for at in range(0, len(halves), 100)], truth


def through_collector(program, spangap, broker, work, create, settings, total, compare):
    for encoding in ("otlp_proto", "otlp_json"):
        topic = f"collector_{encoding}"
        create(topic, 4)
        more = "" if encoding == "otlp_proto" else f'encoding = "{encoding}"\n'
        meter = Meter(spangap, work, topic, settings(broker.address(), topic, "collector", more)).start()
        until("all partitions", lambda: len(meter.partitions()) == 4)
        collector = Collector(program, work, broker, topic, encoding)
        try:
            requests, truth = calls(Load(broker.address(), topic, 4, seed=11), 5000)
            for request in requests:
                collector.send(request)
            collector.stop()
        finally:
            collector.kill()
        until("all calls", lambda: meter.has_read_all() and total([meter]) == truth)
        compare(f"the Collector's exporter, {encoding}, partitioned by trace id", total([meter]), truth)
        # The coverage follows the history by a moment.
        until("the coverage", lambda: sum(each["joined"] for each in meter.kafka()["partitions"]) == 10_000)
        kafka = meter.kafka()
        assert kafka["mates_apart"] == 0 < kafka["mates_together"] and kafka["undecoded"] == 0, kafka
        meter.stop()


def text(key, value):
    return field(9, field(1, key.encode()) + field(2, field(1, value.encode())))


ATTRIBUTES = b"".join(
    text(*pair)
    for pair in [
        ("rpc.system", "grpc"),
        ("rpc.service", "shop.cart.v1.Cart"),
        ("rpc.method", "AddItem"),
        ("server.address", "cart.shop.svc.cluster.local"),
        ("network.peer.address", "10.16.0.7"),
        ("network.transport", "tcp"),
        ("network.type", "ipv4"),
        ("user_agent.original", "grpc-go/1.78.0"),
    ]
)


def encoded(kind, trace, id, parent, start, end):
    span = field(1, trace) + field(2, id) + (field(4, parent) if parent else b"") + field(5, b"shop.cart.v1.Cart/AddItem")
    return field(2, span + varint(6 << 3) + varint(kind) + fixed64(7, start) + fixed64(8, end) + ATTRIBUTES)


def of(service, spans):
    name = field(1, field(1, b"service.name") + field(2, field(1, service)))
    return field(1, field(1, name) + field(2, b"".join(spans)))


def requests(calls_each, count, seed):
    """As many requests, each with both halves of some calls."""
    r, now = random.Random(seed), time.time_ns()
    made = []
    for _ in range(count):
        client, server = [], []
        for _ in range(calls_each):
            trace, client_id, server_id = (r.getrandbits(8 * n).to_bytes(n, "big") for n in (16, 8, 8))
            client.append(encoded(CLIENT, trace, client_id, b"", now, now + 5_000_000 + r.randrange(2_000_000)))
            server.append(encoded(SERVER, trace, server_id, client_id, now, now + 4_000_000))
        made.append(of(b"web", client) + of(b"cart", server))
    return made


def cpu_s(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(spangap, broker, work, create, settings, say):
    """CPU time of a span, by way of Kafka and over OTLP/HTTP: the same requests, one after the other."""
    for calls_each, count in [(256, 800), (4, 25_600)]:
        size = 2 * calls_each
        made = requests(calls_each, count, seed=size)
        spans = size * count
        topic = f"rate{size}"
        create(topic, 1)
        load = Load(broker.address(), topic, 1, seed=1)
        for request in made:
            load.write(0, request)
            load.producer.poll(0)
        load.finish()
        meter = Meter(spangap, work, topic, settings(broker.address(), topic, topic)).start()
        began = time.monotonic()
        until("all is read", lambda: meter.partitions() == {0} and meter.has_read_all(), 300)
        took, used = time.monotonic() - began, cpu_s(meter.process)
        joined = sum(row["calls"] for row in meter.pairs())
        assert joined == spans / 2, joined
        meter.stop()
        meter.start(kafka=False)
        before = cpu_s(meter.process)
        port = int(Path(meter.folder / "out").read_text().split("otlp/http ")[1].split()[0].rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for request in made:
            connection.request("POST", "/v1/traces", request, PROTOBUF)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
        over_http = cpu_s(meter.process) - before
        meter.stop()
        say(
            f"{spans} spans, {size} a message of {len(made[0])} bytes: {used / spans * 1e6:.2f} us of CPU a span from Kafka, start and end "
            f"included ({spans / used / 1e6:.2f} M spans/s and core; {spans / took / 1e6:.2f} M/s by the clock), {over_http / spans * 1e6:.2f} us over OTLP/HTTP"
        )
