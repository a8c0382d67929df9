//! Whole spans of slow and ordinary calls for a case's folder.

use crate::clocks::Clocks;
use crate::now_unix_ms;
use crate::report::Measure;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde::Serialize;
use spangap_meter::engine::Meter;
use spangap_model::PairKey;
use spangap_model::pair::{KeptCall, KeptSide, WholeSpan};
use std::collections::{BTreeMap, HashMap};

/// Calls in a folder at most.
const MOST: usize = 4_096;

/// A call with what its spans say.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Client duration minus server duration, nanoseconds.
    pub gap_ns: u64,
    /// Client and server.
    pub sides: [Half; 2],
}

impl Sample {
    /// The client's port of the call's connection: from the client's span, else from the server's.
    pub fn client_port(&self) -> Option<u64> {
        let [client, server] = [0, 1].map(|side| self.sides[side].whole.as_ref().map(|(_, span)| span));
        client.and_then(local_port).or_else(|| server.and_then(peer_port))
    }

    /// Id of its trace, while a span of it is held.
    pub fn trace_id(&self) -> Option<[u8; 16]> {
        self.sides
            .iter()
            .filter_map(|half| half.whole.as_ref())
            .find_map(|(_, span)| span.trace_id[..].try_into().ok())
    }

    /// How long it took by this, nanoseconds.
    pub fn took_ns(&self, by: Measure) -> u64 {
        match by {
            Measure::Gap => self.gap_ns,
            Measure::ClientDuration => self.sides[0].end_unix_ns.saturating_sub(self.sides[0].start_unix_ns),
        }
    }
}

/// One side of it.
#[derive(Clone, Debug)]
pub struct Half {
    /// Start, by its host's clock, Unix nanoseconds.
    pub start_unix_ns: u64,
    /// End.
    pub end_unix_ns: u64,
    /// Resource and span, if they are still held.
    pub whole: Option<(Resource, Span)>,
}

impl Half {
    fn of(side: &KeptSide) -> Half {
        Half {
            start_unix_ns: side.start_unix_ns,
            end_unix_ns: side.start_unix_ns.saturating_add(side.duration_ns),
            whole: side.whole.as_ref().and_then(decoded),
        }
    }
}

fn decoded(whole: &WholeSpan) -> Option<(Resource, Span)> {
    Some((Resource::decode(&whole.resource[..]).ok()?, Span::decode(&whole.span[..]).ok()?))
}

/// Calls of a pair that began after a moment of the meter's clock: the worst ones, and both samples of the meter. The slowest
/// first.
pub fn of_pair(meter: &Meter, pair: &PairKey, since_unix_ns: u64, by: Measure) -> Vec<Sample> {
    let mut calls = BTreeMap::<([u8; 16], [u8; 8]), KeptCall>::new();
    let mut take = |call: KeptCall| {
        calls.insert((call.trace_id, call.client_span_id), call);
    };
    for drawn in meter.samples(|key| key == pair).into_iter().flat_map(|(_, drawn)| drawn) {
        drawn.by_time.into_iter().map(|(call, _)| call).chain(drawn.by_call).for_each(&mut take);
    }
    for minute in meter.open_minutes_of(|key| key == pair) {
        minute.stats.worst.into_iter().for_each(&mut take);
    }
    let clocks = Clocks::of(calls.values(), now_unix_ms() * 1_000_000);
    let mut calls: Vec<&KeptCall> =
        calls.values().filter(|call| clocks.began_since(call, since_unix_ns)).collect();
    calls.sort_by_key(|call| {
        std::cmp::Reverse(match by {
            Measure::Gap => call.gap_ns,
            Measure::ClientDuration => call.client.duration_ns,
        })
    });
    let samples = calls.iter().take(MOST);
    samples
        .map(|call| Sample { gap_ns: call.gap_ns, sides: [Half::of(&call.client), Half::of(&call.server)] })
        .collect()
}

