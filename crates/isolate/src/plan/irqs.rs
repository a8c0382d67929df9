//! Interrupts of the interfaces: each queue's goes to one CPU of the network.
//!
//! One CPU each, rather than the same set for all: most controllers deliver to a single CPU of the set anyway,
//! and then the choice is not ours. No single change is required, since the kernel refuses the interrupts that
//! it manages (EIO), which cannot be detected beforehand; `apply` gives up if it refuses all queues of an
//! interface.

use super::draft::{Draft, some_of};
use super::{Change, Part, Weight};
use crate::place::Place;
use spangap_report::figures::counted;
use std::collections::BTreeSet;

/// Adds the changes.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let mut done: BTreeSet<u32> = BTreeSet::new();
    let mut changes = Vec::new();
    let mut notes = Vec::new();
    // Until told otherwise, irqbalance may also move interrupts that are already right.
    let wandering = draft.changes.iter().any(|change| change.part == Part::Irqbalance);
    for lane in &draft.lanes {
        let name = &lane.interface.name;
        let (mut right, mut all) = (0_usize, 0);
        let mut unknown: Vec<String> = Vec::new();
        let renumbers = draft.renumbers(lane);
        for irq in &lane.interface.irqs {
            // A queue that is about to be removed.
            if renumbers && irq.queue.is_some_and(|queue| queue as usize >= lane.queues) {
                continue;
            }
            if !done.insert(irq.irq) {
                continue;
            }
            let affinity = draft.topology.irqs.iter().find(|known| known.number == irq.irq);
            let Some(affinity) = affinity.and_then(|known| known.affinity.as_ref()) else {
                unknown.push(irq.irq.to_string());
                continue;
            };
            all += 1;
            let cpu = irq.queue.map_or(lane.cpus[0], |queue| lane.cpu_of(queue));
            let is_right = affinity.len() == 1 && affinity.contains(cpu);
            right += usize::from(is_right);
            if is_right && !wandering {
                continue;
            }
            let why = match irq.queue {
                _ if is_right => "stays, in case irqbalance moves it before it is told".to_owned(),
                Some(queue) => format!("queue {queue} of {name}: one CPU of the network's"),
                None => format!("events of {name}: also off the applications' CPUs"),
            };
            changes.push(Change {
                part: Part::Irqs,
                place: Place::file(format!("/proc/irq/{}/smp_affinity_list", irq.irq)),
                from: Some(affinity.to_string()),
                to: cpu.to_string(),
                otherwise: None,
                why,
                needed: false,
            });
        }
        if right > 0 {
            let text =
                format!("{right} of {} of {name} are where they should be.", counted(all, "interrupt"));
            notes.push((Weight::Remark, text));
        }
        if !unknown.is_empty() {
            notes.push((
                Weight::Warning,
                format!(
                    "The CPUs of interrupts {} of {name} are unknown: they are left alone.",
                    some_of(&unknown)
                ),
            ));
        }
        if lane.interface.irqs.is_empty() && lane.interface.pci.is_some() {
            let text = if lane.interface.up {
                format!(
                    "{name} is a device, but its interrupts are unknown: only steering in software is planned."
                )
            } else {
                format!("{name} is down and has no interrupts yet: bring it up, and plan again.")
            };
            notes.push((Weight::Warning, text));
        }
    }
    draft.changes.extend(changes);
    for (weight, text) in notes {
        draft.note(weight, text);
    }
}
