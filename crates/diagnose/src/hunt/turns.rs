//! Locks that are not visible as locks. The kernel only sees a thread that sleeps on a futex until another thread of
//! its process wakes it, which happens for a lock and for a result alike. The difference is what the woken thread does
//! next: a new lock owner later wakes the next waiter, while the receiver of a result continues with its own call. So
//! waits belong to a lock if threads that handle calls hand on what they waited for, one to one, several times in a
//! row.

use super::logical::Logical;
use spangap_model::evidence::{CallRecord, HostPart, Waker};
use spangap_model::{Doing, Leg, Legs, WaitReason};
use std::collections::{BTreeMap, BTreeSet};

/// A shorter wait may be for an interpreter's own lock, or for the lock that guards a result, nanoseconds.
const LEAST_NS: u64 = 200_000;
/// Minimum number of waits with at least two others before them in a chain: two in a row may be a result that
/// is passed on.
const LEAST_HANDED_ON: usize = 3;
/// Share of the waits handed on that are handed to a single thread: a result wakes everyone who waits for it.
const MOST_TO_ONE: f64 = 0.75;

/// Threads that hand on a lock.
#[derive(Clone, Debug, Default)]
pub struct Turns(BTreeSet<u32>);

/// A wait of a call's thread, ended by another thread.
struct Wait {
    /// The call, from start to end, Unix nanoseconds.
    call: (i64, i64),
    /// The thread that ended it.
    by: u32,
}

impl Turns {
    /// From all calls together, because the owner of a lock delays whichever call is next.
    pub fn of(calls: &[Logical<'_>]) -> Turns {
        let mut waits: Vec<Wait> = Vec::new();
        let mut of_thread: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for call in calls {
            let record = call.record;
            for host in record.end_to_end().filter(|leg| is_served(leg.legs)).filter_map(|leg| leg.host) {
                // The longest is what the call waited for.
                let longest =
                    host.parts.iter().filter_map(|part| Some((part.ns, between_threads(part)?))).max();
                let Some((_, by)) = longest.filter(|(ns, _)| *ns >= LEAST_NS) else { continue };
                for tid in &host.tids {
                    of_thread.entry(*tid).or_default().push(waits.len());
                }
                waits.push(Wait { call: span(record), by });
            }
        }
        let before: Vec<Option<usize>> = waits.iter().map(|wait| before(wait, &waits, &of_thread)).collect();
        let mut handed_to: BTreeMap<usize, usize> = BTreeMap::new();
        for one in before.iter().flatten() {
            *handed_to.entry(*one).or_default() += 1;
        }
        let over_two = before.iter().flatten().filter(|one| before[**one].is_some()).count();
        let to_one = handed_to.values().filter(|count| **count == 1).count();
        if over_two < LEAST_HANDED_ON || (to_one as f64) < MOST_TO_ONE * handed_to.len() as f64 {
            return Turns::default();
        }
        // The threads that hand on, and the first of each chain.
        let handing =
            waits.iter().zip(&before).filter(|(_, before)| before.is_some()).map(|(wait, _)| wait.by);
        let first = handed_to.keys().filter(|one| before[**one].is_none()).map(|one| waits[*one].by);
        Turns(handing.chain(first).collect())
    }

    /// Whether a part of a leg is a wait for the lock.
    pub fn is_lock(&self, part: &HostPart, legs: Legs) -> bool {
        is_served(legs) && between_threads(part).is_some_and(|by| self.0.contains(&by))
    }
}

/// The wait that this one's waker had while it had a call in hand: the latest such wait.
fn before(wait: &Wait, waits: &[Wait], of_thread: &BTreeMap<u32, Vec<usize>>) -> Option<usize> {
    let (began, ended) = wait.call;
    let beside = of_thread.get(&wait.by)?.iter().copied().filter(|other| {
        let (from, to) = waits[*other].call;
        from < ended && to > began && waits[*other].by != wait.by
    });
    beside.max_by_key(|other| waits[*other].call.0)
}

/// Legs in which the server's application works.
fn is_served(legs: Legs) -> bool {
    legs.contains(Leg::ServerApp) && Leg::ServerHostIn <= legs.first && legs.last <= Leg::ServerHostOut
}

/// The thread that ended a futex wait which is not visibly a lock; `None` for anything else.
pub fn between_threads(part: &HostPart) -> Option<u32> {
    match (part.doing, part.waited_for, part.waker) {
        (Doing::Blocked, Some(WaitReason::Futex), Some(Waker::Thread(tid))) => Some(tid),
        _ => None,
    }
}

fn span(call: &CallRecord) -> (i64, i64) {
    (call.start_unix_ns, call.start_unix_ns.saturating_add_unsigned(call.duration_ns))
}
