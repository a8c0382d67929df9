//! Software steering: which CPU processes a packet after its interrupt, and which queue sends one.

use super::draft::{Draft, Lane};
use super::{Change, Part, Weight};
use crate::place::Place;
use crate::topology::TxQueue;
use spangap_model::Cpus;
use spangap_report::figures::counted;

/// Adds the changes.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let online = draft.topology.online();
    let mut changes = Vec::new();
    let mut notes = Vec::new();
    for lane in &draft.lanes {
        let renumbers = draft.renumbers(lane);
        receive(draft, lane, renumbers, &mut changes, &mut notes);
        // The driver decides on XPS after the number of queues changed, and the result is known only then.
        if !renumbers {
            transmit(lane, &online, &mut changes);
        }
        threads(draft, lane, &mut changes, &mut notes);
    }
    draft.changes.extend(changes);
    for (weight, text) in notes {
        draft.note(weight, text);
    }
}

/// RPS where there are fewer interrupts than CPUs, and none where each CPU has its own: there it would only add
/// another hop. RFS nowhere, because it sends packets to the application's CPU whatever RPS says.
fn receive(
    draft: &Draft<'_>,
    lane: &Lane<'_>,
    renumbers: bool,
    changes: &mut Vec<Change>,
    notes: &mut Vec<(Weight, String)>,
) {
    let name = &lane.interface.name;
    // The kernel refuses CPUs isolated at boot for RPS, or silently drops them.
    let cpus = lane.set().without(&draft.topology.boot.isolated);
    let spread = lane.queues < lane.cpus.len() && !cpus.is_empty();
    if lane.queues < lane.cpus.len() && cpus.len() < lane.cpus.len() && !lane.interface.rx.is_empty() {
        let go = match cpus.is_empty() {
            true => "stay on the CPUs of their queues".to_owned(),
            false => format!("go to {}", cpus.words()),
        };
        let text = format!(
            "The kernel does not hand packets in software (RPS) to CPUs isolated at boot: those of {name} {go}."
        );
        notes.push((Weight::Warning, text));
    }
    let mut right = 0;
    for rx in &lane.interface.rx {
        if renumbers && rx.queue as usize >= lane.queues {
            continue;
        }
        let folder = format!("/sys/class/net/{name}/queues/rx-{}", rx.queue);
        if let Some(now) = &rx.rps_cpus {
            let (to, why) = if spread && lane.queues == 0 {
                (
                    cpus.clone(),
                    format!(
                        "{name} has no interrupts of its own: software hands its packets to the network's CPUs"
                    ),
                )
            } else if spread {
                let queues = counted(lane.queues, "queue");
                (
                    cpus.clone(),
                    format!(
                        "{queues} of {name} for {} CPUs: software spreads its packets over them",
                        cpus.len()
                    ),
                )
            } else if !now.without(&lane.set()).is_empty() {
                (
                    Cpus::default(),
                    format!(
                        "handed packets of {name} to CPUs of applications; each queue has an interrupt of its own"
                    ),
                )
            } else {
                (now.clone(), String::new())
            };
            if to == *now {
                right += usize::from(!to.is_empty());
            } else {
                let path = format!("{folder}/rps_cpus");
                // Without interrupts, steering is the only means.
                let needed = lane.queues == 0;
                changes.push(Change { needed, ..change(path, now.mask(), to.mask(), why) });
            }
        }
        let follows = draft.topology.rps_sock_flow_entries.is_none_or(|entries| entries > 0);
        if let Some(entries) = rx.rps_flow_cnt.filter(|entries| *entries > 0 && follows) {
            let why = "its flow table (RFS) hands packets to the application's CPU, whatever rps_cpus says"
                .to_owned();
            changes.push(change(format!("{folder}/rps_flow_cnt"), entries.to_string(), "0".into(), why));
        }
    }
    if right > 0 {
        notes.push((
            Weight::Remark,
            format!("{} of {name} are steered (RPS) as they should be.", counted(right, "receive queue")),
        ));
    }
    if lane.interface.rx.is_empty() && lane.queues == 0 {
        notes.push((
            Weight::Warning,
            format!("{name} has neither interrupts nor receive queues here: there is nothing to steer."),
        ));
    }
}

/// XPS stays as the driver or the administrator set it, unless it omits CPUs: these are then assigned in
/// addition to those that each queue has, since a CPU without a queue picks one by the flow's hash, and shares
/// its lock with others.
fn transmit(lane: &Lane<'_>, online: &Cpus, changes: &mut Vec<Change>) {
    let name = &lane.interface.name;
    let set: Vec<(&TxQueue, &Cpus)> =
        lane.interface.tx.iter().filter_map(|tx| Some((tx, tx.xps_cpus.as_ref()?))).collect();
    let served = set.iter().fold(Cpus::default(), |all, (_, cpus)| all.either(cpus));
    let left_out: Vec<u32> = online.without(&served).iter().collect();
    if served.is_empty() || left_out.is_empty() {
        return;
    }
    for (at, (tx, now)) in set.iter().enumerate() {
        let dealt: Cpus = left_out.iter().copied().skip(at).step_by(set.len()).collect();
        if !dealt.is_empty() {
            let path = format!("/sys/class/net/{name}/queues/tx-{}/xps_cpus", tx.queue);
            let why = format!("{} had no queue of {name} to send on", dealt.words());
            changes.push(change(path, now.mask(), now.either(&dealt).mask(), why));
        }
    }
}

/// NAPI threads live in the root cgroup, which loses the network's CPUs: with cpusets they would be pushed onto
/// the applications' CPUs, and could not be moved back. As softirqs, packets are processed where the interrupt
/// is. Without cpusets the threads are pinned.
fn threads(draft: &Draft<'_>, lane: &Lane<'_>, changes: &mut Vec<Change>, notes: &mut Vec<(Weight, String)>) {
    let name = &lane.interface.name;
    if !lane.interface.threaded {
        return;
    }
    if draft.policy.cpusets && draft.topology.cpusets.is_some() {
        let why = format!(
            "threads napi/{name}-* are in the root cgroup, which loses these CPUs; softirqs run where the interrupt \
             is"
        );
        changes.push(change(format!("/sys/class/net/{name}/threaded"), "1".into(), "0".into(), why));
        return;
    }
    let (online, cpus) = (draft.topology.online(), lane.set());
    let prefix = format!("napi/{name}-");
    let threads: Vec<_> =
        draft.topology.pinned.iter().filter(|task| task.comm.starts_with(&prefix)).collect();
    if threads.is_empty() {
        let text = format!(
            "Packets of {name} are handled by threads napi/{name}-*, but none was found: they run anywhere."
        );
        notes.push((Weight::Warning, text));
    }
    for task in threads {
        let now = task.allowed.both(&online);
        if now == cpus || task.bound {
            continue;
        }
        changes.push(Change {
            part: Part::Steering,
            place: Place::Affinity { tid: task.tid, start_ticks: task.start_ticks, comm: task.comm.clone() },
            from: Some(now.to_string()),
            to: cpus.to_string(),
            otherwise: None,
            why: format!("handles packets of {name} in place of softirqs"),
            needed: false,
        });
    }
}

fn change(path: String, from: String, to: String, why: String) -> Change {
    let (part, place) = (Part::Steering, Place::file(path));
    Change { part, place, from: Some(from), to, otherwise: None, why, needed: false }
}
