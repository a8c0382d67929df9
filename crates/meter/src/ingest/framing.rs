//! OTLP protobuf in files: one message, or messages one after the other, bare or with their lengths.
//!
//! The Collector's file exporter writes four bytes of length, big-endian, before every message when its format
//! is `proto` or its compression is `zstd`; with compression every message is a zstd frame of its own (of
//! protobuf or of JSON). Nothing in such a file tells which: the first bytes of each message do.

use super::delivery::Delivery;
use super::otlp_json;
use super::source::{Place, Source};
use super::wire::{Cursor, LEN};
use std::io::Read;

/// The largest message read.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// What zstd frames start with.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Field 1 of `ExportTraceServiceRequest`, length-delimited: what a bare message starts with.
const RESOURCE_SPANS_TAG: u8 = 0x0a;

/// What protobuf files look like from their first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A message without anything around it.
    Bare,
    /// Messages with four bytes of length before each.
    LengthPrefixed,
}

/// Tells from the first bytes whether this is OTLP protobuf in a file, and which.
pub fn detect(start: &[u8]) -> Option<Framing> {
    if let [a, b, c, d, content @ ..] = start {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let known = content.starts_with(&ZSTD_MAGIC) || matches!(content, [RESOURCE_SPANS_TAG | b'{', ..]);
        // A bare message cannot start with a zero byte, and no other length is below 16 MiB.
        if len <= MAX_MESSAGE_BYTES && *a == 0 && (known || len == 0 || content.is_empty()) {
            return Some(Framing::LengthPrefixed);
        }
    }
    match start {
        [RESOURCE_SPANS_TAG, rest @ ..] => {
            let mut fields = Cursor::new(rest);
            // What starts a ResourceSpans: one of its fields, or nothing.
            let len = fields.varint().ok()?;
            let inner = fields.tag().ok()?;
            (len == 0 || matches!(inner, None | Some((1..=3 | 1000, LEN)))).then_some(Framing::Bare)
        }
        _ => None,
    }
}

/// Whether a file begins as OTLP protobuf does, where nobody has said that it holds spans. The first bytes alone are no proof:
/// a text that starts with an empty line looks the same. A message that is not compressed also names its service.
pub fn is_otlp(start: &[u8]) -> bool {
    const NAMES: [&[u8]; 2] = [b"service.name", b"telemetry.sdk."];
    let names_service = || NAMES.iter().any(|name| start.windows(name.len()).any(|window| window == *name));
    let is_compressed = || start.get(4..).is_some_and(|content| content.starts_with(&ZSTD_MAGIC));
    match detect(start) {
        Some(Framing::LengthPrefixed) => is_compressed() || names_service(),
        Some(Framing::Bare) => names_service(),
        None => false,
    }
}

/// Reads messages with their lengths to the end of the input.
pub fn length_prefixed(source: &mut Source<'_>, delivery: &mut Delivery<'_>) {
    while source.fill(1) {
        let place = offset_only(source.place());
        if !source.fill(4) {
            delivery.skip(place, "expected four bytes of length, found the end of the input", None);
            return;
        }
        let mut len = [0; 4];
        len.copy_from_slice(source.consume(4));
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_MESSAGE_BYTES {
            let reason = format!("expected the length of a message of at most 1 GiB, found {len}");
            delivery.skip(place, reason, None);
            return;
        }
        let place = offset_only(source.place());
        let complete = source.fill(len);
        let len = len.min(source.rest().len());
        message(source.consume(len), complete, place, delivery);
    }
}

/// Hands over one message of whatever encoding.
fn message(bytes: &[u8], complete: bool, place: Place, delivery: &mut Delivery<'_>) {
    let mut decompressed = Vec::new();
    let (mut content, mut complete) = (bytes, complete);
    if bytes.starts_with(&ZSTD_MAGIC) {
        if let Err(error) = zstd_frames(bytes, &mut decompressed) {
            complete = false;
            delivery.skip(place, format!("a zstd frame that cannot be read to its end: {error}"), None);
        }
        content = &decompressed;
    } else if !complete {
        delivery.skip(place, "expected a whole message, found the end of the input", None);
    }
    if content.first() == Some(&b'{') {
        match otlp_json::to_protobuf(content) {
            Ok(request) => delivery.request(&request, place),
            Err(_) if !complete => {}
            Err(error) => delivery.skip(place, error.to_string(), None),
        }
    } else if complete {
        delivery.request(content, place);
    } else {
        delivery.request(&complete_spans(content), place);
    }
}

