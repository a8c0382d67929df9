//! A sequence of JSON documents of any of the formats. The first keys of a document reveal its format.

use super::delivery::{Delivery, Detail, SPANS_AT_ONCE, SPANS_HELD, value};
use super::jaeger::{self, Trace};
use super::otlp_json::{Json, Shortened};
use super::scan::{Broken, Scanner};
use super::source::{Place, Source};
use super::timed_span::Timed;
use super::zipkin::Zipkin;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

/// Format of a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// An OTLP request, possibly of another signal than traces.
    Otlp,
    /// A trace, or a list of them under `data`.
    Jaeger,
    /// A list of spans, or of traces.
    Zipkin,
}

impl DocumentKind {
    /// Name of the format.
    pub fn name(self) -> &'static str {
        match self {
            DocumentKind::Otlp => "OTLP JSON",
            DocumentKind::Jaeger => "Jaeger JSON",
            DocumentKind::Zipkin => "Zipkin JSON v2",
        }
    }
}

/// Reads all documents of the input. Returns the kind of the first one.
///
/// # Errors
/// The content found, when the first document is of no kind that can contain spans.
pub fn read<'a>(
    source: Source<'a>,
    delivery: &mut Delivery<'_>,
) -> (Source<'a>, Result<DocumentKind, String>) {
    let mut scanner = Scanner::new(source);
    let mut zipkin = Zipkin::default();
    let mut kind = None;
    let mut unknown = None;
    let mut broken = None;
    while scanner.next_document().is_some() {
        let place = scanner.place();
        match document(&mut scanner, delivery, &mut zipkin, &mut kind) {
            Ok(None) => {}
            Ok(Some(found)) => {
                unknown.get_or_insert(found.clone());
                delivery.skip(place, format!("no spans in this document: {found}"), None);
            }
            Err(error) => {
                broken.get_or_insert(format!("JSON that breaks off: {error}"));
                let began = if scanner.by_line() { "" } else { "; nothing after it could be read" };
                delivery.skip(error.place, format!("not JSON: {error}{began}"), None);
                if !scanner.by_line() {
                    break;
                }
                scanner.skip_line();
            }
        }
    }
    zipkin.flush(delivery);
    delivery.flush();
    let found = unknown.or(broken).unwrap_or_else(|| "it is empty".into());
    (scanner.into_source(), kind.ok_or(found))
}

/// Reads one document. `Ok(Some(found))` if its kind is unknown.
fn document(
    scanner: &mut Scanner<'_>,
    delivery: &mut Delivery<'_>,
    zipkin: &mut Zipkin,
    kind: &mut Option<DocumentKind>,
) -> Result<Option<String>, Broken> {
    match scanner.peek() {
        Some(b'[') => {
            kind.get_or_insert(DocumentKind::Zipkin);
            zipkin.list(scanner, delivery)?;
            Ok(None)
        }
        Some(b'{') => object(scanner, delivery, kind),
        _ => scanner.enter_object().map(|()| None),
    }
}

fn object(
    scanner: &mut Scanner<'_>,
    delivery: &mut Delivery<'_>,
    kind: &mut Option<DocumentKind>,
) -> Result<Option<String>, Broken> {
    let place = scanner.place();
    scanner.enter_object()?;
    let mut trace = Trace::new(place);
    let result = fields(scanner, delivery, kind, &mut trace);
    trace.finish(result.is_err(), delivery);
    result
}

fn fields(
    scanner: &mut Scanner<'_>,
    delivery: &mut Delivery<'_>,
    kind: &mut Option<DocumentKind>,
    trace: &mut Trace,
) -> Result<Option<String>, Broken> {
    let (mut first, mut known, mut keys) = (true, false, Vec::new());
    while let Some(key) = scanner.key(&mut first)? {
        let of_kind = match &*key {
            "resourceSpans" | "resource_spans" => {
                kind.get_or_insert(DocumentKind::Otlp);
                resource_spans(scanner, delivery)?;
                Some(DocumentKind::Otlp)
            }
            // The Collector can be configured to write all signals into one file.
            "resourceMetrics" | "resourceLogs" | "resourceProfiles" => {
                scanner.skip()?;
                Some(DocumentKind::Otlp)
            }
            "data" => {
                kind.get_or_insert(DocumentKind::Jaeger);
                jaeger::traces(scanner, delivery)?;
                Some(DocumentKind::Jaeger)
            }
            "spans" | "processes" => {
                kind.get_or_insert(DocumentKind::Jaeger);
                trace.field(&key, scanner, delivery)?;
                Some(DocumentKind::Jaeger)
            }
            _ => {
                scanner.skip()?;
                None
            }
        };
        if let Some(of_kind) = of_kind {
            kind.get_or_insert(of_kind);
            known = true;
        } else if keys.len() < 8 {
            keys.push(key);
        }
    }
    Ok((!known).then(|| match keys.is_empty() {
        true => "an empty object".into(),
        false => {
            let keys: Vec<String> = keys.iter().map(|key| format!("{:?}", Shortened(key))).collect();
            format!("an object with {}", keys.join(", "))
        }
    }))
}

