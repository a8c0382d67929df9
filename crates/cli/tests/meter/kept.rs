//! `--keep-spans`: every accepted span is found by its trace, whichever way it came, and even after a kill.

use super::client::request;
use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::{calls, half, trace_id};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::Value;
use std::io::Write;

const KEEP: [&str; 2] = ["--keep-spans", "30m"];

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn send(meter: &Meter, headers: &[(&str, &str)], body: &[u8]) {
    assert_eq!(request(meter.otlp_http, "POST", "/v1/traces", headers, body).status, 200);
}

/// Resources of a kept trace, once all of these services have a span in it.
fn kept(meter: &Meter, call: u64, services: usize) -> Vec<ResourceSpans> {
    let path = format!("/api/v1/traces/{}", hex(&trace_id(call)));
    until(&path, || {
        let answer = meter.get(&path);
        if answer.status != 200 {
            return None;
        }
        let found: Value = answer.json();
        assert_eq!(found.get("incomplete"), None);
        let found: Vec<ResourceSpans> =
            serde_json::from_value(found["resourceSpans"].clone()).expect("it is OTLP JSON");
        (found.len() == services).then_some(found)
    })
}

#[test]
fn all_spans_of_a_trace_are_found_even_after_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data = ["--data", folder.path().to_str().expect("its name is text")];
    let meter = Meter::start(&[&KEEP[..], &data].concat());
    let protobuf = ("content-type", "application/x-protobuf");
    // The two halves of each call come by different ways; a third span joins nothing.
    let of =
        |service: &str, kind| ExportTraceServiceRequest { resource_spans: vec![half(service, kind, 0..50)] };
    let client = of("web", SpanKind::Client);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&of("cart", SpanKind::Server).encode_to_vec()).expect("it is in memory");
    let gzip = gzip.finish().expect("it is in memory");
    let internal = serde_json::to_vec(&of("worker", SpanKind::Internal)).expect("it is JSON");
    send(&meter, &[protobuf], &client.encode_to_vec());
    send(&meter, &[protobuf, ("content-encoding", "gzip")], &gzip);
    send(&meter, &[("content-type", "application/json")], &internal);

    let mut found = kept(&meter, 7, 3);
    let sent: Vec<ResourceSpans> =
        [("web", SpanKind::Client), ("cart", SpanKind::Server), ("worker", SpanKind::Internal)]
            .map(|(service, kind)| half(service, kind, 7..8))
            .into();
    for of_resource in sent {
        let at = found.iter().position(|found| found.resource == of_resource.resource).expect("it is there");
        let found = found.remove(at);
        let [mut found, mut sent] = [found, of_resource].map(|one| one.scope_spans[0].spans[0].clone());
        // They were made at different times.
        for span in [&mut found, &mut sent] {
            (span.start_time_unix_nano, span.end_time_unix_nano) = (0, 0);
        }
        assert_eq!(found, sent);
    }
    let coverage = meter.coverage().kept.expect("it is on");
    assert_eq!((coverage.spans, coverage.not_kept_queue, coverage.damaged_segments), (150, 0, 0));
    let metrics = String::from_utf8(meter.get("/metrics").body).expect("it is text");
    assert!(metrics.contains("\nspangap_kept_spans 150\n"), "{metrics}");

    meter.program.signal("KILL");
    drop(meter);
    let meter = Meter::start(&[&KEEP[..], &data].concat());
    for call in [0, 7, 49] {
        kept(&meter, call, 3);
    }
    let error = meter.api_error(&format!("/api/v1/traces/{}", hex(&trace_id(50))), 404);
    assert!(error.contains("the oldest span kept arrived at"), "{error}");
    assert!(meter.api_error("/api/v1/traces/xyz", 400).contains("32 hex digits"));
    assert_eq!(meter.stop().code, Some(0));
}