fn zstd_frames(bytes: &[u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
    let limit = MAX_MESSAGE_BYTES as u64;
    if decoder.take(limit + 1).read_to_end(into)? as u64 > limit {
        into.clear();
        return Err(std::io::Error::other("it holds more than 1 GiB"));
    }
    Ok(())
}

/// Reads a bare message, one `ResourceSpans` at a time.
pub fn bare(source: &mut Source<'_>, delivery: &mut Delivery<'_>) {
    while source.fill(1) {
        let place = offset_only(source.place());
        source.fill(16);
        let mut fields = Cursor::new(source.rest());
        let field = fields.tag().and_then(|tag| match tag {
            Some((1, LEN)) => fields.varint(),
            _ => Err(fields.expected("a ResourceSpans")),
        });
        let content_len = match field {
            Ok(len) => len,
            Err(error) => {
                let place = Place { offset: place.offset + error.offset as u64, line: None };
                delivery.skip(place, format!("not OTLP protobuf: expected {}", error.expected), None);
                return;
            }
        };
        if content_len > MAX_MESSAGE_BYTES as u64 {
            let reason =
                format!("expected a ResourceSpans of at most 1 GiB, found a length of {content_len}");
            delivery.skip(place, reason, None);
            return;
        }
        let len = fields.position() + content_len as usize;
        if source.fill(len) {
            delivery.request(source.consume(len), place);
        } else {
            delivery.skip(place, "expected a whole ResourceSpans, found the end of the input", None);
            let left = source.rest().len();
            let request = complete_spans(source.consume(left));
            delivery.request(&request, place);
        }
    }
}

/// Bytes have no lines.
fn offset_only(place: Place) -> Place {
    Place { offset: place.offset, line: None }
}

/// What is complete of a request that was cut off: every span, scope and resource before the cut.
fn complete_spans(request: &[u8]) -> Vec<u8> {
    // ExportTraceServiceRequest.resource_spans (1), ResourceSpans.scope_spans (2), ScopeSpans.spans (2).
    complete_fields(request, &[1, 2])
}

/// Copies the complete fields of a message, and of the one cut off what is complete inside of it when its
/// number is the first of `path`.
fn complete_fields(message: &[u8], path: &[u32]) -> Vec<u8> {
    let mut fields = Cursor::new(message);
    loop {
        let complete = fields.position();
        let tag = fields.tag();
        let content = match tag {
            Ok(Some((_, LEN))) => fields.varint().ok().map(|_| fields.position()),
            _ => None,
        };
        // From the tag again: a whole field is stepped over at once or not at all.
        fields = Cursor::at(message, complete);
        match fields.tag() {
            Ok(Some((field, wire))) if fields.skip(field, wire).is_ok() => continue,
            Ok(Some((field, LEN))) => {
                let mut kept = message[..complete].to_vec();
                if let (Some(content), Some((first, rest))) = (content, path.split_first())
                    && *first == field
                {
                    let inner = complete_fields(&message[content..], rest);
                    kept.push((field << 3) as u8 | LEN);
                    prost::encoding::encode_varint(inner.len() as u64, &mut kept);
                    kept.extend_from_slice(&inner);
                }
                return kept;
            }
            _ => return message[..complete].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
    use prost::Message;

    fn request() -> TracesData {
        let span = |i: u8| Span { span_id: vec![i; 8], name: "x".repeat(i.into()), ..Span::default() };
        let scope = |i: u8| ScopeSpans { spans: (1..=i).map(span).collect(), ..ScopeSpans::default() };
        let spans = |i: u8| ResourceSpans {
            resource: Some(Resource { dropped_attributes_count: 7, ..Resource::default() }),
            scope_spans: vec![scope(i), scope(2)],
            ..ResourceSpans::default()
        };
        TracesData { resource_spans: vec![spans(3), spans(150)] }
    }

    fn spans(request: &TracesData) -> Vec<&Span> {
        request.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans).collect()
    }

    #[test]
    fn a_cut_loses_only_the_span_it_goes_through() {
        let whole = request();
        let bytes = whole.encode_to_vec();
        let mut kept = 0;
        for cut in 0..bytes.len() {
            let left = TracesData::decode(&complete_spans(&bytes[..cut])[..]).expect("well-formed");
            let left = spans(&left);
            assert_eq!(left, spans(&whole)[..left.len()]);
            assert!(left.len() >= kept, "a longer piece keeps no fewer spans");
            kept = left.len();
        }
        assert!(kept >= spans(&whole).len() - 1);
    }

    #[test]
    fn the_first_bytes_tell() {
        let bytes = request().encode_to_vec();
        assert_eq!(detect(&bytes), Some(Framing::Bare));
        let framed = [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat();
        assert_eq!(detect(&framed), Some(Framing::LengthPrefixed));
        assert_eq!(detect(b"\0\0\x10\0\x28\xb5\x2f\xfd"), Some(Framing::LengthPrefixed));
        assert_eq!(detect(b"\0\0\0\0"), Some(Framing::LengthPrefixed));
        assert_eq!(detect(b"\n\n{}"), None);
        assert_eq!(detect(b"\x7fELF"), None);
        assert_eq!(detect(b""), None);
    }
}
