//! Variants of Jaeger's and Zipkin's JSON that the fixtures do not cover.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};
use prost::Message;
use spangap_meter::ingest::delivery::FileReport;
use spangap_meter::ingest::file::read_from;
use std::ops::ControlFlow;

/// Spans with the service of their resource.
fn read(json: &str) -> (Vec<(String, Span)>, FileReport) {
    let mut spans = Vec::new();
    let mut sink = |request: &[u8]| {
        let request = TracesData::decode(request).expect("well-formed");
        let before = spans.len();
        for resource_spans in request.resource_spans {
            let attributes = resource_spans.resource.unwrap_or_default().attributes;
            let name = attributes.into_iter().find(|a| a.key == "service.name").and_then(|a| a.value?.value);
            let service = if let Some(Value::StringValue(name)) = name { name } else { String::new() };
            let of_scopes = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(of_scopes.map(|span| (service.clone(), span)));
        }
        Ok((spans.len() - before) as u64)
    };
    let report = read_from("input".into(), Box::new(json.as_bytes()), None, &mut sink, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.expect("readable");
    (spans, report)
}

fn one(json: &str) -> (String, Span) {
    let (mut spans, report) = read(json);
    assert_eq!((spans.len(), report.skipped.as_slice()), (1, &[][..]));
    spans.remove(0)
}

fn id(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

#[test]
fn a_jaeger_trace_may_stand_alone_and_its_ids_lack_zeros() {
    let (service, span) = one(
        r#"{"processes": {"p1": {"serviceName": "a"}}, "traceID": "f", "spans": [{"traceID": "f", "spanID": "a1",
            "operationName": "x", "startTime": 1000, "duration": 5, "processID": "p1",
            "tags": [{"key": "span.kind", "value": "server"}]}]}"#,
    );
    assert_eq!((service.as_str(), span.kind), ("a", 2));
    assert_eq!((span.trace_id, span.span_id), ([vec![0; 15], vec![15]].concat(), id(0xa1)));
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000, 1_005_000));
}

#[test]
fn a_jaeger_parent_is_a_reference_or_the_old_field() {
    let parent = |fields: &str| {
        let json = format!(
            r#"{{"data": [{{"spans": [{{"traceID": "1", "spanID": "2", "processID": "p", {fields}}}],
                "processes": {{"p": {{"serviceName": "a"}}}}}}]}}"#
        );
        let (_, span) = one(&json);
        (span.parent_span_id, span.links.len())
    };
    let reference = |kind: &str, trace: &str, span: &str| {
        format!(r#"{{"refType": "{kind}", "traceID": "{trace}", "spanID": "{span}"}}"#)
    };
    let references = |all: &[String]| format!(r#""references": [{}]"#, all.join(","));
    let (child, follows) = (reference("CHILD_OF", "1", "7"), reference("FOLLOWS_FROM", "01", "8"));
    let elsewhere = reference("CHILD_OF", "99", "9");
    assert_eq!(parent(&references(&[follows.clone(), child.clone()])), (id(7), 1), "CHILD_OF wins");
    assert_eq!(parent(&references(&[elsewhere.clone(), follows])), (id(8), 1), "else FOLLOWS_FROM");
    assert_eq!(parent(&references(&[elsewhere])), (vec![], 1), "another trace has no parent for this one");
    assert_eq!(parent(r#""references": [{"refType": "CHILD_OF", "spanID": "c"}]"#), (id(12), 0));
    assert_eq!(parent(r#""parentSpanID": "b", "references": null"#), (id(11), 0));
    assert_eq!(parent(r#""parentSpanID": "0""#), (vec![], 0), "zero is no parent");
}

#[test]
fn a_jaeger_process_may_be_embedded_or_missing() {
    let (service, _) = one(r#"{"data": [{"spans": [{"traceID": "1", "spanID": "2", "processID": "",
            "process": {"serviceName": "inside", "tags": []}}], "processes": null}]}"#);
    assert_eq!(service, "inside");
    let (service, _) = one(r#"{"data": [{"spans": [{"traceID": "1", "spanID": "2", "processID": "p1",
            "process": {"serviceName": "both"}}], "processes": {"p1": {"serviceName": "both"}}}]}"#);
    assert_eq!(service, "both");
    let (spans, report) = read(
        r#"{"data": [{"spans": [{"traceID": "1", "spanID": "2", "processID": "p9"}], "processes": {}}]}"#,
    );
    assert_eq!((spans.len(), spans[0].0.as_str()), (1, ""));
    assert!(report.skipped[0].reason.contains("no process \"p9\""), "{report:?}");
    assert_eq!(report.skipped_spans, 0);
}

