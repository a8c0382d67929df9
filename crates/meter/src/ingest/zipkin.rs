//! Zipkin's JSON v2: lists of spans, or lists of traces that are lists of spans.
//!
//! In the B3 model both halves of a call share one span id: the SERVER span has `"shared": true`, or simply
//! carries the id of a CLIENT span of its trace. In OTLP's model each span has its own id, and the join's key
//! is (trace id, CLIENT span id) = (trace id, SERVER span's parent). A SERVER span that shares its id
//! therefore keeps it as the parent id, and its own id becomes a fixed function of it. Without the flag, the
//! CLIENT span is found only within the same trace of a list of traces, or within some thousand spans of a
//! plain list.

use super::delivery::{Delivery, SPANS_AT_ONCE, SPANS_HELD, value};
use super::otlp_json::{Int64, Text};
use super::scan::{Broken, Scanner};
use super::source::Place;
use super::tags::{
    Micros, SpanId, StatusTags, TagValue, TraceId, attribute, attribute_name, kind, start_and_end,
    text_attribute,
};
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ZipkinSpan<'a> {
    trace_id: TraceId,
    id: SpanId,
    #[serde(default)]
    parent_id: Option<SpanId>,
    #[serde(default, borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    timestamp: Option<Micros>,
    #[serde(default)]
    duration: Option<Micros>,
    #[serde(default, borrow)]
    local_endpoint: Option<Endpoint<'a>>,
    #[serde(default, borrow)]
    remote_endpoint: Option<Endpoint<'a>>,
    #[serde(default, borrow)]
    annotations: Option<Vec<Annotation<'a>>>,
    #[serde(default, borrow)]
    tags: Option<Tags<'a>>,
    #[serde(default)]
    shared: Option<bool>,
    #[serde(default)]
    binary_annotations: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Endpoint<'a> {
    #[serde(default, borrow)]
    service_name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    ipv4: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    ipv6: Option<Cow<'a, str>>,
    #[serde(default)]
    port: Option<Int64>,
}

#[derive(Deserialize)]
struct Annotation<'a> {
    #[serde(default)]
    timestamp: Option<Micros>,
    #[serde(default, borrow)]
    value: Cow<'a, str>,
    #[serde(default)]
    endpoint: Option<IgnoredAny>,
}

struct Tags<'a>(Vec<(Cow<'a, str>, TagValue<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Tags<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Tags<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tags")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tags = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    tags.push((key, value));
                }
                Ok(Tags(tags))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// A service on a host, as far as a span states it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    service: Option<String>,
    ip: Option<String>,
}

/// Spans held until the other spans of their trace arrive, to detect shared ids.
#[derive(Default)]
pub(super) struct Zipkin {
    spans: BTreeMap<Origin, Vec<(Span, Sharing)>>,
    held: usize,
    place: Option<Place>,
    /// CLIENT spans held, and those of the last delivered spans.
    clients: HashSet<(Vec<u8>, Vec<u8>)>,
    clients_before: HashSet<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Stated,
    NotStated,
}

impl Zipkin {
    /// Streams a list of spans or of traces.
    pub(super) fn list(
        &mut self,
        scanner: &mut Scanner<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), Broken> {
        scanner.enter_array()?;
        let mut first = true;
        while scanner.element(&mut first)? {
            if scanner.peek() == Some(b'[') {
                scanner.enter_array()?;
                let mut first = true;
                while scanner.element(&mut first)? {
                    self.span(scanner, delivery)?;
                    if self.held >= SPANS_HELD {
                        self.flush(delivery);
                    }
                }
            } else {
                self.span(scanner, delivery)?;
            }
            if self.held >= SPANS_AT_ONCE {
                self.flush(delivery);
            }
        }
        Ok(())
    }

