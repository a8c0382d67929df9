//! The OTLP wire format, read in place: an `ExportTraceServiceRequest` becomes a [`Batch`] of span facts.
//!
//! A full decode costs several times as much as the join, so the walk reads only the fields that the join
//! needs and skips the others. The differential oracle is prost with opentelemetry-proto: whatever prost
//! accepts, the walk accepts with the same facts. The walk does not inspect skipped fields, so it accepts
//! some messages that prost rejects (such as invalid UTF-8 in an attribute). It takes one liberty: an
//! attribute is judged by its first key field, and no known encoder writes two.
//!
//! Field numbers are from `opentelemetry/proto/trace/v1/trace.proto` and `common/v1/common.proto`.

use super::semconv::{self, Interest, SpanKind};
use super::wire::{Cursor, LEN, WalkError};
use spangap_model::CallStatus;

/// The facts of one span that the join needs. Ids are native-endian reads of the wire bytes; they are only
/// compared for equality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanFacts {
    /// Trace id, sixteen bytes as two words.
    pub trace: [u64; 2],
    /// Span id.
    pub span: u64,
    /// Parent's span id; zero for none.
    pub parent: u64,
    /// Start by the span's own host's clock, in Unix nanoseconds; zero if missing.
    pub start_ns: u64,
    /// End by the same clock; zero if missing.
    pub end_ns: u64,
    /// Size of the response in bytes, from an attribute or event; zero unless [`SpanFacts::sized`] is set.
    pub response_bytes: u64,
    /// Number of the span's resource (and method) in [`Origins`](super::origins::Origins).
    pub origin: u32,
    /// Offset of the `Span` message in the request.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Kind of span.
    pub kind: SpanKind,
    /// Status of the call.
    pub status: CallStatus,
    /// Whether the trace id is not 16 bytes, the span id is not 8 bytes, or either is all zero.
    pub bad_id: bool,
    /// Whether the response size is known.
    pub sized: bool,
}

impl SpanFacts {
    /// Trace id as sent on the wire.
    pub fn trace_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.trace[0].to_ne_bytes());
        id[8..].copy_from_slice(&self.trace[1].to_ne_bytes());
        id
    }
}

/// The spans of one request.
#[derive(Default, Debug)]
pub struct Batch {
    /// Spans in request order.
    pub spans: Vec<SpanFacts>,
    /// Maximum number of spans.
    most: usize,
}

/// Minimum size of a well-formed span: ids and times alone take more. A request whose spans are shorter on
/// average is rejected once it has [`FEW_SPANS`], because the facts of a span take more memory than an empty
/// span in the request.
const SHORT_SPAN_BYTES: usize = 32;
const FEW_SPANS: usize = 8192;

impl Batch {
    /// Frees memory after an unusually large request.
    pub fn shrink(&mut self) {
        if self.spans.capacity() > 4 * FEW_SPANS {
            self.spans = Vec::new();
        }
    }
}

/// Interner of resources and methods; returns their numbers.
pub trait OriginSink {
    /// Interns an encoded `Resource`.
    fn resource(&self, encoded: &[u8]) -> u32;
    /// Interns a method of that resource; called only if methods are separated.
    fn method(&self, resource: u32, method: &str) -> u32;
}

/// Reads one request into `batch`, which is cleared first.
///
/// # Errors
/// [`WalkError`] with the offset and what was expected there; `batch` is unusable then.
pub fn walk(
    request: &[u8],
    interest: &Interest,
    origins: &impl OriginSink,
    batch: &mut Batch,
) -> Result<(), WalkError> {
    batch.spans.clear();
    if u32::try_from(request.len()).is_err() {
        return Err(WalkError { offset: 0, expected: "a request below 4 GiB" });
    }
    batch.most = FEW_SPANS + request.len() / SHORT_SPAN_BYTES;
    let mut top = Cursor::new(request);
    while let Some((field, wire)) = top.tag()? {
        match (field, wire) {
            (1, LEN) => {
                let (start, end) = top.len_range()?;
                resource_spans(&request[..end], start, interest, origins, batch)?;
            }
            (1, _) => return Err(top.expected("ResourceSpans as a length-delimited field")),
            _ => top.skip(field, wire)?,
        }
    }
    Ok(())
}

