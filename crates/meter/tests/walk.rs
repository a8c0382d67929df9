//! The walk compared with prost: whatever prost accepts, the walk accepts with the same facts.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::ingest::semconv::SpanKind as WalkedKind;
use spangap_meter::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use spangap_meter::ingest::walk::{Batch, OriginSink, SpanFacts, walk};
use spangap_meter::ingest::wire::WalkError;
use spangap_model::CallStatus;
use std::cell::RefCell;

/// Records resources in order; a resource's number is its index.
#[derive(Default)]
struct Noted(RefCell<Vec<Vec<u8>>>);

impl OriginSink for Noted {
    fn resource(&self, encoded: &[u8]) -> u32 {
        self.0.borrow_mut().push(encoded.to_vec());
        self.0.borrow().len() as u32 - 1
    }
    fn method(&self, resource: u32, _method: &str) -> u32 {
        resource
    }
}

fn walked(bytes: &[u8]) -> Result<(Vec<SpanFacts>, Vec<Vec<u8>>), WalkError> {
    let (noted, mut batch) = (Noted::default(), Batch::default());
    walk(bytes, &Interest::new(false, &RESPONSE_SIZE_ATTRIBUTES), &noted, &mut batch)?;
    Ok((batch.spans, noted.0.into_inner()))
}

/// The facts from a full decode, written for clarity.
fn decoded(request: &ExportTraceServiceRequest) -> Vec<(SpanFacts, Resource)> {
    let mut all = Vec::new();
    for resource_spans in &request.resource_spans {
        let resource = resource_spans.resource.clone().unwrap_or_default();
        for span in resource_spans.scope_spans.iter().flat_map(|s| &s.spans) {
            all.push((facts(span), resource.clone()));
        }
    }
    all
}

fn facts(span: &Span) -> SpanFacts {
    let word = |b: &[u8]| <[u8; 8]>::try_from(b).map(u64::from_ne_bytes).unwrap_or(0);
    let trace = if span.trace_id.len() == 16 {
        [word(&span.trace_id[..8]), word(&span.trace_id[8..])]
    } else {
        [0; 2]
    };
    let kind = match span.kind() {
        span::SpanKind::Client => WalkedKind::Client,
        span::SpanKind::Server => WalkedKind::Server,
        _ => WalkedKind::Other,
    };
    let scalar = |value: &Option<any_value::Value>| match value {
        Some(any_value::Value::IntValue(n)) => u64::try_from(*n).ok(),
        Some(any_value::Value::StringValue(s)) => s.parse().ok(),
        _ => None,
    };
    let number = |value: &Option<any_value::Value>| match value {
        Some(any_value::Value::ArrayValue(list)) => match &list.values[..] {
            [only] => scalar(&only.value),
            _ => None,
        },
        value => scalar(value),
    };
    let (mut status, mut http, mut size, mut moved) = (None, 0, None, None);
    for attribute in &span.attributes {
        let value = attribute.value.clone().unwrap_or_default().value;
        match attribute.key.as_str() {
            "rpc.grpc.status_code" | "rpc.response.status_code" => match &value {
                Some(any_value::Value::StringValue(name)) => {
                    let code = name.parse().map(CallStatus::from_grpc).ok();
                    status = code.or_else(|| CallStatus::from_grpc_name(name)).or(status);
                }
                value => status = scalar(value).map(CallStatus::from_grpc).or(status),
            },
            "http.response.status_code" | "http.status_code" => http = number(&value).unwrap_or(http),
            key if RESPONSE_SIZE_ATTRIBUTES.contains(&key) => size = size.max(number(&value)),
            "http.wrote_bytes" if kind == WalkedKind::Server => moved = number(&value).or(moved),
            "http.read_bytes" if kind == WalkedKind::Client => moved = number(&value).or(moved),
            _ => {}
        }
    }
    let of_span = span.status.as_ref().map_or(0, |s| s.code as u64);
    let by_events = span
        .events
        .iter()
        .filter(|e| e.name == "message" || e.name == "rpc.message")
        .filter_map(|e| {
            let mine = match kind {
                WalkedKind::Client => "RECEIVED",
                WalkedKind::Server => "SENT",
                WalkedKind::Other => return None,
            };
            let (mut direction, mut bytes, mut compressed) = (String::new(), None, None);
            for attribute in &e.attributes {
                let value = attribute.value.clone().unwrap_or_default().value;
                match (attribute.key.as_str(), value) {
                    ("message.type" | "rpc.message.type", Some(any_value::Value::StringValue(s))) => {
                        direction = s
                    }
                    ("message.uncompressed_size" | "rpc.message.uncompressed_size", value) => {
                        bytes = number(&value)
                    }
                    ("message.compressed_size" | "rpc.message.compressed_size", value) => {
                        compressed = number(&value)
                    }
                    _ => {}
                }
            }
            bytes.or(compressed).filter(|_| direction.eq_ignore_ascii_case(mine))
        })
        .reduce(u64::saturating_add);
    let response_bytes = size.max(moved).max(by_events);
    SpanFacts {
        trace,
        span: if span.span_id.len() == 8 { word(&span.span_id) } else { 0 },
        parent: if span.parent_span_id.len() == 8 { word(&span.parent_span_id) } else { 0 },
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        response_bytes: response_bytes.unwrap_or(0),
        sized: response_bytes.is_some(),
        kind,
        status: match status {
            Some(status) => status,
            None if http != 0 => CallStatus::from_http(http),
            None => CallStatus::from_span_code(of_span),
        },
        bad_id: span.trace_id.len() != 16
            || span.span_id.len() != 8
            || ![0, 8].contains(&span.parent_span_id.len())
            || span.trace_id.iter().all(|b| *b == 0)
            || span.span_id.iter().all(|b| *b == 0),
        ..SpanFacts::default()
    }
}

