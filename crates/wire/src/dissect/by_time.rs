//! Calls without a trace context, such as TLS without keys: their spans are matched by time.
//!
//! A CLIENT span contains everything that the wire shows of its call, by the same host's clock. So if a span for
//! that server contains exactly one such call, the call belongs to it; the call then belongs to no other span,
//! which may leave that one with a single candidate as well. A long span contains all quick calls that happen
//! meanwhile, some of which may have no spans at all; it belongs to the call that fills it, if no other call
//! does. Ambiguous calls stay without spans. The match is certain for a span whose call is in the captures,
//! whether all calls have spans or few: its own call is always among those that it contains. A span that does not
//! name its server may contain a call to another one by chance; such spans count only if nearly every call is
//! matched.

use crate::spans::Spans;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Maximum calls without a trace context that are remembered; beyond it, none are matched.
const MOST_CALLS: usize = 1_000_000;
/// Maximum calls in a span; one with more could not be matched anyway, and the search would take long.
const MOST_HELD: usize = 64;
/// Minimum share of a span that a call must cover to fill it.
const FILLS: f64 = 0.9;
/// Maximum error of times in whole microseconds, nanoseconds.
const EXACT_NS: i64 = 1_000;

/// Identifies a call in both readings of its captures: section, capture of the client's end, connection there,
/// and stream offset of the request.
pub(super) type Place = (usize, u8, u32, u64);
/// Trace id and id of the CLIENT span.
pub(super) type Ids = ([u8; 16], [u8; 8]);

/// A call without a trace context.
#[derive(Clone, Copy, Debug)]
struct Untraced {
    place: Place,
    /// The server's port.
    port: u16,
    /// First byte of its request and last byte of its response, at the client's tap.
    from_ns: i64,
    to_ns: i64,
}

/// The observed calls without a trace context.
#[derive(Debug, Default)]
pub(super) struct Untracked {
    calls: Vec<Untraced>,
    /// Calls that identified their spans themselves.
    traced: Vec<Ids>,
}

impl Untracked {
    pub fn add(&mut self, place: Place, port: u16, (from_ns, to_ns): (i64, i64)) {
        if self.calls.len() <= MOST_CALLS {
            self.calls.push(Untraced { place, port, from_ns, to_ns });
        }
    }

    /// Records that the spans of a call are known.
    pub fn traced(&mut self, ids: Ids) {
        if self.traced.len() <= MOST_CALLS {
            self.traced.push(ids);
        }
    }

    pub fn append(&mut self, mut other: Untracked) {
        self.calls.append(&mut other.calls);
        self.traced.append(&mut other.traced);
    }

    /// The spans of these calls.
    pub fn found(mut self, spans: &Spans) -> FxHashMap<Place, Ids> {
        let mut found = FxHashMap::default();
        if self.calls.is_empty() || self.calls.len() > MOST_CALLS || self.traced.len() > MOST_CALLS {
            return found;
        }
        self.traced.sort_unstable();
        let is_free = |ids: &Ids| self.traced.binary_search(ids).is_err();
        let mut by_port: BTreeMap<u16, Vec<Untraced>> = BTreeMap::new();
        for call in &self.calls {
            by_port.entry(call.port).or_default().push(*call);
        }
        for (port, mut calls) in by_port {
            calls.sort_unstable_by_key(|call| (call.from_ns, call.to_ns));
            let of = |named: bool| {
                let here = spans.times.iter().filter_map(move |(ids, times)| {
                    let to = spans.server_ports.get(ids);
                    let fits = if named { to == Some(&port) } else { to.is_none() };
                    times.client.filter(|_| fits).map(|times| (*ids, times))
                });
                let mut here: Vec<(Ids, (i64, i64))> = here.filter(|(ids, _)| is_free(ids)).collect();
                here.sort_unstable_by_key(|(ids, times)| (*times, *ids));
                here
            };
            let matched = matches(&calls, &of(true));
            let matched = match matched.is_empty() {
                true => Some(matches(&calls, &of(false))).filter(|found| 10 * found.len() >= 9 * calls.len()),
                false => Some(matched),
            };
            found.extend(matched.into_iter().flatten());
        }
        found
    }
}

/// Matches spans to calls; both are sorted by their start.
fn matches(calls: &[Untraced], spans: &[(Ids, (i64, i64))]) -> Vec<(Place, Ids)> {
    let mut held: Vec<Vec<usize>> = Vec::with_capacity(spans.len());
    let mut holders: Vec<Vec<usize>> = vec![Vec::new(); calls.len()];
    for (span, (_, (start, end))) in spans.iter().enumerate() {
        let first = calls.partition_point(|call| call.from_ns < start - EXACT_NS);
        let begun = calls[first..].iter().take_while(|call| call.from_ns <= *end);
        let inside = begun.enumerate().filter(|(_, call)| call.to_ns <= end + EXACT_NS);
        let inside: Vec<usize> = inside.map(|(place, _)| first + place).take(MOST_HELD + 1).collect();
        inside.iter().for_each(|call| holders[*call].push(span));
        held.push(inside);
    }
    // Number of remaining candidates of each span.
    let mut left: Vec<usize> = held.iter().map(Vec::len).collect();
    let mut taken = vec![false; calls.len()];
    let mut owner: Vec<Option<usize>> = vec![None; calls.len()];
    let mut single: Vec<usize> = (0..spans.len()).filter(|span| left[*span] == 1).collect();
    while let Some(span) = single.pop() {
        if held[span].len() > MOST_HELD {
            continue;
        }
        let Some(call) = held[span].iter().copied().find(|call| !taken[*call]) else {
            // Another span has only this candidate, too: the owner is unknown.
            for call in &held[span] {
                owner[*call] = owner[*call].filter(|other| held[*other].len() != held[span].len());
            }
            continue;
        };
        (taken[call], owner[call]) = (true, Some(span));
        for other in holders[call].iter().copied().filter(|other| *other != span) {
            left[other] -= 1;
            match left[other] {
                1 => single.push(other),
                // The other span has no candidate left: one of the two took the other's call.
                0 => owner[call] = None,
                _ => {}
            }
        }
    }
    filled(calls, spans, &held, &holders, &mut owner);
    let owned = owner.iter().zip(calls).filter_map(|(owner, call)| Some((call.place, spans[(*owner)?].0)));
    owned.collect()
}

