//! What another change would lose, and nobody asked for: the CPUs that threads were pinned to.
//!
//! Kernels before 6.2 give every thread of a cgroup all CPUs of its set when that set changes, or when the thread is
//! moved; what it was pinned to is forgotten.

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

    /// Those that lost their CPUs to a change of their cgroup, and what they are to get back. They are looked for as the
    /// iterator goes on.
    pub fn lost<'a>(
        &'a self,
        kernel: &'a dyn Kernel,
    ) -> impl Iterator<Item = Result<(&'a Place, &'a str), PlaceError>> {
        let mut free = None;
        self.0.iter().filter(|one| !one.only_back).filter_map(move |One { place, cpus, .. }| {
            let found = match kernel.get(place) {
                Ok(found) => found?,
                Err(error) => return Some(Err(error)),
            };
            let is_lost =
                !place.same(&found, cpus) && free.get_or_insert_with(|| Free::now(kernel)).is(place);
            is_lost.then_some(Ok((place, cpus.as_str())))
        })
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