fn compare(bytes: &[u8], request: &ExportTraceServiceRequest) {
    let (spans, resources) = walked(bytes).expect("prost accepts it");
    let expected = decoded(request);
    assert_eq!(spans.len(), expected.len());
    for (got, (wanted, resource)) in spans.iter().zip(&expected) {
        let own = &bytes[got.offset as usize..(got.offset + got.len) as usize];
        assert_eq!(facts(&Span::decode(own).expect("the range is the span's message")), *wanted);
        assert_eq!(&Resource::decode(&resources[got.origin as usize][..]).unwrap(), resource);
        assert_eq!(SpanFacts { origin: 0, offset: 0, len: 0, ..*got }, *wanted);
    }
}

fn attribute() -> impl Strategy<Value = KeyValue> {
    let key = prop_oneof![
        Just("rpc.grpc.status_code".to_string()),
        Just("rpc.response.status_code".to_string()),
        Just("http.response.status_code".to_string()),
        Just("http.response.body.size".to_string()),
        Just("message.type".to_string()),
        Just("message.uncompressed_size".to_string()),
        Just("message.compressed_size".to_string()),
        Just("http.wrote_bytes".to_string()),
        Just("http.read_bytes".to_string()),
        Just("http.response.header.content-length".to_string()),
        "[a-z.]{0,80}",
    ];
    let value = prop_oneof![
        (0i64..700).prop_map(any_value::Value::IntValue),
        any::<i64>().prop_map(any_value::Value::IntValue),
        prop_oneof![Just("SENT"), Just("RECEIVED"), Just("DEADLINE_EXCEEDED"), Just("14"), Just("x")]
            .prop_map(|s| any_value::Value::StringValue(s.into())),
        any::<bool>().prop_map(any_value::Value::BoolValue),
        prop::collection::vec("[0-9]{0,6}", 0..3).prop_map(|texts| {
            let item = |s| AnyValue { value: Some(any_value::Value::StringValue(s)) };
            let values = texts.into_iter().map(item).collect();
            any_value::Value::ArrayValue(ArrayValue { values })
        }),
        any::<f64>().prop_filter("equal to itself", |f| !f.is_nan()).prop_map(any_value::Value::DoubleValue),
    ];
    (key, prop::option::of(value)).prop_map(|(key, value)| KeyValue {
        key,
        value: Some(AnyValue { value }),
        ..KeyValue::default()
    })
}

