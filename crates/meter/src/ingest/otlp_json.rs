//! OTLP in JSON: protobuf's JSON mapping with the changes of the OTLP specification. Trace and span ids are
//! hex instead of base64, enums are numbers (names are accepted too), 64-bit integers are numbers or strings,
//! field names are lowerCamelCase (the original snake_case is accepted, as the mapping requires of parsers),
//! `null` means an omitted field, unknown fields are skipped.
//!
//! All fields of a span are retained, so that it can be shown completely later.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData};
use prost::Message;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// JSON that is not an OTLP trace request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an OTLP trace request in JSON: {reason} at line {line} column {column}")]
pub struct JsonError {
    /// What was found and what was expected.
    pub reason: String,
    /// Line in the text, from 1.
    pub line: usize,
    /// Column in bytes, from 1; 0 for a line that ends before any content.
    pub column: usize,
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let mut reason = error.to_string();
        if let Some(at) = reason.rfind(" at line ") {
            reason.truncate(at);
        }
        JsonError { reason, line: error.line(), column: error.column() }
    }
}

impl JsonError {
    /// Byte offset of the error in the parsed text.
    pub fn offset_in(&self, json: &[u8]) -> usize {
        let lines = json.split(|byte| *byte == b'\n').take(self.line.saturating_sub(1));
        let start: usize = lines.map(|line| line.len() + 1).sum();
        (start + self.column.saturating_sub(1)).min(json.len())
    }
}

/// Converts a complete `ExportTraceServiceRequest` (or `TracesData`) to OTLP protobuf.
///
/// # Errors
/// [`JsonError`] with line and column when any part violates the mapping.
pub fn to_protobuf(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    Ok(parse::<TracesData>(json)?.encode_to_vec())
}

/// Parses one message from its JSON.
///
/// # Errors
/// [`JsonError`] with line and column within `json`.
pub fn parse<T>(json: &[u8]) -> Result<T, JsonError>
where
    Json<T>: for<'de> Deserialize<'de>,
{
    ROOM.set(LEAST_ROOM + json.len() * MEMORY_PER_BYTE);
    let parsed = serde_json::from_slice::<Json<T>>(json);
    ROOM.set(usize::MAX);
    Ok(parsed?.0)
}

/// Memory limit of list items: this many bytes per byte of text, but at least [`LEAST_ROOM`]. A span without
/// attributes takes two per byte.
const MEMORY_PER_BYTE: usize = 8;
const LEAST_ROOM: usize = 1 << 20;

thread_local! {
    /// Remaining memory for the text that this thread is parsing.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn take(room: &Cell<usize>, bytes: usize) -> bool {
    let left = room.get().checked_sub(bytes);
    left.inspect(|left| room.set(*left)).is_some()
}

/// A message, or a field of one, parsed by the JSON mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Json<T>(pub T);

/// A text, borrowed from the input unless it contains escapes.
pub(super) struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl<'de> Visitor<'de> for AsText {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(AsText)
    }
}

