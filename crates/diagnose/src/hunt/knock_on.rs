//! Consequences of a culprit that have an owner of their own: a thread that was stopped, or that has a lot of
//! work, afterwards needs a CPU on a busy machine; calls queue behind the delayed one; a sender slows down
//! after a loss. Such time may belong to the culprit, because without it nobody would have waited, or to its
//! own owner. As long as nothing shows which, the culprit's interval reaches up to both.

use super::Owner;
use super::account::QUEUE;
use super::population::Row;
use crate::claims::{is_loss, is_of_host};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;

/// The client's program, which takes responses off a connection.
const READER: Culprit = Culprit::at(Cause::ClientApp, Side::Client);

/// What the scheduler lets a thread run for at least, if others want its CPU, nanoseconds.
const SLICE_NS: f64 = 700_000.0;

/// How much of a call's time each owner may have set off, nanoseconds: in the calls in question that have the
/// owner, beyond what ordinary calls have of it.
pub fn set_off(rows: &[&Row<'_>], others: &[(&Row<'_>, f64)]) -> BTreeMap<Owner, f64> {
    let calls: f64 = rows.iter().map(|row| row.call.weight).sum();
    let mut usual: BTreeMap<Owner, f64> = BTreeMap::new();
    let all_others: f64 = others.iter().map(|(_, weight)| weight).sum();
    for (row, weight) in others {
        for (owner, ns) in row.account {
            *usual.entry(*owner).or_default() += weight * *ns as f64 / all_others.max(f64::MIN_POSITIVE);
        }
    }
    let mut longest: BTreeMap<Owner, i64> = BTreeMap::new();
    for (owner, ns) in rows.iter().flat_map(|row| row.account) {
        let of = longest.entry(*owner).or_default();
        *of = (*of).max(*ns);
    }
    let mut set_off: BTreeMap<Owner, BTreeMap<Owner, f64>> = BTreeMap::new();
    for row in rows {
        let has = row.account.iter().filter(|(_, ns)| **ns > 0);
        for (owner, _) in has.clone().filter(|(owner, _)| matches!(owner, Owner::Culprit(_) | Owner::Lost(_)))
        {
            let own_ns = row.account.get(owner).copied().unwrap_or(0) as f64
                - usual.get(owner).copied().unwrap_or(0.0);
            for (other, ns) in has.clone().filter(|(other, _)| may_set_off(owner, other)) {
                // Nobody loses a CPU for having worked for less than a slice.
                if is_own_work(owner) && own_ns < SLICE_NS && matches!(other, Owner::Noise(_)) {
                    continue;
                }
                let ns = match other {
                    // Whoever queues behind a hold waits for as long as it lasts, and not longer.
                    Owner::Culprit(QUEUE) => (*ns).min(longest.get(owner).copied().unwrap_or(0)),
                    // Who waits for several has waited for one at least.
                    Owner::Culprit(READER) => (*ns).min(own_ns.max(0.0) as i64),
                    _ => *ns,
                };
                let beyond = ns as f64 - usual.get(other).copied().unwrap_or(0.0);
                *set_off.entry(*owner).or_default().entry(*other).or_default() += row.call.weight * beyond;
            }
        }
    }
    let mean = |of: BTreeMap<Owner, f64>| of.into_values().map(|ns| ns.max(0.0) / calls.max(1.0)).sum();
    set_off.into_iter().map(|(owner, of)| (owner, mean(of))).collect()
}

