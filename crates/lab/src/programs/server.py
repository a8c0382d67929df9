"""An HTTP/1.1 server as people write them in Python: a thread for each connection. It leaves a SERVER span for each call, and
tells in a log which calls it kept waiting, why and for how long: by its own clock, around the wait itself.

Paths: /fast takes --think, /slow takes --slow, /stream sends its response in pieces for --slow.
"""

import argparse
import json
import mmap
import os
import random
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--listen", required=True)
parser.add_argument("--spans", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--think", type=float, default=0, help="seconds that /fast takes")
parser.add_argument("--slow", type=float, default=0, help="seconds that /slow takes")
parser.add_argument("--response-bytes", type=int, default=64)
parser.add_argument("--hold", type=float, default=0, help="seconds that housekeeping takes, every --hold-every")
parser.add_argument("--hold-every", type=float, default=0.25)
parser.add_argument("--lock", action="store_true", help="housekeeping and calls take the same lock")
parser.add_argument("--pause", type=float, default=0, help="seconds that every --every-th call takes longer")
parser.add_argument("--write", type=int, default=0, help="bytes that every --every-th call writes to a file")
parser.add_argument("--times", type=int, default=1, help="that it does so")
parser.add_argument("--fsync", action="store_true", help="and syncs, each time")
parser.add_argument("--large", type=int, default=0, help="bytes that every --every-th call gets instead")
parser.add_argument("--map", type=int, default=0, help="bytes of a mapped file, of which every --every-th call reads --pages")
parser.add_argument("--pages", type=int, default=0)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--fail", type=int, default=0, help="every so many-th call fails at its first attempt")
parser.add_argument("--certificate", help="of TLS")
parser.add_argument("--key")
told = parser.parse_args()

PAGE = 4096
mapped = None
if told.map:
    # Of this run's own, so that its pages are charged to this program.
    with open(told.log + ".map", "wb") as made:
        for _ in range(told.map >> 20):
            made.write(os.urandom(1 << 20))
        made.flush()
        os.fsync(made.fileno())
    mapped = mmap.mmap(os.open(told.log + ".map", os.O_RDONLY), 0, prot=mmap.PROT_READ)
    # Once in order, so that whatever there is room for is there; then nothing is read ahead.
    for at in range(0, len(mapped), PAGE):
        mapped[at]
    mapped.madvise(mmap.MADV_RANDOM)

spans, waits, lock, counting = [], [], threading.Lock(), threading.Lock()
count = [0]
data = os.urandom(told.write)
file = os.open(told.log + ".data", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600) if told.write else None


def waited(trace, begun):
    waits.append({"trace_id": trace, "from_unix_ns": begun, "to_unix_ns": time.time_ns()})


def keep_house():
    """What a server does beside its calls: it writes a report, it builds a table anew."""
    while True:
        time.sleep(told.hold_every)
        if told.lock:
            with lock:
                time.sleep(told.hold)
        else:
            time.sleep(told.hold)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        pass

    def do_GET(self):
        started = time.time_ns()
        parts = (self.headers.get("traceparent") or "00-" + "0" * 32 + "-" + "0" * 16 + "-01").split("-")
        trace, parent = parts[1], parts[2]
        path = self.path.split("?")[0]
        with counting:
            count[0] += 1
            number = count[0]
        status = 200
        chosen = number % told.every == 0
        if path == "/slow":
            time.sleep(told.slow)
        elif path == "/fast":
            if told.think:
                time.sleep(told.think)
            if told.pause and chosen:
                time.sleep(told.pause)
            if told.lock:
                begun = time.time_ns()
                with lock:
                    if time.time_ns() - begun > 1_000_000:
                        waited(trace, begun)
            if told.write and chosen:
                self.write(trace)
            if mapped and chosen:
                self.look_up(trace)
            if told.fail and number % told.fail == 0 and "attempt=1" in self.path:
                status = 503
        ended = time.time_ns()
        self.respond(status, path, told.large if told.large and chosen else told.response_bytes)
        # A stream is over when its last piece is written.
        ended = time.time_ns() if path == "/stream" else ended
        spans.append((trace, os.urandom(8).hex(), parent, path, started, ended, status))

    def write(self, trace):
        begun = time.time_ns()
        for number in range(told.times):
            os.pwrite(file, data, number * told.write)
            if told.fsync:
                os.fsync(file)
        waited(trace, begun)

    def look_up(self, trace):
        """Pages of the mapped file: in memory, or read from the disk again. Each that is read is a major fault of this thread; a few
        happen without a limit."""
        begun, faults = time.time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        for _ in range(told.pages):
            mapped[random.randrange(len(mapped) // PAGE) * PAGE]
        if resource.getrusage(resource.RUSAGE_THREAD).ru_majflt >= faults + told.pages // 4:
            waited(trace, begun)

    def respond(self, status, path, size):
        body = b"x" * size
        self.send_response(status)
        if path != "/stream":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        until = time.monotonic() + told.slow
        while time.monotonic() < until:
            time.sleep(0.05)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    context = None

    def finish_request(self, request, client_address):
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        # A client that leaves is no error.
        pass


def document():
    def one(trace, span, parent, path, begun, ended, status):
        return {
            "traceId": trace, "spanId": span, "parentSpanId": parent, "name": "GET " + path, "kind": 2,
            "startTimeUnixNano": str(begun), "endTimeUnixNano": str(ended),
            "attributes": [
                {"key": "http.request.method", "value": {"stringValue": "GET"}},
                {"key": "url.path", "value": {"stringValue": path}},
                {"key": "server.port", "value": {"intValue": told.listen.rsplit(":", 1)[1]}},
                {"key": "http.response.status_code", "value": {"intValue": str(status)}},
            ],
            "status": {"code": 2 if status >= 500 else 0},
        }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "python-server"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [one(*span) for span in spans]}]}]}


def end(*_):
    with open(told.spans, "w") as out:
        json.dump(document(), out)
    with open(told.log, "w") as out:
        for wait in waits:
            out.write(json.dumps(wait) + "\n")
    sys.stdout.flush()
    os._exit(0)


signal.signal(signal.SIGINT, end)
host, port = told.listen.rsplit(":", 1)
server = Server((host, int(port)), Handler)
if told.certificate:
    Server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Server.context.load_cert_chain(told.certificate, told.key)
if told.hold:
    threading.Thread(target=keep_house, daemon=True).start()
threading.Thread(target=server.serve_forever, daemon=True).start()
print("listening on", told.listen, flush=True)
while True:
    signal.pause()
