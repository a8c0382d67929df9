//! OTLP over HTTP, byte for byte.

use super::client::{Answer, request};
use super::process::Meter;
use super::spans::{calls, gap_ns, three_of_four_malformed};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const PATH: &str = "/v1/traces";

fn compressed(body: Vec<u8>, encoding: Option<&str>) -> Vec<u8> {
    match encoding {
        None => body,
        Some("gzip") => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&body).expect("memory");
            encoder.finish().expect("memory")
        }
        Some("zstd") => zstd::encode_all(&*body, 3).expect("memory"),
        Some(other) => panic!("no {other}"),
    }
}

fn encoded(message: &ExportTraceServiceRequest, kind: &str) -> Vec<u8> {
    match kind {
        JSON => serde_json::to_vec(message).expect("it can be written as JSON"),
        _ => message.encode_to_vec(),
    }
}

fn post(address: SocketAddr, kind: &str, encoding: Option<&str>, body: &[u8]) -> Answer {
    let mut headers = vec![("Content-Type", kind)];
    headers.extend(encoding.map(|encoding| ("Content-Encoding", encoding)));
    request(address, "POST", PATH, &headers, body)
}

/// The `google.rpc.Status` of an error, which must have the encoding of the request.
fn status(answer: &Answer, kind: &str) -> (i32, String) {
    assert_eq!(answer.header("content-type"), Some(kind), "{answer:?}");
    if kind == JSON {
        let body: Value = answer.json();
        let code = body["code"].as_i64().expect("a code") as i32;
        return (code, body["message"].as_str().expect("a message").to_owned());
    }
    let status = tonic_types::Status::decode(&*answer.body).expect("a google.rpc.Status");
    (status.code, status.message)
}

#[test]
fn both_formats_in_every_compression_on_either_port() {
    let meter = Meter::start(&[]);
    let mut sent = 0;
    for kind in [PROTOBUF, JSON, "application/json; charset=utf-8"] {
        for encoding in [None, Some("gzip"), Some("zstd")] {
            for address in [meter.otlp_http, meter.otlp_grpc] {
                let essence = kind.split(';').next().expect("its start");
                let message = calls("web", "cart", sent..sent + 50);
                let body = compressed(encoded(&message, essence), encoding);
                let answer = post(address, kind, encoding, &body);
                assert_eq!(answer.status, 200, "{kind} {encoding:?}: {answer:?}");
                assert_eq!(answer.header("content-type"), Some(essence));
                let expected: &[u8] = if essence == JSON { b"{}" } else { b"" };
                assert_eq!(answer.body, expected, "{kind} {encoding:?}");
                sent += 50;
            }
        }
    }
    let row = meter.pair("web", "cart", sent);
    assert_eq!(row.lost_ns_total, (0..sent).map(gap_ns).sum::<u64>());
    assert_eq!(meter.coverage().spans.joined, 2 * sent);
}

#[test]
fn malformed_spans_are_a_partial_success() {
    let meter = Meter::start(&[]);
    let message = three_of_four_malformed();
    let answer = post(meter.otlp_http, PROTOBUF, None, &encoded(&message, PROTOBUF));
    let partial = ExportTraceServiceResponse::decode(&*answer.body).expect("a response").partial_success;
    let partial = partial.expect("a partial success");
    assert_eq!((answer.status, partial.rejected_spans), (200, 3));
    assert!(partial.error_message.contains("3 of 4 spans rejected"), "{}", partial.error_message);

    let answer = post(meter.otlp_http, JSON, None, &encoded(&message, JSON));
    let body: Value = answer.json();
    // In protobuf's JSON mapping, 64-bit integers are strings.
    assert_eq!((answer.status, &body["partialSuccess"]["rejectedSpans"]), (200, &json!("3")));
    assert_eq!(body["partialSuccess"]["errorMessage"], json!(partial.error_message));
}

#[test]
fn errors_are_a_status_in_the_encoding_of_the_request() {
    let meter = Meter::start(&["--max-request-bytes", "32KiB"]);
    let large = calls("web", "cart", 0..1000);
    for kind in [PROTOBUF, JSON] {
        let headers = [("Content-Type", kind)];
        let answer = request(meter.otlp_http, "GET", PATH, &headers, b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
        assert!(status(&answer, kind).1.contains("expected POST"));

        let answer = request(meter.otlp_http, "POST", "/v1/metrics", &headers, b"");
        assert_eq!(answer.status, 404);
        assert!(status(&answer, kind).1.contains("/v1/metrics is not served here: expected /v1/traces"));

        let answer = post(meter.otlp_http, kind, Some("br"), b"");
        assert_eq!(answer.status, 415);
        assert!(status(&answer, kind).1.contains("\"br\""), "{answer:?}");

        let answer = post(meter.otlp_http, kind, Some("gzip"), b"not gzip at all");
        let (code, message) = status(&answer, kind);
        assert_eq!((answer.status, code), (400, 3));
        assert!(message.contains("not gzip data"), "{message}");

        for encoding in [None, Some("gzip"), Some("zstd")] {
            // Declared too large, or too large only after decompression.
            let answer = post(meter.otlp_http, kind, encoding, &compressed(encoded(&large, kind), encoding));
            let (code, message) = status(&answer, kind);
            assert_eq!((answer.status, code), (413, 8), "{kind} {encoding:?}: {message}");
            assert!(message.contains("limit 32768"), "{message}");
        }
    }

    let answer = post(meter.otlp_http, "text/plain", None, b"hello");
    assert_eq!(answer.status, 415);
    let (code, message) = status(&answer, PROTOBUF);
    assert!(code == 12 && message.contains("\"text/plain\"") && message.contains(JSON), "{message}");

    // The answer to garbage names the place at which it becomes invalid.
    let answer = post(meter.otlp_http, PROTOBUF, None, b"\x0a\x03\xff\xff\xff");
    let (code, message) = status(&answer, PROTOBUF);
    assert_eq!((answer.status, code), (400, 3), "{message}");
    assert!(message.contains(" at byte "), "{message}");
    let garbage = b"{\"resourceSpans\": [\n {\"scopeSpans\": 7}]}";
    let answer = post(meter.otlp_http, JSON, None, garbage);
    let (code, message) = status(&answer, JSON);
    assert_eq!((answer.status, code), (400, 3), "{message}");
    assert!(message.contains(" at line 2 column "), "{message}");

    let coverage = meter.coverage();
    assert_eq!(coverage.spans.received, 0);
    // Requests with another path or method do not reach the receiver.
    assert_eq!(coverage.invalid_requests, 2 * 5 + 3);
}

/// A sender that is refused while it is still writing must be able to read the reason.
#[test]
fn a_body_far_over_the_limit_is_answered() {
    let meter = Meter::start(&["--max-request-bytes", "32KiB"]);
    let body = vec![0; 8 << 20];
    let answer = post(meter.otlp_http, PROTOBUF, None, &body);
    assert_eq!(answer.status, 413);
}
