//! Calls that took longer, and what that time is laid to.

use crate::claims::{counts, is_place, of_host};
use spangap_model::evidence::CallRecord;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;

/// A cause has to explain this much of the time.
const LEAST_SHARE: f64 = 1.0 / 3.0;
/// One that explains this much of what the first does contradicts it.
const CLOSE: f64 = 0.8;
/// A leg has to have this much of the time to be the one that is longer.
const MOST_OF_THE_TIME: f64 = 0.5;

/// What calls are compared with: what one takes anyway.
#[derive(Debug, Default)]
pub struct Baseline {
    /// In all, nanoseconds.
    pub duration_ns: u64,
    legs: BTreeMap<Legs, i64>,
}

impl Baseline {
    /// The median of these calls, and of each of their legs.
    pub fn typical(calls: &[&CallRecord]) -> Baseline {
        let mut legs: BTreeMap<Legs, Vec<i64>> = BTreeMap::new();
        for leg in calls.iter().flat_map(|call| &call.legs) {
            legs.entry(leg.legs).or_default().push(leg.ns);
        }
        // A call without the leg spent no time there.
        legs.values_mut().for_each(|times| times.resize(times.len().max(calls.len()), 0));
        Baseline {
            duration_ns: middle(calls.iter().map(|call| call.duration_ns).collect()).unwrap_or(0),
            legs: legs.into_iter().filter_map(|(leg, ns)| Some((leg, middle(ns)?))).collect(),
        }
    }

    fn leg_ns(&self, legs: Legs) -> i64 {
        self.legs.get(&legs).copied().unwrap_or(0)
    }
}

fn middle<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// What explains the time that calls took beyond a baseline.
#[derive(Debug)]
pub struct Weighed {
    /// That time, nanoseconds.
    pub total_ns: u64,
    explained: BTreeMap<Culprit, u64>,
    legs: BTreeMap<Legs, i64>,
}

/// What stands out.
pub enum Lead {
    /// One culprit, and its share.
    One(Culprit, f64),
    /// Two, about as much.
    Two(Culprit, Culprit),
    /// None explains enough.
    None,
}

impl Weighed {
    /// Lays the time of these calls beyond the baseline to what is shown for them.
    pub fn of(calls: &[&CallRecord], baseline: &Baseline) -> Weighed {
        let mut weighed = Weighed { total_ns: 0, explained: BTreeMap::new(), legs: BTreeMap::new() };
        for call in calls {
            let mut left_ns = call.duration_ns.saturating_sub(baseline.duration_ns);
            weighed.total_ns += left_ns;
            for (culprit, cost_ns) in shown(call, baseline) {
                let cost_ns = cost_ns.min(left_ns);
                left_ns -= cost_ns;
                *weighed.explained.entry(culprit).or_default() += cost_ns;
            }
            for leg in &call.legs {
                *weighed.legs.entry(leg.legs).or_default() += leg.ns - baseline.leg_ns(leg.legs);
            }
        }
        behind_lost_bytes(&mut weighed.explained);
        weighed
    }

    /// The most first.
    fn sorted(&self) -> Vec<(Culprit, u64)> {
        let mut sorted: Vec<_> = self.explained.iter().map(|(culprit, ns)| (*culprit, *ns)).collect();
        sorted.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        sorted
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.total_ns.max(1) as f64
    }

    /// What explains most. A leg only says where the time is: it yields to a cause that explains enough.
    pub fn lead(&self) -> Lead {
        let mut sorted = self.sorted();
        sorted.retain(|(_, ns)| self.share(*ns) >= LEAST_SHARE);
        if sorted.iter().any(|(culprit, _)| !is_place(culprit.cause)) {
            sorted.retain(|(culprit, _)| !is_place(culprit.cause));
        }
        let Some((first, ns)) = sorted.first() else { return Lead::None };
        match sorted.get(1) {
            Some((second, close)) if *close as f64 >= CLOSE * *ns as f64 => Lead::Two(*first, *second),
            _ => Lead::One(*first, self.share(*ns)),
        }
    }

