//! Extracts the spans of one trace from blocks that contain many.

use crate::ingest::wire::{Cursor, LEN, WalkError};
use memchr::memmem::Finder;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

/// Maximum number of spans in a trace.
pub const MOST_SPANS: usize = 20_000;
/// Maximum number of bytes in a trace.
pub const MOST_BYTES: usize = 64 << 20;

/// Calls `each` with the trace id of every span whose id has 16 bytes, not all zero.
///
/// # Errors
/// When the bytes are not OTLP.
pub fn trace_ids(request: &[u8], mut each: impl FnMut([u64; 2])) -> Result<(), WalkError> {
    let mut top = Cursor::new(request);
    fields(&mut top, 1, |from, to| {
        fields(&mut Cursor::at(&request[..to], from), 2, |from, to| {
            fields(&mut Cursor::at(&request[..to], from), 2, |from, to| {
                let mut trace = [0; 2];
                fields(&mut Cursor::at(&request[..to], from), 1, |from, to| {
                    trace = <[u8; 16]>::try_from(&request[from..to]).map_or([0; 2], words);
                    Ok(())
                })?;
                if trace != [0; 2] {
                    each(trace);
                }
                Ok(())
            })
        })
    })
}

/// A trace id in the form of [`crate::ingest::walk::SpanFacts`].
pub fn words(id: [u8; 16]) -> [u64; 2] {
    let [first, second] =
        [0, 8].map(|at| id[at..].first_chunk::<8>().map_or(0, |half| u64::from_ne_bytes(*half)));
    [first, second]
}

/// Calls `each` with every resource of concatenated requests that can be decoded. Returns how many cannot.
///
/// # Errors
/// When the bytes are not OTLP, or `each` fails.
pub fn resources<E: From<WalkError>>(
    request: &[u8],
    mut each: impl FnMut(ResourceSpans) -> Result<(), E>,
) -> Result<u64, E> {
    let (mut undecoded, mut failed) = (0, Ok(()));
    fields(&mut Cursor::new(request), 1, |from, to| {
        match ResourceSpans::decode(&request[from..to]) {
            Ok(found) if failed.is_ok() => failed = each(found),
            Ok(_) => {}
            Err(_) => undecoded += 1,
        }
        Ok(())
    })?;
    failed.map(|()| undecoded)
}

/// Calls `each` with the range of every length-delimited field with this number.
fn fields(
    message: &mut Cursor,
    wanted: u32,
    mut each: impl FnMut(usize, usize) -> Result<(), WalkError>,
) -> Result<(), WalkError> {
    while let Some((field, wire)) = message.tag()? {
        match (field, wire) {
            (field, LEN) if field == wanted => {
                let (from, to) = message.len_range()?;
                each(from, to)?;
            }
            _ => message.skip(field, wire)?,
        }
    }
    Ok(())
}

/// Spans of one trace, by resource, in order of arrival. Retransmitted spans are included once.
#[derive(Debug, Default)]
pub struct Trace {
    /// Only spans of the trace.
    pub resource_spans: Vec<ResourceSpans>,
    /// Number of spans.
    pub spans: usize,
    /// Whether [`MOST_SPANS`] or [`MOST_BYTES`] was exceeded.
    pub cut: bool,
    bytes: usize,
    /// Index of each resource in the list.
    resources: HashMap<Vec<u8>, usize>,
    /// Two digests of each span included, so that no two spans collide.
    seen: HashSet<[u64; 2]>,
    digesters: [RandomState; 2],
}

impl Trace {
    /// Adds the spans of the trace in a block.
    ///
    /// # Errors
    /// When the block is not OTLP.
    pub fn add(&mut self, id: &[u8; 16], plain: &[u8]) -> Result<(), WalkError> {
        let finder = Finder::new(id);
        fields(&mut Cursor::new(plain), 1, |from, to| {
            // Few of thousands of spans belong to the trace, and decoding dominates the cost.
            if finder.find(&plain[from..to]).is_some()
                && let Ok(found) = ResourceSpans::decode(&plain[from..to])
            {
                self.add_of_resource(id, found);
            }
            Ok(())
        })
    }