/// Parses a message field by field: `"jsonName" | "original_name" => field: how`; into `Json`, unless another wrapper comes
/// before the message.
macro_rules! message {
    ($message:ty, $expecting:literal, { $($fields:tt)* }) => {
        message!(Json: $message, $expecting, { $($fields)* });
    };
    ($wrapper:ident: $message:ty, $expecting:literal, { $($($key:literal)|+ => $field:ident: $how:ty,)* }) => {
        impl<'de> Deserialize<'de> for $wrapper<$message> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> Visitor<'de> for Fields {
                    type Value = $wrapper<$message>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut message = <$message>::default();
                        while let Some(Text(key)) = map.next_key()? {
                            match &*key {
                                $($($key)|+ => {
                                    if let Some(value) = map.next_value::<Option<$how>>()? {
                                        message.$field = value.0.into();
                                    }
                                })*
                                _ => {
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                        }
                        Ok($wrapper(message))
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
}
pub(super) use message;

message!(TracesData, "an ExportTraceServiceRequest", {
    "resourceSpans" | "resource_spans" => resource_spans: List<ResourceSpans>,
});
message!(ResourceSpans, "a ResourceSpans", {
    "resource" => resource: Json<Resource>,
    "scopeSpans" | "scope_spans" | "instrumentationLibrarySpans" => scope_spans: List<ScopeSpans>,
    "schemaUrl" | "schema_url" => schema_url: Json<String>,
});
message!(Resource, "a Resource", {
    "attributes" => attributes: List<KeyValue>,
    "droppedAttributesCount" | "dropped_attributes_count" => dropped_attributes_count: Uint32,
    "entityRefs" | "entity_refs" => entity_refs: List<EntityRef>,
});
message!(EntityRef, "an EntityRef", {
    "schemaUrl" | "schema_url" => schema_url: Json<String>,
    "type" => r#type: Json<String>,
    "idKeys" | "id_keys" => id_keys: List<String>,
    "descriptionKeys" | "description_keys" => description_keys: List<String>,
});
message!(ScopeSpans, "a ScopeSpans", {
    "scope" | "instrumentationLibrary" => scope: Json<InstrumentationScope>,
    "spans" => spans: List<Span>,
    "schemaUrl" | "schema_url" => schema_url: Json<String>,
});
message!(InstrumentationScope, "an InstrumentationScope", {
    "name" => name: Json<String>,
    "version" => version: Json<String>,
    "attributes" => attributes: List<KeyValue>,
    "droppedAttributesCount" | "dropped_attributes_count" => dropped_attributes_count: Uint32,
});
message!(Span, "a Span", {
    "traceId" | "trace_id" => trace_id: HexId,
    "spanId" | "span_id" => span_id: HexId,
    "traceState" | "trace_state" => trace_state: Json<String>,
    "parentSpanId" | "parent_span_id" => parent_span_id: HexId,
    "flags" => flags: Uint32,
    "name" => name: Json<String>,
    "kind" => kind: KindNumber,
    "startTimeUnixNano" | "start_time_unix_nano" => start_time_unix_nano: Uint64,
    "endTimeUnixNano" | "end_time_unix_nano" => end_time_unix_nano: Uint64,
    "attributes" => attributes: List<KeyValue>,
    "droppedAttributesCount" | "dropped_attributes_count" => dropped_attributes_count: Uint32,
    "events" => events: List<Event>,
    "droppedEventsCount" | "dropped_events_count" => dropped_events_count: Uint32,
    "links" => links: List<Link>,
    "droppedLinksCount" | "dropped_links_count" => dropped_links_count: Uint32,
    "status" => status: Json<Status>,
});
message!(Event, "an Event", {
    "timeUnixNano" | "time_unix_nano" => time_unix_nano: Uint64,
    "name" => name: Json<String>,
    "attributes" => attributes: List<KeyValue>,
    "droppedAttributesCount" | "dropped_attributes_count" => dropped_attributes_count: Uint32,
});
message!(Link, "a Link", {
    "traceId" | "trace_id" => trace_id: HexId,
    "spanId" | "span_id" => span_id: HexId,
    "traceState" | "trace_state" => trace_state: Json<String>,
    "attributes" => attributes: List<KeyValue>,
    "droppedAttributesCount" | "dropped_attributes_count" => dropped_attributes_count: Uint32,
    "flags" => flags: Uint32,
});
message!(Status, "a Status", {
    "message" => message: Json<String>,
    "code" => code: CodeNumber,
});
message!(KeyValue, "a KeyValue", {
    "key" => key: Json<String>,
    "value" => value: Json<AnyValue>,
    "keyStrindex" | "key_strindex" => key_strindex: Int32,
});
message!(ArrayValue, "an ArrayValue", { "values" => values: List<AnyValue>, });
message!(KeyValueList, "a KeyValueList", { "values" => values: List<KeyValue>, });

impl<'de> Deserialize<'de> for Json<AnyValue> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOf;
        impl<'de> Visitor<'de> for OneOf {
            type Value = Json<AnyValue>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an AnyValue, such as {\"stringValue\": \"text\"}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut any = AnyValue::default();
                while let Some(Text(key)) = map.next_key()? {
                    let value = match &*key {
                        "stringValue" | "string_value" => {
                            map.next_value::<Option<String>>()?.map(Value::StringValue)
                        }
                        "boolValue" | "bool_value" => map.next_value::<Option<bool>>()?.map(Value::BoolValue),
                        "intValue" | "int_value" => {
                            map.next_value::<Option<Int64>>()?.map(|n| Value::IntValue(n.0))
                        }
                        "doubleValue" | "double_value" => {
                            map.next_value::<Option<Double>>()?.map(|n| Value::DoubleValue(n.0))
                        }
                        "arrayValue" | "array_value" => {
                            map.next_value::<Option<Json<ArrayValue>>>()?.map(|v| Value::ArrayValue(v.0))
                        }
                        "kvlistValue" | "kvlist_value" => {
                            map.next_value::<Option<Json<KeyValueList>>>()?.map(|v| Value::KvlistValue(v.0))
                        }
                        "bytesValue" | "bytes_value" => {
                            map.next_value::<Option<Base64>>()?.map(|v| Value::BytesValue(v.0))
                        }
                        "stringValueStrindex" | "string_value_strindex" => {
                            map.next_value::<Option<Int32>>()?.map(|n| Value::StringValueStrindex(n.0))
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            None
                        }
                    };
                    any.value = value.or(any.value);
                }
                Ok(Json(any))
            }
        }
        deserializer.deserialize_map(OneOf)
    }
}

impl<'de> Deserialize<'de> for Json<String> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Json)
    }
}

