//! Logical calls: all attempts at one call of the application, merged.
//!
//! Attempts that carry the same ids are one call. Many clients give each attempt a span of its own instead:
//! then the trace and the failures show which calls repeat each other.

use super::Question;
use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Culprit, Leg, Legs};
use std::collections::{BTreeMap, BTreeSet};

/// A call as its application sees it.
pub struct Logical<'a> {
    /// Its last attempt, usually the only one.
    pub record: &'a CallRecord,
    /// Start of its first attempt, Unix nanoseconds.
    pub start_unix_ns: i64,
    /// From the start of its first attempt to the end of its last, nanoseconds.
    pub duration_ns: u64,
    /// Number of attempts.
    pub attempts: usize,
    /// Earlier attempts with spans of their own, in order; their delays are in their own records.
    pub earlier: Vec<&'a CallRecord>,
    /// Time before the record of the last attempt begins, nanoseconds; zero if one span covers all attempts.
    pub before_ns: i64,
    /// The interval of the record that earlier attempts took, nanoseconds since it began.
    pub retried: Option<(i64, i64)>,
    /// Its wait at the server while the threads that read it had other calls in hand.
    pub queued: Queued,
    /// How long its response waited in the client behind others on its connection, nanoseconds; see
    /// [`super::in_turn`].
    pub in_turn_ns: i64,
    /// Number of calls that it represents.
    pub weight: f64,
}

/// Time of a call in a queue of its server: see [`super::queued`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queued {
    /// The whole time, nanoseconds.
    pub ns: i64,
    /// The part of it in which the calls ahead were delayed themselves, by culprit, nanoseconds.
    pub behind: Vec<(Culprit, i64)>,
}

/// The calls in question, by start time.
pub fn calls<'a>(evidence: &'a Evidence, question: &Question<'_>) -> Vec<Logical<'a>> {
    let mut by_ids: BTreeMap<(&str, &str), Vec<&CallRecord>> = BTreeMap::new();
    let mut calls: Vec<Logical<'a>> = Vec::new();
    for record in evidence.measured().filter(|record| question.is_asked(record)) {
        match (record.trace_id.as_deref(), record.span_id.as_deref()) {
            (Some(trace), Some(span)) => by_ids.entry((trace, span)).or_default().push(record),
            _ => calls.push(single(record)),
        }
    }
    for records in by_ids.into_values() {
        match records[..] {
            [one] => calls.push(single(one)),
            _ => calls.extend(attempts(records)),
        }
    }
    calls.sort_by_key(|call| call.start_unix_ns);
    with_retries(calls)
}

/// What attempts at one call have in common: trace, method, and the client's host.
type Repeatable<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// Merges attempts with spans of their own: calls of one trace to one method, one after the other, all but
/// the last of which failed. If several succeeded, the program makes many such calls, and which of them are
/// repetitions is unknown.
fn with_retries<'a>(calls: Vec<Logical<'a>>) -> Vec<Logical<'a>> {
    let mut groups: BTreeMap<Repeatable<'_>, Vec<usize>> = BTreeMap::new();
    for (place, call) in calls.iter().enumerate().filter(|(_, call)| call.attempts == 1) {
        if let Some(trace) = call.record.trace_id.as_deref() {
            let client = call.record.client.as_deref().and_then(host);
            groups.entry((trace, call.record.method.as_deref(), client)).or_default().push(place);
        }
    }
    let is_retried = |group: &Vec<usize>| {
        let tried = group.windows(2).all(|pair| {
            let [first, next] = [&calls[pair[0]], &calls[pair[1]]];
            first.record.retryable && end_unix_ns(first.record) <= next.start_unix_ns
        });
        tried && group.len() > 1 && group.last().is_some_and(|last| !calls[*last].record.retryable)
    };
    let earlier_of: BTreeMap<usize, Vec<&'a CallRecord>> = groups
        .values()
        .filter(|group| is_retried(group))
        .filter_map(|group| {
            let (last, earlier) = group.split_last()?;
            Some((*last, earlier.iter().map(|place| calls[*place].record).collect()))
        })
        .collect();
    let repeated: BTreeSet<usize> = groups
        .into_values()
        .filter(|group| group.last().is_some_and(|last| earlier_of.contains_key(last)))
        .flatten()
        .collect();
    let merged = |(place, mut call): (usize, Logical<'a>)| match earlier_of.get(&place) {
        None => (!repeated.contains(&place)).then_some(call),
        Some(earlier) => {
            let start_unix_ns = earlier.first().map_or(call.start_unix_ns, |first| first.start_unix_ns);
            call.before_ns = call.start_unix_ns - start_unix_ns;
            call.duration_ns += call.before_ns.unsigned_abs();
            call.start_unix_ns = start_unix_ns;
            call.attempts += earlier.len();
            call.earlier = earlier.clone();
            Some(call)
        }
    };
    let mut calls: Vec<Logical<'_>> = calls.into_iter().enumerate().filter_map(merged).collect();
    calls.sort_by_key(|call| call.start_unix_ns);
    calls
}

