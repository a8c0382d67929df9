"""Spans as OTLP, encoded by hand: the tests know nothing of the meter."""

import json
import struct

CLIENT, SERVER = 3, 2


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def protobuf(service, span):
    """An ExportTraceServiceRequest with one span."""
    encoded = field(1, span["trace"]) + field(2, span["id"])
    if span["parent"]:
        encoded += field(4, span["parent"])
    encoded += field(5, b"/shop.Cart/Add") + varint(6 << 3) + varint(span["kind"])
    encoded += fixed64(7, span["start"]) + fixed64(8, span["end"])
    name = field(1, field(1, b"service.name") + field(2, field(1, service.encode())))
    return field(1, field(1, name) + field(2, field(2, encoded)))


def as_json(service, span):
    """The same in OTLP's JSON."""
    one = {
        "traceId": span["trace"].hex(),
        "spanId": span["id"].hex(),
        "parentSpanId": span["parent"].hex(),
        "name": "/shop.Cart/Add",
        "kind": span["kind"],
        "startTimeUnixNano": str(span["start"]),
        "endTimeUnixNano": str(span["end"]),
    }
    name = {"key": "service.name", "value": {"stringValue": service}}
    return json.dumps({"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"spans": [one]}]}]}).encode()
