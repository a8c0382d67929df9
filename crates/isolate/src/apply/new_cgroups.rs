//! Cgroups created while others are being changed: container runtimes never pause.

use super::run::{Attempt, Failure, ROUNDS, Run};
use super::{ApplyError, Step};
use crate::journal::Record;
use crate::place::Place;
use crate::plan::{Change, Part, changes_for_new_groups};
use crate::topology::{Topology, Version};
use spangap_model::Cpus;
use std::collections::{HashMap, HashSet};

impl Run<'_> {
    /// Rescans until two scans find nothing to change and no task to move. Returns whether anything changed.
    pub fn settle(&mut self) -> Result<bool, ApplyError> {
        let moves: Vec<Change> = self.tasks_to_move();
        let (mut calm, mut failure, mut any) = (0, None, false);
        for _ in 0..ROUNDS {
            // Tasks forked in the meantime by a task that had not been moved yet.
            let mut moved = false;
            for change in &moves {
                moved |= matches!(self.move_tasks(change)?, Attempt::Done(_));
            }
            let (topology, changes) = self.scan(|_| true);
            if changes.is_empty() && !moved {
                calm += 1;
            } else {
                (calm, any) = (0, true);
            }
            if calm == 2 {
                return Ok(any);
            }
            failure = self.narrow(&topology, &changes)?.1.or(failure);
        }
        match failure {
            Some(failure) => Err(failure.into()),
            None => {
                let (_, changes) = self.scan(|_| true);
                let names = changes.iter().map(|change| change.place.to_string());
                Err(ApplyError::NeverStable(names.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    /// Narrows newly created groups, except those in the plan, which are narrowed in their turn. Returns
    /// whether there were any.
    pub fn narrow_those_that_came(&mut self) -> Result<bool, ApplyError> {
        let planned: HashSet<Place> =
            self.applied.plan.changes.iter().map(|change| change.place.clone()).collect();
        let (topology, changes) = self.scan(|change| !planned.contains(&change.place));
        Ok(self.narrow(&topology, &changes)?.0)
    }

    fn scan(&self, keep: impl Fn(&Change) -> bool) -> (Topology, Vec<Change>) {
        let topology = self.kernel.topology();
        let mut changes = changes_for_new_groups(&self.applied.plan, &topology);
        let given_up: HashSet<&Place> = self.applied.refused.iter().map(|(place, _)| place).collect();
        changes.retain(|change| keep(change) && !given_up.contains(&change.place));
        (topology, changes)
    }

    fn narrow(
        &mut self,
        topology: &Topology,
        changes: &[Change],
    ) -> Result<(bool, Option<Failure>), ApplyError> {
        self.record(topology, changes)?;
        let (mut any, mut failed) = (false, None);
        for change in changes {
            match self.attempt(change)? {
                Attempt::Done(_) => {
                    any = true;
                    self.applied.came_meanwhile += 1;
                    (self.tell)(Step::CameMeanwhile(change));
                }
                // Another group may have just been created below it: the next scan finds it.
                Attempt::Not(failure) if change.needed => failed = Some(failure),
                Attempt::Not(failure) => self.refused(change, &failure),
                Attempt::Already | Attempt::Gone => {}
            }
        }
        Ok((any, failed))
    }

    fn tasks_to_move(&self) -> Vec<Change> {
        let changes = self.applied.plan.changes.iter();
        changes.filter(|change| matches!(change.place, Place::Tasks { .. })).cloned().collect()
    }

    /// Groups whose own set equals what their parent's set will become.
    pub fn unchanged(&self, topology: &Topology, changes: &[Change]) -> Vec<Record> {
        let Some(cpusets) = topology.cpusets.as_ref().filter(|cpusets| cpusets.version == Version::V1) else {
            return Vec::new();
        };
        let mut narrowed: HashMap<&str, Cpus> = HashMap::new();
        for change in changes.iter().filter(|change| change.part == Part::Cpusets && change.from.is_some()) {
            if let (Some((folder, "cpuset.cpus")), Some(cpus)) =
                (change.place.in_group(), Cpus::parse_list(&change.to))
            {
                narrowed.insert(folder, cpus);
            }
        }
        let mut groups = Vec::new();
        for group in &cpusets.groups {
            let folder = format!("{}{}", cpusets.mount.trim_end_matches('/'), group.path);
            if narrowed.contains_key(folder.as_str()) {
                continue;
            }
            let above = std::iter::successors(Some(folder.as_str()), |folder| {
                folder.rsplit_once('/').map(|(above, _)| above)
            });
            let above = above.skip(1).find_map(|folder| narrowed.get(folder));
            if above.is_some() && above == group.cpus.as_ref() {
                groups.push(folder);
            }
        }
        if groups.is_empty() { Vec::new() } else { vec![Record::Unchanged { groups }] }
    }
}