#[test]
fn jaeger_tags_have_the_type_they_declare() {
    let (_, span) = one(r#"{"data": [{"spans": [{"traceID": "1", "spanID": "2", "processID": "p", "tags": [
            {"key": "a", "type": "int64", "value": "42"}, {"key": "b", "type": "float64", "value": 1},
            {"key": "c", "type": "bool", "value": "true"}, {"key": "d", "type": "binary", "value": "AAE="},
            {"key": "e", "type": "int64", "value": "many"}, {"key": "grpc.status_code", "type": "int64", "value": 4},
            {"key": "error", "type": "bool", "value": false}, {"key": "f", "type": "string", "value": null}]}],
            "processes": {"p": {"serviceName": "a"}}}]}"#);
    let value =
        |key: &str| span.attributes.iter().find(|a| a.key == key).and_then(|a| a.value.clone()?.value);
    assert_eq!(value("a"), Some(Value::IntValue(42)));
    assert_eq!(value("b"), Some(Value::DoubleValue(1.0)));
    assert_eq!(value("c"), Some(Value::BoolValue(true)));
    assert_eq!(value("d"), Some(Value::BytesValue(vec![0, 1])));
    assert_eq!(value("e"), Some(Value::StringValue("many".into())));
    assert_eq!(value("f"), None);
    assert_eq!(value("rpc.grpc.status_code"), Some(Value::IntValue(4)), "under its name in OpenTelemetry");
    assert_eq!(span.status, None, "error=false is none");
}

#[test]
fn a_jaeger_server_span_with_its_clients_id_becomes_its_child() {
    let span = |kind: &str, process: &str| {
        format!(
            r#"{{"traceID": "1", "spanID": "2", "processID": "{process}", "startTime": 5, "duration": 1,
                "tags": [{{"key": "span.kind", "type": "string", "value": "{kind}"}}]}}"#
        )
    };
    let (server, client) = (span("server", "s"), span("client", "c"));
    let (spans, _) = read(&format!(
        r#"{{"data": [{{"spans": [{server}, {client}],
            "processes": {{"s": {{"serviceName": "s"}}, "c": {{"serviceName": "c"}}}}}}]}}"#
    ));
    let of = |service: &str| &spans.iter().find(|(s, _)| s == service).expect("a span of each service").1;
    assert_eq!(of("c").span_id, id(2));
    assert_eq!(of("s").parent_span_id, id(2));
    assert_ne!(of("s").span_id, id(2));
}

#[test]
fn a_zipkin_server_half_is_recognised_by_its_flag_without_a_client() {
    let (_, span) = one(
        r#"[{"traceId": "463ac35c9f6413ad48485a3953bb6124", "id": "c1", "parentId": "d1", "kind": "SERVER",
            "shared": true, "timestamp": 1, "duration": 2, "tags": {"error": "", "http.status_code": "500"}}]"#,
    );
    assert_eq!(span.parent_span_id, id(0xc1));
    assert_eq!(span.status.map(|status| status.code), Some(2), "the tag's presence is an error");
    let (_, span) =
        one(r#"[{"traceId": "1", "id": "c1", "parentId": "d1", "kind": "SERVER", "timestamp": 1}]"#);
    assert_eq!((span.span_id, span.parent_span_id), (id(0xc1), id(0xd1)));
    assert_eq!(span.end_time_unix_nano, 0, "an end that is not known is not made up");
}

#[test]
fn a_zipkin_client_in_the_previous_batch_is_remembered() {
    let span = |n: usize, kind: &str| {
        format!(
            r#"{{"traceId": "{:x}", "id": "{:x}", "kind": "{kind}", "timestamp": 9, "duration": 1}}"#,
            n + 1,
            n + 1
        )
    };
    // All clients first: a client and its server are 3000 spans apart, and in different batches.
    let clients = (0..3000).map(|n| span(n, "CLIENT"));
    let spans: Vec<String> = clients.chain((0..3000).map(|n| span(n, "SERVER"))).collect();
    let (spans, report) = read(&format!("[{}]", spans.join(",")));
    assert_eq!(report.spans, 6000);
    let servers = spans.iter().filter(|(_, span)| span.kind == 2);
    assert!(servers.clone().all(|(_, span)| span.parent_span_id == span.trace_id[8..]));
    assert_eq!(servers.count(), 3000);
}

#[test]
fn zipkin_lists_may_be_one_per_line() {
    let list =
        |id: u8| format!(r#"[{{"traceId": "1", "id": "{id}", "localEndpoint": {{"serviceName": "a"}}}}]"#);
    let (spans, report) = read(&format!("{}\n[{{\"trace\n{}\n[]\n", list(1), list(2)));
    let ids: Vec<Vec<u8>> = spans.into_iter().map(|(_, span)| span.span_id).collect();
    assert_eq!(ids, [id(1), id(2)]);
    assert!(report.skipped.len() == 1 && report.skipped[0].place.starts_with("line 2"), "{report:?}");
}

#[test]
fn times_beyond_64_bits_and_negative_ones_are_refused() {
    for (time, accepted) in
        [("1.5", true), ("\"7\"", true), ("-1", false), ("18446744073709551615", false), ("1e30", false)]
    {
        let (spans, report) =
            read(&format!(r#"[{{"traceId": "1", "id": "1", "timestamp": {time}, "duration": 1}}]"#));
        assert_eq!((spans.len() == 1, report.skipped.is_empty()), (accepted, accepted), "{time}: {report:?}");
    }
}
