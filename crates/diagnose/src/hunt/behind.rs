//! Takers of the CPU during a culprit's time: processes, or the interface whose packets were handled.

use super::verdict::{Behind, Blamed};
use crate::claims::{host_of, is_behind_itself, of_host};
use spangap_model::evidence::Evidence;
use spangap_model::{Cause, Taker};
use std::collections::BTreeMap;

/// Takers with less than this share are omitted: fixing them would gain nothing.
const LEAST: f64 = 0.05;
const MOST: usize = 4;
/// A process whose own threads made it wait for less than this share of its time has enough CPUs.
const CROWDED: f64 = 0.1;

/// Names them over all calls, because a taker takes the CPU from whichever call is there.
pub(super) fn name(blamed: &mut Blamed, evidence: &Evidence) {
    let mut taken: BTreeMap<Option<&Taker>, u64> = BTreeMap::new();
    for leg in evidence.calls.iter().flat_map(|call| call.end_to_end()) {
        for part in leg.host.into_iter().flat_map(|host| &host.parts) {
            let is_it = of_host(part, leg.legs).is_some_and(|culprit| {
                culprit.cause == blamed.culprit.cause
                    && blamed.culprit.side.is_none_or(|side| side == host_of(leg.legs))
            });
            if is_it {
                *taken.entry(part.behind.as_ref()).or_default() += part.ns;
            }
        }
    }
    let all: u64 = taken.values().sum();
    let share = |ns: u64| ns as f64 / all.max(1) as f64;
    let known = taken.into_iter().filter_map(|(taker, ns)| Some((taker?, ns)));
    let mut known: Vec<(&Taker, u64)> = known.filter(|(_, ns)| share(*ns) >= LEAST).collect();
    known.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    known.truncate(MOST);
    blamed.behind = known
        .into_iter()
        .map(|(taker, ns)| Behind { words: taker.to_string(), taker: taker.clone(), ns, share: share(ns) })
        .collect();
    let told = blamed.behind.iter().map(|one| format!("{} ({:.0} %)", one.words, one.share * 100.0));
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        blamed.speaks_for.push(format!("During that time, the CPU was taken by {}.", told.join(", ")));
    }
}

/// Of an application, how long its threads waited for CPUs that it had itself.
pub(super) fn crowded(blamed: &mut Blamed, evidence: &Evidence) {
    let Some(side) = blamed.culprit.side else { return };
    if !matches!(blamed.culprit.cause, Cause::ServerApp | Cause::ServerQueue | Cause::ClientApp) {
        return;
    }
    let legs =
        evidence.calls.iter().flat_map(|call| call.end_to_end()).filter(|leg| host_of(leg.legs) == side);
    let (mut all, mut waited) = (0, 0);
    for part in legs.filter_map(|leg| leg.host).flat_map(|host| &host.parts) {
        all += part.ns;
        waited += if is_behind_itself(part) { part.ns } else { 0 };
    }
    let share = waited as f64 / all.max(1) as f64;
    if share >= CROWDED {
        blamed.speaks_for.push(format!(
            "For {:.0} % of the time, its threads waited for CPUs on which other threads of the same process ran: \
             it has more work at once than CPUs.",
            share * 100.0
        ));
    }
}
