//! A trace in the JSON of Jaeger's query API, which trace UIs read. Tag names follow OpenTelemetry's own
//! translation to Jaeger; `ingest/jaeger.rs` implements the inverse.

use crate::query::hex;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use serde_json::{Map, Value, json};

/// The answer to `/api/traces/{id}`; `None` if there are no spans.
pub fn answer(trace: &[ResourceSpans], warnings: &[String]) -> Option<Value> {
    let (mut spans, mut processes) = (Vec::new(), Map::new());
    let mut trace_id = None;
    for (at, of_resource) in trace.iter().enumerate() {
        let process = format!("p{}", at + 1);
        for scope in &of_resource.scope_spans {
            let of_scope = scope
                .scope
                .iter()
                .flat_map(|scope| [("otel.scope.name", &scope.name), ("otel.scope.version", &scope.version)]);
            let of_scope: Vec<Value> = of_scope
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| text(key, value))
                .collect();
            for one in &scope.spans {
                trace_id.get_or_insert_with(|| hex(&one.trace_id));
                spans.push(span(one, &process, &of_scope));
            }
        }
        processes.insert(process, process_of(of_resource));
    }
    let trace_id = trace_id?;
    let warnings = if warnings.is_empty() { Value::Null } else { json!(warnings) };
    let trace = json!({"traceID": trace_id, "spans": spans, "processes": processes, "warnings": warnings});
    Some(json!({"data": [trace], "total": 0, "limit": 0, "offset": 0, "errors": null}))
}

/// The answer to `/api/services`.
pub fn services(names: &[String]) -> Value {
    json!({"data": names, "total": names.len(), "limit": 0, "offset": 0, "errors": null})
}

/// The answer for missing data.
pub fn not_found(why: &str) -> Value {
    json!({"data": null, "total": 0, "limit": 0, "offset": 0, "errors": [{"code": 404, "msg": why}]})
}

const SERVICE: &str = "service.name";

fn process_of(of_resource: &ResourceSpans) -> Value {
    let attributes = of_resource.resource.iter().flat_map(|resource| &resource.attributes);
    let service = attributes.clone().find(|attribute| attribute.key == SERVICE);
    let service = service.and_then(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
        Attribute::StringValue(name) => Some(name.as_str()),
        _ => None,
    });
    let tags: Vec<Value> = attributes.filter(|attribute| attribute.key != SERVICE).map(tag).collect();
    json!({"serviceName": service.unwrap_or("unknown_service"), "tags": tags})
}

fn span(span: &Span, process: &str, of_scope: &[Value]) -> Value {
    let mut tags: Vec<Value> = span.attributes.iter().map(tag).collect();
    tags.extend_from_slice(of_scope);
    let kind = match span.kind() {
        SpanKind::Unspecified => None,
        SpanKind::Internal => Some("internal"),
        SpanKind::Server => Some("server"),
        SpanKind::Client => Some("client"),
        SpanKind::Producer => Some("producer"),
        SpanKind::Consumer => Some("consumer"),
    };
    tags.extend(kind.map(|kind| text("span.kind", kind)));
    if let Some(status) = &span.status {
        match status.code() {
            StatusCode::Unset => {}
            StatusCode::Ok => tags.push(text("otel.status_code", "OK")),
            StatusCode::Error => {
                tags.push(text("otel.status_code", "ERROR"));
                tags.push(json!({"key": "error", "type": "bool", "value": true}));
            }
        }
        if !status.message.is_empty() {
            tags.push(text("otel.status_description", &status.message));
        }
    }
    if !span.trace_state.is_empty() {
        tags.push(text("w3c.tracestate", &span.trace_state));
    }
    let reference = |kind: &str, trace: &[u8], id: &[u8]| json!({"refType": kind, "traceID": hex(trace), "spanID": hex(id)});
    let parent = (!span.parent_span_id.is_empty())
        .then(|| reference("CHILD_OF", &span.trace_id, &span.parent_span_id));
    let links = span.links.iter().map(|link| reference("FOLLOWS_FROM", &link.trace_id, &link.span_id));
    let logs = span.events.iter().map(|event| {
        let name = (!event.name.is_empty()).then(|| text("event", &event.name));
        let fields: Vec<Value> = name.into_iter().chain(event.attributes.iter().map(tag)).collect();
        json!({"timestamp": event.time_unix_nano / 1000, "fields": fields})
    });
    let micros = |ns: u64| ns / 1000;
    json!({
        "traceID": hex(&span.trace_id),
        "spanID": hex(&span.span_id),
        "flags": span.flags & 0xff,
        "operationName": span.name,
        "references": parent.into_iter().chain(links).collect::<Vec<_>>(),
        "startTime": micros(span.start_time_unix_nano),
        // Both ends are rounded in the same way, as in the start time.
        "duration": micros(span.end_time_unix_nano).saturating_sub(micros(span.start_time_unix_nano)),
        "tags": tags,
        "logs": logs.collect::<Vec<_>>(),
        "processID": process,
        "warnings": null,
    })
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "type": "string", "value": value})
}

fn tag(attribute: &KeyValue) -> Value {
    let key = &attribute.key;
    let typed = |kind: &str, value: Value| json!({"key": key, "type": kind, "value": value});
    match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        None => typed("string", json!("")),
        Some(Attribute::StringValue(value)) => typed("string", json!(value)),
        Some(Attribute::BoolValue(value)) => typed("bool", json!(value)),
        Some(Attribute::IntValue(value)) => typed("int64", json!(value)),
        // JSON has neither infinity nor NaN.
        Some(Attribute::DoubleValue(value)) if value.is_finite() => typed("float64", json!(value)),
        Some(Attribute::DoubleValue(value)) => typed("string", json!(value.to_string())),
        Some(value) => typed("string", json!(plain(value).to_string())),
    }
}

/// Lists, maps and bytes as JSON.
pub(super) fn plain(value: &Attribute) -> Value {
    let of = |value: &Option<AnyValue>| {
        value.as_ref().and_then(|value| value.value.as_ref()).map_or(Value::Null, plain)
    };
    match value {
        Attribute::StringValue(value) => json!(value),
        Attribute::BoolValue(value) => json!(value),
        Attribute::IntValue(value) => json!(value),
        Attribute::DoubleValue(value) => json!(value),
        Attribute::BytesValue(value) => json!(hex(value)),
        Attribute::ArrayValue(list) => {
            list.values.iter().map(|value| value.value.as_ref().map_or(Value::Null, plain)).collect()
        }
        Attribute::KvlistValue(list) => {
            let entries = list.values.iter().map(|entry| (entry.key.clone(), of(&entry.value)));
            Value::Object(entries.collect())
        }
        Attribute::StringValueStrindex(index) => json!(index),
    }
}
