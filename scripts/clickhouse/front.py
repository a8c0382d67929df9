#!/usr/bin/env python3
"""A small HTTP front before ClickHouse's engine in this process, as far as `spangap meter --clickhouse` uses the interface.

front.py FOLDER PORT: tables live in FOLDER. PORT 0 takes a free one; the address is printed once it answers.
One request at a time. With PASSWORD in the environment, requests need it. GET /test?lose=N makes the front execute the
Nth insertion from now and end its connection without an answer.
"""
import http.server
import os
import sys
import tempfile
import urllib.parse

from chdb import session

folder, port = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)
engine = session.Session(folder)
engine.query("SET max_query_size = 67108864")
password = os.environ.get("PASSWORD")
lose = 0


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("Content-Length", str(len(body)))
        # Whoever keeps a connection would keep everybody else from the only thread.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def asked(self):
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))

    def do_GET(self):
        global lose
        lose = int(self.asked().get("lose", 0))
        self.answer(200, b"Ok.\n")

    def body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_POST(self):
        global lose
        asked, body = self.asked(), self.body()
        if password and self.headers.get("X-ClickHouse-Key") != password:
            return self.answer(403, b"Code: 516. DB::Exception: Authentication failed.\n", "516")
        try:
            database = asked.get("database", "default")
            engine.query(f"CREATE DATABASE IF NOT EXISTS {database}")
            engine.query(f"USE {database}")
            if "query" in asked:
                # The engine reads the rows of an insertion from a file.
                statement, _, form = asked["query"].rpartition(" FORMAT ")
                with tempfile.NamedTemporaryFile() as rows:
                    rows.write(body)
                    rows.flush()
                    engine.query(f"{statement} FROM INFILE '{rows.name}' FORMAT {form}")
                lose -= 1
                if lose == 0:
                    self.close_connection = True
                    return None
                return self.answer(200, b"")
            found = engine.query(body.decode(), asked.get("default_format", "TabSeparated"))
            return self.answer(200, bytes(found.bytes() or b""))
        except Exception as error:  # whatever the engine refuses
            text = str(error)
            code = text.partition("Code: ")[2].partition(".")[0]
            return self.answer(404 if code in ("60", "81") else 500, text.encode(), code or "1002")


server = http.server.HTTPServer(("127.0.0.1", port), Front)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
