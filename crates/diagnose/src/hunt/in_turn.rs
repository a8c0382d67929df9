//! Responses that wait for each other in the client. One thread at a time reads the responses of a connection
//! from its socket; while that thread sleeps in the middle of handling one, the others wait in the socket or
//! in the thread's buffer.
//!
//! From outside, this looks like calls that simply take that long, and in a closed loop, times alone prove
//! nothing. The proof is who reads. A sleeping thread needs no CPU, so another thread could have handled the
//! next response, had it arrived on another socket. If the same thread reads all responses of a connection,
//! it may be the only reader, and a second connection would wait for it, too: then there is no culprit.

use super::logical::Logical;
use crate::claims::host_of;
use spangap_model::evidence::{HostPart, HostTime};
use spangap_model::{Doing, Leg, Legs, Side, WaitReason};
use std::collections::BTreeMap;

/// Reads of a connection by threads other than its main reader, from which on the connection does not depend
/// on a single thread.
const LEAST_BY_OTHERS: usize = 4;

/// A response that has arrived at the client's host; all times are Unix nanoseconds.
struct Response {
    /// Index of its call.
    call: usize,
    /// Arrival of its last byte.
    came: i64,
    /// When the thread that read it took it in hand: with its first byte, if it read that after the last one
    /// had arrived.
    begun: i64,
    tid: u32,
    /// When that thread was done with it.
    done: i64,
    /// How long the threads that had it in hand slept, before the read and after it, nanoseconds.
    slept_ns: i64,
}

