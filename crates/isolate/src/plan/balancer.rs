//! Services that move interrupts: irqbalance, tuned.

use super::draft::{Draft, some_of};
use super::{Change, IrqbalancePolicy, Part, Weight};
use crate::place::Place;
use std::collections::BTreeSet;

/// Adds the changes.
pub(super) fn plan(draft: &mut Draft<'_>) {
    if let Some(tuned) = &draft.topology.tuned {
        let profile =
            tuned.profile.as_ref().map(|profile| format!(" with profile {profile}")).unwrap_or_default();
        draft.note(
            Weight::Warning,
            format!("tuned runs{profile}: on a restart or a change of profile it may set affinities and XPS again."),
        );
    }
    let Some(irqbalance) = &draft.topology.irqbalance else { return };
    let ours: BTreeSet<u32> =
        draft.lanes.iter().flat_map(|lane| &lane.interface.irqs).map(|irq| irq.irq).collect();
    if ours.is_empty() {
        return;
    }
    match (draft.policy.irqbalance, &irqbalance.banned) {
        (IrqbalancePolicy::Leave, _) => draft.note(
            Weight::Warning,
            "irqbalance runs and is left alone: it will move the interrupts again, usually within ten seconds.",
        ),
        (IrqbalancePolicy::Stop, _) => {
            let name = irqbalance.unit.clone().unwrap_or_else(|| "irqbalance".into());
            draft.changes.push(Change {
                part: Part::Irqbalance,
                place: Place::Service { name },
                from: Some("running".into()),
                to: "stopped".into(),
                otherwise: None,
                why: "it would move the interrupts again within seconds; those of other devices stay where they \
                are".into(),
                needed: true,
            });
        }
        (IrqbalancePolicy::Ban, None) => {
            let numbers: Vec<String> = ours.iter().map(u32::to_string).collect();
            draft.refuse(
                "irqbalance-socket",
                format!(
                    "irqbalance runs (process {}) and cannot be told to leave interrupts {} alone: its socket does \
                     not answer",
                    irqbalance.pid,
                    some_of(&numbers)
                ),
                Some("--irqbalance stop; or --irqbalance leave, and it will undo this".into()),
            );
        }
        (IrqbalancePolicy::Ban, Some(banned)) => {
            let banned: BTreeSet<u32> = banned.iter().copied().collect();
            let all: BTreeSet<u32> = banned.union(&ours).copied().collect();
            if all == banned {
                draft.note(Weight::Remark, "irqbalance already leaves these interrupts alone.");
                return;
            }
            draft.changes.push(Change {
                part: Part::Irqbalance,
                place: Place::BannedIrqs,
                from: Some(words(&banned)),
                to: words(&all),
                otherwise: None,
                why: "irqbalance would move the interrupts again within seconds; it goes on balancing all \
                others".into(),
                needed: true,
            });
        }
    }
}

fn words(irqs: &BTreeSet<u32>) -> String {
    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}
