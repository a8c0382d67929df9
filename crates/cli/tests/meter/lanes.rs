//! `--lanes`: senders at the same time, whose halves of one call meet in any lane; the answers are those of one lane, also after
//! a restart.

use super::client::request;
use super::process::Meter;
use super::spans::{gap_ns, half};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use spangap_meter::report::PairRow;

const SENDERS: u64 = 8;
const REQUESTS: u64 = 40;
/// Calls of a request.
const CALLS: u64 = 25;
const ALL: u64 = SENDERS * REQUESTS * CALLS;

/// Half of the calls of one request.
fn send(meter: &Meter, service: &str, kind: SpanKind, number: u64) {
    let calls = number * CALLS..(number + 1) * CALLS;
    let body = ExportTraceServiceRequest { resource_spans: vec![half(service, kind, calls)] }.encode_to_vec();
    let kind = [("Content-Type", "application/x-protobuf")];
    let answer = request(meter.otlp_http, "POST", "/v1/traces", &kind, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Each sender has the client's halves of some calls and the server's halves of others.
fn send_all(meter: &Meter) {
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    send(meter, "web", SpanKind::Client, sender * REQUESTS + request);
                    send(meter, "cart", SpanKind::Server, (sender + 1) % SENDERS * REQUESTS + request);
                }
            });
        }
    });
}

/// The row of the pair before and after a restart.
fn rows(lanes: &str) -> [PairRow; 2] {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--lanes", lanes, "--data", folder.path().to_str().expect("its name is text")];
    let meter = Meter::start(&arguments);
    send_all(&meter);
    let before = meter.pair("web", "cart", ALL);
    let spans = meter.coverage().spans;
    assert_eq!((spans.received, spans.joined), (2 * ALL, 2 * ALL), "{lanes} lanes: {spans:?}");
    let ended = meter.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let meter = Meter::start(&arguments);
    [before, meter.pair("web", "cart", ALL)]
}

#[test]
fn several_lanes_answer_as_one_does() {
    let [one, again] = rows("1");
    assert_eq!(one.lost_ns_total, (0..ALL).map(gap_ns).sum::<u64>());
    assert_eq!(again.gap, one.gap);
    for lanes in ["2", "8"] {
        for row in rows(lanes) {
            assert_eq!(row.lost_ns_total, one.lost_ns_total, "{lanes} lanes");
            assert_eq!((&row.gap, &row.client_duration), (&one.gap, &one.client_duration), "{lanes} lanes");
            // The worst calls of all lanes are those of one.
            let longest = |row: &PairRow| row.worst.iter().map(|call| call.gap_ns).collect::<Vec<_>>();
            assert_eq!(longest(&row), longest(&one), "{lanes} lanes");
        }
    }
}