/// The host part of an address with a port.
fn host(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(host, _)| host)
}

fn single(record: &CallRecord) -> Logical<'_> {
    Logical {
        record,
        start_unix_ns: record.start_unix_ns,
        duration_ns: record.duration_ns,
        attempts: 1,
        earlier: Vec::new(),
        before_ns: 0,
        retried: None,
        queued: Queued::default(),
        in_turn_ns: 0,
        weight: record.weight(),
    }
}

/// When its first byte left the client, Unix nanoseconds.
fn sent_unix_ns(record: &CallRecord) -> i64 {
    record.start_unix_ns.saturating_add(record.leg_ns(Legs::one(Leg::ClientAppOut)))
}

fn end_unix_ns(record: &CallRecord) -> i64 {
    record.start_unix_ns.saturating_add_unsigned(record.duration_ns)
}

/// Records that carry the same ids: attempts one after the other or, if sent from another host, the same call
/// forwarded.
fn attempts(mut records: Vec<&CallRecord>) -> Vec<Logical<'_>> {
    let host = |record: &CallRecord| record.client.as_deref().and_then(host).map(str::to_owned);
    records.sort_by_key(|record| (sent_unix_ns(record), std::cmp::Reverse(record.duration_ns)));
    let Some(first) = records.first().copied() else { return Vec::new() };
    // Another host that carries these ids forwards the call, whose time already includes it.
    records.retain(|record| host(record) == host(first));
    let Some(last) = records.last().copied() else { return Vec::new() };
    let start_unix_ns = records.iter().map(|record| record.start_unix_ns).min().unwrap_or_default();
    let end_unix_ns = records.iter().map(|record| end_unix_ns(record)).max().unwrap_or_default();
    let before_ns = last.start_unix_ns.saturating_sub(start_unix_ns);
    // Time after the last attempt's record does not belong to it: an earlier attempt answered last.
    if records.len() > 1 && end_unix_ns > self::end_unix_ns(last) {
        let longest = records.iter().max_by_key(|record| record.duration_ns).copied().unwrap_or(last);
        return vec![Logical { attempts: records.len(), ..single(longest) }];
    }
    let retried = (sent_unix_ns(first) - last.start_unix_ns, sent_unix_ns(last) - last.start_unix_ns);
    vec![Logical {
        record: last,
        start_unix_ns,
        duration_ns: u64::try_from(end_unix_ns.saturating_sub(start_unix_ns)).unwrap_or(0),
        attempts: records.len(),
        earlier: Vec::new(),
        before_ns,
        retried: Some((retried.0.max(0), retried.1)).filter(|(from, to)| records.len() > 1 && to > from),
        queued: Queued::default(),
        in_turn_ns: 0,
        weight: last.weight(),
    }]
}