    /// The leg that most of the time is in.
    pub fn leg(&self) -> Option<Legs> {
        let (leg, ns) = self.legs.iter().max_by_key(|(_, ns)| **ns)?;
        let most = *ns as f64 >= MOST_OF_THE_TIME * self.total_ns as f64;
        Some(*leg).filter(|_| most)
    }

    /// `; run-queue (client) 12 %`: who else there is but the one.
    pub fn others(&self, but: &[Culprit]) -> String {
        let others =
            self.sorted().into_iter().filter(|(one, ns)| !but.contains(one) && self.share(*ns) >= 0.05);
        others.map(|(culprit, ns)| format!("; {culprit} {:.0} %", self.share(ns) * 100.0)).collect()
    }
}

/// What is shown for a call and what it cost, the most particular first: what comes later may hold the same time again.
fn shown(call: &CallRecord, baseline: &Baseline) -> Vec<(Culprit, u64)> {
    let mut shown: Vec<(u8, Culprit, u64)> = Vec::new();
    for finding in call.findings.iter().filter(|finding| counts(finding, call)) {
        let (culprit, Some(cost_ns)) = (finding.culprit, finding.cost_ns) else { continue };
        let rank = match culprit.cause {
            // Taken from the legs, below: there it is known how much of it is typical.
            Cause::RunQueue | Cause::CpuQuota | Cause::Stopped | Cause::SoftirqOnCpu | Cause::SoftirqLate => {
                continue;
            }
            place if is_place(place) => continue,
            // What a wait behind others, or for a new connection, has inside of it comes first.
            Cause::HeadOfLine | Cause::BatchedArrival | Cause::ConnectionPerCall => 1,
            _ => 0,
        };
        shown.push((rank, culprit, cost_ns));
    }
    for leg in &call.legs {
        for part in leg.host.iter().flat_map(|host| &host.parts) {
            if let Some(culprit) = of_host(part, leg.legs) {
                shown.push((2, culprit, part.ns));
            }
        }
        let beyond_ns = leg.ns - baseline.leg_ns(leg.legs);
        if let (Some(culprit), Ok(ns)) = (place(leg.legs), u64::try_from(beyond_ns)) {
            shown.push((3, culprit, ns));
        }
    }
    // Of the same rank, what cost most.
    shown.sort_by_key(|(rank, _, ns)| (*rank, std::cmp::Reverse(*ns)));
    shown.into_iter().map(|(_, culprit, ns)| (culprit, ns)).collect()
}

/// What a leg by itself speaks for, where nothing more particular is shown: what can only be there.
fn place(legs: Legs) -> Option<Culprit> {
    Some(match (legs.first, legs.last) {
        (Leg::ClientAppOut, Leg::ClientAppOut) | (Leg::ClientAppIn, Leg::ClientAppIn) => {
            Culprit::at(Cause::ClientApp, Side::Client)
        }
        (Leg::RequestWire, Leg::RequestWire) | (Leg::ResponseWire, Leg::ResponseWire) => {
            Culprit::of(Cause::NetworkDelay)
        }
        (Leg::ServerHostIn, Leg::ServerHostIn) => Culprit::at(Cause::ServerQueue, Side::Server),
        (Leg::ServerApp, Leg::ServerApp) => Culprit::at(Cause::ServerApp, Side::Server),
        _ => return None,
    })
}

/// Bytes that wait behind lost ones wait for what mends the loss. Those that wait behind a larger response do so at the end
/// that sends it.
fn behind_lost_bytes(explained: &mut BTreeMap<Culprit, u64>) {
    let loss =
        |culprit: &Culprit| matches!(culprit.cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit);
    let most = explained.iter().filter(|(culprit, _)| loss(culprit)).max_by_key(|(_, ns)| **ns);
    let Some(culprit) = most.map(|(culprit, _)| *culprit) else { return };
    let waiting: Vec<Culprit> = explained
        .keys()
        .copied()
        .filter(|one| one.cause == Cause::HeadOfLine && one.side.is_none())
        .collect();
    for one in waiting {
        let ns = explained.remove(&one).unwrap_or(0);
        *explained.entry(culprit).or_default() += ns;
    }
}