#[test]
fn a_trace_ui_gets_jaegers_answers() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let meter = Meter::start(
        &[&KEEP[..], &["--keep-dir", folder.path().to_str().expect("its name is text")]].concat(),
    );
    let sent = calls("web", "cart", 0..20).encode_to_vec();
    send(&meter, &[("content-type", "application/x-protobuf")], &sent);
    meter.pair("web", "cart", 20);
    kept(&meter, 15, 2);
    let services: Value = meter.api("/api/services");
    assert_eq!(services["data"], serde_json::json!(["cart", "web"]));
    // The way UIs write ids: without leading zeros.
    let found: Value = meter.api("/api/traces/10");
    let trace = &found["data"][0];
    assert_eq!(
        (trace["spans"].as_array().map(Vec::len), trace["processes"].as_object().map(|p| p.len())),
        (Some(2), Some(2))
    );

    // A reader of Jaeger's JSON gets the same calls as a reader of OTLP.
    let document = folder.path().join("trace.json");
    std::fs::write(&document, found.to_string()).expect("it can be written");
    let gaps = Program::start(&["gaps", "--json", document.to_str().expect("its name is text")]).wait();
    let gaps: Value = serde_json::from_str(&gaps.out.join("\n")).expect("it is JSON");
    let [pair] = gaps["pairs"].as_array().expect("a list").as_slice() else { panic!("{gaps}") };
    let of_meter = super::spans::gap_ns(15);
    assert_eq!(
        (&pair["client"], &pair["server"], &pair["calls"]),
        (&"web".into(), &"cart".into(), &1.into())
    );
    // Jaeger has microseconds.
    let gap_ns = pair["gap"]["max_ns"].as_u64().expect("a number");
    assert!(gap_ns.abs_diff(of_meter) <= 2_000, "{gap_ns} ns, {of_meter} ns were sent");
    let missing = meter.get("/api/traces/ffff");
    assert_eq!((missing.status, &missing.json::<Value>()["errors"][0]["code"]), (404, &404.into()));
}

#[test]
fn a_period_is_one_parquet_file() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let meter = Meter::start(
        &[&KEEP[..], &["--keep-dir", folder.path().to_str().expect("its name is text")]].concat(),
    );
    let sent = calls("web", "cart", 0..2_000).encode_to_vec();
    send(&meter, &[("content-type", "application/x-protobuf")], &sent);
    kept(&meter, 1_999, 2);
    let answer = meter.get("/api/v1/spans.parquet?window=5m");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/vnd.apache.parquet")));
    assert!(answer.body.starts_with(b"PAR1") && answer.body.ends_with(b"PAR1"));
    assert!(answer.body.len() > 10_000, "{} bytes", answer.body.len());
    let none = meter.get("/api/v1/spans.parquet?from=1&to=2");
    assert!(none.body.ends_with(b"PAR1") && none.body.len() < 10_000, "{} bytes", none.body.len());
    assert!(meter.api_error("/api/v1/spans.parquet?from=2&to=1", 400).contains("lies after"));
    assert!(meter.api_error("/api/v1/spans.parquet?q=web", 400).contains("unknown parameter"));
    println!("not run: other readers of the file, for which there is `make test-parquet`");
}

#[test]
fn nothing_is_kept_without_the_option() {
    let meter = Meter::start(&[]);
    assert_eq!(meter.coverage().kept, None);
    assert!(meter.api_error("/api/v1/traces/1", 404).contains("--keep-spans"));
    assert!(meter.api_error("/api/v1/spans.parquet", 404).contains("--keep-spans"));
    drop(meter);
    for (options, expected) in [
        (&["--keep-bytes", "1GiB"][..], "--whole-bytes"),
        (&["--keep-dir", "somewhere"][..], "--keep-spans DURATION"),
        (&["--keep-spans", "30m"][..], "--keep-dir or --data"),
        (&["--keep-spans", "30m", "--keep-dir", "x", "--keep-bytes", "1KiB"][..], "at least 1 MiB"),
    ] {
        let ended = Program::start(&[&["meter"], &FREE_PORTS[..], options].concat()).wait();
        assert_eq!(ended.code, Some(1), "{options:?}: {ended:?}");
        assert!(ended.err.join("\n").contains(expected), "{options:?}: {ended:?}");
    }
}
