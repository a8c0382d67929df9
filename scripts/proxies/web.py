#!/usr/bin/env python3
"""HTTP/1 peers for scripts/proxy_fixtures.sh: `web.py serve ADDRESS PORT`, `web.py call ADDRESS PORT SPEC`.

The server sleeps as the path says (`/sleep/MS`), answers 503 to `/flaky/...` when its port is odd, and sends `/bytes/N`.
It logs each request with its traceparent and id, so that links can be checked without any capture. The client keeps one
connection per worker and logs when each call began and ended.
"""
import http.client
import http.server
import json
import socketserver
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        parts = self.path.strip("/").split("/")
        status, body = 200, b"x" * 40
        if "sleep" in parts:
            time.sleep(int(parts[parts.index("sleep") + 1]) / 1000)
        if "bytes" in parts:
            body = b"y" * int(parts[parts.index("bytes") + 1])
        if "flaky" in parts and self.server.server_address[1] % 2:
            time.sleep(0.02)
            status, body = 503, b""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        ids = self.headers.get("x-call"), self.headers.get("traceparent")
        print(json.dumps({"call": ids[0], "traceparent": ids[1], "port": self.server.server_address[1],
                          "peer": self.client_address[1], "status": status}), flush=True)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(address, port):
    server = Server((address, port), Handler)
    print("ready", flush=True)
    server.serve_forever()


def call(address, port, spec):
    """SPEC: JSON with workers, calls of each, paths in turn, headers (traceparent, request-id or neither)."""
    spec = json.loads(spec)
    lock = threading.Lock()

    def work(worker):
        connection = http.client.HTTPConnection(address, port, timeout=30)
        for n in range(spec["calls"]):
            number = worker * spec["calls"] + n + 1
            path = spec["paths"][number % len(spec["paths"])]
            headers = {}
            if spec["ids"] in ("traceparent", "both"):
                headers["traceparent"] = f"00-{number + 0xabc000:032x}-{number:016x}-01"
            if spec["ids"] in ("request-id", "both"):
                headers["x-request-id"] = f"request-{number}"
            if spec["ids"] != "none":
                headers["x-call"] = str(number)
            body = b"z" * (
                spec.get("request_bytes", 10) + (number if spec.get("sizes") == "distinct" else 0))
            began = time.time_ns()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            with lock:
                print(json.dumps({"call": number, "path": path, "status": answer.status, "began": began,
                                  "took_ns": time.time_ns() - began}), flush=True)
            time.sleep(spec.get("pause_ms", 0) / 1000)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(spec["workers"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if sys.argv[1] == "serve":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    call(sys.argv[2], int(sys.argv[3]), sys.argv[4])
