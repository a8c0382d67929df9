//! OTLP JSON compared with its source, in every spelling that the specification allows, and with the serde
//! support of opentelemetry-proto.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Map, Value, json};
use spangap_meter::ingest::otlp_json::to_protobuf;

/// Choices that the JSON mapping leaves to the writer.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    snake_case: bool,
    integers_as_numbers: bool,
    enum_names: bool,
    defaults: Defaults,
    upper_case_hex: bool,
    unknown_fields: bool,
}

#[derive(Clone, Copy, Debug)]
enum Defaults {
    Omitted,
    Written,
    Null,
}

fn spelling() -> impl Strategy<Value = Spelling> {
    let defaults = prop_oneof![Just(Defaults::Omitted), Just(Defaults::Written), Just(Defaults::Null)];
    (any::<[bool; 5]>(), defaults).prop_map(|(choice, defaults)| Spelling {
        snake_case: choice[0],
        integers_as_numbers: choice[1],
        enum_names: choice[2],
        defaults,
        upper_case_hex: choice[3],
        unknown_fields: choice[4],
    })
}

impl Spelling {
    fn object<const N: usize>(self, fields: [(&str, Value); N]) -> Value {
        let mut object = Map::new();
        for (name, value) in fields {
            let is_default = match &value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Number(number) => number.as_f64() == Some(0.0),
                _ => false,
            };
            let value = match self.defaults {
                Defaults::Omitted if is_default => continue,
                Defaults::Null if is_default => Value::Null,
                _ => value,
            };
            object.insert(self.name(name), value);
        }
        if self.unknown_fields {
            object.insert("fieldOfTomorrow".into(), json!([{"deep": ["]}", 1e300, null]}]));
        }
        Value::Object(object)
    }

    fn name(self, camel: &str) -> String {
        if !self.snake_case {
            return camel.into();
        }
        camel.chars().fold(String::new(), |name, c| match c.is_ascii_uppercase() {
            true => format!("{name}_{}", c.to_ascii_lowercase()),
            false => format!("{name}{c}"),
        })
    }

    fn id(self, id: &[u8]) -> Value {
        let digit =
            |byte: &u8| if self.upper_case_hex { format!("{byte:02X}") } else { format!("{byte:02x}") };
        id.iter().map(digit).collect::<String>().into()
    }

    fn u64(self, n: u64) -> Value {
        if self.integers_as_numbers { n.into() } else { n.to_string().into() }
    }

    fn any(self, any: &AnyValue) -> Value {
        let one = |name: &str, value: Value| json!({ self.name(name): value });
        match &any.value {
            None => json!({}),
            Some(Any::StringValue(text)) => one("stringValue", text.as_str().into()),
            Some(Any::BoolValue(value)) => one("boolValue", (*value).into()),
            Some(Any::IntValue(n)) => {
                one("intValue", if self.integers_as_numbers { (*n).into() } else { n.to_string().into() })
            }
            Some(Any::DoubleValue(n)) if n.is_nan() => one("doubleValue", "NaN".into()),
            Some(Any::DoubleValue(n)) if n.is_infinite() => {
                one("doubleValue", if *n > 0.0 { "Infinity" } else { "-Infinity" }.into())
            }
            Some(Any::DoubleValue(n)) => one("doubleValue", (*n).into()),
            Some(Any::ArrayValue(array)) => {
                let values: Vec<Value> = array.values.iter().map(|v| self.any(v)).collect();
                one("arrayValue", self.object([("values", values.into())]))
            }
            Some(Any::KvlistValue(list)) => {
                one("kvlistValue", self.object([("values", self.attributes(&list.values))]))
            }
            Some(Any::BytesValue(bytes)) => one("bytesValue", base64(bytes).into()),
            Some(Any::StringValueStrindex(n)) => one("stringValueStrindex", (*n).into()),
        }
    }

    fn attributes(self, attributes: &[KeyValue]) -> Value {
        let attribute = |a: &KeyValue| {
            self.object([
                ("key", a.key.as_str().into()),
                ("value", a.value.as_ref().map_or(Value::Null, |v| self.any(v))),
                ("keyStrindex", a.key_strindex.into()),
            ])
        };
        attributes.iter().map(attribute).collect()
    }

    fn span(self, span: &Span) -> Value {
        const KINDS: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
        let kind = match self.enum_names {
            true => format!("SPAN_KIND_{}", KINDS[span.kind as usize]).into(),
            false => span.kind.into(),
        };
        let event = |e: &Event| {
            self.object([
                ("timeUnixNano", self.u64(e.time_unix_nano)),
                ("name", e.name.as_str().into()),
                ("attributes", self.attributes(&e.attributes)),
                ("droppedAttributesCount", e.dropped_attributes_count.into()),
            ])
        };
        let link = |l: &Link| {
            self.object([
                ("traceId", self.id(&l.trace_id)),
                ("spanId", self.id(&l.span_id)),
                ("traceState", l.trace_state.as_str().into()),
                ("attributes", self.attributes(&l.attributes)),
                ("droppedAttributesCount", l.dropped_attributes_count.into()),
                ("flags", l.flags.into()),
            ])
        };
        let status = |s: &Status| {
            let code = match self.enum_names {
                true => ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"][s.code as usize].into(),
                false => s.code.into(),
            };
            self.object([("message", s.message.as_str().into()), ("code", code)])
        };
        self.object([
            ("traceId", self.id(&span.trace_id)),
            ("spanId", self.id(&span.span_id)),
            ("traceState", span.trace_state.as_str().into()),
            ("parentSpanId", self.id(&span.parent_span_id)),
            ("flags", span.flags.into()),
            ("name", span.name.as_str().into()),
            ("kind", kind),
            ("startTimeUnixNano", self.u64(span.start_time_unix_nano)),
            ("endTimeUnixNano", self.u64(span.end_time_unix_nano)),
            ("attributes", self.attributes(&span.attributes)),
            ("droppedAttributesCount", span.dropped_attributes_count.into()),
            ("events", span.events.iter().map(event).collect()),
            ("droppedEventsCount", span.dropped_events_count.into()),
            ("links", span.links.iter().map(link).collect()),
            ("droppedLinksCount", span.dropped_links_count.into()),
            ("status", span.status.as_ref().map_or(Value::Null, status)),
        ])
    }

    fn request(self, request: &TracesData) -> Value {
        let entity = |e: &EntityRef| {
            self.object([
                ("schemaUrl", e.schema_url.as_str().into()),
                ("type", e.r#type.as_str().into()),
                ("idKeys", e.id_keys.clone().into()),
                ("descriptionKeys", e.description_keys.clone().into()),
            ])
        };
        let resource = |r: &Resource| {
            self.object([
                ("attributes", self.attributes(&r.attributes)),
                ("droppedAttributesCount", r.dropped_attributes_count.into()),
                ("entityRefs", r.entity_refs.iter().map(entity).collect()),
            ])
        };
        let scope = |s: &InstrumentationScope| {
            self.object([
                ("name", s.name.as_str().into()),
                ("version", s.version.as_str().into()),
                ("attributes", self.attributes(&s.attributes)),
                ("droppedAttributesCount", s.dropped_attributes_count.into()),
            ])
        };
        let scope_spans = |s: &ScopeSpans| {
            self.object([
                ("scope", s.scope.as_ref().map_or(Value::Null, scope)),
                ("spans", s.spans.iter().map(|span| self.span(span)).collect()),
                ("schemaUrl", s.schema_url.as_str().into()),
            ])
        };
        let resource_spans = |r: &ResourceSpans| {
            self.object([
                ("resource", r.resource.as_ref().map_or(Value::Null, resource)),
                ("scopeSpans", r.scope_spans.iter().map(scope_spans).collect()),
                ("schemaUrl", r.schema_url.as_str().into()),
            ])
        };
        let spans = request.resource_spans.iter().map(resource_spans).collect();
        self.object([("resourceSpans", spans)])
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | *byte as u32) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i > group.len() { '=' } else { digit });
        }
    }
    text
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        Just(None),
        ".{0,8}".prop_map(|text| Some(Any::StringValue(text))),
        any::<bool>().prop_map(|value| Some(Any::BoolValue(value))),
        any::<i64>().prop_map(|n| Some(Any::IntValue(n))),
        prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)]
            .prop_map(|n| Some(Any::DoubleValue(n))),
        vec(any::<u8>(), 0..9).prop_map(|bytes| Some(Any::BytesValue(bytes))),
        any::<i32>().prop_map(|n| Some(Any::StringValueStrindex(n))),
    ];
    leaf.prop_map(|value| AnyValue { value }).prop_recursive(3, 12, 3, |inner| {
        let key_value = (".{0,4}", option::of(inner.clone())).prop_map(|(key, value)| KeyValue {
            key,
            value,
            ..KeyValue::default()
        });
        prop_oneof![
            vec(inner, 0..3).prop_map(|values| Any::ArrayValue(ArrayValue { values })),
            vec(key_value, 0..3).prop_map(|values| Any::KvlistValue(KeyValueList { values })),
        ]
        .prop_map(|value| AnyValue { value: Some(value) })
    })
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let attribute = (".{0,8}", option::of(any_value()), prop_oneof![3 => Just(0), 1 => any::<i32>()]);
    vec(attribute.prop_map(|(key, value, key_strindex)| KeyValue { key, value, key_strindex }), 0..3)
}

