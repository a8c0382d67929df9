//! Times of CLIENT and SERVER spans, for correlation with data other than the mate.

use super::origins::NO_NAME;
use super::semconv::Interest;
use super::semconv::SpanKind;
use super::walk::{Batch, OriginSink, walk};
use super::wire::{Cursor, LEN, WalkError};
use spangap_model::Side;

/// One half of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfTimes {
    /// Trace id.
    pub trace_id: [u8; 16],
    /// Id of the CLIENT span, common to both halves.
    pub client_span_id: [u8; 8],
    /// Client or server half.
    pub side: Side,
    /// Start by its own host's clock, in Unix nanoseconds.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Port of the server, if a CLIENT span states it.
    pub server_port: Option<u16>,
}

/// Attributes for the server's port; the later ones are from older conventions.
const PORTS: [&[u8]; 3] = [b"server.port", b"net.peer.port", b"network.peer.port"];

/// Whether an attribute of this name has the server's port.
pub(super) fn is_port(name: &[u8]) -> bool {
    PORTS.contains(&name)
}

/// The server port in an encoded `Span`. The walk has already rejected damaged spans.
fn server_port(span: &[u8]) -> Option<u16> {
    let (mut port, mut rank) = (None, usize::MAX);
    let mut fields = Cursor::new(span);
    while let Ok(Some((field, wire))) = fields.tag() {
        if (field, wire) != (9, LEN) {
            fields.skip(field, wire).ok()?;
            continue;
        }
        let (from, to) = fields.len_range().ok()?;
        let mut pair = Cursor::at(&span[..to], from);
        let (mut key, mut value) = (None, None);
        while let Ok(Some((field, wire))) = pair.tag() {
            match (field, wire) {
                (1, LEN) => key = pair.len_range().ok().map(|(from, to)| &span[from..to]),
                (2, LEN) => value = pair.len_range().ok().map(|(from, to)| &span[from..to]),
                _ => pair.skip(field, wire).ok()?,
            }
        }
        let Some(known) = PORTS.iter().position(|name| Some(*name) == key) else { continue };
        let mut fields = Cursor::new(value.unwrap_or_default());
        let number = match fields.tag() {
            Ok(Some((1, LEN))) => fields
                .len_range()
                .ok()
                .and_then(|(from, to)| std::str::from_utf8(&value?[from..to]).ok()?.parse().ok()),
            Ok(Some((3, 0))) => fields.varint().ok(),
            _ => None,
        };
        if let Some(number) =
            number.and_then(|number: u64| u16::try_from(number).ok()).filter(|_| known < rank)
        {
            (port, rank) = (Some(number), known);
        }
    }
    port
}

/// Resources and methods are not needed here.
struct NoOrigins;

impl OriginSink for NoOrigins {
    fn resource(&self, _: &[u8]) -> u32 {
        NO_NAME
    }

    fn method(&self, _: u32, _: &str) -> u32 {
        NO_NAME
    }
}

/// Reads requests; reuses its buffers.
#[derive(Debug)]
pub struct TimesReader {
    interest: Interest,
    batch: Batch,
}

impl Default for TimesReader {
    fn default() -> TimesReader {
        TimesReader { interest: Interest::new(false, &[] as &[&str]), batch: Batch::default() }
    }
}

impl TimesReader {
    /// Passes each half in an OTLP request to `each`; returns the number of spans in the request. Spans of
    /// other kinds, root SERVER spans and spans without a valid id or time are ignored.
    ///
    /// # Errors
    /// [`WalkError`] when the request is damaged; `each` is then not called.
    pub fn read(&mut self, request: &[u8], each: &mut dyn FnMut(HalfTimes)) -> Result<u64, WalkError> {
        walk(request, &self.interest, &NoOrigins, &mut self.batch)?;
        for span in &self.batch.spans {
            let (side, client_span) = match span.kind {
                SpanKind::Client => (Side::Client, span.span),
                SpanKind::Server => (Side::Server, span.parent),
                SpanKind::Other => continue,
            };
            let times = (i64::try_from(span.start_ns), i64::try_from(span.end_ns));
            let (Ok(start_ns), Ok(end_ns)) = times else { continue };
            if span.bad_id || client_span == 0 || start_ns == 0 || end_ns < start_ns {
                continue;
            }
            let client_span_id = client_span.to_ne_bytes();
            let encoded = &request[span.offset as usize..][..span.len as usize];
            let server_port = if side == Side::Client { server_port(encoded) } else { None };
            each(HalfTimes {
                trace_id: span.trace_id(),
                client_span_id,
                side,
                start_ns,
                end_ns,
                server_port,
            });
        }
        Ok(self.batch.spans.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
    use prost::Message;

    fn request(spans: Vec<Span>) -> Vec<u8> {
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
            .encode_to_vec()
    }

    fn span(kind: i32, id: u8, parent: &[u8], start: u64, end: u64) -> Span {
        Span {
            trace_id: vec![7; 16],
            span_id: vec![id; 8],
            parent_span_id: parent.to_vec(),
            kind,
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            ..Span::default()
        }
    }

    #[test]
    fn both_halves_have_the_client_spans_id() {
        let spans = vec![
            span(3, 1, &[9; 8], 100, 200),
            span(2, 2, &[1; 8], 120, 180),
            span(2, 3, &[], 1, 2),
            span(1, 4, &[1; 8], 1, 2),
            span(3, 5, &[], 200, 100),
            span(3, 6, &[], 0, 100),
        ];
        let mut halves = Vec::new();
        let mut reader = TimesReader::default();
        assert_eq!(reader.read(&request(spans), &mut |half| halves.push(half)), Ok(6));
        let half = |side, start_ns, end_ns| HalfTimes {
            trace_id: [7; 16],
            client_span_id: [1; 8],
            side,
            start_ns,
            end_ns,
            server_port: None,
        };
        assert_eq!(halves, [half(Side::Client, 100, 200), half(Side::Server, 120, 180)]);
        assert!(reader.read(&[0x0a, 0xff], &mut |_| ()).is_err());
    }
}