/// When the last of the calls of a pair began that are all kept since a moment, by the client's clock; `None` when some are not,
/// or when the clocks of clients do not tell.
pub fn all_kept(
    meter: &Meter,
    pair: &PairKey,
    since_unix_ns: u64,
    most: usize,
) -> Option<std::ops::Range<u64>> {
    let drawn: Vec<_> = meter.samples(|key| key == pair).into_iter().flat_map(|(_, drawn)| drawn).collect();
    if drawn.iter().any(|drawn| drawn.by_call.len() >= most) {
        return None;
    }
    if !Clocks::of(drawn.iter().flat_map(|drawn| &drawn.by_call), now_unix_ms() * 1_000_000).agree() {
        return None;
    }
    let began = drawn.iter().flat_map(|drawn| &drawn.by_call).map(|call| call.client.start_unix_ns);
    let began = began.filter(|began| *began >= since_unix_ns);
    Some(began.clone().min()?..began.max()?)
}

/// Adds the calls of a pair that were drawn whatever their gaps, and began after a moment, by the clock of a side's host.
pub fn drawn_by_call(
    meter: &Meter,
    pair: &PairKey,
    (side, since_unix_ns): (usize, u64),
    calls: &mut HashMap<([u8; 16], [u8; 8]), Sample>,
) {
    for call in
        meter.samples(|key| key == pair).into_iter().flat_map(|(_, drawn)| drawn).flat_map(|one| one.by_call)
    {
        if [&call.client, &call.server][side.min(1)].start_unix_ns >= since_unix_ns {
            calls.entry((call.trace_id, call.client_span_id)).or_insert_with(|| Sample {
                gap_ns: call.gap_ns,
                sides: [Half::of(&call.client), Half::of(&call.server)],
            });
        }
    }
}

/// Spans of one side as an OTLP JSON document. It borrows them: as a tree of values it would take ten times their memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    resource_spans: Vec<OfResource<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfResource<'a> {
    resource: &'a Resource,
    scope_spans: [OfScope<'a>; 1],
}

#[derive(Debug, Serialize)]
struct OfScope<'a> {
    spans: [&'a Span; 1],
}

/// The spans of one side; `None` of none.
pub fn document(samples: &[Sample], side: usize) -> Option<Document<'_>> {
    let whole = samples.iter().filter_map(|sample| sample.sides[side].whole.as_ref());
    let resource_spans: Vec<_> = whole
        .map(|(resource, span)| OfResource { resource, scope_spans: [OfScope { spans: [span] }] })
        .collect();
    (!resource_spans.is_empty()).then_some(Document { resource_spans })
}

/// Port of a span's own end, where it says.
pub fn local_port(span: &Span) -> Option<u64> {
    crate::hosts::number_of(&span.attributes, "network.local.port").and_then(|port| u64::try_from(port).ok())
}

/// Port of the other end, where a span says.
pub fn peer_port(span: &Span) -> Option<u64> {
    let keys = ["network.peer.port", "net.sock.peer.port", "client.port", "net.peer.port"];
    let found = keys.iter().find_map(|key| crate::hosts::number_of(&span.attributes, key));
    found.and_then(|port| u64::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_document_has_each_span_with_its_resource() {
        let whole = |id: u8| {
            let resource = Resource { dropped_attributes_count: id.into(), ..Resource::default() };
            (resource, Span { trace_id: vec![id; 16], ..Span::default() })
        };
        let half = |whole| Half { start_unix_ns: 1, end_unix_ns: 2, whole };
        let samples = [
            Sample { gap_ns: 1, sides: [half(Some(whole(1))), half(None)] },
            Sample { gap_ns: 1, sides: [half(None), half(None)] },
            Sample { gap_ns: 1, sides: [half(Some(whole(2))), half(None)] },
        ];
        let written = serde_json::to_string(&document(&samples, 0).expect("two spans")).unwrap();
        let read: Value = serde_json::from_str(&written).unwrap();
        let of = |(resource, span): (Resource, Span)| json!({"resource": resource, "scopeSpans": [{"spans": [span]}]});
        assert_eq!(read, json!({ "resourceSpans": [of(whole(1)), of(whole(2))] }));
        assert!(document(&samples, 1).is_none());
    }
}
