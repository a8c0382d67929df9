"""Servers that leave requests unanswered, and clients that give up.

silent.py WHAT ARGUMENTS...; each function says what it does. Servers print `listening` once they are.
Some need grpcio or h2, and say so.
"""

import ssl
import struct
import sys
import threading
import time

from peer import connected, listening, ping, tls_context

# Longer than any client here waits.
NEVER_S = 30


def each_connection(address, serve):
    """Accepts connections for ever, each in its own thread."""
    server = listening(address)
    while True:
        s, _ = server.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()


def http1_server(address):
    """HTTP/1.1: GET /never is not answered, /late after 0.6 s, /reset ends with RST and /close with FIN after 0.3 s; any
    other path gets 200 at once."""

    def serve(s):
        received = b""
        while piece := s.recv(65536):
            received += piece
            while b"\r\n\r\n" in received:
                head, received = received.split(b"\r\n\r\n", 1)
                path = head.split()[1]
                if path == b"/never":
                    time.sleep(NEVER_S)
                elif path == b"/late":
                    time.sleep(0.6)
                elif path == b"/reset":
                    time.sleep(0.3)
                    s.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: close() sends RST
                    return s.close()
                elif path == b"/close":
                    time.sleep(0.3)
                    return s.close()
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        s.close()

    each_connection(address, serve)


def http2_server(address):
    """HTTP/2 with prior knowledge (needs h2). By the last part of the path: Never is not answered; Refuse gets RST_STREAM
    REFUSED_STREAM and Away a GOAWAY that leaves it out, both after 0.2 s; Error a response of trailers only; any other
    gRPC's OK at once."""
    import h2.config, h2.connection, h2.errors, h2.events

    def serve(s):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        s.sendall(connection.data_to_send())
        grpc = [(":status", "200"), ("content-type", "application/grpc")]
        while data := s.recv(65536):
            for event in connection.receive_data(data):
                if not isinstance(event, h2.events.RequestReceived):
                    continue
                stream = event.stream_id
                what = dict(event.headers)[b":path"].rsplit(b"/", 1)[-1]
                if what == b"Refuse":
                    time.sleep(0.2)
                    connection.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
                elif what == b"Away":
                    time.sleep(0.2)
                    connection.close_connection(last_stream_id=stream - 2)
                elif what == b"Error":
                    connection.send_headers(stream, grpc + [("grpc-status", "5")], end_stream=True)
                elif what != b"Never":
                    connection.send_headers(stream, grpc)
                    connection.send_data(stream, bytes(5))
                    connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
            s.sendall(connection.data_to_send())

    each_connection(address, serve)


def turns_server(address, certificate="", key=""):
    """Echoes what it reads, unless that begins with `never`. With a certificate: over TLS 1.2, whose application
    data records contain nothing else."""

    def serve(s):
        if certificate:
            s = tls_context(certificate, key, None, "TLSv1_2", ["echo"]).wrap_socket(s, server_side=True)
        while data := s.recv(65536):
            if not data.startswith(b"never"):
                s.sendall(data)

    each_connection(address, serve)


def grpc_deadlines(address):
    """Python's grpcio (needs it): two answered calls, three that end at a deadline of 200 ms, and one without a
    deadline that is cancelled after 100 ms."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        good, never = (channel.unary_unary("/silent.v1.Test/" + name) for name in ("Good", "Never"))
        for _ in range(2):
            good(ping())
        for _ in range(3):
            try:
                never(ping(), timeout=0.2)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        call = never.future(ping())
        time.sleep(0.1)
        call.cancel()


def turns_client(address, tls=""):
    """Two messages that are echoed and one that is not, whose connection is closed after 0.3 s."""
    s = connected(address)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s)
    for message in (b"first message", b"second one"):
        s.sendall(message)
        s.recv(65536)
    s.sendall(b"never comes an answer")
    time.sleep(0.3)
    s.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
