//! Senders that fill memory: names, resources and spans of any size, and small requests that expand.

use super::client::request;
use super::grpc::sender;
use super::process::Meter;
use super::spans::{calls, text};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use spangap_meter::report::LimitReport;
use std::io::Write;

const MIB: u64 = 1 << 20;

/// Resident memory of the meter, in bytes.
fn resident(meter: &Meter) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", meter.program.id())).expect("it runs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn limit(meter: &Meter, name: &str) -> LimitReport {
    let coverage = meter.coverage();
    let limit = coverage.limits.iter().find(|limit| limit.name == name).cloned();
    limit.unwrap_or_else(|| panic!("no limit {name:?} in {coverage:#?}"))
}

/// Sends `n` requests of one call each, from resources with this extra attribute; each has a pair of its own.
async fn send(meter: &Meter, n: u64, key: &str, value: impl Fn(u64) -> String) {
    let mut sender = sender(meter).await.max_encoding_message_size(64 << 20);
    for i in 0..n {
        let mut one = calls("web", "cart", i..i + 1);
        let attributes = &mut one.resource_spans[0].resource.as_mut().expect("it has one").attributes;
        attributes.retain(|attribute| attribute.key != key);
        attributes.push(text(key, &value(i)));
        sender.export(one).await.expect("it is accepted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_megabytes_are_truncated_and_stay_distinct() {
    let meter = Meter::start(&[]);
    let before = resident(&meter);
    let large = "n".repeat(8 << 20);
    send(&meter, 30, "service.name", |i| format!("{large}{i}")).await;
    let grown = resident(&meter).saturating_sub(before);
    // 240 MiB of names were sent. The allocator keeps what a request used while it was being handled.
    assert!(grown < 150 * MIB, "{} MiB", grown / MIB);
    let names = limit(&meter, "names");
    assert!(names.cut >= 30 && names.refused == 0, "{names:?}");
    let bytes = limit(&meter, "resource_bytes");
    assert!(bytes.cut >= 30 && bytes.used < MIB, "{bytes:?}");
    let pairs = meter.api::<spangap_meter::report::PairsReport>("/api/v1/pairs?window=1h").pairs;
    assert_eq!(pairs.len(), 30);
    assert!(pairs.iter().all(|row| row.client.len() <= 255 && row.client.contains("\u{2026}#")));
    let exposition = meter.get("/metrics").body;
    assert!(exposition.len() < 4 << 20, "{} bytes", exposition.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_resources_stay_within_the_limit() {
    let meter = Meter::start(&["--max-resource-bytes", "8MiB"]);
    let before = resident(&meter);
    let command = "c".repeat(30 << 10);
    send(&meter, 3000, "process.command_args", |i| format!("{i}{command}")).await;
    let grown = resident(&meter).saturating_sub(before);
    // 90 MiB of resources were sent.
    assert!(grown < 60 * MIB, "{} MiB", grown / MIB);
    let bytes = limit(&meter, "resource_bytes");
    assert!(bytes.used <= bytes.limit && bytes.limit == 8 * MIB && bytes.cut > 2000, "{bytes:?}");
    // Less is shown of the spans, but the figures are complete.
    assert_eq!(meter.pair("web", "cart", 3000).calls, 3000);
    assert_eq!(meter.coverage().calls_in_other, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_spans_are_counted_and_not_kept() {
    let meter = Meter::start(&[]);
    let before = resident(&meter);
    let mut sender = sender(&meter).await.max_encoding_message_size(64 << 20);
    let large = "s".repeat(4 << 20);
    for i in 0..40u64 {
        let mut one = calls(&format!("web-{i}"), "cart", i..i + 1);
        for half in &mut one.resource_spans {
            half.scope_spans[0].spans[0].attributes.push(text("db.statement", &large));
        }
        sender.export(one).await.expect("it is accepted");
    }
    let grown = resident(&meter).saturating_sub(before);
    // 320 MiB of spans were sent, each belonging to one of the worst calls.
    assert!(grown < 150 * MIB, "{} MiB", grown / MIB);
    let row = meter.pair("web-0", "cart", 1);
    assert!(!row.worst[0].whole, "its spans are too large to be shown");
    assert_eq!((limit(&meter, "whole_bytes").refused, limit(&meter, "worst_bytes").used), (40, 0));
}

/// A request that is small on the wire, and its decompressed size.
fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(plain).expect("memory");
    gzip.finish().expect("memory")
}

#[test]
fn decompression_bombs_are_refused_and_leave_no_memory_behind() {
    let meter = Meter::start(&[]);
    let before = resident(&meter);
    let post = |kind: &str, body: &[u8]| {
        let headers = [("Content-Type", kind), ("Content-Encoding", "gzip")];
        request(meter.otlp_http, "POST", "/v1/traces", &headers, &gzip(body))
    };
    // Each element is a span: three bytes of text, or two bytes on the wire.
    let many = ["{},".repeat(5_000_000), "{}".into()].concat();
    let json = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{many}]}}]}}]}}"#);
    let wrapped = |tag: u8, inner: &[u8]| {
        let mut message = vec![tag];
        prost::encoding::encode_varint(inner.len() as u64, &mut message);
        [message, inner.to_vec()].concat()
    };
    let protobuf = wrapped(0x0a, &wrapped(0x12, &[0x12, 0].repeat(7_000_000)));
    let deep = ["[".repeat(3_000_000), "]".repeat(3_000_000)].concat();
    let deep = format!(r#"{{"resourceSpans":{deep}}}"#);
    for _ in 0..3 {
        let refused = post("application/json", json.as_bytes());
        assert_eq!(refused.status, 400);
        let refused = post("application/x-protobuf", &protobuf);
        assert_eq!(refused.status, 400);
        assert!(String::from_utf8_lossy(&refused.body).contains("32 bytes on average"));
        assert_eq!(post("application/json", deep.as_bytes()).status, 400);
        assert_eq!(post("application/x-protobuf", &vec![0; 64 << 20]).status, 413);
    }
    let grown = resident(&meter).saturating_sub(before);
    assert!(grown < 250 * MIB, "{} MiB", grown / MIB);
    let fine = calls("web", "cart", 0..10).encode_to_vec();
    assert_eq!(post("application/x-protobuf", &fine).status, 200);
    meter.pair("web", "cart", 10);
}
