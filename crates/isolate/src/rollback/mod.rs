//! Rollback from the journal alone: a value is restored only if it still is the one that was written.
//!
//! Everything happens in reverse, with two exceptions. The affinity of threads comes last: kernels before 6.2
//! give a thread all CPUs of its cgroup when that widens. And interrupts renumbered by restoring the number of
//! queues get their CPUs back afterwards, if they are still the same ones.

mod entries;
mod inherited_sets;
mod lost_records;

use crate::apply::pinned_affinities::UnpinnedThreads;
use crate::journal::{Entry, Journal};
use crate::kernel::{Kernel, PlaceError};
use crate::place::Place;
use crate::topology::Topology;
use entries::PlaceHistory;
use serde::Serialize;
use spangap_undo::Damage;
use std::collections::HashSet;
use std::io;

/// State of a value that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// As it was written.
    Ours,
    /// As it was before: never written, or restored.
    Before,
    /// Changed by somebody else.
    Changed { found: String },
    /// The place no longer exists: the cgroup, interface or thread is gone.
    Gone,
    /// Unreadable.
    Unknown {
        /// Reason.
        why: String,
    },
}

/// A value that was written, and its current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Original value, and last value written.
    pub entry: Entry,
    /// Current state.
    pub state: State,
}

/// State of everything written, each place once, in journal order. Excludes what the kernel refused, and what
/// was recorded only to survive other changes.
pub fn standing(kernel: &dyn Kernel, journal: &Journal) -> Vec<Standing> {
    let irqs = Irqs::now(kernel, journal);
    let written = lost_records::written(kernel, journal);
    let looked = written.iter().filter(|written| !written.held).map(|written| {
        let state = irqs.state(kernel, written, &written.look(kernel));
        // An invalid partition has no effect, but can still be undone.
        let state = match kernel.get(&written.entry.place) {
            Ok(Some(found)) if state == State::Ours && found.contains(" invalid") => State::Changed { found },
            _ => state,
        };
        Standing { entry: written.entry.clone(), state }
    });
    looked
        .filter(|standing| standing.state == State::Ours || !journal.refused(&standing.entry.place))
        .collect()
}

/// Result of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    /// Whether the machine was rebooted since: no value is as it was written, and nothing was touched.
    pub other_boot: bool,
    /// Restored values: the same places that `apply` counted as changed, unless somebody else changed one.
    /// Includes files of a created cgroup, which vanish with it.
    pub restored: Vec<Place>,
    /// Values that `apply` had not changed, but that another change would have lost: thread affinities, and
    /// settings that a driver resets.
    pub held_again: Vec<Place>,
    /// Number of values that already were as before.
    pub before_already: u64,
    /// Places that no longer exist.
    pub gone: Vec<Place>,
    /// Values left alone because somebody else had changed them.
    pub left: Vec<Standing>,
    /// Values that could not be restored, with the kernel's error.
    pub failed: Vec<(Place, String)>,
    /// Newly created cgroups that had inherited a narrowed set, and got what their parent got back.
    pub widened: Vec<String>,
    /// Interfaces whose number of queues was restored: their drivers redistributed the interrupts. Those that
    /// are still the same, by number and name, got their old CPUs back.
    pub spread_by_driver: Vec<String>,
    /// Unreadable parts of the journal: values described there were left alone.
    pub unreadable: Vec<Damage>,
}

impl RolledBack {
    /// Whether the whole journal was readable, and everything in it is as before or gone.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.failed.is_empty() && !self.unreadable.iter().any(|damage| damage.lost)
    }
}