/// Whether the time of one owner may be a consequence of the other.
fn may_set_off(owner: &Owner, other: &Owner) -> bool {
    let sends = |legs: &Legs| [Leg::ClientSend, Leg::ServerSend].map(Legs::one).contains(legs);
    let culprit = match (owner, other) {
        (Owner::Culprit(culprit), _) => culprit,
        (Owner::Lost(_), Owner::Place(legs)) => return sends(legs),
        _ => return false,
    };
    match other {
        // A thread that has slept or worked for long needs a CPU once more, or for longer.
        Owner::Noise(noise) => noise.side == culprit.side && sleeps_or_works(culprit.cause),
        // Responses in hand at once share what the client does with them, and may have been read one after the other.
        Owner::Culprit(READER) => culprit.cause == Cause::SharedConnection,
        Owner::Culprit(queue) => {
            *queue == QUEUE && culprit.side == Some(Side::Server) && is_of_host(culprit.cause)
        }
        Owner::Place(legs) => match culprit.cause {
            // After a loss halves the congestion window, the rest of a message leaves later.
            cause if is_loss(cause) => sends(legs),
            // A receiver that reads late opens its window a little at a time, and bytes trickle into that.
            Cause::ReceiveWindow => match culprit.side {
                Some(Side::Server) => *legs == Legs::one(Leg::ClientSend),
                Some(Side::Client) => *legs == Legs::one(Leg::ServerSend),
                None => false,
            },
            _ => false,
        },
        Owner::Lost(_) | Owner::Between(_) | Owner::Hop(..) => false,
    }
}

/// Whether threads sleep or work for as long as a cause acts. Those that others keep from a CPU have waited for one already,
/// and go on as soon as they get it.
fn sleeps_or_works(cause: Cause) -> bool {
    let is_kept = matches!(cause, Cause::RunQueue | Cause::SoftirqOnCpu | Cause::Steal | Cause::CpuSaturated);
    is_of_host(cause) && !is_kept || is_work(cause)
}

fn is_own_work(owner: &Owner) -> bool {
    matches!(owner, Owner::Culprit(culprit) if is_work(culprit.cause))
}

/// What programs do themselves.
fn is_work(cause: Cause) -> bool {
    matches!(cause, Cause::ServerApp | Cause::ServerQueue | Cause::ClientApp)
}

#[cfg(test)]
mod tests {
    use super::super::innocents::{by_thread, running};
    use super::super::tests::{call, leg, of};
    use super::super::{CallRecord, Hunt};
    use super::*;
    use spangap_model::evidence::{HostPart, LegRecord};
    use spangap_model::{Doing, Taker};

    /// Every eighth call is stopped for 60 ms; its thread, or that of another such call, then waits for 20 ms
    /// behind many others.
    fn stopped(is_the_same_call: bool) -> Hunt {
        of((0..400).map(|n| -> CallRecord {
            let stop = HostPart { doing: Doing::Stopped, ..running(60) };
            let behind = Taker::Task { tid: n as u32, pid: Some(n as u32), name: None };
            let wait = |ms| HostPart { doing: Doing::Runnable, behind: Some(behind.clone()), ..running(ms) };
            let (ms, parts) = match (n % 8 == 0, is_the_same_call, n % 16 == 0) {
                (true, true, _) => (81, vec![stop, wait(20), running(1)]),
                (true, false, true) => (61, vec![stop, running(1)]),
                (true, false, false) => (41, vec![wait(40), running(1)]),
                _ => (1, vec![running(1)]),
            };
            call(n * 10, "/a", vec![by_thread(Leg::ServerApp, 1, ms, parts)], Vec::new())
        }))
    }

    fn share(hunt: &Hunt) -> super::super::shares::Share {
        let stopped = Culprit::at(Cause::Stopped, Side::Server);
        let lines = &hunt.questions.slow.as_ref().expect("some are slow").sheet;
        lines.iter().find(|line| line.culprit == Some(stopped)).expect("a line of its own").share
    }

    #[test]
    fn waits_of_the_calls_that_were_stopped_may_be_due_to_the_stop() {
        let same = share(&stopped(true));
        assert!((same.mid - 0.75).abs() < 0.02, "{same:?}");
        assert!(same.low > 0.6 && same.low < 0.75 && same.high >= 1.0, "{same:?}");
        // Waits of other calls are not a consequence.
        let others = share(&stopped(false));
        assert!((others.mid - 0.6).abs() < 0.02 && others.high < 0.85, "{others:?}");
    }

