"""Peers unlike any of our stacks: slow readers, small windows, HTTP/1, TLS, and a receiver of spans.

peer.py WHAT ARGUMENTS...; each function says what it does. Servers print `listening` once they are.
Some need grpcio or h2, and say so.
"""

import socket
import ssl
import struct
import sys
import threading
import time


def connected(address, receive_bytes=None):
    """A client's socket; a small receive buffer has to be set before it connects."""
    host, port = address.rsplit(":", 1)
    s = socket.socket()
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.connect((host, int(port)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def listening(address, receive_bytes=None):
    """A server's socket."""
    host, port = address.rsplit(":", 1)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.bind((host, int(port)))
    s.listen(16)
    print("listening", flush=True)
    return s


def varint(number):
    """A protobuf varint."""
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def ping(response_bytes=None, think_ns=None, payload_bytes=0):
    """A PingRequest."""
    out = b""
    if payload_bytes:
        out += b"\x0a" + varint(payload_bytes) + bytes(payload_bytes)
    if response_bytes is not None:
        out += b"\x10" + varint(response_bytes)
    if think_ns is not None:
        out += b"\x18" + varint(think_ns)
    return out


def traceparent(number):
    """A trace context that contains its number."""
    return "00-%032x-%016x-01" % (0xC0FFEE << 64 | number, number)


def grpc_calls(address, calls, in_flight, response_bytes):
    """Python's grpcio (needs it): calls with a trace context, this many in flight."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/spangap.ping.v1.Ping/Ping")
        message = ping(response_bytes=int(response_bytes), think_ns=1_000_000)
        waiting = []
        for number in range(1, int(calls) + 1):
            waiting.append(call.future(message, metadata=[("traceparent", traceparent(number))]))
            if len(waiting) == int(in_flight):
                waiting.pop(0).result()
        for one in waiting:
            one.result()


def grpc_large_beside_small(address):
    """Python's grpcio (needs it): a 3 MB response in progress, and small calls next to it every 10 ms."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/spangap.ping.v1.Ping/Ping")
        call(ping())
        large = call.future(ping(response_bytes=3_000_000), metadata=[("traceparent", traceparent(1))])
        waiting = []
        for number in range(2, 14):
            time.sleep(0.01)
            waiting.append(call.future(ping(), metadata=[("traceparent", traceparent(number))]))
        for one in [large] + waiting:
            one.result()


def http2_windows(address, calls, response_bytes, pause_ms):
    """An HTTP/2 client (needs h2) with windows of 65,535 bytes per response and for all: it refills them only
    when they are used up, and this many milliseconds later."""
    import h2.config, h2.connection, h2.events

    s = connected(address)
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    s.sendall(connection.data_to_send())
    message = ping(response_bytes=int(response_bytes))
    for number in range(1, int(calls) + 1):
        stream = connection.get_next_available_stream_id()
        connection.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/spangap.ping.v1.Ping/Ping"),
                (":authority", address),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("traceparent", traceparent(number)),
            ],
        )
        connection.send_data(stream, struct.pack(">BI", 0, len(message)) + message, end_stream=True)
        s.sendall(connection.data_to_send())
        taken = 0
        ended = False
        while not ended:
            for event in connection.receive_data(s.recv(65536)):
                if isinstance(event, h2.events.DataReceived):
                    taken += event.flow_controlled_length
                ended = ended or isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset))
            if taken == 65535 or ended and taken:
                time.sleep(0 if ended else int(pause_ms) / 1000)
                connection.increment_flow_control_window(taken)
                if not ended:
                    connection.increment_flow_control_window(taken, stream)
                taken = 0
            s.sendall(connection.data_to_send())
    s.close()


def http2_server(address, pause_ms, certificate="", key="", keys=""):
    """A gRPC server (needs h2) with windows of 65,535 bytes per request and for all, refilled when they are used up
    and this many milliseconds later. With a certificate: over TLS, with its keys written to the file."""
    import h2.config, h2.connection, h2.events

    def serve(s):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        s.sendall(connection.data_to_send())
        taken = {}
        while data := s.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    taken[event.stream_id] = taken.get(event.stream_id, 0) + event.flow_controlled_length
                elif isinstance(event, h2.events.StreamEnded):
                    stream = event.stream_id
                    if back := taken.pop(stream, 0):
                        connection.increment_flow_control_window(back)
                    connection.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
                    connection.send_data(stream, bytes(5))
                    connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
            for stream, bytes_taken in list(taken.items()):
                if sum(taken.values()) == 65535:
                    time.sleep(int(pause_ms) / 1000)
                    connection.increment_flow_control_window(bytes_taken)
                    connection.increment_flow_control_window(bytes_taken, stream)
                    del taken[stream]
            s.sendall(connection.data_to_send())

    server = listening(address)
    while True:
        s, _ = server.accept()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if certificate:
            s = tls_context(certificate, key, keys, "TLSv1_3", ["h2"]).wrap_socket(s, server_side=True)
        threading.Thread(target=serve, args=(s,), daemon=True).start()


def tls_context(certificate, key, keys, version, protocols):
    """For a server; the keys of every connection are written to the file `keys`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.keylog_filename = keys
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(protocols)
    return context


def http1_server(address, pause_ms="0", receive_bytes="0", certificate="", key="", keys="", version=""):
    """HTTP/1.1 with keep-alive: a GET of /N gets N bytes, a POST's body is read after this many milliseconds."""
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536

        def answer(self, body):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            time.sleep(0.002)
            self.answer(bytes(int(self.path.strip("/") or 0)))

        def do_POST(self):
            time.sleep(int(pause_ms) / 1000)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(b"taken")

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def server_bind(self):
            if int(receive_bytes):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(receive_bytes))
            super().server_bind()

    host, port = address.rsplit(":", 1)
    server = Server((host, int(port)), Handler)
    if certificate:
        context = tls_context(certificate, key, keys, version, ["http/1.1"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("listening", flush=True)
    server.serve_forever()


def http1_pipeline(address, requests):
    """Sends this many GETs at once, and reads the responses."""
    s = connected(address)
    s.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: here\r\n\r\n" % (n * 10) for n in range(int(requests))))
    s.shutdown(socket.SHUT_WR)
    while s.recv(65536):
        pass


def http1_slow_reader(address, response_bytes, pause_ms):
    """Requests this many bytes three times, and begins to read this many milliseconds later."""
    s = connected(address, receive_bytes=16384)
    for _ in range(3):
        s.sendall(b"GET /%d HTTP/1.1\r\nHost: here\r\n\r\n" % int(response_bytes))
        time.sleep(int(pause_ms) / 1000)
        got = b""
        while b"\r\n\r\n" not in got:
            got += s.recv(4096)
        left = int(response_bytes) - (len(got) - got.index(b"\r\n\r\n") - 4)
        while left:
            left -= len(s.recv(4096))


def spans(address, path):
    """Receives OTLP/gRPC (needs grpcio) and appends each request to a file, after its length in four bytes."""
    from concurrent import futures

    import grpc

    lock = threading.Lock()

    def export(request, _):
        with lock, open(path, "ab") as file:
            file.write(struct.pack(">I", len(request)) + request)
        return b""

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService", {"Export": grpc.unary_unary_rpc_method_handler(export)}
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    if not server.add_insecure_port(address):
        sys.exit("cannot listen on " + address)
    server.start()
    print("listening", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
