//! Jaeger's JSON, as its UI exports it and its API returns it: `{"data": [{"traceID", "spans",
//! "processes"}]}`, or a single such trace.
//!
//! The service of a span is in `processes`, which follow `spans`, so a trace is held until both are complete.
//! The parent is the first CHILD_OF reference within the trace, else the first FOLLOWS_FROM one; other
//! references become links. If a SERVER span has the id of a CLIENT span of its trace (tracers of the Zipkin
//! kind, unless something made the ids unique), it gets a new id, with the CLIENT span as its parent.

use super::delivery::{Delivery, SPANS_AT_ONCE, SPANS_HELD, value};
use super::scan::{Broken, Scanner};
use super::source::Place;
use super::tags::{
    Micros, SpanId, StatusTags, TagValue, TraceId, attribute, attribute_name, kind, start_and_end,
    text_attribute,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

#[derive(Deserialize)]
struct JaegerSpan<'a> {
    #[serde(rename = "traceID", alias = "traceId")]
    trace_id: TraceId,
    #[serde(rename = "spanID", alias = "spanId")]
    span_id: SpanId,
    #[serde(rename = "parentSpanID", alias = "parentSpanId", default)]
    parent_span_id: Option<Cow<'a, str>>,
    #[serde(rename = "operationName", default, borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    references: Option<Vec<Reference<'a>>>,
    #[serde(default)]
    flags: Option<u32>,
    #[serde(rename = "startTime", default)]
    start: Option<Micros>,
    #[serde(default)]
    duration: Option<Micros>,
    #[serde(default, borrow)]
    tags: Option<Vec<Tag<'a>>>,
    #[serde(default, borrow)]
    logs: Option<Vec<Log<'a>>>,
    #[serde(rename = "processID", alias = "processId", default, borrow)]
    process_id: Cow<'a, str>,
    #[serde(default, borrow)]
    process: Option<Process<'a>>,
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(rename = "refType", default, borrow)]
    kind: Cow<'a, str>,
    /// Some writers omit it for the span's own trace.
    #[serde(rename = "traceID", alias = "traceId", default)]
    trace_id: Option<TraceId>,
    #[serde(rename = "spanID", alias = "spanId")]
    span_id: SpanId,
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(rename = "type", default, borrow)]
    declared: Cow<'a, str>,
    #[serde(default, borrow)]
    value: TagValue<'a>,
}

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(default)]
    timestamp: Option<Micros>,
    #[serde(default, borrow)]
    fields: Option<Vec<Tag<'a>>>,
}

#[derive(Deserialize)]
struct Process<'a> {
    #[serde(rename = "serviceName", default, borrow)]
    service: Cow<'a, str>,
    #[serde(default, borrow)]
    tags: Option<Vec<Tag<'a>>>,
}

/// Streams the array of traces.
pub(super) fn traces(scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
    if scanner.null()? {
        return Ok(());
    }
    scanner.enter_array()?;
    let mut first = true;
    while scanner.element(&mut first)? {
        let mut trace = Trace::new(scanner.place());
        let result = trace.fields(scanner, delivery);
        trace.finish(result.is_err(), delivery);
        result?;
    }
    Ok(())
}

/// A partially read trace.
pub(super) struct Trace {
    place: Place,
    /// Translated spans by process.
    spans: BTreeMap<String, Vec<Span>>,
    held: usize,
    processes: Option<BTreeMap<String, Resource>>,
    /// Ids of CLIENT spans, to recognise SERVER spans that share them.
    client_ids: HashSet<Vec<u8>>,
}

impl Trace {
    pub(super) fn new(place: Place) -> Self {
        Trace { place, spans: BTreeMap::new(), held: 0, processes: None, client_ids: HashSet::new() }
    }

    fn fields(&mut self, scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
        scanner.enter_object()?;
        let mut first = true;
        while let Some(key) = scanner.key(&mut first)? {
            self.field(&key, scanner, delivery)?;
        }
        Ok(())
    }

