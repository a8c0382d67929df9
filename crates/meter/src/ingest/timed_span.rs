//! Spans in OTLP JSON as far as [`super::times`] needs them.

use super::otlp_json::{HexId, Json, KindNumber, Text, Uint64};
use super::times::is_port;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A span of which only ids, kind, times and the attributes that [`is_port`] names are read: the rest, most of the text,
/// only has to be JSON.
pub(super) struct TimedSpan(pub Span);

impl<'de> Deserialize<'de> for TimedSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = TimedSpan;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Span")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut span = Span::default();
                while let Some(Text(key)) = map.next_key()? {
                    let id = match &*key {
                        "traceId" | "trace_id" => &mut span.trace_id,
                        "spanId" | "span_id" => &mut span.span_id,
                        "parentSpanId" | "parent_span_id" => &mut span.parent_span_id,
                        "kind" => {
                            span.kind =
                                map.next_value::<Option<KindNumber>>()?.map_or(span.kind, |kind| kind.0);
                            continue;
                        }
                        "startTimeUnixNano" | "start_time_unix_nano" => {
                            take_time(&mut map, &mut span.start_time_unix_nano)?;
                            continue;
                        }
                        "endTimeUnixNano" | "end_time_unix_nano" => {
                            take_time(&mut map, &mut span.end_time_unix_nano)?;
                            continue;
                        }
                        "attributes" => {
                            if let Some(Ports(ports)) = map.next_value()? {
                                span.attributes = ports;
                            }
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if let Some(HexId(bytes)) = map.next_value()? {
                        *id = bytes;
                    }
                }
                Ok(TimedSpan(span))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn take_time<'de, A: MapAccess<'de>>(map: &mut A, into: &mut u64) -> Result<(), A::Error> {
    if let Some(Uint64(at)) = map.next_value()? {
        *into = at;
    }
    Ok(())
}

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