fn id(len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), len), 1 => Just(vec![]), 1 => vec(any::<u8>(), 0..20)]
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), ".{0,5}", attributes(), any::<u32>()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    (id(16), id(8), ".{0,5}", attributes(), any::<u32>(), any::<u32>()).prop_map(
        |(trace_id, span_id, trace_state, attributes, dropped_attributes_count, flags)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count,
            flags,
        },
    )
}

prop_compose! {
    fn span()(
        ids in (id(16), id(8), id(8)),
        texts in (".{0,5}", ".{0,5}"),
        numbers in (any::<u32>(), 0..6i32, any::<u64>(), any::<u64>()),
        dropped in any::<[u32; 3]>(),
        attributes in attributes(),
        events in vec(event(), 0..2),
        links in vec(link(), 0..2),
        status in option::of((".{0,5}", 0..3i32).prop_map(|(message, code)| Status { message, code })),
    ) -> Span {
        Span {
            trace_id: ids.0,
            span_id: ids.1,
            trace_state: texts.0,
            parent_span_id: ids.2,
            flags: numbers.0,
            name: texts.1,
            kind: numbers.1,
            start_time_unix_nano: numbers.2,
            end_time_unix_nano: numbers.3,
            attributes,
            dropped_attributes_count: dropped[0],
            events,
            dropped_events_count: dropped[1],
            links,
            dropped_links_count: dropped[2],
            status,
        }
    }
}

