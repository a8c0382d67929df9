//! For a damaged or truncated journal: planned values that are in effect although no readable record mentions
//! them.

use super::State;
use super::entries::{self, PlaceHistory};
use crate::journal::{Entry, Journal};
use crate::kernel::Kernel;
use crate::place::Place;
use crate::plan::Change;
use std::collections::HashMap;

/// Everything written, each place once, in order. The plan substitutes for lost records: it contains the old
/// values as well.
pub fn written(kernel: &dyn Kernel, journal: &Journal) -> Vec<PlaceHistory> {
    let mut written = entries::written(journal);
    if journal.is_whole() && journal.applied().is_some() {
        return written;
    }
    let changes = &journal.head.plan.changes;
    let renumbered = changes.iter().any(|change| matches!(change.place, Place::Queues { .. }));
    // Position of the last known change of the plan.
    let mut after = 0;
    let mut known: HashMap<Place, usize> =
        written.iter().enumerate().map(|(at, one)| (one.entry.place.clone(), at)).collect();
    for change in changes {
        if let Some(at) = known.get(&change.place).copied() {
            after = at + 1;
            if !journal.is_whole() {
                first_before(&mut written[at].entry, change);
            }
            continue;
        }
        // Tasks move back with their group. Numbers of interrupts and queues have changed their meaning.
        let of_queues = change.place.irq().is_some() || change.place.interface().is_some();
        if matches!(change.place, Place::Tasks { .. }) || (renumbered && of_queues) {
            continue;
        }
        let (place, old, new) = (change.place.clone(), change.from.clone(), change.to.clone());
        let planned = PlaceHistory::new(&Entry { place, old, new, irq: None }, &[]);
        // Only a value that reads as planned can have been written.
        if planned.held || planned.look(kernel) != State::Ours {
            continue;
        }
        written.insert(after, planned);
        known.values_mut().filter(|at| **at >= after).for_each(|at| *at += 1);
        after += 1;
    }
    written
}

/// Of two records for one place the first may be lost: the second then shows a value of ours as the old one.
fn first_before(entry: &mut Entry, change: &Change) {
    let ours = |old: &String| change.place.same(old, &change.to);
    if let (Some(from), true) = (&change.from, entry.old.as_ref().is_some_and(ours)) {
        entry.old = Some(from.clone());
    }
}
