//! Captures that begin in the middle of their connections, as in production: real ones, cut at every packet.

use spangap_model::CallStatus;
use spangap_wire::exchange::{Exchange, TraceContext};
use spangap_wire::segment::Endpoint;
use spangap_wire::source::Capture;
use spangap_wire::tap::Tap;
use std::collections::HashMap;
use std::path::PathBuf;

/// Real stacks, and whether they refer to the name `traceparent` by an index: grpcio writes it out each time, and
/// one capture has no trace contexts at all.
const CAPTURES: [(&str, bool); 5] = [
    ("go-unary", true),
    ("rust-unary", true),
    ("go-to-rust", true),
    ("python-one", false),
    ("deadline-python", false),
];

fn open(name: &str) -> Capture {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"));
    let stored = ["pcapng", "pcapng.zst"].map(|suffix| folder.join(format!("{name}.client.{suffix}")));
    let path = stored.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name}"));
    Capture::open(path).expect("a capture")
}

/// The content of a capture from packet `from` on: exchanges, each with its client, and the tap.
fn exchanges(name: &str, from: u64) -> (Vec<(Endpoint, Exchange)>, Tap) {
    let (mut capture, mut tap) = (open(name), Tap::default());
    while let Some(packet) = capture.next() {
        if packet.number >= from {
            tap.packet(&packet);
        }
    }
    tap.finish();
    let mut all = Vec::new();
    tap.take_exchanges(&mut all);
    let client = |exchange: &Exchange| tap.connection(exchange.connection).expect("it is there").ends[0];
    let found = all.into_iter().map(|exchange| (client(&exchange), exchange)).collect();
    (found, tap)
}

type Identity = (Endpoint, u32);
type Truth = HashMap<Identity, (Option<TraceContext>, Option<String>, CallStatus)>;

fn identity((client, exchange): &(Endpoint, Exchange)) -> Identity {
    (*client, exchange.request.start as u32)
}

#[test]
fn facts_of_a_call_are_true_wherever_the_capture_begins() {
    for (name, indexed) in CAPTURES {
        let (whole, tap) = exchanges(name, 0);
        let truth: Truth = whole
            .iter()
            .map(|one| (identity(one), (one.1.trace, tap.texts().text(one.1.method), one.1.status)))
            .collect();
        let traces: Vec<TraceContext> = whole.iter().filter_map(|one| one.1.trace).collect();
        let packets = {
            let mut capture = open(name);
            std::iter::from_fn(|| capture.next().map(|packet| packet.number)).last().expect("it has packets")
        };
        let (mut by_shape, mut with_trace, mut calls) = (0, 0, 0);
        for from in 1..=packets {
            let (found, tap) = exchanges(name, from);
            for one in &found {
                let (_, exchange) = one;
                calls += 1;
                with_trace += usize::from(exchange.trace.is_some());
                by_shape += usize::from(exchange.by_shape.trace);
                // A trace id belongs to the traffic and, if the call is known, to that call.
                assert!(
                    exchange.trace.is_none_or(|trace| traces.contains(&trace)),
                    "{name} {from}: {exchange:?}"
                );
                let Some((trace, method, status)) = truth.get(&identity(one)) else { continue };
                assert!(exchange.trace.is_none() || exchange.trace == *trace, "{name} {from}: {exchange:?}");
                let said = tap.texts().text(exchange.method);
                assert!(said.is_none() || said == *method, "{name} {from}: {said:?} {exchange:?}");
                let known = exchange.status != CallStatus::UNSET;
                assert!(!known || exchange.status == *status, "{name} {from}: {exchange:?}");
            }
        }
        println!("{name}: {packets} cuts, {calls} calls, {with_trace} with a trace, {by_shape} by shape");
        assert_eq!(by_shape > 0, indexed, "{name}");
    }
}

/// If a capture begins in the middle of a connection with many calls, every trace context present in the bytes is
/// found: tshark shows the same values (under the name `<unknown>`).
#[test]
fn every_literal_trace_context_is_found() {
    for name in ["go-unary", "rust-unary", "python-one", "go-to-rust"] {
        let (whole, _) = exchanges(name, 0);
        let mut capture = open(name);
        let packets =
            std::iter::from_fn(|| capture.next().map(|packet| packet.number)).last().expect("packets");
        let middle = packets / 2;
        let (found, _) = exchanges(name, middle);
        let begun = whole.iter().filter(|one| one.1.request.first.packet >= middle && one.1.trace.is_some());
        let expected: Vec<Identity> = begun.map(identity).collect();
        assert!(expected.len() >= 5, "{name}: {}", expected.len());
        let with =
            |wanted: &Identity| found.iter().any(|one| identity(one) == *wanted && one.1.trace.is_some());
        let missing: Vec<&Identity> = expected.iter().filter(|wanted| !with(wanted)).collect();
        assert!(missing.is_empty(), "{name}: {} of {} not found", missing.len(), expected.len());
    }
}
