//! Span files: the same traces in every format yield the same facts.

mod damage;
mod streaming;
mod times;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span, TracesData};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::ingest::delivery::{FileReport, SKIPPED_KEPT};
use spangap_meter::ingest::file::{Input, ReadError, read, read_from};
use spangap_meter::ingest::otlp_json;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Trace id, span id, parent, kind, start, end, service.
type Fact = (String, String, String, i32, u64, u64, String);

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/spans").join(name)
}

fn content(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("fixture {name}: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn service(spans: &ResourceSpans) -> String {
    let attributes = spans.resource.iter().flat_map(|resource| &resource.attributes);
    let name = attributes.filter(|a| a.key == "service.name").find_map(|a| a.value.clone()?.value);
    match name {
        Some(Value::StringValue(name)) => name,
        _ => String::new(),
    }
}

fn fact(span: &Span, service: &str) -> Fact {
    (
        hex(&span.trace_id),
        hex(&span.span_id),
        hex(&span.parent_span_id),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        service.to_owned(),
    )
}

fn facts(requests: &[TracesData]) -> BTreeSet<Fact> {
    let all = requests.iter().flat_map(|request| &request.resource_spans);
    let spans = all
        .flat_map(|r| r.scope_spans.iter().flat_map(|s| &s.spans).map(move |span| fact(span, &service(r))));
    spans.collect()
}

fn read_all<'a>(reader: Box<dyn Read + 'a>) -> (Vec<TracesData>, Result<FileReport, ReadError>) {
    let mut requests = Vec::new();
    let mut sink = |request: &[u8]| {
        let request = TracesData::decode(request).expect("readers hand over well-formed requests");
        let spans =
            request.resource_spans.iter().flat_map(|r| &r.scope_spans).map(|s| s.spans.len() as u64).sum();
        requests.push(request);
        Ok(spans)
    };
    let report = read_from("input".into(), reader, None, &mut sink, &mut |_| ControlFlow::Continue(()));
    (requests, report)
}

fn read_bytes(bytes: &[u8]) -> (Vec<TracesData>, Result<FileReport, ReadError>) {
    read_all(Box::new(bytes))
}

/// Reads without skipping anything.
fn read_well(bytes: &[u8]) -> (BTreeSet<Fact>, FileReport) {
    let (requests, report) = read_bytes(bytes);
    let report = report.expect("readable");
    assert_eq!(report.skipped, []);
    let facts = facts(&requests);
    assert_eq!(report.spans, facts.len() as u64);
    (facts, report)
}

fn with_length(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn lines() -> Vec<Vec<u8>> {
    let text = content("otlp.jsonl");
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.len() > 1);
    lines.map(<[u8]>::to_vec).collect()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 0).expect("zstd in memory")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("gzip in memory");
    encoder.finish().expect("gzip in memory")
}

/// The fixtures derived from others, generated again.
fn derived() -> Vec<(&'static str, Vec<u8>)> {
    let protobuf = |json: &[u8]| otlp_json::to_protobuf(json).expect("the fixture is well-formed");
    let each =
        |make: &dyn Fn(&[u8]) -> Vec<u8>| lines().iter().flat_map(|line| make(line)).collect::<Vec<u8>>();
    vec![
        ("otlp.pb", protobuf(&content("otlp.json"))),
        ("otlp-lengths.pb", each(&|line| with_length(&protobuf(line)))),
        ("otlp-lengths-zstd.pb", each(&|line| with_length(&zstd(&protobuf(line))))),
        ("otlp-lengths-zstd-json", each(&|line| with_length(&zstd(line.trim_ascii())))),
        ("otlp.jsonl.gz", each(&|line| gzip(line))),
        ("otlp.jsonl.zst", each(&|line| zstd(line))),
    ]
}

#[test]
fn derived_fixtures_are_what_they_claim() {
    for (name, made) in derived() {
        if std::env::var_os("SPANGAP_WRITE_FIXTURES").is_some() {
            std::fs::write(fixture(name), &made).expect("fixture is written");
        }
        // Compressors may change their output, but its content must not change.
        assert_eq!(read_well(&content(name)).0, read_well(&made).0, "{name}");
    }
}