/// Undoes the plan, in reverse. `force` also restores values that somebody else has changed. Idempotent, even
/// after being killed.
pub fn rollback(
    kernel: &dyn Kernel,
    journal: &Journal,
    force: bool,
    tell: &mut dyn FnMut(&Place),
) -> RolledBack {
    if journal.of_another_boot(&kernel.files()) {
        return RolledBack { other_boot: true, ..RolledBack::default() };
    }
    let irqs = Irqs::now(kernel, journal);
    let written = lost_records::written(kernel, journal);
    let ours = written.iter().filter(|written| !written.held && written.look(kernel) == State::Ours);
    let ours = ours.map(|written| written.entry.place.clone()).collect();
    let mut back =
        Back { kernel, force, tell, irqs, ours, with_group: Vec::new(), done: RolledBack::default() };
    let is_thread = |written: &&PlaceHistory| matches!(written.entry.place, Place::Affinity { .. });
    back.undo_all(written.iter().rev().filter(|written| !is_thread(written) && !written.held).collect());
    back.queues_as_before(journal, &written);
    back.widen(journal, &written);
    back.threads(written.iter().rev().filter(is_thread));
    let gone = |place: &Place| matches!(kernel.get(place), Ok(None));
    back.done.restored.extend(back.with_group.into_iter().filter(gone));
    back.done.unreadable.clone_from(&journal.damage);
    back.done
}

/// Identities of the interrupts before anything is undone.
struct Irqs(Option<Topology>);

impl Irqs {
    fn now(kernel: &dyn Kernel, journal: &Journal) -> Irqs {
        let any = journal.entries().any(|entry| entry.irq.is_some());
        Irqs(any.then(|| kernel.topology()))
    }

    /// Whether the number still belongs to the same interrupt.
    fn same(&self, entry: &Entry) -> bool {
        let (Some(recorded), Some(number), Some(topology)) = (&entry.irq, entry.place.irq(), &self.0) else {
            return true;
        };
        topology.irqs.iter().any(|irq| irq.number == number && irq.name == recorded.name)
    }

    /// State of a place, taking into account that an interrupt of another number of queues is another
    /// interrupt.
    fn state(&self, kernel: &dyn Kernel, written: &PlaceHistory, state: &State) -> State {
        let of = written.interface();
        let renumbered = written.queues.iter().any(|queues| match &queues.entry.place {
            Place::Queues { interface } if of == Some(interface) => queues.look(kernel) != State::Ours,
            _ => false,
        });
        if renumbered || !self.same(&written.entry) { State::Gone } else { state.clone() }
    }
}

struct Back<'a> {
    kernel: &'a dyn Kernel,
    force: bool,
    tell: &'a mut dyn FnMut(&Place),
    irqs: Irqs,
    /// Places that had the written value before the rollback: if one has its old value by the time its turn
    /// comes, another restoration did that as a side effect.
    ours: HashSet<Place>,
    /// Files of groups that were created.
    with_group: Vec<Place>,
    done: RolledBack,
}