fn resource_spans(
    buf: &[u8],
    start: usize,
    interest: &Interest,
    origins: &impl OriginSink,
    batch: &mut Batch,
) -> Result<(), WalkError> {
    // The resource may follow the spans on the wire, so a first pass finds it; this only skips over the two
    // or three fields of the message.
    let mut resource: Option<(usize, usize)> = None;
    let mut merged = Vec::new();
    let mut fields = Cursor::at(buf, start);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (1, LEN) => {
                let (from, to) = fields.len_range()?;
                // Repeated occurrences of a message field merge, and protobuf merges by concatenation.
                if let Some((first, last)) = resource {
                    if merged.is_empty() {
                        merged.extend_from_slice(&buf[first..last]);
                    }
                    merged.extend_from_slice(&buf[from..to]);
                }
                resource = Some((from, to));
            }
            (1, _) => return Err(fields.expected("Resource as a length-delimited field")),
            _ => fields.skip(field, wire)?,
        }
    }
    let encoded = match resource {
        _ if !merged.is_empty() => &merged[..],
        Some((from, to)) => &buf[from..to],
        None => &[],
    };
    let resource = origins.resource(encoded);

    let mut fields = Cursor::at(buf, start);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (2, LEN) => {
                let (from, to) = fields.len_range()?;
                let mut scope = Cursor::at(&buf[..to], from);
                while let Some((field, wire)) = scope.tag()? {
                    match (field, wire) {
                        (2, LEN) => {
                            let (from, to) = scope.len_range()?;
                            let facts = span(&buf[..to], from, resource, interest, origins)?;
                            if batch.spans.len() >= batch.most {
                                return Err(scope.expected("spans of at least 32 bytes on average"));
                            }
                            batch.spans.push(facts);
                        }
                        (2, _) => return Err(scope.expected("Span as a length-delimited field")),
                        _ => scope.skip(field, wire)?,
                    }
                }
            }
            (2, _) => return Err(fields.expected("ScopeSpans as a length-delimited field")),
            _ => fields.skip(field, wire)?,
        }
    }
    Ok(())
}

fn span(
    buf: &[u8],
    start: usize,
    resource: u32,
    interest: &Interest,
    origins: &impl OriginSink,
) -> Result<SpanFacts, WalkError> {
    let mut facts = SpanFacts {
        origin: resource,
        offset: start as u32,
        len: (buf.len() - start) as u32,
        ..SpanFacts::default()
    };
    let (mut trace_len, mut span_len, mut parent_len) = (0, 0, 0);
    let mut span_code = 0;
    let mut found = semconv::Attributes::default();
    let mut fields = Cursor::at(buf, start);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (9, LEN) => {
                let (from, to) = fields.len_range()?;
                interest.attribute(&buf[..to], from, &mut found)?;
            }
            (1, LEN) => {
                let (from, to) = fields.len_range()?;
                trace_len = to - from;
                facts.trace = match trace_len {
                    16 => [word(&buf[from..from + 8]), word(&buf[from + 8..to])],
                    _ => [0, 0],
                };
            }
            (2, LEN) => {
                let (from, to) = fields.len_range()?;
                span_len = to - from;
                facts.span = if span_len == 8 { word(&buf[from..to]) } else { 0 };
            }
            (4, LEN) => {
                let (from, to) = fields.len_range()?;
                parent_len = to - from;
                facts.parent = if parent_len == 8 { word(&buf[from..to]) } else { 0 };
            }
            (6, 0) => {
                facts.kind = match fields.varint()? as i32 {
                    2 => SpanKind::Server,
                    3 => SpanKind::Client,
                    _ => SpanKind::Other,
                }
            }
            (7, 1) => facts.start_ns = fields.fixed64()?,
            (8, 1) => facts.end_ns = fields.fixed64()?,
            (11, LEN) => {
                let (from, to) = fields.len_range()?;
                interest.event(&buf[..to], from, &mut found)?;
            }
            (15, LEN) => {
                let (from, to) = fields.len_range()?;
                let mut status = Cursor::at(&buf[..to], from);
                while let Some((field, wire)) = status.tag()? {
                    match (field, wire) {
                        (3, 0) => span_code = status.varint()?,
                        _ => status.skip(field, wire)?,
                    }
                }
            }
            (5, LEN) => {
                let (from, to) = fields.len_range()?;
                found.name = (from as u32, to as u32);
            }
            (1 | 2 | 4 | 5 | 9 | 11 | 15, _) => {
                return Err(fields.expected("a length-delimited Span field"));
            }
            (6, _) => return Err(fields.expected("Span.kind as a varint")),
            (7 | 8, _) => return Err(fields.expected("a Span time as fixed64")),
            _ => fields.skip(field, wire)?,
        }
    }
    facts.bad_id = trace_len != 16
        || span_len != 8
        || (parent_len != 8 && parent_len != 0)
        || facts.trace == [0, 0]
        || facts.span == 0;
    facts.status = found.status(span_code);
    let response_bytes = found.response_bytes(facts.kind);
    facts.response_bytes = response_bytes.unwrap_or(0);
    facts.sized = response_bytes.is_some();
    if interest.methods && facts.kind != SpanKind::Other {
        let method = found.method(buf);
        facts.origin = origins.method(resource, &method);
    }
    Ok(facts)
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(bytes);
    u64::from_ne_bytes(id)
}