    fn add_of_resource(&mut self, id: &[u8; 16], mut found: ResourceSpans) {
        found.scope_spans.iter_mut().for_each(|scope| scope.spans.retain(|span| span.trace_id == id));
        found.scope_spans.retain(|scope| !scope.spans.is_empty());
        let scopes = std::mem::take(&mut found.scope_spans);
        let resource = found.encode_to_vec();
        for scope in scopes {
            self.add_of_scope(&resource, &found, scope);
        }
    }

    fn add_of_scope(&mut self, resource: &[u8], bare: &ResourceSpans, mut scope: ScopeSpans) {
        let mut spans = std::mem::take(&mut scope.spans);
        spans.retain(|span| {
            let encoded = span.encode_to_vec();
            if self.spans >= MOST_SPANS || self.bytes + encoded.len() > MOST_BYTES {
                self.cut = true;
                return false;
            }
            let is_new =
                self.seen.insert(self.digesters.each_ref().map(|one| one.hash_one((resource, &encoded))));
            if is_new {
                self.spans += 1;
                self.bytes += encoded.len();
            }
            is_new
        });
        if spans.is_empty() {
            return;
        }
        let at = *self.resources.entry(resource.to_vec()).or_insert_with(|| {
            self.resource_spans.push(bare.clone());
            self.resource_spans.len() - 1
        });
        let scopes = &mut self.resource_spans[at].scope_spans;
        match scopes
            .iter_mut()
            .find(|known| known.scope == scope.scope && known.schema_url == scope.schema_url)
        {
            Some(known) => known.spans.append(&mut spans),
            None => scopes.push(ScopeSpans { spans, ..scope }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::Span;

    fn request(service: u8, traces: &[u8]) -> Vec<u8> {
        let span = |(at, trace): (usize, &u8)| Span {
            trace_id: vec![*trace; 16],
            span_id: vec![at as u8 + 1; 8],
            name: format!("span {at}"),
            ..Span::default()
        };
        let spans = traces.iter().enumerate().map(span).collect();
        let resource = Resource { dropped_attributes_count: service.into(), ..Resource::default() };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        }
        .encode_to_vec()
    }

    #[test]
    fn a_trace_is_grouped_by_resource_without_duplicates() {
        let requests =
            [request(1, &[7, 8, 7]), request(2, &[7]), request(1, &[7, 8, 7]), request(1, &[9, 7])];
        let mut trace = Trace::default();
        trace.add(&[7; 16], &requests[..2].concat()).unwrap();
        trace.add(&[7; 16], &requests[2..].concat()).unwrap();
        assert_eq!((trace.spans, trace.cut), (4, false));
        let of = |at: usize| -> Vec<&str> {
            let scopes = &trace.resource_spans[at].scope_spans;
            scopes.iter().flat_map(|scope| &scope.spans).map(|span| &span.name[..]).collect()
        };
        assert_eq!(trace.resource_spans.len(), 2);
        assert_eq!((of(0), of(1)), (vec!["span 0", "span 2", "span 1"], vec!["span 0"]));
    }

    #[test]
    fn a_trace_of_large_spans_is_truncated_at_the_byte_limit() {
        let mut trace = Trace::default();
        let span = |number: u8| Span {
            trace_id: vec![7; 16],
            span_id: vec![number; 8],
            name: "x".repeat(MOST_BYTES / 8),
            ..Span::default()
        };
        for number in 1..=9 {
            let scope_spans = vec![ScopeSpans { spans: vec![span(number)], ..ScopeSpans::default() }];
            let of_resource = ResourceSpans { scope_spans, ..ResourceSpans::default() };
            let request = ExportTraceServiceRequest { resource_spans: vec![of_resource] }.encode_to_vec();
            trace.add(&[7; 16], &request).unwrap();
            // A span is slightly larger than its name, so that the eighth does not fit.
            assert_eq!((trace.spans, trace.cut), (number.min(7).into(), number > 7));
        }
    }

    #[test]
    fn ids_match_those_of_the_walk() {
        let mut found = Vec::new();
        let all = [request(1, &[7, 8]), request(2, &[0])].concat();
        trace_ids(&all, |id| found.push(id)).unwrap();
        assert_eq!(found, [words([7; 16]), words([8; 16])]);
        assert!(trace_ids(&all[..all.len() - 1], |_| ()).is_err());
    }
}