    fn span(&mut self, scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
        let raw = scanner.value()?;
        let place = raw.place;
        let Some(span) = value::<ZipkinSpan<'_>>(raw, delivery, Some(1)) else { return Ok(()) };
        let annotations = span.annotations.as_deref().unwrap_or_default();
        if span.binary_annotations.is_some() || annotations.iter().any(|a| a.endpoint.is_some()) {
            let reason = "a span of Zipkin JSON v1 (it has annotations with endpoints), expected v2";
            delivery.skip(place, reason, Some(1));
            return Ok(());
        }
        self.place.get_or_insert(place);
        self.held += 1;
        let sharing = if span.shared == Some(true) { Sharing::Stated } else { Sharing::NotStated };
        let (origin, span) = translate(span);
        if span.kind == SpanKind::Client as i32 {
            self.clients.insert((span.trace_id.clone(), span.span_id.clone()));
        }
        self.spans.entry(origin).or_default().push((span, sharing));
        Ok(())
    }

    /// Delivers the spans held.
    pub(super) fn flush(&mut self, delivery: &mut Delivery<'_>) {
        self.held = 0;
        let Some(place) = self.place.take() else { return };
        for (origin, spans) in std::mem::take(&mut self.spans) {
            let spans = spans.into_iter().map(|(span, sharing)| self.with_own_id(span, sharing)).collect();
            delivery.resource_spans(
                ResourceSpans {
                    resource: Some(resource(origin)),
                    scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
                    ..ResourceSpans::default()
                },
                place,
            );
        }
        self.clients_before = std::mem::take(&mut self.clients);
    }

    fn with_own_id(&self, mut span: Span, sharing: Sharing) -> Span {
        if span.kind != SpanKind::Server as i32 {
            return span;
        }
        let key = (span.trace_id, span.span_id);
        let shared =
            sharing == Sharing::Stated || self.clients.contains(&key) || self.clients_before.contains(&key);
        (span.trace_id, span.span_id) = key;
        if shared {
            let id = span.span_id.iter().fold(0, |id, byte| id << 8 | *byte as u64);
            span.parent_span_id =
                std::mem::replace(&mut span.span_id, SpanId(id).of_server_half().bytes_or_none());
        }
        span
    }
}

fn resource(origin: Origin) -> Resource {
    let service = origin.service.map(|name| text_attribute("service.name", name));
    // The address is all that Zipkin states about a host.
    let host = origin.ip.map(|ip| text_attribute("host.name", ip));
    Resource { attributes: service.into_iter().chain(host).collect(), ..Resource::default() }
}

fn translate(span: ZipkinSpan<'_>) -> (Origin, Span) {
    let (start_time_unix_nano, end_time_unix_nano) = start_and_end(span.timestamp, span.duration);
    let mut status = StatusTags::default();
    let mut attributes = Vec::new();
    for (key, value) in span.tags.map(|tags| tags.0).unwrap_or_default() {
        status.see(&key, &value);
        attributes.push(attribute(attribute_name(&key), value.any("")));
    }
    if let Some(remote) = span.remote_endpoint {
        attributes.extend(remote.service_name.map(|name| text_attribute("peer.service", name)));
        attributes.extend(remote.ipv4.or(remote.ipv6).map(|ip| text_attribute("network.peer.address", ip)));
        let port = remote.port.map(|port| AnyValue { value: Some(Value::IntValue(port.0)) });
        attributes.extend(port.map(|port| attribute("network.peer.port", port)));
    }
    let event = |annotation: Annotation<'_>| Event {
        time_unix_nano: annotation.timestamp.map_or(0, |t| t.ns),
        name: annotation.value.into_owned(),
        ..Event::default()
    };
    let local = span.local_endpoint.unwrap_or_default();
    let filled = |text: Option<Cow<'_, str>>| text.filter(|t| !t.is_empty()).map(Cow::into_owned);
    let origin = Origin { service: filled(local.service_name), ip: filled(local.ipv4.or(local.ipv6)) };
    let translated = Span {
        trace_id: span.trace_id.0.to_be_bytes().into(),
        span_id: span.id.0.to_be_bytes().into(),
        parent_span_id: span.parent_id.map_or_else(Vec::new, SpanId::bytes_or_none),
        name: span.name.map(Cow::into_owned).unwrap_or_default(),
        kind: span.kind.map_or(SpanKind::Internal, |name| kind(&name)) as i32,
        start_time_unix_nano,
        end_time_unix_nano,
        attributes,
        events: span.annotations.unwrap_or_default().into_iter().map(event).collect(),
        status: status.status(),
        ..Span::default()
    };
    (origin, translated)
}
