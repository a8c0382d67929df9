//! A whole trace from the table into which the Collector's `clickhouse` exporter writes spans.

use super::ClickHouse;
use super::http::Refusal;
use super::rowbinary::Answer;
use crate::history::HistoryError;
use crate::query::hex;
use crate::spool::Kept;
use crate::spool::traces::{MOST_SPANS, Trace};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

const COLUMNS: &str = "toUnixTimestamp64Nano(Timestamp), SpanId, ParentSpanId, TraceState, SpanName, SpanKind, \
     ServiceName, ResourceAttributes, ScopeName, ScopeVersion, SpanAttributes, toUInt64(Duration), StatusCode, \
     StatusMessage, arrayMap(at -> toUnixTimestamp64Nano(at), `Events.Timestamp`), `Events.Name`, \
     `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, `Links.TraceState`, `Links.Attributes`";

/// The spans of a trace; none if there is no such table.
pub fn find(shared: &ClickHouse, trace_id: &[u8; 16]) -> Result<Kept, HistoryError> {
    let query = format!(
        "SELECT {COLUMNS} FROM {} WHERE TraceId = '{}' ORDER BY Timestamp LIMIT {}",
        shared.traces,
        hex(trace_id),
        MOST_SPANS + 1
    );
    let mut kept = Kept { trace: Trace::default(), incomplete: Vec::new() };
    let bytes = match shared.select(&query) {
        Err(Refusal::NoTable(_)) => return Ok(kept),
        answered => answered?,
    };
    let mut answer = Answer::new(&bytes);
    while !answer.is_empty() {
        let damaged = || HistoryError::Shared(format!("a row of {} cannot be read", shared.traces));
        let resource_spans = vec![read(&mut answer, trace_id).ok_or_else(damaged)?];
        let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        kept.trace.add(trace_id, &request).map_err(|_| damaged())?;
    }
    if kept.trace.cut {
        kept.incomplete.push(format!("the trace has more than {MOST_SPANS} spans, or is too large"));
    }
    Ok(kept)
}

/// One row.
fn read(row: &mut Answer, trace_id: &[u8; 16]) -> Option<ResourceSpans> {
    let start_time_unix_nano = row.u64()?;
    let (span_id, parent_span_id) = (id(row)?, id(row)?);
    let (trace_state, name, kind, service) = (row.text()?, row.text()?, row.text()?, row.text()?);
    let mut of_resource = attributes(row)?;
    let scope = InstrumentationScope { name: row.text()?, version: row.text()?, ..Default::default() };
    let of_span = attributes(row)?;
    let end_time_unix_nano = start_time_unix_nano.saturating_add(row.u64()?);
    let status = Status { code: status(&row.text()?) as i32, message: row.text()? };
    let (times, names) = (row.array(Answer::u64)?, row.array(Answer::text)?);
    let of_events = row.array(attributes)?;
    let events = times.into_iter().zip(names).zip(of_events).map(|((time_unix_nano, name), attributes)| {
        Event { time_unix_nano, name, attributes, ..Event::default() }
    });
    let (traces, spans, states) = (row.array(id)?, row.array(id)?, row.array(Answer::text)?);
    let of_links = row.array(attributes)?;
    let links = traces.into_iter().zip(spans).zip(states).zip(of_links).map(
        |(((trace_id, span_id), trace_state), attributes)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            ..Link::default()
        },
    );
    if !of_resource.iter().any(|one| one.key == "service.name") {
        of_resource.push(attribute("service.name".into(), service));
    }
    let span = Span {
        trace_id: trace_id.to_vec(),
        span_id,
        parent_span_id,
        trace_state,
        name,
        kind: kind_of(&kind) as i32,
        start_time_unix_nano,
        end_time_unix_nano,
        attributes: of_span,
        events: events.collect(),
        links: links.collect(),
        status: Some(status),
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: vec![span], ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: of_resource, ..Resource::default() });
    Some(ResourceSpans { resource, scope_spans, ..ResourceSpans::default() })
}

/// An id in hex digits; empty where there is none.
fn id(row: &mut Answer) -> Option<Vec<u8>> {
    let digits = row.string()?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// A map, whose values are texts whatever they were before.
fn attributes(row: &mut Answer) -> Option<Vec<KeyValue>> {
    row.array(|row| Some(attribute(row.text()?, row.text()?)))
}

fn attribute(key: String, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key, value, ..KeyValue::default() }
}

/// `Client`, or `SPAN_KIND_CLIENT` from older exporters.
fn kind_of(text: &str) -> SpanKind {
    match text.trim_start_matches("SPAN_KIND_").to_ascii_lowercase().as_str() {
        "internal" => SpanKind::Internal,
        "server" => SpanKind::Server,
        "client" => SpanKind::Client,
        "producer" => SpanKind::Producer,
        "consumer" => SpanKind::Consumer,
        _ => SpanKind::Unspecified,
    }
}

fn status(text: &str) -> StatusCode {
    match text.trim_start_matches("STATUS_CODE_").to_ascii_lowercase().as_str() {
        "ok" => StatusCode::Ok,
        "error" => StatusCode::Error,
        _ => StatusCode::Unset,
    }
}
