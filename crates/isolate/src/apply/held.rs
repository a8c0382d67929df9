//! What another change would lose, and nobody asked for: the CPUs that threads were pinned to.
//!
//! Kernels before 6.2 give every thread of a cgroup all CPUs of its set when that set changes, or when the thread is
//! moved; what it was pinned to is forgotten.

use super::ApplyError;
use super::run::Run;
use crate::journal::{Entry, Record};
use crate::kernel::{Kernel, PlaceError};
use crate::place::Place;
use crate::plan::{Change, Part, Plan};
use crate::topology::Topology;
use std::collections::HashSet;

/// Threads whose CPUs are to stay as they are, or as they were just set.
pub struct Held(Vec<One>);

struct One {
    place: Place,
    cpus: String,
    /// The plan itself sets it, before the cgroups.
    planned: bool,
    /// Of the kernel's own threads those that had CPUs of the network are not held to them.
    only_back: bool,
}

impl Held {
    /// The threads that somebody has pinned, where cgroups are changed and the plan does not pin them after that.
    pub fn of_threads(
        kernel: &dyn Kernel,
        topology: &Topology,
        plan: &Plan,
        changes: &[Change],
    ) -> Result<Held, PlaceError> {
        if !changes.iter().any(|change| change.part == Part::Cpusets) {
            return Ok(Held(Vec::new()));
        }
        let affinities = changes.iter().filter(|change| matches!(change.place, Place::Affinity { .. }));
        let planned: HashSet<&Place> = affinities.clone().map(|change| &change.place).collect();
        let before = affinities.filter(|change| change.part < Part::Cpusets);
        let mut held: Vec<One> = before
            .map(|change| (change.place.clone(), change.to.clone()))
            .map(|(place, cpus)| One { place, cpus, planned: true, only_back: false })
            .collect();
        for task in topology.pinned.iter().filter(|task| !task.bound) {
            let (tid, start_ticks, comm) = (task.tid, task.start_ticks, task.comm.clone());
            let place = Place::Affinity { tid, start_ticks, comm };
            if planned.contains(&place) {
                continue;
            }
            if let Some(cpus) = kernel.get(&place)? {
                let only_back = task.kernel && !task.allowed.both(&plan.net_cpus).is_empty();
                held.push(One { place, cpus, planned: false, only_back });
            }
        }
        Ok(Held(held))
    }

    /// For the journal: the old value is the new one.
    pub fn records(&self) -> Vec<Record> {
        let entry = |one: &One| {
            let (place, cpus) = (one.place.clone(), one.cpus.clone());
            Record::Change(Entry { place, old: Some(cpus.clone()), new: cpus, irq: None })
        };
        self.0.iter().filter(|one| !one.planned).map(entry).collect()
    }
}

impl Run<'_> {
    /// Pins again the threads that have lost it.
    pub fn hold(&mut self, held: &Held) -> Result<(), ApplyError> {
        let mut free = None;
        for One { place, cpus, .. } in held.0.iter().filter(|one| !one.only_back) {
            let Some(found) = self.kernel.get(place)? else { continue };
            if place.same(&found, cpus) {
                continue;
            }
            let free = free.get_or_insert_with(|| Free::now(self.kernel));
            if free.is(place)
                && let Err(error) = self.kernel.set(place, cpus)
                // One that has ended meanwhile has no CPUs to keep.
                && self.kernel.get(place)?.is_some()
            {
                let why = error.to_string();
                self.write(&[Record::Refused { place: place.clone(), why: why.clone() }])?;
                self.applied.refused.push((place.clone(), why));
            }
        }
        Ok(())
    }
}

/// Threads that may run wherever their cgroup may.
pub struct Free {
    pinned: HashSet<u32>,
}

impl Free {
    /// As it is now.
    pub fn now(kernel: &dyn Kernel) -> Free {
        let topology = kernel.topology();
        Free { pinned: topology.pinned.iter().map(|task| task.tid).collect() }
    }

    /// Whether this is the affinity of such a thread.
    pub fn is(&self, place: &Place) -> bool {
        matches!(place, Place::Affinity { tid, .. } if !self.pinned.contains(tid))
    }
}
