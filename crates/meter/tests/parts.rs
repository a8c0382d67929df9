//! Pairs separated by a part of their services: node, pod, zone, version.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::ingest::named::Part;
use spangap_meter::pairs::{Ends, Grouping};

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn request(resource: &[(&str, &str)], kind: i32, call: u64) -> Vec<u8> {
    let value = |text: &str| Some(AnyValue { value: Some(any_value::Value::StringValue(text.into())) });
    let attribute = |(key, text): &(&str, &str)| KeyValue {
        key: (*key).into(),
        value: value(text),
        ..KeyValue::default()
    };
    let resource = Resource { attributes: resource.iter().map(attribute).collect(), ..Resource::default() };
    let (id, parent) =
        if kind == CLIENT { (call, Vec::new()) } else { (1000 + call, call.to_be_bytes().to_vec()) };
    let span = Span {
        kind,
        trace_id: [call.to_be_bytes(), [7; 8]].concat(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: parent,
        start_time_unix_nano: 1000,
        end_time_unix_nano: if kind == CLIENT { 2000 } else { 1500 },
        ..Span::default()
    };
    let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

/// Rows and their calls, for six calls from one client to three instances of a server.
fn rows(part: Part, ends: Ends) -> Vec<String> {
    let settings =
        Settings { join_ttl_ms: None, grouping: Grouping::Part(part, ends), ..Settings::default() };
    let meter = Meter::new(settings);
    let client =
        [("service.name", "a"), ("k8s.pod.name", "a-0"), ("host.name", "n1"), ("service.version", "7")];
    let first = [
        ("service.name", "b"),
        ("k8s.pod.name", "b-0"),
        ("k8s.pod.uid", "u-0"),
        ("k8s.node.name", "n1"),
        ("cloud.availability_zone", "z1"),
        ("service.version", "1"),
    ];
    // The label of its node states the zone; its pod's name is unknown.
    let second = [
        ("service.name", "b"),
        ("k8s.pod.uid", "u-1"),
        ("k8s.node.name", "n2"),
        ("k8s.node.label.topology.kubernetes.io/zone", "z2"),
        ("service.version", "2"),
    ];
    let third = [("service.name", "b"), ("container.id", "c-2"), ("host.name", "n2")];
    for call in 1..=6u64 {
        let server: &[(&str, &str)] = match call {
            1 => &third,
            2 | 3 => &second,
            _ => &first,
        };
        meter.ingest(&request(&client, CLIENT, call), 0).unwrap();
        meter.ingest(&request(server, SERVER, call), 0).unwrap();
    }
    let totals = meter.totals();
    let mut rows: Vec<String> = totals
        .iter()
        .map(|(key, stats)| format!("{} {} {}", key.client, key.server, stats.calls()))
        .collect();
    rows.sort();
    rows
}

#[test]
fn services_are_separated_by_stated_parts_only() {
    assert_eq!(rows(Part::Node, Ends::Server), ["a b@n1 3", "a b@n2 3"]);
    assert_eq!(rows(Part::Pod, Ends::Server), ["a b@b-0 3", "a b@c-2 1", "a b@u-1 2"]);
    assert_eq!(rows(Part::Zone, Ends::Server), ["a b@? 1", "a b@z1 3", "a b@z2 2"]);
    assert_eq!(rows(Part::Version, Ends::Both), ["a@7 b@1 3", "a@7 b@2 2", "a@7 b@? 1"]);
    assert_eq!(rows(Part::Zone, Ends::Client), ["a@? b 6"]);
}
