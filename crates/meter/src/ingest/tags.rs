//! Common parts of Jaeger and Zipkin: ids without leading zeros, microseconds, tags instead of attributes,
//! and calls whose two halves share one span id.

use super::otlp_json::{Shortened, base64};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A trace id: up to 32 hex digits, left-padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

/// A span id: up to 16 hex digits, left-padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl SpanId {
    /// OTLP's encoding; an id of zero means none.
    pub fn bytes_or_none(self) -> Vec<u8> {
        if self.0 == 0 { Vec::new() } else { self.0.to_be_bytes().into() }
    }

    /// The id of the SERVER half when both halves carry this one. A fixed bijection (splitmix64's), so that a
    /// retransmitted span stays a duplicate.
    pub fn of_server_half(self) -> SpanId {
        let mut id = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        SpanId((id ^ (id >> 31)).max(1))
    }
}

/// Parses a string with a function.
struct FromText<T>(&'static str, fn(&str) -> Option<T>);

impl<'de, T> Visitor<'de> for FromText<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text)
            .ok_or_else(|| E::custom(format_args!("found {:?}, expected {}", Shortened(text), self.0)))
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    (1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText("a trace id of up to 32 hex digits", |text| {
            is_hex(text, 32).then(|| u128::from_str_radix(text, 16).ok()).flatten().map(TraceId)
        }))
    }
}

impl<'de> Deserialize<'de> for SpanId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText("a span id of up to 16 hex digits", |text| {
            is_hex(text, 16).then(|| u64::from_str_radix(text, 16).ok()).flatten().map(SpanId)
        }))
    }
}

/// A time or duration, written in microseconds and stored in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micros {
    /// Nanoseconds.
    pub ns: u64,
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl<'de> Visitor<'de> for Number {
            type Value = Micros;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in microseconds")
            }
            fn visit_u64<E: Error>(self, us: u64) -> Result<Micros, E> {
                let ns = us.checked_mul(1000);
                ns.map(|ns| Micros { ns })
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(us), &self))
            }
            fn visit_f64<E: Error>(self, us: f64) -> Result<Micros, E> {
                let ns = us * 1000.0;
                (0.0..1.8e19)
                    .contains(&ns)
                    .then(|| Micros { ns: ns.round() as u64 })
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(us), &self))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Micros, E> {
                let us: Option<u64> = text.parse().ok();
                let us = us.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))?;
                self.visit_u64(us)
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// Start and end in OTLP's form; 0 if unknown, which the meter counts as malformed.
pub fn start_and_end(start: Option<Micros>, duration: Option<Micros>) -> (u64, u64) {
    let start = start.map_or(0, |start| start.ns);
    let end = duration.map(|duration| start.saturating_add(duration.ns));
    (start, if start == 0 { 0 } else { end.unwrap_or(0) })
}

/// Value of a tag, of any JSON type.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TagValue<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction, or beyond 64 bits.
    Float(f64),
    /// `null`.
    #[default]
    Null,
}

impl<'de: 'a, 'a> Deserialize<'de> for TagValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl<'de> Visitor<'de> for Scalar {
            type Value = TagValue<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tag's value: text, number or bool")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(TagValue::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TagValue::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(TagValue::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(TagValue::Int(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(value).map_or(TagValue::Float(value as f64), TagValue::Int))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(TagValue::Float(value))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(TagValue::Null)
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl TagValue<'_> {
    /// The value as text, for tags that are only meaningful as text.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            TagValue::Text(text) => Cow::Borrowed(text),
            TagValue::Bool(value) => value.to_string().into(),
            TagValue::Int(value) => value.to_string().into(),
            TagValue::Float(value) => value.to_string().into(),
            TagValue::Null => Cow::Borrowed(""),
        }
    }

    /// The value in OTLP's form. `declared` is the type that Jaeger writes beside the value; a value of
    /// another type is unchanged.
    pub fn any(self, declared: &str) -> AnyValue {
        let value = match (declared, self) {
            ("int64", TagValue::Text(text)) => {
                text.parse().map_or_else(|_| Value::StringValue(text.into_owned()), Value::IntValue)
            }
            ("float64", TagValue::Text(text)) => {
                text.parse().map_or_else(|_| Value::StringValue(text.into_owned()), Value::DoubleValue)
            }
            ("float64", TagValue::Int(value)) => Value::DoubleValue(value as f64),
            ("bool", TagValue::Text(text)) => {
                text.parse().map_or_else(|_| Value::StringValue(text.into_owned()), Value::BoolValue)
            }
            ("binary", TagValue::Text(text)) => {
                base64(&text).map_or_else(|| Value::StringValue(text.into_owned()), Value::BytesValue)
            }
            (_, TagValue::Text(text)) => Value::StringValue(text.into_owned()),
            (_, TagValue::Bool(value)) => Value::BoolValue(value),
            (_, TagValue::Int(value)) => Value::IntValue(value),
            (_, TagValue::Float(value)) => Value::DoubleValue(value),
            (_, TagValue::Null) => return AnyValue::default(),
        };
        AnyValue { value: Some(value) }
    }
}

/// Semantic conventions' name for a tag of older tracers, else the tag's own name.
pub fn attribute_name(tag: &str) -> &str {
    match tag {
        "grpc.status_code" => "rpc.grpc.status_code",
        _ => tag,
    }
}

/// An attribute.
pub fn attribute(key: impl Into<String>, value: AnyValue) -> KeyValue {
    KeyValue { key: key.into(), value: Some(value), ..KeyValue::default() }
}

/// An attribute with a text value.
pub fn text_attribute(key: impl Into<String>, text: impl Into<String>) -> KeyValue {
    attribute(key, AnyValue { value: Some(Value::StringValue(text.into())) })
}

/// The kind by its name in either format, case-insensitive.
pub fn kind(name: &str) -> SpanKind {
    let kinds = [
        ("client", SpanKind::Client),
        ("server", SpanKind::Server),
        ("producer", SpanKind::Producer),
        ("consumer", SpanKind::Consumer),
    ];
    let kind = kinds.iter().find(|(kind, _)| kind.eq_ignore_ascii_case(name));
    kind.map_or(SpanKind::Internal, |(_, kind)| *kind)
}

/// The status from the tags `error`, `otel.status_code` and `otel.status_description` together.
#[derive(Default)]
pub struct StatusTags {
    code: StatusCode,
    message: String,
}

impl StatusTags {
    /// Adds one tag.
    pub fn see(&mut self, key: &str, value: &TagValue<'_>) {
        match key {
            "otel.status_code" => match &*value.text() {
                "ERROR" => self.code = StatusCode::Error,
                "OK" => self.code = StatusCode::Ok,
                _ => {}
            },
            "otel.status_description" => self.message = value.text().into_owned(),
            // Zipkin puts the error message into the tag; its presence means failure.
            "error" if !matches!(&*value.text(), "false" | "0") => {
                self.code = StatusCode::Error;
                if self.message.is_empty() && value.text() != "true" {
                    self.message = value.text().into_owned();
                }
            }
            _ => {}
        }
    }

    /// The resulting status.
    pub fn status(self) -> Option<Status> {
        (self.code != StatusCode::Unset).then_some(Status { message: self.message, code: self.code as i32 })
    }
}