fn a_span() -> impl Strategy<Value = Span> {
    let id = |n: usize| prop_oneof![8 => prop::collection::vec(any::<u8>(), n), 1 => prop::collection::vec(any::<u8>(), 0..20), 1 => Just(vec![0; n])];
    let event = (
        prop_oneof![Just("message"), Just("rpc.message"), Just("exception")],
        prop::collection::vec(attribute(), 0..4),
    )
        .prop_map(|(name, attributes)| span::Event {
            name: name.into(),
            attributes,
            ..span::Event::default()
        });
    (
        (id(16), id(8), id(8), 0i32..7, any::<u64>(), any::<u64>()),
        prop::collection::vec(attribute(), 0..6),
        prop::collection::vec(event, 0..3),
        prop::option::of(0i32..4),
        "[ -~]{0,20}",
    )
        .prop_map(
            |((trace_id, span_id, parent_span_id, kind, start, end), attributes, events, code, name)| Span {
                trace_id,
                span_id,
                parent_span_id,
                kind,
                start_time_unix_nano: start,
                end_time_unix_nano: end,
                attributes,
                events,
                status: code.map(|code| Status { code, message: "m".into() }),
                name,
                flags: 0x101,
                ..Span::default()
            },
        )
}

fn a_request() -> impl Strategy<Value = ExportTraceServiceRequest> {
    let scope = prop::collection::vec(a_span(), 0..5).prop_map(|spans| ScopeSpans {
        scope: Some(InstrumentationScope { name: "s".into(), ..InstrumentationScope::default() }),
        spans,
        schema_url: "u".into(),
    });
    let resource = prop::collection::vec(attribute(), 0..4)
        .prop_map(|attributes| Resource { attributes, ..Resource::default() });
    let resource_spans = (prop::option::of(resource), prop::collection::vec(scope, 0..3)).prop_map(
        |(resource, scope_spans)| ResourceSpans { resource, scope_spans, schema_url: String::new() },
    );
    prop::collection::vec(resource_spans, 0..3)
        .prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
}

proptest! {
    #[test]
    fn equal_facts_on_proper_requests(request in a_request()) {
        compare(&request.encode_to_vec(), &request);
    }

    /// Concatenation of two messages is their merge; unknown fields of every wire type are skipped.
    #[test]
    fn equal_facts_on_merged_requests_with_unknown_fields(a in a_request(), b in a_request()) {
        let mut bytes = a.encode_to_vec();
        bytes.extend([0xa0, 0x06, 0x96, 0x01]); // field 100, varint
        bytes.extend([0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]); // field 100, eight bytes
        bytes.extend([0xa5, 0x06, 1, 2, 3, 4]); // field 100, four bytes
        bytes.extend([0xa3, 0x06, 0xa0, 0x06, 0x01, 0xa4, 0x06]); // field 100, a group with a varint
        bytes.extend(b.encode_to_vec());
        let merged = ExportTraceServiceRequest::decode(&bytes[..]).expect("prost accepts it");
        compare(&bytes, &merged);
    }

    /// On damaged bytes the walk never panics, and rejects nothing that prost accepts.
    #[test]
    fn refuses_nothing_that_prost_accepts(request in a_request(), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), end in any::<prop::sample::Index>()) {
        let mut bytes = request.encode_to_vec();
        bytes.push(0x0a);
        for (at, byte) in cuts {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let end = end.index(bytes.len()) + 1;
        for bytes in [&bytes[..], &bytes[..end]] {
            let walked = walked(bytes);
            if let Ok(request) = ExportTraceServiceRequest::decode(bytes) {
                let (spans, _) = walked.expect("prost accepts it");
                prop_assert_eq!(spans.len(), decoded(&request).len());
            } else if let Err(error) = walked {
                prop_assert!(error.offset <= bytes.len());
            }
        }
    }
}

#[test]
fn a_resource_after_its_spans_still_names_them() {
    let span = Span { trace_id: vec![1; 16], span_id: vec![2; 8], kind: 3, ..Span::default() };
    let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let resource = Resource { dropped_attributes_count: 7, ..Resource::default() };
    // ResourceSpans with its fields in reverse order.
    let mut body = vec![0x12];
    prost::encoding::encode_varint(scope.encoded_len() as u64, &mut body);
    scope.encode_raw(&mut body);
    body.push(0x0a);
    prost::encoding::encode_varint(resource.encoded_len() as u64, &mut body);
    resource.encode_raw(&mut body);
    let mut bytes = vec![0x0a];
    prost::encoding::encode_varint(body.len() as u64, &mut bytes);
    bytes.extend(body);
    compare(&bytes, &ExportTraceServiceRequest::decode(&bytes[..]).unwrap());
}

#[test]
fn errors_name_the_offset() {
    let error = walked(b"\x0a\x7fabc").unwrap_err();
    assert_eq!(
        error.to_string(),
        "not an OTLP trace request: expected a length within its message at byte 2"
    );
    assert!(walked(b"{\"resourceSpans\":[]}").is_err());
}