fn request() -> impl Strategy<Value = TracesData> {
    let scope = (".{0,5}", ".{0,5}", attributes(), any::<u32>()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    let scope_spans = (option::of(scope), vec(span(), 0..3), ".{0,5}")
        .prop_map(|(scope, spans, schema_url)| ScopeSpans { scope, spans, schema_url });
    let entity = (".{0,5}", ".{0,5}", vec(".{1,5}", 0..2), vec(".{1,5}", 0..2)).prop_map(
        |(schema_url, r#type, id_keys, description_keys)| EntityRef {
            schema_url,
            r#type,
            id_keys,
            description_keys,
        },
    );
    let resource = (attributes(), any::<u32>(), vec(entity, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| Resource {
            attributes,
            dropped_attributes_count,
            entity_refs,
        },
    );
    let resource_spans = (option::of(resource), vec(scope_spans, 0..3), ".{0,5}")
        .prop_map(|(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url });
    vec(resource_spans, 0..3).prop_map(|resource_spans| TracesData { resource_spans })
}

proptest! {
    #[test]
    fn every_spelling_survives_a_round_trip(request in request(), spelling in spelling()) {
        let json = spelling.request(&request).to_string();
        let read = to_protobuf(json.as_bytes());
        // Compared as bytes, because NaN is not equal to itself.
        prop_assert_eq!(read, Ok(request.encode_to_vec()), "{}", json);
    }

    #[test]
    fn output_of_opentelemetry_proto_is_accepted(mut request in request()) {
        drop_what_it_does_not_know(&mut request);
        let json = serde_json::to_string(&request).expect("serde support of opentelemetry-proto");
        prop_assert_eq!(to_protobuf(json.as_bytes()), Ok(request.encode_to_vec()), "{}", json);
    }

    #[test]
    fn opentelemetry_proto_understands_the_same(mut request in request()) {
        drop_what_it_does_not_know(&mut request);
        let plain = Spelling {
            snake_case: false,
            integers_as_numbers: false,
            enum_names: false,
            defaults: Defaults::Written,
            upper_case_hex: false,
            unknown_fields: true,
        };
        let json = plain.request(&request).to_string();
        let theirs: TracesData = serde_json::from_str(&json).expect("serde support of opentelemetry-proto");
        prop_assert_eq!(to_protobuf(json.as_bytes()), Ok(theirs.encode_to_vec()), "{}", json);
    }

    #[test]
    fn damaged_json_is_refused_with_the_place_of_the_error(request in request(), spelling in spelling(), cut in any::<prop::sample::Index>()) {
        let json = spelling.request(&request).to_string();
        let cut = cut.index(json.len());
        let error = to_protobuf(&json.as_bytes()[..cut]).expect_err("a document that is cut off");
        prop_assert!(error.line == 1 && error.column <= cut, "{error} of {cut}");
        prop_assert!(error.offset_in(&json.as_bytes()[..cut]) <= cut);
    }
}

fn for_each_any(request: &mut TracesData, change: &mut dyn FnMut(&mut Option<AnyValue>)) {
    fn inside(attributes: &mut [KeyValue], change: &mut dyn FnMut(&mut Option<AnyValue>)) {
        for attribute in attributes {
            attribute.key_strindex = 0;
            any(&mut attribute.value, change);
        }
    }
    fn any(value: &mut Option<AnyValue>, change: &mut dyn FnMut(&mut Option<AnyValue>)) {
        change(value);
        match value.as_mut().and_then(|v| v.value.as_mut()) {
            Some(Any::ArrayValue(array)) => {
                for item in &mut array.values {
                    let mut value = Some(std::mem::take(item));
                    any(&mut value, change);
                    *item = value.unwrap_or_default();
                }
            }
            Some(Any::KvlistValue(list)) => inside(&mut list.values, change),
            _ => {}
        }
    }
    for resource_spans in &mut request.resource_spans {
        inside(resource_spans.resource.as_mut().map_or(&mut [], |r| &mut r.attributes), change);
        for scope_spans in &mut resource_spans.scope_spans {
            inside(scope_spans.scope.as_mut().map_or(&mut [], |s| &mut s.attributes), change);
            for span in &mut scope_spans.spans {
                inside(&mut span.attributes, change);
                span.events.iter_mut().for_each(|e| inside(&mut e.attributes, change));
                span.links.iter_mut().for_each(|l| inside(&mut l.attributes, change));
            }
        }
    }
}

/// Deviations of opentelemetry-proto 0.33's serde support from the specification: it writes non-finite
/// doubles as `null`, and does not read `stringValueStrindex`.
fn drop_what_it_does_not_know(request: &mut TracesData) {
    for_each_any(request, &mut |value| {
        let unwritable = |v: &Any| match v {
            Any::DoubleValue(n) => !n.is_finite(),
            Any::StringValueStrindex(_) => true,
            _ => false,
        };
        if value.as_ref().and_then(|v| v.value.as_ref()).is_some_and(unwritable) {
            *value = None;
        }
    });
}