/// Streams the array `resourceSpans`.
fn resource_spans(scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
    if scanner.null()? {
        return Ok(());
    }
    scanner.enter_array()?;
    let mut first = true;
    while scanner.element(&mut first)? {
        let mut open = Open { place: scanner.place(), ..Open::default() };
        let result = open.fields(scanner, delivery);
        // Also after an error: the complete part counts.
        open.hand_over(delivery);
        result?;
    }
    Ok(())
}

/// A partially read `ResourceSpans`.
struct Open {
    place: Place,
    spans: ResourceSpans,
    held: usize,
}

impl Default for Open {
    fn default() -> Self {
        Open { place: Place { offset: 0, line: None }, spans: ResourceSpans::default(), held: 0 }
    }
}

impl Open {
    fn fields(&mut self, scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
        scanner.enter_object()?;
        let mut first = true;
        while let Some(key) = scanner.key(&mut first)? {
            match &*key {
                "resource" => {
                    let resource = value::<Option<Json<Resource>>>(scanner.value()?, delivery, Some(0));
                    self.spans.resource = resource.flatten().map(|resource| resource.0);
                }
                "scopeSpans" | "scope_spans" | "instrumentationLibrarySpans" => {
                    if scanner.null()? {
                        continue;
                    }
                    scanner.enter_array()?;
                    let mut first = true;
                    while scanner.element(&mut first)? {
                        self.spans.scope_spans.push(ScopeSpans::default());
                        self.scope(scanner, delivery)?;
                    }
                }
                "schemaUrl" | "schema_url" => {
                    let url = value::<Option<String>>(scanner.value()?, delivery, Some(0));
                    self.spans.schema_url = url.flatten().unwrap_or_default();
                }
                _ => scanner.skip()?,
            }
        }
        Ok(())
    }

    fn scope(&mut self, scanner: &mut Scanner<'_>, delivery: &mut Delivery<'_>) -> Result<(), Broken> {
        scanner.enter_object()?;
        let mut first = true;
        while let Some(key) = scanner.key(&mut first)? {
            match &*key {
                "scope" | "instrumentationLibrary" => {
                    let scope = scanner.value()?;
                    let scope = value::<Option<Json<InstrumentationScope>>>(scope, delivery, Some(0));
                    self.last_scope().scope = scope.flatten().map(|scope| scope.0);
                }
                "spans" => {
                    if scanner.null()? {
                        continue;
                    }
                    scanner.enter_array()?;
                    let mut first = true;
                    while scanner.element(&mut first)? {
                        let json = scanner.value()?;
                        let span = match delivery.detail {
                            Detail::Whole => value::<Json<Span>>(json, delivery, Some(1)).map(|span| span.0),
                            Detail::Times => value::<Timed<Span>>(json, delivery, Some(1)).map(|span| span.0),
                        };
                        if let Some(span) = span {
                            self.last_scope().spans.push(span);
                            self.held += 1;
                            self.make_room(delivery);
                        }
                    }
                }
                "schemaUrl" | "schema_url" => {
                    let url = value::<Option<String>>(scanner.value()?, delivery, Some(0));
                    self.last_scope().schema_url = url.flatten().unwrap_or_default();
                }
                _ => scanner.skip()?,
            }
        }
        Ok(())
    }

    fn last_scope(&mut self) -> &mut ScopeSpans {
        if self.spans.scope_spans.is_empty() {
            self.spans.scope_spans.push(ScopeSpans::default());
        }
        let last = self.spans.scope_spans.len() - 1;
        &mut self.spans.scope_spans[last]
    }

    /// Delivers the spans held once there are many; later if the resource is still to come, but with a limit.
    fn make_room(&mut self, delivery: &mut Delivery<'_>) {
        let known = self.spans.resource.is_some();
        if self.held < if known { SPANS_AT_ONCE } else { SPANS_HELD } {
            return;
        }
        if !known {
            let reason = format!("no \"resource\" before {SPANS_HELD} spans: their service is unknown");
            delivery.skip(self.place, reason, Some(0));
        }
        let scope = self.last_scope();
        let next = ScopeSpans {
            scope: scope.scope.clone(),
            spans: Vec::with_capacity(SPANS_AT_ONCE),
            schema_url: scope.schema_url.clone(),
        };
        let resource = self.spans.resource.clone();
        let schema_url = self.spans.schema_url.clone();
        self.hand_over(delivery);
        self.spans = ResourceSpans { resource, scope_spans: vec![next], schema_url };
    }

    fn hand_over(&mut self, delivery: &mut Delivery<'_>) {
        if self.held > 0 {
            delivery.resource_spans(std::mem::take(&mut self.spans), self.place);
            self.held = 0;
        }
    }
}
