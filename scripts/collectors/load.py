"""Calls whose truth is known, sent to a Collector as OTLP over HTTP: some spans of many calls in each request, the two of a call in
different requests. Some calls have one span only: their client or server has no instrumentation, or the span was lost."""

import heapq
import http.client
import random
import threading
import time

from otlp import CLIENT, SERVER, protobuf

SPANS_IN_A_REQUEST = 20


class Load:
    def __init__(self, port, seed):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.random = random.Random(seed)
        self.both = self.client_only = self.server_only = self.spans = 0
        self.late, self.batch = [], []
        self.stopping = threading.Event()
        self.failed = None
        self.thread = None

    def one(self):
        r = self.random
        trace, client_id, server_id = (r.getrandbits(8 * n).to_bytes(n, "big") for n in (16, 8, 8))
        start = time.time_ns() - 100_000_000
        of = lambda kind, id, parent, ns: {"trace": trace, "id": id, "parent": parent, "kind": kind, "start": start, "end": start + ns}
        client = protobuf(r.choice(["web", "cart"]), of(CLIENT, client_id, b"", 30_000_000))
        server = protobuf(r.choice(["db", "cache"]), of(SERVER, server_id, client_id, r.randrange(1_000_000, 20_000_000)))
        kind = r.random()
        if kind < 0.06:
            # A database without instrumentation, for two thirds of them.
            self.client_only += 1
            return self.send(client)
        if kind < 0.09:
            self.server_only += 1
            return self.send(server)
        self.both += 1
        halves = [client, server]
        r.shuffle(halves)
        self.send(halves[0])
        heapq.heappush(self.late, (time.monotonic() + r.choice([0.0, 0.1, 0.5, 2.0]), self.spans, halves[1]))

    def send(self, span):
        # A concatenation of requests is one request.
        self.batch.append(span)
        self.spans += 1
        if len(self.batch) >= SPANS_IN_A_REQUEST:
            self.flush()

    def flush(self):
        body, self.batch = b"".join(self.batch), []
        self.connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the Collector answered {answer.status}")

    def due(self):
        while self.late and self.late[0][0] <= time.monotonic():
            self.send(heapq.heappop(self.late)[2])

    def start(self, rate):
        def run():
            try:
                while not self.stopping.is_set():
                    begun = time.monotonic()
                    for _ in range(max(1, rate // 20)):
                        self.one()
                    self.due()
                    self.stopping.wait(max(0.0, 0.05 - (time.monotonic() - begun)))
                while self.late:
                    self.due()
                    self.stopping.wait(0)
                if self.batch:
                    self.flush()
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                self.failed = error

        self.stopping.clear()
        self.thread = threading.Thread(target=run)
        self.thread.start()

    def finish(self):
        self.stopping.set()
        self.thread.join()
        if self.failed:
            raise SystemExit(f"collectors: the load ended: {self.failed}")