/// How long each call waited for others, nanoseconds: its response had arrived at the host, and the thread
/// that read it slept with others of the connection in hand, or with this one among several, each of which
/// gets an equal part.
pub(super) fn waited(calls: &[Logical<'_>]) -> Vec<i64> {
    let mut waited = vec![0; calls.len()];
    let mut by_connection: BTreeMap<(&str, &str), Vec<Response>> = BTreeMap::new();
    for (call, logical) in calls.iter().enumerate() {
        let (Some(client), Some(server)) = (&logical.record.client, &logical.record.server) else { continue };
        if let Some(response) = response(call, logical) {
            by_connection.entry((client, server)).or_default().push(response);
        }
    }
    for responses in by_connection.values().filter(|responses| is_read_by_many(responses)) {
        let in_hand = InHand::of(responses);
        for one in responses {
            let (all, own) = (in_hand.taken(one.came, one.done), in_hand.shared(one.begun, one.done));
            waited[one.call] = ((all - own).floor() as i64).clamp(0, one.slept_ns);
        }
    }
    waited
}

/// Number of a connection's responses in hand over time.
struct InHand {
    /// Moments when it changes; and up to each, how long any was in hand, and how long each one, if every
    /// moment is divided among those in hand, nanoseconds.
    at: Vec<(i64, f64, f64)>,
}

impl InHand {
    fn of(responses: &[Response]) -> InHand {
        let begins = responses.iter().map(|one| (one.begun, 1));
        let mut steps: Vec<(i64, i64)> = begins.chain(responses.iter().map(|one| (one.done, -1))).collect();
        steps.sort_unstable();
        let (mut count, mut last, mut any, mut each) = (0_i64, i64::MIN, 0.0, 0.0);
        let mut at = Vec::with_capacity(steps.len());
        for (time, step) in steps {
            if count > 0 {
                let ns = (time - last) as f64;
                any += ns;
                each += ns / count as f64;
            }
            at.push((time, any, each));
            count += step;
            last = time;
        }
        InHand { at }
    }

    /// Both sums up to a moment.
    fn up_to(&self, time: i64) -> (f64, f64) {
        let after = self.at.partition_point(|(at, ..)| *at <= time);
        let Some((before, any, each)) = after.checked_sub(1).map(|place| self.at[place]) else {
            return (0.0, 0.0);
        };
        let Some((next, next_any, next_each)) = self.at.get(after).copied() else { return (any, each) };
        let part = (time - before) as f64 / (next - before).max(1) as f64;
        (any + (next_any - any) * part, each + (next_each - each) * part)
    }

    /// How long any was in hand within an interval.
    fn taken(&self, from: i64, to: i64) -> f64 {
        self.up_to(to).0 - self.up_to(from).0
    }

    /// One response's part of an interval in which it is in hand.
    fn shared(&self, from: i64, to: i64) -> f64 {
        self.up_to(to).1 - self.up_to(from).1
    }
}

fn response(call: usize, logical: &Logical<'_>) -> Option<Response> {
    let record = logical.record;
    let leg = record.legs.last().filter(|leg| leg.legs == Legs::one(Leg::ClientAppIn) && leg.ns > 0)?;
    let host = leg.host.as_ref().filter(|_| host_of(leg.legs) == Side::Client)?;
    let read = host.read?;
    let ended = record.start_unix_ns.saturating_add_unsigned(record.duration_ns);
    let came = ended.saturating_sub(leg.ns);
    let read_at = came.saturating_add_unsigned(read.after_ns).min(ended);
    let begun = read_at.saturating_sub_unsigned(read.begun_ns).max(came);
    let done = read_at.saturating_add_unsigned(read.held_ns).min(ended);
    Some(Response { call, came, begun, tid: read.tid, done, slept_ns: slept_ns(host) })
}

/// Sleeps that a thread chose. A sleep for packets or for other threads may be idleness of a thread with
/// nothing to do.
fn slept_ns(host: &HostTime) -> i64 {
    let is_asleep =
        |part: &&HostPart| part.doing == Doing::Blocked && part.waited_for == Some(WaitReason::Sleep);
    let slept: u64 = host.parts.iter().filter(is_asleep).map(|part| part.ns).sum();
    i64::try_from(slept).unwrap_or(i64::MAX)
}

fn is_read_by_many(responses: &[Response]) -> bool {
    let mut by_tid: BTreeMap<u32, usize> = BTreeMap::new();
    for one in responses {
        *by_tid.entry(one.tid).or_default() += 1;
    }
    let most = by_tid.values().copied().max().unwrap_or(0);
    responses.len() - most >= LEAST_BY_OTHERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::{CallRecord, LegRecord, ReadBy};

    const MS: i64 = 1_000_000;

    /// A response that arrived, was taken in hand by a thread, read completely, and done with at these
    /// milliseconds; the thread slept throughout.
    fn call(came: i64, begun: i64, read: i64, done: i64, tid: u32) -> CallRecord {
        let ns = (done - came) * MS;
        let slept = HostPart {
            doing: Doing::Blocked,
            behind: None,
            waited_for: Some(WaitReason::Sleep),
            woken_by: None,
            waker: None,
            ns: ns.unsigned_abs(),
        };
        let read = ReadBy {
            tid,
            after_ns: ((read - came) * MS) as u64,
            begun_ns: ((read - begun) * MS) as u64,
            held_ns: ((done - read) * MS) as u64,
        };
        let host = HostTime { tids: vec![tid], read: Some(read), parts: vec![slept], ..HostTime::default() };
        CallRecord {
            client: Some("10.0.0.1:40000".into()),
            server: Some("10.0.0.2:50051".into()),
            start_unix_ns: came * MS,
            duration_ns: ns.unsigned_abs(),
            legs: vec![LegRecord { legs: Legs::one(Leg::ClientAppIn), ns, bound_ns: 0, host: Some(host) }],
            ..CallRecord::default()
        }
    }

    fn waited_ms(records: &[CallRecord]) -> Vec<i64> {
        let evidence = spangap_model::evidence::Evidence { calls: records.to_vec(), ..Default::default() };
        let calls = super::super::logical::calls(&evidence, &super::super::Question::default());
        waited(&calls).into_iter().map(|ns| ns / MS).collect()
    }

    /// Batches of four that arrive together, 100 ms apart; `one` makes each of a batch's responses.
    fn batches(one: impl Fn(i64, i64, u32) -> CallRecord) -> Vec<CallRecord> {
        let of = |batch: i64| (0..4).map(move |n| (batch, n));
        (0..10).flat_map(of).map(|(batch, n)| one(batch * 100, n, (batch % 3) as u32)).collect()
    }

    #[test]
    fn those_that_are_read_later_wait_for_those_before_them() {
        // Each costs its reader 2 ms, one after the other.
        let waited =
            waited_ms(&batches(|came, n, tid| call(came, came + 2 * n, came + 2 * n, came + 2 * n + 2, tid)));
        assert_eq!(waited, [0, 2, 4, 6].repeat(10));
    }

    #[test]
    fn what_is_in_hand_together_is_shared_by_all_of_it() {
        // 8 ms for four that are handed over together at the end: each one's own part is 2 ms.
        let together = batches(|came, _, tid| call(came, came, came + 6, came + 8, tid));
        assert_eq!(waited_ms(&together), [6].repeat(40));
    }

    #[test]
    fn one_thread_that_reads_everything_is_no_connection_that_is_shared() {
        let alone = batches(|came, n, _| call(came, came + 2 * n, came + 2 * n, came + 2 * n + 2, 7));
        assert_eq!(waited_ms(&alone), [0].repeat(40));
    }

    #[test]
    fn what_is_handed_on_at_once_waits_for_nobody() {
        // Read at once; a separate thread sleeps for each.
        let handed_on = batches(|came, n, tid| {
            let mut call = call(came, came, came, came + 20 + n, tid);
            if let Some(read) = call.legs[0].host.as_mut().and_then(|host| host.read.as_mut()) {
                read.held_ns = 0;
            }
            call
        });
        assert_eq!(waited_ms(&handed_on), [0].repeat(40));
    }

    #[test]
    fn a_call_at_a_time_waits_for_nobody() {
        let alone: Vec<CallRecord> =
            (0..40).map(|n| call(n * 10, n * 10, n * 10 + 4, n * 10 + 8, (n % 3) as u32)).collect();
        assert_eq!(waited_ms(&alone), [0].repeat(40));
    }
}
