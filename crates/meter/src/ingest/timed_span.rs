//! Spans in OTLP JSON as far as [`super::times`] needs them.

use super::otlp_json::{HexId, Json, KindNumber, Text, Uint64, message};
use super::times::is_port;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A span of which only ids, kind, times and the attributes that [`is_port`] names are read: the rest, most of the text,
/// only has to be JSON.
pub(super) struct Timed<T>(pub T);

message!(Timed: Span, "a Span", {
    "traceId" | "trace_id" => trace_id: HexId,
    "spanId" | "span_id" => span_id: HexId,
    "parentSpanId" | "parent_span_id" => parent_span_id: HexId,
    "kind" => kind: KindNumber,
    "startTimeUnixNano" | "start_time_unix_nano" => start_time_unix_nano: Uint64,
    "endTimeUnixNano" | "end_time_unix_nano" => end_time_unix_nano: Uint64,
    "attributes" => attributes: Ports,
});

/// Attributes with a port.
struct Ports(Vec<KeyValue>);

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Ports;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut ports = Vec::new();
                while let Some(Port(port)) = seq.next_element()? {
                    ports.extend(port);
                }
                Ok(Ports(ports))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

/// An attribute, if it has a port.
struct Port(Option<KeyValue>);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Port;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a KeyValue")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut key, mut value) = (None, None);
                while let Some(Text(field)) = map.next_key()? {
                    let may_be_port = key.as_ref().is_none_or(|Text(key)| is_port(key.as_bytes()));
                    match &*field {
                        "key" => key = map.next_value::<Option<Text<'de>>>()?.or(key),
                        "value" if may_be_port => value = map.next_value::<Option<Json<AnyValue>>>()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                let key = key.filter(|Text(key)| is_port(key.as_bytes()));
                Ok(Port(key.map(|Text(key)| KeyValue {
                    key: key.into_owned(),
                    value: value.map(|value| value.0),
                    ..KeyValue::default()
                })))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
