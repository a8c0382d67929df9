//! Calls as OTLP spans, with the attribute names of the semantic conventions for gRPC since 1.39.

use super::{CallSpan, Side};
use crate::status::status_name;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span, status};
use percent_encoding::percent_decode_str;
use std::net::SocketAddr;
use tonic::Code;

/// `flags` of a span with a W3C context: sampled, and whether the parent is remote is known.
const FLAG_SAMPLED: u32 = 1;
const FLAG_HAS_IS_REMOTE: u32 = 0x100;
const FLAG_IS_REMOTE: u32 = 0x200;

fn text(value: impl Into<String>) -> any_value::Value {
    any_value::Value::StringValue(value.into())
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

/// Attributes common to all spans of this process. `given` is the value of `OTEL_RESOURCE_ATTRIBUTES`, where a
/// pod's specification has its name and node; it overrides the host name, and nothing else that is known here.
pub(super) fn resource(service_name: &str, given: &str) -> Resource {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut attributes = vec![
        attribute("service.name", text(service_name)),
        attribute("process.pid", any_value::Value::IntValue(std::process::id().into())),
        attribute("telemetry.sdk.name", text("spangap")),
        attribute("telemetry.sdk.language", text("rust")),
        attribute("telemetry.sdk.version", text(env!("CARGO_PKG_VERSION"))),
    ];
    for (key, value) in given_attributes(given).into_iter().chain([("host.name".to_owned(), host)]) {
        if attributes.iter().all(|one| one.key != key) {
            attributes.push(attribute(&key, text(value)));
        }
    }
    Resource { attributes, ..Default::default() }
}

/// The attributes in `OTEL_RESOURCE_ATTRIBUTES`. A malformed list is ignored as a whole, as the specification
/// requires (OpenTelemetry, "Resource SDK").
fn given_attributes(list: &str) -> Vec<(String, String)> {
    listed(list).unwrap_or_default()
}

/// `key=value,key=value`, both percent-encoded where necessary; `None` if malformed.
pub(super) fn listed(list: &str) -> Option<Vec<(String, String)>> {
    let decoded = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
    let one = |entry: &str| {
        let (key, value) = entry.split_once('=')?;
        Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
    };
    let entries = list.split(',').filter(|entry| !entry.trim().is_empty());
    entries.map(one).collect()
}

pub(super) fn request(resource: &Resource, batch: &[CallSpan]) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Default::default()
    };
    let scope_spans = vec![ScopeSpans {
        scope: Some(scope),
        spans: batch.iter().map(to_otlp).collect(),
        ..Default::default()
    }];
    let spans = ResourceSpans { resource: Some(resource.clone()), scope_spans, ..Default::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

fn to_otlp(call: &CallSpan) -> Span {
    let mut attributes = vec![
        attribute("rpc.system.name", text(call.method.system())),
        attribute("rpc.method", text(call.method.name())),
        attribute("rpc.response.status_code", text(status_name(call.code))),
    ];
    let mut address = |address_key: &str, port_key: &str, address: SocketAddr| {
        attributes.push(attribute(address_key, text(address.ip().to_string())));
        attributes.push(attribute(port_key, any_value::Value::IntValue(address.port().into())));
    };
    if let Some(peer) = call.peer {
        address("network.peer.address", "network.peer.port", peer);
        if call.side == Side::Client {
            address("server.address", "server.port", peer);
        }
    }
    if let Some(local) = call.local {
        address("network.local.address", "network.local.port", local);
    }
    let failed = is_failure(call.side, call.code);
    if failed {
        attributes.push(attribute("error.type", text(status_name(call.code))));
    }
    let has_parent = call.parent_span_id != [0; 8];
    let remote = if call.side == Side::Server && has_parent { FLAG_IS_REMOTE } else { 0 };
    Span {
        trace_id: call.context.trace_id.to_vec(),
        span_id: call.context.span_id.to_vec(),
        parent_span_id: if has_parent { call.parent_span_id.to_vec() } else { Vec::new() },
        flags: (if call.context.sampled { FLAG_SAMPLED } else { 0 }) | FLAG_HAS_IS_REMOTE | remote,
        name: call.method.name().into(),
        kind: match call.side {
            Side::Client => span::SpanKind::Client,
            Side::Server => span::SpanKind::Server,
        } as i32,
        start_time_unix_nano: call.start_unix_ns,
        end_time_unix_nano: call.end_unix_ns,
        attributes,
        status: failed.then(|| Status { code: status::StatusCode::Error as i32, ..Default::default() }),
        ..Default::default()
    }
}

/// A client's mistake is not a failure of the server.
fn is_failure(side: Side, code: Code) -> bool {
    match side {
        Side::Client => code != Code::Ok,
        Side::Server => matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_fault_is_not_a_server_error() {
        assert!(is_failure(Side::Client, Code::InvalidArgument));
        assert!(!is_failure(Side::Server, Code::InvalidArgument));
        assert!(is_failure(Side::Server, Code::Internal));
    }

    fn texts(resource: &Resource) -> Vec<(&str, &str)> {
        fn one(of: &KeyValue) -> Option<(&str, &str)> {
            match &of.value.as_ref()?.value {
                Some(any_value::Value::StringValue(text)) => Some((&of.key, text)),
                _ => None,
            }
        }
        resource.attributes.iter().filter_map(one).collect()
    }

    #[test]
    fn environment_attributes_override_only_the_host_name() {
        let given =
            "k8s.pod.name=tank-0, k8s.node.name = node%201 ,host.name=node-1,service.name=no,team=a%2Cb%3D,";
        let resource = resource("tank", given);
        let texts = texts(&resource);
        let value = |key| texts.iter().filter(|one| one.0 == key).map(|one| one.1).collect::<Vec<_>>();
        assert_eq!(value("k8s.pod.name"), ["tank-0"]);
        assert_eq!(value("k8s.node.name"), ["node 1"]);
        assert_eq!(value("host.name"), ["node-1"]);
        assert_eq!(value("service.name"), ["tank"]);
        assert_eq!(value("team"), ["a,b="]);
    }

    #[test]
    fn malformed_list_is_ignored_as_a_whole() {
        for given in ["a", "a=1,b", "=1", "a=%ff", ""] {
            assert_eq!(given_attributes(given), [], "{given}");
        }
        assert_eq!(given_attributes("a=").len(), 1);
    }
}
