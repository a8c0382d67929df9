"""An HTTP/1.1 client as people write them in Python: threads that share a pool of connections. Calls begin at a rate, whatever
becomes of those before. It leaves a CLIENT span for each call, and tells in a log which calls waited, for what and for how
long: by its own clock, around the wait itself.
"""

import argparse
import http.client
import json
import os
import queue
import random
import socket
import ssl
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--target", required=True)
parser.add_argument("--spans", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--warmup", type=float, default=1)
parser.add_argument("--duration", type=float, required=True)
parser.add_argument("--threads", type=int, default=48)
parser.add_argument("--pool", type=int, default=0, help="connections that the threads share; 0: one for each")
parser.add_argument("--reconnect", type=int, default=0, help="a connection is left after so many calls; 0: never")
parser.add_argument("--name", help="of the server, looked up for each connection")
parser.add_argument("--tls", action="store_true")
parser.add_argument("--slow-every", type=int, default=0, help="every so many-th call goes to /slow")
parser.add_argument("--streams", type=int, default=0, help="long responses under way at any time, beside the calls")
parser.add_argument("--attempts", type=int, default=1)
parser.add_argument("--back-off", type=float, default=0, help="seconds before another attempt")
parser.add_argument("--timeout", type=float, default=0, help="seconds after which an attempt is given up, and its connection with it")
parser.add_argument("--seed", type=int, default=1)
told = parser.parse_args()

host, port = told.target.rsplit(":", 1)
context = ssl._create_unverified_context() if told.tls else None
spans, waits = [], []
random.seed(told.seed)


def waited(what, trace, begun, ended):
    waits.append({"what": what, "trace_id": trace, "from_unix_ns": begun, "to_unix_ns": ended})


class Connection(http.client.HTTPConnection):
    """Tells what it took to connect."""

    def connect_for(self, trace):
        address = host
        if told.name:
            begun = time.time_ns()
            address = socket.getaddrinfo(told.name, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
            waited("dns", trace, begun, time.time_ns())
        begun = time.time_ns()
        self.sock = socket.create_connection((address, int(port)))
        self.sock.settimeout(told.timeout or None)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.sock = context.wrap_socket(self.sock)
            waited("tls", trace, begun, time.time_ns())


class Slot:
    """A place for a connection."""

    def __init__(self):
        self.connection, self.calls = None, 0

    def call(self, path, trace, span):
        if self.connection is None:
            self.connection, self.calls = Connection(host, int(port)), 0
            self.connection.connect_for(trace)
        self.calls += 1
        try:
            self.connection.request("GET", path, headers={"traceparent": "00-%s-%s-01" % (trace, span)})
            response = self.connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection, status = None, 599
        if self.connection is not None and told.reconnect and self.calls >= told.reconnect:
            self.connection.close()
            self.connection = None
        return status


pool = queue.LifoQueue()
for _ in range(told.pool or told.threads):
    pool.put(Slot())


def call(path):
    trace, span, begun = os.urandom(16).hex(), os.urandom(8).hex(), time.time_ns()
    slot = pool.get()
    got = time.time_ns()
    if got - begun > 500_000:
        waited("pool", trace, begun, got)
    try:
        first = time.time_ns()
        for attempt in range(1, told.attempts + 1):
            status = slot.call("%s?attempt=%d" % (path, attempt) if told.attempts > 1 else path, trace, span)
            if status < 500 or attempt == told.attempts:
                break
            time.sleep(told.back_off)
            waited("retry", trace, first, time.time_ns())
            first = time.time_ns()
    finally:
        pool.put(slot)
    spans.append((trace, span, path, begun, time.time_ns(), status))


def stream(until):
    slot = Slot()
    while time.time() < until:
        trace, span, begun = os.urandom(16).hex(), os.urandom(8).hex(), time.time_ns()
        status = slot.call("/stream", trace, span)
        spans.append((trace, span, "/stream", begun, time.time_ns(), status))


def document():
    def one(trace, span, path, begun, ended, status):
        return {
            "traceId": trace, "spanId": span, "name": "GET " + path, "kind": 3,
            "startTimeUnixNano": str(begun), "endTimeUnixNano": str(ended),
            "attributes": [
                {"key": "http.request.method", "value": {"stringValue": "GET"}},
                {"key": "url.path", "value": {"stringValue": path}},
                {"key": "server.address", "value": {"stringValue": host}},
                {"key": "server.port", "value": {"intValue": port}},
                {"key": "http.response.status_code", "value": {"intValue": str(status)}},
            ],
            "status": {"code": 2 if status >= 500 else 0},
        }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "python-client"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [one(*span) for span in spans]}]}]}


due = queue.SimpleQueue()


def work():
    while True:
        path = due.get()
        if path is None:
            return
        call(path)


begun = time.time()
end = begun + told.warmup + told.duration
workers = [threading.Thread(target=work, daemon=True) for _ in range(told.threads)]
workers += [threading.Thread(target=stream, args=(end,), daemon=True) for _ in range(told.streams)]
for worker in workers:
    worker.start()
print("calling", file=sys.stderr, flush=True)
number, at = 0, time.monotonic()
while time.time() < end:
    number += 1
    due.put("/slow" if told.slow_every and number % told.slow_every == 0 else "/fast")
    # As calls of many users come: apart by chance.
    at += random.expovariate(told.rate)
    time.sleep(max(0.0, at - time.monotonic()))
for _ in range(told.threads):
    due.put(None)
for worker in workers:
    worker.join(timeout=15)
with open(told.spans, "w") as out:
    json.dump(document(), out)
with open(told.log, "w") as out:
    for wait in waits:
        out.write(json.dumps(wait) + "\n")
print(json.dumps({"runs": [{
    "stack": "python", "library": "http.client", "target_stack": "python", "target_library": "http.server",
    "start_unix_ns": int((begun + told.warmup) * 1e9), "calls": len(spans),
}]}))