impl Back<'_> {
    /// In this order as far as the kernel allows: a newly created group comes after its parent in the journal,
    /// and after our exclusive sibling group, and can be restored only after these.
    fn undo_all(&mut self, mut waiting: Vec<&PlaceHistory>) {
        while !waiting.is_empty() {
            let failed = self.done.failed.len();
            let mut again = Vec::new();
            for written in &waiting {
                let failed = self.done.failed.len();
                self.undo(written);
                if self.done.failed.len() > failed && written.entry.place.in_group().is_some() {
                    again.push(*written);
                }
            }
            if again.is_empty() || again.len() == waiting.len() {
                break;
            }
            let failures = self.done.failed.split_off(failed).into_iter();
            let of_groups = |place: &Place| again.iter().any(|written| written.entry.place == *place);
            self.done.failed.extend(failures.filter(|(place, _)| !of_groups(place)));
            waiting = again;
        }
    }

    fn undo(&mut self, written: &PlaceHistory) {
        let place = &written.entry.place;
        if written.entry.old.is_none() && place.in_group().is_some() {
            // It did not exist because its group did not, and vanishes with it.
            if written.look(self.kernel) == State::Ours && !self.with_group.contains(place) {
                self.with_group.push(place.clone());
            }
            return;
        }
        match self.irqs.state(self.kernel, written, &written.look(self.kernel)) {
            State::Before if self.ours.contains(place) => self.done.restored.push(place.clone()),
            State::Before => self.done.before_already += 1,
            State::Gone => self.done.gone.push(place.clone()),
            State::Unknown { why } => self.done.failed.push((place.clone(), why)),
            State::Changed { .. } if self.force => self.restore(written),
            State::Ours => self.restore(written),
            state @ State::Changed { .. } => {
                self.done.left.push(Standing { entry: written.entry.clone(), state });
            }
        }
    }

    fn restore(&mut self, written: &PlaceHistory) {
        let place = &written.entry.place;
        let old = match (place, &written.entry.old) {
            (Place::Tasks { .. }, _) => return self.move_back(place),
            (Place::Group { .. }, None) => "gone",
            (_, Some(old)) => old,
            // There is no value to restore.
            (_, None) => return,
        };
        let old = old.to_owned();
        match self.put(place, &old) {
            Ok(()) => {
                (self.tell)(place);
                match written.held {
                    true => self.done.held_again.push(place.clone()),
                    false => self.done.restored.push(place.clone()),
                }
                if let Place::Queues { interface } = place {
                    self.done.spread_by_driver.push(interface.clone());
                }
            }
            // It may have vanished a moment ago.
            Err(_) if place.comes_and_goes() && matches!(self.kernel.get(place), Ok(None)) => {
                self.done.gone.push(place.clone());
            }
            Err(why) => self.done.failed.push((place.clone(), why)),
        }
    }

    /// Writes a value and reads it back.
    fn put(&self, place: &Place, text: &str) -> Result<(), String> {
        const TIMES: u32 = 10;
        for _ in 1..TIMES {
            match self.kernel.set(place, text) {
                // Tasks forked in a group while it was emptied.
                Err(error) if matches!(place, Place::Group { .. }) && busy(&error) => {}
                Err(error) => return Err(error.to_string()),
                Ok(_) => break,
            }
        }
        match self.kernel.get(place) {
            Ok(None) if matches!(place, Place::Group { .. }) => Ok(()),
            Ok(Some(found)) if place.same(&found, text) => Ok(()),
            Ok(Some(found)) => Err(format!("it reads {found:?} after {text:?} was written")),
            Ok(None) => Err("it is gone".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Repeats until none is left: unmoved tasks may fork in the meantime.
    fn move_back(&mut self, place: &Place) {
        let mut any = false;
        for _ in 0..crate::apply::ROUNDS {
            match self.kernel.set(place, "back") {
                Ok(written) if written.tasks_moved == 0 => break,
                Ok(_) => any = true,
                Err(error) => {
                    self.done.failed.push((place.clone(), error.to_string()));
                    return;
                }
            }
        }
        if any {
            (self.tell)(place);
            self.done.restored.push(place.clone());
        } else {
            self.done.before_already += 1;
        }
    }

    /// Settings of interrupts and queues before their number changed; drivers reset them with each change.
    fn queues_as_before(&mut self, journal: &Journal, written: &[PlaceHistory]) {
        let mut spread: Vec<&str> = Vec::new();
        for queues in written {
            let Place::Queues { interface } = &queues.entry.place else { continue };
            // If a previous rollback was killed after restoring the number, this may be all that is missing.
            let cut_short = journal.undoing() && queues.look(self.kernel) == State::Before;
            if cut_short || self.done.spread_by_driver.contains(interface) {
                spread.push(interface);
            }
        }
        if spread.is_empty() {
            return;
        }
        self.irqs = Irqs(Some(self.kernel.topology()));
        let is_thread = |written: &PlaceHistory| matches!(written.entry.place, Place::Affinity { .. });
        for held in written.iter().filter(|written| written.held && !is_thread(written)) {
            let of_them = held.interface().is_some_and(|interface| spread.contains(&interface));
            let another = matches!(held.look(self.kernel), State::Changed { .. });
            if of_them && another && self.irqs.same(&held.entry) {
                self.restore(held);
            }
        }
    }

    /// Last of all. A thread that may run wherever its group may has lost its affinity to our changes; any
    /// other affinity was set by somebody else.
    fn threads<'w>(&mut self, written: impl Iterator<Item = &'w PlaceHistory>) {
        let mut free = None;
        for written in written {
            let place = &written.entry.place;
            let state = written.look(self.kernel);
            let lost = matches!(state, State::Changed { .. })
                && free.get_or_insert_with(|| UnpinnedThreads::now(self.kernel)).is(place);
            match state {
                State::Ours if written.held => self.done.before_already += 1,
                _ if lost => self.restore(written),
                _ => self.undo(written),
            }
        }
    }
}

fn busy(error: &PlaceError) -> bool {
    error.source.kind() == io::ErrorKind::ResourceBusy
}
