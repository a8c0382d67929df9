//! Who had the CPU in the time that a culprit has: the process, or the interface whose packets were handled.

use super::verdict::{Behind, Blamed};
use crate::claims::{host_of, of_host};
use spangap_model::Taker;
use spangap_model::evidence::Evidence;
use std::collections::BTreeMap;

/// Of these, the ones told: who has less than this share of it is nobody to go after.
const LEAST: f64 = 0.05;
const MOST: usize = 4;

/// Names them, over all calls: who takes a CPU takes it from whoever is there.
pub(super) fn name(blamed: &mut Blamed, evidence: &Evidence) {
    let mut taken: BTreeMap<Option<&Taker>, u64> = BTreeMap::new();
    for leg in evidence.calls.iter().flat_map(|call| &call.legs) {
        for part in leg.host.iter().flat_map(|host| &host.parts) {
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
        blamed.speaks_for.push(format!("Meanwhile the CPU was taken by {}.", told.join(", ")));
    }
}
