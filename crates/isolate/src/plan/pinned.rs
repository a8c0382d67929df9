//! Threads and groups that are already bound to CPUs.
//!
//! Kernels before 6.2 reset a thread's affinity when the set of its cgroup changes, so each thread is given the
//! remainder of its CPUs. Later kernels do that by themselves, and there is nothing to write.

use super::cpusets_v1::{NET, ours};
use super::draft::{Draft, some_of};
use super::{Change, Part, Weight};
use crate::place::Place;
use crate::topology::Owner;
use spangap_model::Cpus;
use spangap_report::figures::counted;

/// Adds changes, refusals and notes.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let online = draft.topology.online();
    let cpusets = draft.policy.cpusets && draft.topology.cpusets.is_some();
    let (mut stuck, mut bound, mut kernel) = (Vec::new(), 0, 0);
    let mut changes = Vec::new();
    for task in &draft.topology.pinned {
        let now = task.allowed.both(&online);
        let napi =
            draft.lanes.iter().any(|lane| task.comm.starts_with(&format!("napi/{}-", lane.interface.name)));
        if now.both(&draft.net).is_empty() || task.group.starts_with(NET) || napi {
            continue;
        }
        let left = now.without(&draft.net);
        if task.kernel {
            *(if task.bound { &mut bound } else { &mut kernel }) += 1;
        } else if left.is_empty() {
            stuck.push(format!("{} (thread {}, on {now})", task.comm, task.tid));
        } else {
            changes.push(Change {
                part: Part::Tasks,
                place: Place::Affinity {
                    tid: task.tid,
                    start_ticks: task.start_ticks,
                    comm: task.comm.clone(),
                },
                from: Some(now.to_string()),
                to: left.to_string(),
                otherwise: None,
                why: "pinned: keeps what is left of its CPUs, which kernels before 6.2 would forget".into(),
                needed: false,
            });
        }
    }
    if cpusets {
        if !stuck.is_empty() {
            let why = format!(
                "{} may run on the network's CPUs only: {}",
                counted(stuck.len(), "thread"),
                some_of(&stuck)
            );
            let help = "taskset -pc with other CPUs for each, end them, or --net-cpus with a list of others";
            draft.refuse("pinned-tasks", why, Some(help.into()));
        }
        draft.changes.extend(changes);
        would_be_empty(draft);
    } else if !(stuck.is_empty() && changes.is_empty()) {
        let text = format!(
            "{} pinned to the network's CPUs, {} of them to no others: left there, because no cpusets are planned.",
            match stuck.len() + changes.len() {
                1 => "1 thread is".to_owned(),
                several => format!("{several} threads are"),
            },
            stuck.len(),
        );
        draft.note(Weight::Warning, text);
    }
    let now = if bound > 0 { format!(" ({bound} now)") } else { String::new() };
    let text = format!("Kernel threads that are bound to {} stay there{now}.", draft.net.words());
    draft.note(Weight::Impossible, text);
    if kernel > 0 {
        let text = format!(
            "{} pinned to the network's CPUs by the kernel itself, and left there.",
            counted(kernel, "unbound kernel thread")
        );
        draft.note(Weight::Remark, text);
    }
}

/// Groups whose own set would become empty: removing the network's CPUs would leave them nothing (version 1),
/// or everything (version 2). Containers with exclusive CPUs of the kubelet are refused as such.
fn would_be_empty(draft: &mut Draft<'_>) {
    let Some(cpusets) = &draft.topology.cpusets else { return };
    let exclusive = draft.topology.kubelet.iter().flat_map(|kubelet| &kubelet.exclusive);
    let exclusive = exclusive.fold(Cpus::default(), |all, own| all.either(&own.cpus));
    let groups: Vec<String> = cpusets
        .groups
        .iter()
        .filter(|group| group.path != "/" && !ours(&group.path))
        .filter_map(|group| Some((group, group.cpus.as_ref().filter(|cpus| !cpus.is_empty())?)))
        .filter(|(_, cpus)| cpus.without(&draft.net).is_empty())
        .filter(|(group, cpus)| {
            let kubelets = matches!(group.owner, Owner::Kubelet { .. });
            !(kubelets && cpus.without(&exclusive).is_empty())
        })
        .map(|(group, cpus)| format!("{} ({cpus})", group.path))
        .collect();
    if !groups.is_empty() {
        let why = format!(
            "{} no CPU but the network's: {}",
            match groups.len() {
                1 => "1 cgroup has".to_owned(),
                several => format!("{several} cgroups have"),
            },
            some_of(&groups)
        );
        let help = "--net-cpus with a list of others, or a change of that set by whoever created the cgroup";
        draft.refuse("group-would-be-empty", why, Some(help.into()));
    }
}