struct List<T>(Vec<T>);

impl<'de, T> Deserialize<'de> for List<T>
where
    Json<T>: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T> Visitor<'de> for Items<T>
        where
            Json<T>: Deserialize<'de>,
        {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(Json(item)) = seq.next_element()? {
                    if !ROOM.with(|room| take(room, size_of::<T>())) {
                        return Err(A::Error::custom(
                            "too many nearly empty messages: in memory they take many times the size of the text",
                        ));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// Parses a scalar written as a number or a string.
macro_rules! scalar {
    ($name:ident($type:ty), $expecting:literal, number: $from_number:expr, text: $from_text:expr) => {
        pub(super) struct $name(pub $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Scalar;
                impl<'de> Visitor<'de> for Scalar {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_u64<E: Error>(self, n: u64) -> Result<$name, E> {
                        let value: Option<$type> = $from_number(Number::Unsigned(n));
                        value
                            .map($name)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(n), &self))
                    }
                    fn visit_i64<E: Error>(self, n: i64) -> Result<$name, E> {
                        let value: Option<$type> = $from_number(Number::Signed(n));
                        value
                            .map($name)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(n), &self))
                    }
                    fn visit_f64<E: Error>(self, n: f64) -> Result<$name, E> {
                        let value: Option<$type> = $from_number(Number::Float(n));
                        value
                            .map($name)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(n), &self))
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let value: Option<$type> = $from_text(text);
                        value
                            .map($name)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
                    }
                }
                deserializer.deserialize_any(Scalar)
            }
        }
    };
}

/// A JSON number.
#[derive(Clone, Copy)]
enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Number {
    /// The number as an integer; the mapping allows `1e3` and `1.0` for integers.
    fn whole(self) -> Option<i128> {
        match self {
            Number::Unsigned(n) => Some(n.into()),
            Number::Signed(n) => Some(n.into()),
            Number::Float(n) => (n.fract() == 0.0 && n.abs() < 2e19).then_some(n as i128),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Unsigned(n) => n as f64,
            Number::Signed(n) => n as f64,
            Number::Float(n) => n,
        }
    }

    fn of_text(text: &str) -> Option<Number> {
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        let whole = || text.parse().map(Number::Unsigned).or_else(|_| text.parse().map(Number::Signed)).ok();
        if is_number { whole().or_else(|| text.parse().map(Number::Float).ok()) } else { None }
    }
}

fn whole<T: TryFrom<i128>>(number: Number) -> Option<T> {
    T::try_from(number.whole()?).ok()
}

fn whole_in_text<T: TryFrom<i128>>(text: &str) -> Option<T> {
    whole(Number::of_text(text)?)
}

scalar!(Uint64(u64), "a 64-bit unsigned integer, as a number or a string", number: whole, text: whole_in_text);
scalar!(Int64(i64), "a 64-bit integer, as a number or a string", number: whole, text: whole_in_text);
scalar!(Uint32(u32), "a 32-bit unsigned integer", number: whole, text: whole_in_text);
scalar!(Int32(i32), "a 32-bit integer", number: whole, text: whole_in_text);
scalar!(Double(f64), "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", number: |n: Number| Some(n.float()), text: |text: &str| match text {
    "NaN" => Some(f64::NAN),
    "Infinity" => Some(f64::INFINITY),
    "-Infinity" => Some(f64::NEG_INFINITY),
    _ => Number::of_text(text).map(Number::float),
});
scalar!(KindNumber(i32), "a span kind, as a number or as SPAN_KIND_CLIENT and the like", number: whole, text: |text: &str| {
    SpanKind::from_str_name(text).map(|kind| kind as i32)
});
scalar!(CodeNumber(i32), "a status code, as a number or as STATUS_CODE_ERROR and the like", number: whole, text: |text: &str| {
    StatusCode::from_str_name(text).map(|code| code as i32)
});

