//! Spans to send.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use std::ops::Range;

/// Duration of every server span.
pub const SERVER_NS: u64 = 1_000_000;

/// The gap of call `i`.
pub fn gap_ns(i: u64) -> u64 {
    200_000 + i * 1_000
}

pub fn text(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) });
    KeyValue { key: name.into(), value, ..KeyValue::default() }
}

fn now_unix_ns() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64
}

/// One half of the calls with these numbers: the spans of `service`, whose name is also its host's.
pub fn half(service: &str, kind: SpanKind, calls: Range<u64>) -> ResourceSpans {
    let now = now_unix_ns();
    let span = |i: u64| {
        let client = kind == SpanKind::Client;
        let duration_ns = SERVER_NS + if client { gap_ns(i) } else { 0 };
        let client_span = (i + 1).to_be_bytes().to_vec();
        let start = now - 2_000_000_000 + i * 10_000;
        Span {
            trace_id: trace_id(i),
            span_id: if client { client_span.clone() } else { (i | 1 << 60).to_be_bytes().to_vec() },
            parent_span_id: if client { b"caller's".to_vec() } else { client_span },
            kind: kind as i32,
            name: "call".into(),
            start_time_unix_nano: start,
            end_time_unix_nano: start + duration_ns,
            attributes: vec![text("call.number", &i.to_string())],
            ..Span::default()
        }
    };
    let resource = Resource {
        attributes: vec![text("service.name", service), text("host.name", &format!("{service}-host"))],
        ..Resource::default()
    };
    let scope_spans = vec![ScopeSpans { spans: calls.map(span).collect(), ..ScopeSpans::default() }];
    ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }
}

/// The trace of call `i`.
pub fn trace_id(i: u64) -> Vec<u8> {
    (u128::from(i) + 1).to_be_bytes().to_vec()
}

/// Complete calls from one service to another.
pub fn calls(client: &str, server: &str, numbers: Range<u64>) -> ExportTraceServiceRequest {
    let resource_spans =
        vec![half(client, SpanKind::Client, numbers.clone()), half(server, SpanKind::Server, numbers)];
    ExportTraceServiceRequest { resource_spans }
}

/// Four spans, of which three are malformed: an id of 15 bytes, an end before the start, no times.
pub fn three_of_four_malformed() -> ExportTraceServiceRequest {
    let mut spans = half("web", SpanKind::Client, 0..4);
    let list = &mut spans.scope_spans[0].spans;
    list[0].trace_id.pop();
    list[1].end_time_unix_nano = list[1].start_time_unix_nano - 1;
    (list[2].start_time_unix_nano, list[2].end_time_unix_nano) = (0, 0);
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}