    #[test]
    fn work_of_microseconds_does_not_cost_a_thread_its_cpu() {
        // Every eighth call works for a little or a lot longer, and waits for 20 ms behind many others.
        let of = |work_ns: u64| {
            of((0..400).map(|n| -> CallRecord {
                let behind = Taker::Task { tid: n as u32, pid: Some(n as u32), name: None };
                let wait = HostPart { doing: Doing::Runnable, behind: Some(behind), ..running(20) };
                let works = |ns| HostPart { ns, ..running(0) };
                let (ns, parts) = match n % 8 {
                    0 => (21_000_000 + work_ns, vec![wait, works(1_000_000 + work_ns)]),
                    _ => (1_000_000, vec![works(1_000_000)]),
                };
                let served = LegRecord { ns: ns as i64, ..by_thread(Leg::ServerApp, 1, 0, parts) };
                CallRecord { duration_ns: ns, ..call(n * 10, "/a", vec![served], Vec::new()) }
            }))
        };
        let high = |hunt: &Hunt| {
            let lines = &hunt.questions.slow.as_ref().expect("some are slow").sheet;
            let works = Culprit::at(Cause::ServerApp, Side::Server);
            let line = lines.iter().find(|line| line.culprit == Some(works));
            line.expect("a line of its own").share.high
        };
        assert!(high(&of(50_000)) < 0.1, "{:#?}", of(50_000));
        assert!(high(&of(3_000_000)) > 0.9);
    }

    #[test]
    fn a_long_queue_is_not_due_to_a_short_interrupt() {
        // Twelve calls at a time wait for one thread, which packets keep from a CPU for 50 us of each call.
        let hunt = of((0..400).map(|n| -> CallRecord {
            let packets = HostPart {
                doing: Doing::Interrupted,
                behind: Some(Taker::Softirq { vector: "NET_RX".into(), device: None }),
                ns: 50_000,
                ..running(0)
            };
            let waits = HostPart { doing: Doing::Unknown, ..running(22) };
            let served = by_thread(Leg::ServerApp, 1, 2, vec![running(2), packets]);
            let legs =
                vec![leg(Leg::ClientAppOut, 0), by_thread(Leg::ServerHostIn, 1, 22, vec![waits]), served];
            call(n, "/a", legs, Vec::new())
        }));
        assert_eq!(hunt.culprits.first().map(|one| one.culprit), Some(QUEUE), "{hunt:#?}");
        let all = hunt.questions.all.expect("it is always asked");
        let packets = all
            .sheet
            .iter()
            .find(|line| line.culprit.is_some_and(|culprit| culprit.cause == Cause::SoftirqOnCpu));
        let packets = packets.expect("a line of its own").share;
        assert!(packets.high < 0.15, "{packets:?}");
    }

    #[test]
    fn only_what_can_follow_is_set_off() {
        let at = |cause, side| Owner::Culprit(Culprit::at(cause, side));
        let noise = |side| Owner::Noise(Culprit::at(Cause::RunQueue, side));
        let sends = Owner::Place(Legs::one(Leg::ServerSend));
        let disk = at(Cause::Disk, Side::Server);
        assert!(may_set_off(&disk, &noise(Side::Server)) && !may_set_off(&disk, &noise(Side::Client)));
        assert!(may_set_off(&disk, &Owner::Culprit(QUEUE)) && !may_set_off(&Owner::Culprit(QUEUE), &disk));
        let loss = Owner::Culprit(Culprit::of(Cause::FastRetransmit));
        assert!(may_set_off(&loss, &sends) && !may_set_off(&disk, &sends));
        assert!(!may_set_off(&loss, &noise(Side::Server)), "packets need no CPU of the program");
        let (shared, reads) = (at(Cause::SharedConnection, Side::Client), at(Cause::ClientApp, Side::Client));
        assert!(may_set_off(&shared, &reads) && !may_set_off(&reads, &shared) && !may_set_off(&disk, &reads));
        let late = at(Cause::ReceiveWindow, Side::Client);
        let asks = Owner::Place(Legs::one(Leg::ClientSend));
        assert!(may_set_off(&late, &sends) && !may_set_off(&late, &asks), "its window is for responses");
        let kept = at(Cause::SoftirqOnCpu, Side::Server);
        assert!(!may_set_off(&kept, &noise(Side::Server)), "the wait for a CPU is over with it");
    }
}
