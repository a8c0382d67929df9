//! Journal entries, merged by place.

use super::State;
use crate::journal::{Entry, Journal, Record};
use crate::kernel::Kernel;
use crate::place::Place;
use std::collections::HashMap;

/// Everything written to one place.
#[derive(Clone, Debug)]
pub struct PlaceHistory {
    /// Original value, and last value written.
    pub entry: Entry,
    /// All values written, in order.
    pub all: Vec<String>,
    /// Whether nothing was written: the value was recorded only to survive other changes.
    pub held: bool,
    /// Numbers of queues that were changed before this write.
    pub queues: Vec<PlaceHistory>,
}

impl PlaceHistory {
    pub fn new(entry: &Entry, queues: &[PlaceHistory]) -> PlaceHistory {
        let held = entry.old.as_ref() == Some(&entry.new);
        PlaceHistory { entry: entry.clone(), all: vec![entry.new.clone()], held, queues: queues.to_vec() }
    }

    fn add(&mut self, entry: &Entry) {
        // A value found between two writes of ours was either written by us, or replaces the original value.
        let place = &self.entry.place;
        let ours = entry.old.as_ref().is_none_or(|old| self.all.iter().any(|new| place.still(new, old)));
        if !ours {
            self.entry.old.clone_from(&entry.old);
        }
        self.entry.new.clone_from(&entry.new);
        self.all.push(entry.new.clone());
        self.held = false;
    }

    /// The interface whose queues it depends on: its setting vanishes with the queue.
    pub fn interface(&self) -> Option<&str> {
        let of_irq = self.entry.irq.as_ref().and_then(|irq| irq.interface.as_deref());
        of_irq.or_else(|| self.entry.place.interface())
    }

    /// Current state.
    pub fn look(&self, kernel: &dyn Kernel) -> State {
        let (place, old) = (&self.entry.place, &self.entry.old);
        let found = match kernel.get(place) {
            Ok(found) => found,
            Err(error) => return State::Unknown { why: error.to_string() },
        };
        let Some(found) = found else { return if old.is_none() { State::Before } else { State::Gone } };
        if self.held {
            let same = place.same(&self.entry.new, &found);
            return if same { State::Ours } else { State::Changed { found } };
        }
        if old.as_ref().is_some_and(|old| place.same(old, &found)) {
            State::Before
        } else if self.all.iter().any(|new| place.still(new, &found)) {
            State::Ours
        } else {
            State::Changed { found }
        }
    }
}

/// Each place once, in the order of the first write. Values of queues recorded before their number changed are
/// kept apart from later writes.
pub fn written(journal: &Journal) -> Vec<PlaceHistory> {
    let mut all: Vec<PlaceHistory> = Vec::new();
    let mut at: HashMap<(&Place, bool), usize> = HashMap::new();
    let mut queues: Vec<PlaceHistory> = Vec::new();
    for entry in journal.entries() {
        let thread = matches!(entry.place, Place::Affinity { .. });
        let before_queues = !thread && entry.old.as_ref() == Some(&entry.new);
        match at.get(&(&entry.place, before_queues)) {
            Some(at) => all[*at].add(entry),
            None => {
                at.insert((&entry.place, before_queues), all.len());
                all.push(PlaceHistory::new(entry, &queues));
            }
        }
        if matches!(entry.place, Place::Queues { .. }) {
            queues.push(PlaceHistory::new(entry, &[]));
        }
    }
    all
}

impl Journal {
    /// Whether the kernel refused the write to this place.
    pub fn refused(&self, place: &Place) -> bool {
        self.records
            .iter()
            .any(|record| matches!(record, Record::Refused { place: refused, .. } if refused == place))
    }
}