    /// Reads the value of one key of the trace.
    pub(super) fn field(
        &mut self,
        key: &str,
        scanner: &mut Scanner<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), Broken> {
        match key {
            "spans" if !scanner.null()? => {
                scanner.enter_array()?;
                let mut first = true;
                while scanner.element(&mut first)? {
                    let raw = scanner.value()?;
                    if let Some(span) = value::<JaegerSpan<'_>>(raw, delivery, Some(1)) {
                        self.add(span);
                        if self.processes.is_some() && self.held >= SPANS_HELD {
                            self.hand_over(delivery);
                        }
                    }
                }
            }
            "processes" if !scanner.null()? => {
                scanner.enter_object()?;
                let (mut first, mut processes) = (true, BTreeMap::new());
                while let Some(id) = scanner.key(&mut first)? {
                    let process = value::<Process<'_>>(scanner.value()?, delivery, Some(0));
                    processes.insert(id, process.map_or_else(Resource::default, resource));
                }
                self.processes.get_or_insert_default().extend(processes);
            }
            "spans" | "processes" => {}
            _ => scanner.skip()?,
        }
        Ok(())
    }

    fn add(&mut self, mut span: JaegerSpan<'_>) {
        let embedded = span.process.take().map(|process| {
            let id = format!("{}\u{0}{}", span.process_id, process.service);
            self.processes.get_or_insert_default().entry(id.clone()).or_insert_with(|| resource(process));
            id
        });
        let process = embedded.unwrap_or_else(|| std::mem::take(&mut span.process_id).into_owned());
        let span = translate(span);
        if span.kind == SpanKind::Client as i32 {
            self.client_ids.insert(span.span_id.clone());
        }
        self.spans.entry(process).or_default().push(span);
        self.held += 1;
    }

    /// Delivers the trace as far as it was read. If it broke off before its processes, the services are
    /// unknown and its spans are skipped.
    pub(super) fn finish(mut self, broken_off: bool, delivery: &mut Delivery<'_>) {
        if broken_off && self.processes.is_none() {
            if self.held > 0 {
                let reason = "the trace ends before its \"processes\": the services of its spans are unknown";
                delivery.skip(self.place, reason, Some(self.held as u64));
            }
            return;
        }
        self.hand_over(delivery);
    }

    fn hand_over(&mut self, delivery: &mut Delivery<'_>) {
        self.held = 0;
        let processes = self.processes.get_or_insert_default();
        for (process, mut spans) in std::mem::take(&mut self.spans) {
            let resource = processes.get(&process).cloned();
            if resource.is_none() {
                let count = spans.len();
                let reason = format!(
                    "no process {process:?} in the trace's \"processes\": the service of {count} spans is unknown"
                );
                delivery.skip(self.place, reason, Some(0));
            }
            for span in &mut spans {
                if span.kind == SpanKind::Server as i32 && self.client_ids.contains(&span.span_id) {
                    let shared = span.span_id.clone();
                    let id = shared.iter().fold(0, |id, byte| id << 8 | *byte as u64);
                    span.span_id = SpanId(id).of_server_half().bytes_or_none();
                    span.parent_span_id = shared;
                }
            }
            let mut spans = spans.into_iter().peekable();
            while spans.peek().is_some() {
                let spans = spans.by_ref().take(SPANS_AT_ONCE).collect();
                let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
                let spans =
                    ResourceSpans { resource: resource.clone(), scope_spans, ..ResourceSpans::default() };
                delivery.resource_spans(spans, self.place);
            }
        }
    }
}

fn resource(process: Process<'_>) -> Resource {
    let mut attributes = vec![text_attribute("service.name", process.service)];
    for tag in process.tags.unwrap_or_default() {
        // Jaeger's own clients use this name for the host.
        if tag.key == "hostname" {
            attributes.push(text_attribute("host.name", tag.value.text()));
        }
        attributes.push(attribute(tag.key, tag.value.any(&tag.declared)));
    }
    Resource { attributes, ..Resource::default() }
}

fn translate(span: JaegerSpan<'_>) -> Span {
    let mut references = span.references.unwrap_or_default();
    let child_of = |kind: &str| {
        let is_parent = |r: &Reference<'_>| {
            r.kind == kind && r.trace_id.is_none_or(|id| id == span.trace_id) && r.span_id.0 != 0
        };
        references.iter().position(is_parent)
    };
    let parent = child_of("CHILD_OF").or_else(|| child_of("FOLLOWS_FROM"));
    let parent = match parent.map(|at| references.remove(at).span_id) {
        Some(parent) => parent,
        None => SpanId(span.parent_span_id.and_then(|id| u64::from_str_radix(&id, 16).ok()).unwrap_or(0)),
    };
    let (start_time_unix_nano, end_time_unix_nano) = start_and_end(span.start, span.duration);
    let (mut span_kind, mut status) = (SpanKind::Internal, StatusTags::default());
    let mut attributes = Vec::new();
    for tag in span.tags.unwrap_or_default() {
        status.see(&tag.key, &tag.value);
        match &*tag.key {
            "span.kind" => span_kind = kind(&tag.value.text()),
            key => attributes.push(attribute(attribute_name(key), tag.value.any(&tag.declared))),
        }
    }
    Span {
        trace_id: span.trace_id.0.to_be_bytes().into(),
        span_id: span.span_id.0.to_be_bytes().into(),
        parent_span_id: parent.bytes_or_none(),
        name: span.name.into_owned(),
        kind: span_kind as i32,
        start_time_unix_nano,
        end_time_unix_nano,
        attributes,
        events: span.logs.unwrap_or_default().into_iter().map(event).collect(),
        links: references.into_iter().map(|reference| link(reference, span.trace_id)).collect(),
        flags: span.flags.unwrap_or(0) & 0xff,
        status: status.status(),
        ..Span::default()
    }
}

/// The field `event` of a log becomes the event's name.
fn event(log: Log<'_>) -> Event {
    let mut event = Event { time_unix_nano: log.timestamp.map_or(0, |t| t.ns), ..Event::default() };
    for field in log.fields.unwrap_or_default() {
        match &*field.key {
            "event" if event.name.is_empty() => event.name = field.value.text().into_owned(),
            _ => event.attributes.push(attribute(field.key, field.value.any(&field.declared))),
        }
    }
    event
}

fn link(reference: Reference<'_>, own: TraceId) -> Link {
    let attributes: Vec<KeyValue> =
        vec![text_attribute("opentracing.ref_type", reference.kind.to_lowercase())];
    Link {
        trace_id: reference.trace_id.unwrap_or(own).0.to_be_bytes().into(),
        span_id: reference.span_id.0.to_be_bytes().into(),
        attributes,
        ..Link::default()
    }
}
