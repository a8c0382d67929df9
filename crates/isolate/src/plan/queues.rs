//! As many queues as the network has CPUs, if requested.
//!
//! `ethtool -L` may reset the link for a moment, renumbers interrupts, and resets affinities, RSS and XPS. So
//! it happens only on request and before affinities, and the rest is planned again for the resulting state.

use super::draft::Draft;
use super::{Change, Part, Weight};
use crate::place::Place;
use spangap_report::figures::counted;

/// Adds the changes, and returns whether there are any.
pub(super) fn plan(draft: &mut Draft<'_>) -> bool {
    let mut changes = Vec::new();
    let mut notes = Vec::new();
    for lane in &draft.lanes {
        let name = &lane.interface.name;
        let cpus = lane.cpus.len();
        let Some(queues) = lane.interface.queues.filter(|queues| queues.most > 0) else {
            if draft.policy.queues {
                notes.push((
                    Weight::Warning,
                    format!("{name} has no combined queues whose number can be set: it stays."),
                ));
            }
            continue;
        };
        let now = queues.now as usize;
        if draft.renumbers(lane) {
            let to = (queues.most as usize).min(cpus);
            changes.push(Change {
                part: Part::Queues,
                place: Place::Queues { interface: name.clone() },
                from: Some(now.to_string()),
                to: to.to_string(),
                otherwise: None,
                why: "one queue for each CPU of the network, so that none is shared".into(),
                needed: true,
            });
            notes.push((
                Weight::Warning,
                format!(
                    "Changing the queues of {name} can interrupt its traffic for a moment, and renumbers its \
                     interrupts: the later steps are then planned again, with the same CPUs."
                ),
            ));
        } else if !draft.policy.queues && now > cpus {
            let each = now.div_ceil(cpus);
            notes.push((
                Weight::Remark,
                format!(
                    "{name} has {} for {}: up to {each} on each. --queues makes it one each.",
                    counted(now, "queue"),
                    counted(cpus, "CPU"),
                ),
            ));
        } else if !draft.policy.queues && now < cpus && queues.most as usize > now {
            notes.push((
                Weight::Remark,
                format!(
                    "{name} has {} for {}: packets are spread in software (RPS). --queues makes it {} in hardware.",
                    counted(now, "queue"),
                    counted(cpus, "CPU"),
                    cpus.min(queues.most as usize),
                ),
            ));
        }
    }
    let any = !changes.is_empty();
    draft.changes.extend(changes);
    for (weight, text) in notes {
        draft.note(weight, text);
    }
    any
}
