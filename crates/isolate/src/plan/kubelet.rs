//! The kubelet, which assigns CPUs according to its own state.

use super::choose;
use super::draft::Draft;
use super::{Permanent, Weight};
use crate::topology::{Owner, Version};
use spangap_model::Cpus;

/// Adds refusals, notes, and permanent settings.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let topology = draft.topology;
    let Some(kubelet) = &topology.kubelet else {
        let pods = topology.cpusets.as_ref().is_some_and(|cpusets| {
            cpusets.groups.iter().any(|group| matches!(group.owner, Owner::Kubelet { .. }))
        });
        let version = topology.cpusets.as_ref().map(|cpusets| cpusets.version);
        if pods && draft.policy.cpusets && version == Some(Version::V1) {
            let why = "there are pods, and the state of the kubelet's CPU manager cannot be read: under its static \
            policy, containers could no longer start if kubepods lacked CPUs of its pool";
            let help = "run as root, with /var/lib/kubelet/cpu_manager_state readable; or --no-cpusets";
            draft.refuse("kubelet-unknown", why.to_owned(), Some(help.to_owned()));
        } else if pods {
            draft.note(
                Weight::Warning,
                "There are pods, and the state of the kubelet's CPU manager cannot be read: whether containers have \
                 exclusive CPUs among these is unknown.",
            );
            durable(draft, None);
        }
        return;
    };
    let all = kubelet.exclusive.iter().fold(Cpus::default(), |all, own| all.either(&own.cpus));
    for own in &kubelet.exclusive {
        let taken = own.cpus.both(&draft.net);
        if taken.is_empty() {
            continue;
        }
        let why = format!(
            "{} {} allocated exclusively to container {} of pod {}",
            taken.words(),
            if taken.len() == 1 { "is" } else { "are" },
            own.container,
            own.pod
        );
        let interfaces: Vec<_> = draft.lanes.iter().map(|lane| lane.interface).collect();
        let help = match choose::another(topology, &interfaces, draft.net.len(), &all) {
            Some(free) => format!("--net-cpus {} avoids them; or move the pod away", as_list(&free)),
            None => "no other CPUs are free for the network: move a pod away".to_owned(),
        };
        draft.refuse("exclusive-pod", why, Some(help));
    }
    let pool = kubelet.shared.both(&draft.net);
    if kubelet.policy == "static" && !pool.is_empty() {
        match topology.cpusets.as_ref().map(|cpusets| cpusets.version).filter(|_| draft.policy.cpusets) {
            Some(Version::V1) => {
                let why = format!(
                    "{} {} in the pool that the kubelet gives to containers: with cgroup version 1, containers \
                     could no longer start if kubepods lacked {}",
                    pool.words(),
                    if pool.len() == 1 { "is" } else { "are" },
                    if pool.len() == 1 { "it" } else { "them" },
                );
                let help = format!(
                    "take {} out of the pool, with reservedSystemCPUs: \"{}\" and the policy option strict-cpu-reservation in \
                     the kubelet's configuration; or --no-cpusets",
                    pool.words(),
                    reserved(draft, kubelet.reserved.as_ref())
                );
                draft.refuse("kubelet-pool", why, Some(help));
            }
            Some(Version::V2) => draft.note(
                Weight::Warning,
                format!(
                    "{} in the kubelet's pool: it writes them into cpuset.cpus of every container that it starts or \
                     whose pool changes, where the partition overrides them. A guaranteed pod that gets only these \
                     would run on all other CPUs instead: reserve them in the kubelet's configuration.",
                    if pool.len() == 1 { format!("{} stays", pool.words()) } else { format!("{} stay", pool.words()) }
                ),
            ),
            None => {}
        }
    } else if draft.policy.cpusets && kubelet.policy == "none" {
        draft.note(
            Weight::Remark,
            "The kubelet's CPU manager has the policy none: it writes no sets of CPUs, and containers started later \
             inherit theirs.",
        );
    }
    durable(draft, kubelet.reserved.clone());
}

/// A single CPU as a list is written `3,`, so that it is not taken for a number of CPUs.
fn as_list(cpus: &Cpus) -> String {
    if cpus.len() == 1 { format!("cpu:{cpus}") } else { cpus.to_string() }
}

fn reserved(draft: &Draft<'_>, before: Option<&Cpus>) -> Cpus {
    before.map_or_else(|| draft.net.clone(), |before| before.either(&draft.net))
}

/// Settings that keep the kubelet from ever assigning these CPUs to a container.
fn durable(draft: &mut Draft<'_>, before: Option<Cpus>) {
    let reserved = reserved(draft, before.as_ref());
    draft.permanent.push(Permanent {
        whose: "kubelet".into(),
        place: "/var/lib/kubelet/config.yaml, on a drained node; remove /var/lib/kubelet/cpu_manager_state, and restart the \
                kubelet"
            .into(),
        text: format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\ncpuManagerPolicyOptions:\n  \
             strict-cpu-reservation: \"true\"   # Kubernetes 1.35; before, from 1.32, behind a feature gate"
        ),
    });
}
