"""What a call waits for before its connection carries it: a name, a TLS handshake, a connection of a pool. Clients write
their spans as OTLP JSON; a span's `truth_ns` is how long its call waited by the client's own clock."""

import http.server
import json
import os
import queue
import socket
import ssl
import struct
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # A response is one write.
    disable_nagle_algorithm = True

    def do_GET(self):
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def server(address, certificate=None, key=None, keys=None):
    """HTTP/1.1; a GET of /MS is answered after that many milliseconds."""
    host, port = address.split(":")
    serving = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.keylog_filename = keys
        serving.socket = context.wrap_socket(serving.socket, server_side=True, do_handshake_on_connect=False)
    print("listening on", address, flush=True)
    serving.serve_forever()


def names(address, answer, delay_ms):
    """A name server: IPv4 addresses after a delay, for every third name only when asked again."""
    asked = set()
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, 53))
    print("listening on", address, flush=True)
    while True:
        query, peer = bound.recvfrom(512)
        end = query.index(b"\0", 12)
        name, kind = query[13 : 13 + query[12]], struct.unpack("!H", query[end + 1 : end + 3])[0]
        if int(name[4:]) % 3 == 0 and name not in asked:
            asked.add(name)
            continue
        has = kind == 1
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(has), 0, 0) + query[12 : end + 5]
        record = struct.pack("!HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(answer)
        threading.Timer(int(delay_ms) / 1000, bound.sendto, (head + (record if has else b""), peer)).start()


class Connection:
    def __init__(self, address, tls):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.handshake_ns = 0
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if tls == "1.2":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            begun = time.time_ns()
            self.socket = context.wrap_socket(self.socket)
            self.handshake_ns = time.time_ns() - begun

    def get(self, trace, span, ms, padding=0):
        head = f"GET /{ms} HTTP/1.1\r\nhost: there\r\ntraceparent: 00-{trace}-{span}-01\r\n"
        head += f"x-padding: {'x' * padding}\r\n\r\n"
        self.socket.sendall(head.encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            answer += self.socket.recv(4096)


spans = []


def call(number, opened, ms, give_back=lambda _: None, padding=0):
    """A call on the connection that `opened` returns, together with the measured wait."""
    trace, span = f"{number + 1:032x}", f"{number + 1:016x}"
    begun = time.time_ns()
    connection, truth_ns = opened()
    connection.get(trace, span, ms, padding)
    ended = time.time_ns()
    give_back(connection)
    truth = {"key": "truth_ns", "value": {"intValue": str(truth_ns)}}
    spans.append(
        {"traceId": trace, "spanId": span, "name": "GET", "kind": 3, "attributes": [truth]}
        | {"startTimeUnixNano": str(begun), "endTimeUnixNano": str(ended)}
    )


def threads(work, many):
    all_of_them = [threading.Thread(target=work, args=(number,)) for number in range(many)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()


def client(what, address, path):
    host, port = address.split(":")
    there = (host, int(port))
    if what in ("tls", "tls12"):  # Each call opens a connection.
        version = "1.2" if what == "tls12" else True
        for number in range(8):
            opened = lambda: (lambda made: (made, made.handshake_ns))(Connection(there, version))
            call(number, opened, 5, lambda made: made.socket.close())
    elif what == "tls-near":  # The connections are open before the calls.
        for number in range(8):
            made = Connection(there, True)
            time.sleep(0.002)
            call(number, lambda made=made: (made, 0), 5, lambda made: made.socket.close())
    elif what in ("dns", "dns-near"):  # Each call looks a name up, or it was looked up before.
        for number in range(9):

            def look_up(number=number):
                begun = time.time_ns()
                found = socket.getaddrinfo(f"name{number}.test", there[1], socket.AF_INET)[0][4]
                return found, time.time_ns() - begun

            before = look_up() if what == "dns-near" else None

            def opened():
                found, took_ns = before or look_up()
                return Connection(found, False), 0 if before else took_ns

            call(number, opened, 5, lambda made: made.socket.close())
    elif what == "pool":  # Six threads share two connections.
        pool = queue.Queue()
        for _ in range(2):
            pool.put(Connection(there, False))

        def opened():
            begun = time.time_ns()
            return pool.get(), time.time_ns() - begun

        threads(lambda number: [call(number * 4 + nth, opened, 20, pool.put) for nth in range(4)], 6)
    elif what == "pool-near":  # Six threads, each with a connection of its own, call again and again.
        def work(number):
            own = Connection(there, False)
            for nth in range(4):
                call(number * 4 + nth, lambda: (own, 0), 20)

        threads(work, 6)
    elif what == "large":  # Small requests, and one in the middle of several segments.
        made = Connection(there, False)
        for number in range(5):
            call(number, lambda: (made, 0), 1, padding=3000 if number == 2 else 0)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, file)


if __name__ == "__main__":
    {"server": server, "names": names, "client": client}[sys.argv[1]](*sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)
