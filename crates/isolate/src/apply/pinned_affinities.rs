//! Side effects of other changes that must be reversed: the CPUs that threads were pinned to.
//!
//! Kernels before 6.2 reset the affinity of every thread of a cgroup when the cgroup's set changes, or when the
//! thread is moved: each gets all CPUs of the set, and its own mask is lost.

use crate::journal::{Entry, Record};
use crate::kernel::{Kernel, PlaceError};
use crate::place::Place;
use crate::plan::{Change, Part, Plan};
use crate::topology::Topology;
use std::collections::HashSet;

/// Threads whose affinity must be preserved, or reapplied after the cgroup changes.
pub struct PinnedAffinities(Vec<PinnedAffinity>);

struct PinnedAffinity {
    place: Place,
    cpus: String,
    /// Whether the plan itself sets it, before the cgroups.
    planned: bool,
    /// Whether to reapply it only for kernel threads that had CPUs of the network.
    only_back: bool,
}

impl PinnedAffinities {
    /// The pinned threads, if cgroups change and the plan does not pin these threads afterwards.
    pub fn of_threads(
        kernel: &dyn Kernel,
        topology: &Topology,
        plan: &Plan,
        changes: &[Change],
    ) -> Result<PinnedAffinities, PlaceError> {
        if !changes.iter().any(|change| change.part == Part::Cpusets) {
            return Ok(PinnedAffinities(Vec::new()));
        }
        let affinities = changes.iter().filter(|change| matches!(change.place, Place::Affinity { .. }));
        let planned: HashSet<&Place> = affinities.clone().map(|change| &change.place).collect();
        let before = affinities.filter(|change| change.part < Part::Cpusets);
        let mut held: Vec<PinnedAffinity> = before
            .map(|change| (change.place.clone(), change.to.clone()))
            .map(|(place, cpus)| PinnedAffinity { place, cpus, planned: true, only_back: false })
            .collect();
        for task in topology.pinned.iter().filter(|task| !task.bound) {
            let (tid, start_ticks, comm) = (task.tid, task.start_ticks, task.comm.clone());
            let place = Place::Affinity { tid, start_ticks, comm };
            if planned.contains(&place) {
                continue;
            }
            if let Some(cpus) = kernel.get(&place)? {
                let only_back = task.kernel && !task.allowed.both(&plan.net_cpus).is_empty();
                held.push(PinnedAffinity { place, cpus, planned: false, only_back });
            }
        }
        Ok(PinnedAffinities(held))
    }

    /// Threads that lost their affinity to a change of their cgroup, and the CPUs to restore. The threads are
    /// examined lazily, as the iterator advances.
    pub fn lost<'a>(
        &'a self,
        kernel: &'a dyn Kernel,
    ) -> impl Iterator<Item = Result<(&'a Place, &'a str), PlaceError>> {
        let mut free = None;
        self.0.iter().filter(|one| !one.only_back).filter_map(
            move |PinnedAffinity { place, cpus, .. }| {
                let found = match kernel.get(place) {
                    Ok(found) => found?,
                    Err(error) => return Some(Err(error)),
                };
                let is_lost = !place.same(&found, cpus)
                    && free.get_or_insert_with(|| UnpinnedThreads::now(kernel)).is(place);
                is_lost.then_some(Ok((place, cpus.as_str())))
            },
        )
    }

    /// Journal records in which the new value equals the old one.
    pub fn records(&self) -> Vec<Record> {
        let entry = |one: &PinnedAffinity| {
            let (place, cpus) = (one.place.clone(), one.cpus.clone());
            Record::Change(Entry { place, old: Some(cpus.clone()), new: cpus, irq: None })
        };
        self.0.iter().filter(|one| !one.planned).map(entry).collect()
    }
}

/// Threads that may run wherever their cgroup may.
pub struct UnpinnedThreads {
    pinned: HashSet<u32>,
}

impl UnpinnedThreads {
    /// Reads the current state.
    pub fn now(kernel: &dyn Kernel) -> UnpinnedThreads {
        let topology = kernel.topology();
        UnpinnedThreads { pinned: topology.pinned.iter().map(|task| task.tid).collect() }
    }

    /// Whether this is the affinity of such a thread.
    pub fn is(&self, place: &Place) -> bool {
        matches!(place, Place::Affinity { tid, .. } if !self.pinned.contains(tid))
    }
}
