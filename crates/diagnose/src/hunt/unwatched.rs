//! Time charged to the server's application because no thread was seen handling the call. Either the call lay
//! in a queue of the program, or its thread waited for a CPU unobserved. The second is as likely as the
//! observed threads of that host had to wait, beyond their waits while other calls were in hand; that much of
//! the time is in doubt.

use super::Owner;
use super::account::QUEUE;
use super::population::Row;
use crate::claims::{host_of, of_host};
use spangap_model::evidence::{CallRecord, HostPart};
use spangap_model::{Cause, Culprit, Doing, Leg, Legs, Side};

/// Owners of the remainder of the server's legs.
const REMAINDERS: [(Leg, Culprit); 2] =
    [(Leg::ServerHostIn, QUEUE), (Leg::ServerApp, Culprit::at(Cause::ServerApp, Side::Server))];

/// How much of each remainder the host may have caused, nanoseconds per call: in the calls in question,
/// beyond the others.
pub fn in_doubt(rows: &[(&Row<'_>, f64)], others: &[(&Row<'_>, f64)]) -> Vec<(Owner, f64)> {
    let (ours, theirs) = (kept(rows), kept(others));
    let kept = ((ours - theirs) / (1.0 - theirs).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    let of = |(leg, culprit): (Leg, Culprit)| {
        let owner = Owner::Culprit(culprit);
        let beyond = mean(rows, leg, owner) - mean(others, leg, owner);
        (owner, kept * beyond.max(0.0))
    };
    REMAINDERS.map(of).into()
}

/// The share of the time in which threads of the server were seen handling calls, but were delayed by their
/// host.
fn kept(rows: &[(&Row<'_>, f64)]) -> f64 {
    let (mut kept, mut seen) = (0.0, 0.0);
    for (row, weight) in rows {
        for leg in row.call.record.end_to_end().filter(|leg| host_of(leg.legs) == Side::Server) {
            for part in leg.host.into_iter().flat_map(|host| &host.parts).filter(|part| is_at_work(part)) {
                let ns = weight * part.ns as f64;
                seen += ns;
                kept += if of_host(part, leg.legs).is_some() { ns } else { 0.0 };
            }
        }
    }
    if seen > 0.0 { kept / seen } else { 0.0 }
}

/// Whether a thread was on a CPU or wanted one: a thread that sleeps in between is not being delayed.
fn is_at_work(part: &HostPart) -> bool {
    matches!(
        part.doing,
        Doing::Running | Doing::Interrupted | Doing::Runnable | Doing::Throttled | Doing::Stopped
    )
}

fn mean(rows: &[(&Row<'_>, f64)], leg: Leg, owner: Owner) -> f64 {
    let weight: f64 = rows.iter().map(|(_, weight)| weight.abs()).sum();
    let sum: f64 = rows.iter().map(|(row, weight)| weight.abs() * unwatched_ns(row, leg, owner) as f64).sum();
    sum / weight.max(f64::MIN_POSITIVE)
}

/// The part of a remainder in which no thread was seen with the call in hand. If the threads that served it
/// are known to have had others in hand meanwhile, that time is a queue.
fn unwatched_ns(row: &Row<'_>, leg: Leg, owner: Owner) -> i64 {
    let owned = row.account.get(&owner).copied().unwrap_or(0);
    let queue = if leg == Leg::ServerHostIn { row.call.queued.ns } else { 0 };
    (in_no_hand_ns(row.call.record, leg) - queue).clamp(0, owned.max(0))
}

/// How long no thread had a call in hand within a leg, although some had before or after, nanoseconds.
pub fn in_no_hand_ns(call: &CallRecord, leg: Leg) -> i64 {
    let there = call.legs.iter().filter(|own| own.legs == Legs::one(leg));
    let known = there.filter_map(|leg| leg.host.as_ref()).filter(|host| !host.tids.is_empty());
    let parts = known.flat_map(|host| &host.parts).filter(|part| part.doing == Doing::Unknown);
    parts.map(|part| i64::try_from(part.ns).unwrap_or(i64::MAX)).sum()
}