#[test]
fn every_format_yields_the_same_facts() {
    let (expected, report) = read_well(&content("otlp.json"));
    assert_eq!((expected.len(), report.format.as_str()), (11, "OTLP JSON"));
    let formats = [
        ("otlp.jsonl", "OTLP JSON"),
        ("otlp.pb", "OTLP protobuf"),
        ("otlp-lengths.pb", "OTLP protobuf with lengths"),
        ("otlp-lengths-zstd.pb", "OTLP protobuf with lengths"),
        ("otlp-lengths-zstd-json", "OTLP protobuf with lengths"),
        ("otlp.jsonl.gz", "OTLP JSON, gzip"),
        ("otlp.jsonl.zst", "OTLP JSON, zstd"),
        ("jaeger.json", "Jaeger JSON"),
        ("zipkin.json", "Zipkin JSON v2"),
    ];
    for (name, format) in formats {
        let (facts, report) = read_well(&content(name));
        assert_eq!(facts, expected, "{name}");
        assert_eq!(report.format, format, "{name}");
        // Every format may also be compressed as a whole.
        if !format.contains(", ") {
            for (compressed, how) in [(gzip(&content(name)), "gzip"), (zstd(&content(name)), "zstd")] {
                let (facts, report) = read_well(&compressed);
                assert_eq!((facts, report.format), (expected.clone(), format!("{format}, {how}")), "{name}");
            }
        }
    }
}

#[test]
fn an_invalid_resource_does_not_lose_its_spans() {
    let text = r#"{"resourceSpans":[{"resource":7,"scopeSpans":[{"scope":[],"spans":[{"traceId":"01","spanId":"02"}]}]}]}"#;
    let (requests, report) = read_bytes(text.as_bytes());
    let report = report.expect("readable");
    assert_eq!(
        (facts(&requests).len(), report.skipped_places, report.skipped_spans),
        (1, 2, 0),
        "{report:?}"
    );
    assert!(report.skipped[0].reason.contains("expected a Resource"), "{report:?}");
}

#[test]
fn halves_that_share_an_id_become_two_spans() {
    let (expected, _) = read_well(&content("zipkin.json"));
    let (facts, _) = read_well(&content("zipkin-shared-ids.json"));
    const SERVER: i32 = 2;
    let ids =
        |facts: &BTreeSet<Fact>| facts.iter().map(|f| (f.0.clone(), f.1.clone())).collect::<BTreeSet<_>>();
    assert_eq!(ids(&facts).len(), 11, "all ids differ");
    // Times, kinds and services are the same; the join uses the SERVER span's parent.
    let halves = |facts: &BTreeSet<Fact>| -> BTreeSet<Fact> {
        let server = |f: &Fact| f.3 == SERVER && !f.2.is_empty();
        let halves = facts.iter().filter(|f| f.3 == 3 || server(f)).cloned();
        halves
            .map(|f| {
                if server(&f) {
                    (f.0, "own".into(), f.2, f.3, f.4, f.5, f.6)
                } else {
                    (f.0, f.1, "".into(), f.3, f.4, f.5, f.6)
                }
            })
            .collect()
    };
    assert_eq!(halves(&facts), halves(&expected));
}

#[test]
fn complete_spans_keep_all_their_fields() {
    let (requests, _) = read_bytes(&content("jaeger.json"));
    let spans: Vec<&Span> = requests
        .iter()
        .flat_map(|r| &r.resource_spans)
        .flat_map(|r| &r.scope_spans)
        .flat_map(|s| &s.spans)
        .collect();
    let cart = spans.iter().find(|s| hex(&s.span_id) == "1112131415161718").expect("a span of the fixture");
    assert_eq!(cart.events[0].name, "message");
    assert_eq!(cart.events[0].attributes[2].key, "message.uncompressed_size");
    let price = spans.iter().find(|s| hex(&s.span_id) == "3132333435363738").expect("a span of the fixture");
    assert_eq!(hex(&price.links[0].span_id), "4142434445464748");
    let value =
        |key: &str| price.attributes.iter().find(|a| a.key == key).and_then(|a| a.value.clone()?.value);
    assert_eq!(value("discount"), Some(Value::DoubleValue(0.25)));
    assert_eq!(value("gift"), Some(Value::BoolValue(true)));
    let failed = spans.iter().find(|s| hex(&s.span_id) == "4142434445464748").expect("a span of the fixture");
    assert_eq!(failed.status.as_ref().map(|s| (s.code, s.message.as_str())), Some((2, "failed")));
}