/// Assigns spans with several calls to the one call that fills them, if that fills no other span.
fn filled(
    calls: &[Untraced],
    spans: &[(Ids, (i64, i64))],
    held: &[Vec<usize>],
    holders: &[Vec<usize>],
    owner: &mut [Option<usize>],
) {
    let has_call =
        |span: usize, owner: &[Option<usize>]| held[span].iter().any(|call| owner[*call] == Some(span));
    let fills = |call: usize, span: usize| {
        let (_, (start, end)) = spans[span];
        (calls[call].to_ns - calls[call].from_ns) as f64 >= FILLS * (end - start) as f64
    };
    let alone = |span: usize, owner: &[Option<usize>]| {
        let mut filling = held[span].iter().copied().filter(|call| fills(*call, span));
        let (first, second) = (filling.next(), filling.next());
        first.filter(|call| second.is_none() && owner[*call].is_none())
    };
    let mut found = Vec::new();
    for span in (0..spans.len()).filter(|span| held[*span].len() <= MOST_HELD && !has_call(*span, owner)) {
        let Some(call) = alone(span, owner) else { continue };
        if holders[call].iter().filter(|other| fills(call, **other)).count() == 1 {
            found.push((call, span));
        }
    }
    for (call, span) in found {
        owner[call] = Some(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::SpanTimes;

    fn found(calls: &[(i64, i64)], spans: &[(i64, i64)], port: Option<u16>) -> Vec<(u64, u8)> {
        let mut untracked = Untracked::default();
        for (place, (from, to)) in (0..).zip(calls) {
            untracked.add((0, 0, 1, place), 443, (from * 1_000_000, to * 1_000_000));
        }
        let mut all = Spans::default();
        for (id, (start, end)) in (1..).zip(spans) {
            let ids = ([id; 16], [id; 8]);
            let client = Some((start * 1_000_000, end * 1_000_000));
            all.times.insert(ids, SpanTimes { client, ..SpanTimes::default() });
            all.server_ports.extend(port.map(|port| (ids, port)));
        }
        let mut found: Vec<(u64, u8)> =
            untracked.found(&all).into_iter().map(|(place, ids)| (place.3, ids.1[0])).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_span_with_one_call_belongs_to_it_and_leaves_the_others_theirs() {
        // The second one waited for its connection while the first was in flight, so its span contains both.
        let calls = [(10, 20), (40, 50), (52, 60)];
        assert_eq!(found(&calls, &[(9, 21), (8, 51), (51, 61)], Some(443)), [(0, 1), (1, 2), (2, 3)]);
        // Spans of only a few calls still belong to their own.
        assert_eq!(found(&calls, &[(51, 61)], Some(443)), [(2, 1)]);
        // To another port.
        assert_eq!(found(&calls, &[(9, 21)], Some(80)), []);
    }

    #[test]
    fn a_call_that_fits_two_spans_belongs_to_neither() {
        assert_eq!(found(&[(10, 20), (11, 21)], &[(9, 22), (8, 23)], Some(443)), []);
        // Two spans that contain the same call.
        assert_eq!(found(&[(10, 20)], &[(9, 22), (8, 23)], Some(443)), []);
        // One span with a retry.
        assert_eq!(found(&[(10, 20), (30, 40)], &[(9, 42)], Some(443)), []);
    }

    #[test]
    fn a_long_span_belongs_to_the_call_that_fills_it() {
        // Quick calls without spans, next to a statement that waits for a lock.
        let calls = [(10, 70), (20, 21), (30, 31), (40, 45)];
        assert_eq!(found(&calls, &[(9, 71)], Some(443)), [(0, 1)]);
        // Two that fill it, and one that fills two.
        assert_eq!(found(&[(10, 70), (11, 70), (20, 21)], &[(9, 71)], Some(443)), []);
        assert_eq!(found(&[(10, 70), (20, 21)], &[(9, 71), (8, 72)], Some(443)), []);
        // None that fills it.
        assert_eq!(found(&[(10, 40), (20, 21)], &[(9, 71)], Some(443)), []);
    }

    #[test]
    fn spans_without_a_server_must_match_nearly_all_calls() {
        let calls = [(10, 20), (30, 40)];
        assert_eq!(found(&calls, &[(9, 21), (29, 41)], None), [(0, 1), (1, 2)]);
        assert_eq!(found(&calls, &[(9, 21)], None), []);
    }
}
