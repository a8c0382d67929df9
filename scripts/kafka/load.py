"""Calls whose truth is known, written to a topic of Kafka."""

import heapq
import random
import threading
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from otlp import CLIENT, SERVER, protobuf


class Load:
    """Writes calls to a topic. `partitions` may grow meanwhile; both halves of a call go to one partition, unless `apart`."""

    def __init__(self, brokers, topic, partitions, seed, encode=protobuf, codec="none", apart=False, security=None):
        settings = {
            "bootstrap.servers": brokers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
            "delivery.timeout.ms": 120000,
            "log_level": 2,
            "topic.metadata.refresh.interval.ms": 1000,
            # Stands in for a callback of its own: without one, errors are logged in spite of the level.
            "error_cb": lambda error: None,
        }
        self.producer = Producer({**settings, **(security or {})})
        self.topic, self.partitions, self.encode, self.apart = topic, partitions, encode, apart
        self.random = random.Random(seed)
        self.truth = {}
        self.calls = self.messages = self.lost = self.poison = 0
        self.late = []
        self.stopping = threading.Event()
        self.thread = None

    def pair(self):
        client = self.random.choice(["web", "cart", "search"])
        server = self.random.choice(["db", "cache"])
        return client, server

    def write(self, partition, content):
        def delivered(error, _):
            if error:
                self.lost += 1

        while True:
            try:
                now = int(time.time() * 1000)
                self.producer.produce(self.topic, content, partition=partition, timestamp=now, on_delivery=delivered)
                break
            except KafkaException as error:
                # A partition that was just added.
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                self.producer.poll(0.2)
        self.messages += 1

    def halves(self):
        """The two halves of a new call, and how it counts."""
        r = self.random
        trace, client_id, server_id = (r.getrandbits(8 * n).to_bytes(n, "big") for n in (16, 8, 8))
        client, server = self.pair()
        server_ns = r.randrange(1_000_000, 20_000_000)
        gap_ns = r.randrange(0, 50_000_000)
        is_negative = r.random() < 0.02
        client_ns = server_ns - 1000 if is_negative else server_ns + gap_ns
        start = time.time_ns() - 100_000_000
        of = lambda kind, id, parent, ns: {"trace": trace, "id": id, "parent": parent, "kind": kind, "start": start, "end": start + ns}
        spans = [
            (client, of(CLIENT, client_id, b"", client_ns)),
            (server, of(SERVER, server_id, client_id, server_ns)),
        ]
        return (client, server), spans, is_negative, gap_ns

    def one(self):
        pair, spans, is_negative, gap_ns = self.halves()
        r = self.random
        self.calls += 1
        count = self.partitions
        partition = r.randrange(count)
        place = [r.randrange(count) if self.apart else partition for _ in spans]
        contents = [self.encode(service, span) for service, span in spans]
        kind = r.random()
        if kind < 0.03:
            # Its mate is never written.
            only = r.randrange(2)
            self.write(place[only], contents[only])
            return
        first = r.randrange(2)
        self.write(place[first], contents[first])
        due = time.monotonic() + r.choice([0, 0, 0.05, 1.0, 3.0])
        heapq.heappush(self.late, (due, self.messages, place[1 - first], contents[1 - first]))
        if kind > 0.95:
            # Written twice, as a producer does that heard no answer.
            heapq.heappush(self.late, (due + 0.5, self.messages, place[first], contents[first]))
        truth = self.truth.setdefault(pair, {"calls": 0, "lost_ns_total": 0, "negative": 0})
        if is_negative:
            truth["negative"] += 1
        else:
            truth["calls"] += 1
            truth["lost_ns_total"] += gap_ns

    def due(self, all_of_them=False):
        while self.late and (all_of_them or self.late[0][0] <= time.monotonic()):
            _, _, partition, content = heapq.heappop(self.late)
            self.write(partition, content)

    def burst(self, calls):
        for _ in range(calls):
            self.one()
        self.finish()

    def start(self, rate):
        def run():
            while not self.stopping.is_set():
                begun = time.monotonic()
                for _ in range(max(1, rate // 20)):
                    self.one()
                if self.random.random() < 0.02:
                    self.poison += 1
                    self.write(self.random.randrange(self.partitions), b"\x0a\xffpoison")
                self.due()
                self.producer.poll(0)
                self.stopping.wait(max(0.0, 0.05 - (time.monotonic() - begun)))

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def finish(self):
        """Writes what is due, and waits until the brokers have all."""
        if self.thread:
            self.stopping.set()
            self.thread.join()
        while self.late and self.thread:
            self.due()
            time.sleep(0.02)
        self.due(all_of_them=True)
        left = self.producer.flush(120)
        if left or self.lost:
            raise SystemExit(f"kafka: the producer lost {self.lost} messages, and {left} were not delivered")