/// An id in hex of either case. The walk judges its length.
pub(super) struct HexId(pub Vec<u8>);

impl<'de> Deserialize<'de> for HexId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        hex(&text).map(HexId).ok_or_else(|| {
            let base64 = match (base64(&text).map(|id| id.len()), text.len()) {
                (Some(16 | 8), 22 | 24 | 11 | 12) => "; this looks like base64, which OTLP does not use for ids",
                _ => "",
            };
            D::Error::custom(format_args!(
                "an id that is not hex: found {:?}, expected 32 hex digits for a trace and 16 for a span{base64}",
                Shortened(&text)
            ))
        })
    }
}

/// Input text in an error message, limited to one line.
pub(super) struct Shortened<'a>(pub &'a str);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(48) {
            Some((at, _)) => write!(f, "{:?}…", &self.0[..at]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        base64(&text).map(Base64).ok_or_else(|| {
            D::Error::custom(format_args!("bytes that are not base64: found {:?}", Shortened(&text)))
        })
    }
}

/// Standard or URL-safe alphabet, with or without padding, as the JSON mapping allows.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | value as u32;
        }
        match group.len() {
            4 => bytes.extend_from_slice(&bits.to_be_bytes()[1..]),
            3 => bytes.extend_from_slice(&(bits << 6).to_be_bytes()[1..3]),
            2 => bytes.extend_from_slice(&(bits << 12).to_be_bytes()[1..2]),
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(fields: &str) -> Result<Span, JsonError> {
        parse::<Span>(format!("{{{fields}}}").as_bytes())
    }

    #[test]
    fn numbers_are_accepted_in_every_permitted_spelling() {
        for spelling in ["1700000000000000001", "\"1700000000000000001\""] {
            let read = span(&format!("\"startTimeUnixNano\": {spelling}")).unwrap();
            assert_eq!(read.start_time_unix_nano, 1_700_000_000_000_000_001);
        }
        assert_eq!(
            span("\"endTimeUnixNano\": 1e3, \"kind\": \"SPAN_KIND_CLIENT\"").unwrap().end_time_unix_nano,
            1000
        );
        assert_eq!(span("\"kind\": \"SPAN_KIND_CLIENT\"").unwrap().kind, 3);
        assert_eq!(span("\"kind\": 77").unwrap().kind, 77);
        assert!(span("\"kind\": \"CLIENT\"").unwrap_err().reason.contains("SPAN_KIND_CLIENT"));
        assert!(span("\"startTimeUnixNano\": 1.5").is_err());
        assert!(span("\"startTimeUnixNano\": -1").is_err());
        assert!(span("\"flags\": 4294967296").is_err());
    }

    #[test]
    fn nulls_and_unknown_fields_are_skipped() {
        let read =
            span("\"traceId\": null, \"new\": [{\"deep\": [1, 2]}], \"name\": \"a\", \"status\": null")
                .unwrap();
        assert_eq!(read, Span { name: "a".into(), ..Span::default() });
    }

    #[test]
    fn ids_are_hex_of_either_case_and_base64_gets_a_specific_error() {
        assert_eq!(span("\"spanId\": \"00fFaB0102030405\"").unwrap().span_id, [0, 0xff, 0xab, 1, 2, 3, 4, 5]);
        let error = span("\n\"traceId\": \"W47/95gDgQPSabYzgT/GDA==\"").unwrap_err();
        assert!(error.reason.contains("base64"), "{error}");
        assert_eq!(error.line, 2);
        let error = span("\"spanId\": \"not an id\"").unwrap_err();
        assert!(error.reason.contains("16 for a span") && !error.reason.contains("base64"), "{error}");
    }

    #[test]
    fn base64_of_both_alphabets() {
        assert_eq!(base64("+/8="), Some(vec![0xfb, 0xff]));
        assert_eq!(base64("-_8"), Some(vec![0xfb, 0xff]));
        assert_eq!(base64("AAEC"), Some(vec![0, 1, 2]));
        assert_eq!(base64(""), Some(vec![]));
        assert_eq!(base64("A"), None);
        assert_eq!(base64("A b="), None);
    }

    #[test]
    fn errors_know_their_offset() {
        let json = b"{\n  \"resourceSpans\": [\n    7\n  ]\n}";
        let error = to_protobuf(json).unwrap_err();
        assert_eq!((error.line, json[error.offset_in(json)]), (3, b'7'));
        assert!(error.to_string().contains("expected a ResourceSpans"), "{error}");
    }
}
