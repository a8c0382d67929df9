//! Takers of the CPU during a culprit's time: processes, or the interface whose packets were handled.

use super::verdict::document::{Behind, Blamed};
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
    let known = by_process(taken.into_iter().filter_map(|(taker, ns)| Some((taker?, ns))));
    let mut known: Vec<(Taker, u64)> = known.into_iter().filter(|(_, ns)| share(*ns) >= LEAST).collect();
    known.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    known.truncate(MOST);
    blamed.behind = known
        .into_iter()
        .map(|(taker, ns)| Behind { words: taker.to_string(), taker, ns, share: share(ns) })
        .collect();
    let told = blamed.behind.iter().map(|one| format!("{} ({:.0} %)", one.words, one.share * 100.0));
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        blamed.speaks_for.push(format!("During that time, the CPU was taken by {}.", told.join(", ")));
    }
}

/// Threads of one process are one taker, which has the name of its first thread, or else of the one that took most.
fn by_process<'t>(taken: impl Iterator<Item = (&'t Taker, u64)>) -> Vec<(Taker, u64)> {
    let mut processes: BTreeMap<u32, Vec<(&Taker, u64)>> = BTreeMap::new();
    let mut takers: Vec<(Taker, u64)> = Vec::new();
    for (taker, ns) in taken {
        match taker {
            Taker::Task { pid: Some(pid), .. } => processes.entry(*pid).or_default().push((taker, ns)),
            other => takers.push((other.clone(), ns)),
        }
    }
    for (pid, mut threads) in processes {
        threads.sort_by_key(|(taker, ns)| (!is_first(taker), std::cmp::Reverse(*ns)));
        let ns = threads.iter().map(|(_, ns)| ns).sum();
        match (&threads[..], threads.first()) {
            ([(only, _)], _) => takers.push(((*only).clone(), ns)),
            (_, Some((Taker::Task { name, .. }, _))) => {
                takers.push((Taker::Task { tid: pid, pid: Some(pid), name: name.clone() }, ns));
            }
            _ => {}
        }
    }
    takers
}

fn is_first(taker: &Taker) -> bool {
    matches!(taker, Taker::Task { tid, pid: Some(pid), .. } if tid == pid)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(pid: u32, tid: u32, name: &str) -> Taker {
        Taker::Task { tid, pid: Some(pid), name: Some(name.into()) }
    }

    #[test]
    fn threads_of_a_process_take_the_cpu_together() {
        let taken = [
            (thread(7, 8, "pool-1"), 30),
            (thread(7, 9, "pool-2"), 40),
            (thread(7, 7, "batch"), 1),
            (thread(3, 4, "alone"), 20),
            (Taker::Timer, 2),
        ];
        let mut told = by_process(taken.iter().map(|(taker, ns)| (taker, *ns)));
        told.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let told: Vec<(String, u64)> = told.into_iter().map(|(taker, ns)| (taker.to_string(), ns)).collect();
        let expected = [("batch (pid 7)", 71), ("alone (pid 3, thread 4)", 20), ("timer", 2)];
        assert_eq!(told, expected.map(|(words, ns)| (words.to_owned(), ns)));
    }
}
