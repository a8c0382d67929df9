//! Version 2: one group at the top is a partition; nobody else gets its CPUs.
//!
//! The kernel removes a partition's CPUs from the effective sets of all others, whatever their `cpuset.cpus`
//! say, so nothing below has to be narrowed. Only its siblings must not name the same CPUs, or the partition is
//! invalid from the start (kernels before 6.7).

use super::cpusets_v1::{NET, left_over, narrow_one, ours};
use super::draft::{Draft, file, some_of};
use super::{Change, Part, Weight};
use crate::place::Place;
use crate::topology::{Cpusets, Group, Topology};
use spangap_model::Cpus;
use spangap_report::figures::counted;

/// Adds the changes.
pub(super) fn plan(draft: &mut Draft<'_>, cpusets: &Cpusets) {
    let mount = cpusets.mount.trim_end_matches('/');
    let net = cpusets.groups.iter().find(|group| group.path == NET);
    if foreign(draft, cpusets, mount) | left_over(draft, mount, net, &draft.net.clone()) {
        return;
    }
    let mut changes = Vec::new();
    if !cpusets.enabled {
        let why = "top-level groups get sets of CPUs; those of other groups stay empty, which means all";
        let path = format!("{mount}/cgroup.subtree_control");
        changes.push(file(Part::Cpusets, path, Some("-cpuset".into()), "+cpuset".into(), why.into()));
    }
    changes.extend(narrow_siblings(cpusets, &draft.net));
    let cpus = draft.net.to_string();
    if net.is_none() {
        changes.push(Change {
            part: Part::Cpusets,
            place: Place::Group { path: format!("{mount}{NET}") },
            from: None,
            to: "made".into(),
            otherwise: None,
            why: "at the top level, next to systemd's units and the pods, so that neither rewrites it".into(),
            needed: true,
        });
        let write = |name: &str, why: &str| {
            file(Part::Cpusets, format!("{mount}{NET}/{name}"), None, cpus.clone(), why.to_owned())
        };
        changes.push(write("cpuset.cpus", "the network's CPUs"));
        let exclusive = write(
            "cpuset.cpus.exclusive",
            "siblings that name these CPUs later do not end the partition; kernels before 6.7 lack this file",
        );
        changes.push(Change { needed: false, ..exclusive });
    }
    let now = net.map(|net| net.partition.clone().unwrap_or_else(|| "member".into()));
    if now.as_deref().is_none_or(|now| now != "isolated" && now != "root") {
        // A balancing partition cannot contain CPUs isolated at boot.
        let otherwise = draft.net.both(&draft.topology.boot.isolated).is_empty().then(|| "root".to_owned());
        changes.push(Change {
            part: Part::Cpusets,
            place: Place::file(format!("{mount}{NET}/cpuset.cpus.partition")),
            from: now,
            to: "isolated".into(),
            otherwise,
            why: "the kernel takes these CPUs from all others, and balances no task onto them".into(),
            needed: true,
        });
    }
    draft.changes.extend(changes);
    let keep_naming: Vec<&Group> = cpusets
        .groups
        .iter()
        .filter(|group| group.path[1..].contains('/') && !ours(&group.path))
        .filter(|group| group.cpus.as_ref().is_some_and(|cpus| !cpus.both(&draft.net).is_empty()))
        .collect();
    if !keep_naming.is_empty() {
        let text = format!(
            "{} still name {} in cpuset.cpus, such as {}: they do not get them while the partition is valid \
             (cpuset.cpus.effective).",
            counted(keep_naming.len(), "cgroup"),
            draft.net.words(),
            keep_naming[0].path
        );
        draft.note(Weight::Warning, text);
    }
    if cpusets.hybrid {
        draft.note(
            Weight::Remark,
            format!("Both cgroup versions are mounted; cpusets are version 2 here ({mount})."),
        );
    }
}

/// Top-level groups that name CPUs of the network give them up.
pub(super) fn narrow_siblings(cpusets: &Cpusets, net: &Cpus) -> Vec<Change> {
    let top = cpusets.groups.iter().rev().filter(|group| !group.path[1..].contains('/'));
    top.filter_map(|group| narrow_one(cpusets, group, net)).collect()
}

/// CPUs in somebody else's partition cannot be taken.
fn foreign(draft: &mut Draft<'_>, cpusets: &Cpusets, mount: &str) -> bool {
    let groups: Vec<String> = cpusets
        .groups
        .iter()
        .filter(|group| group.path != "/" && !ours(&group.path))
        .filter(|group| group.partition.as_deref().is_some_and(|kind| kind == "root" || kind == "isolated"))
        .filter(|group| {
            [&group.cpus, &group.effective]
                .into_iter()
                .flatten()
                .any(|cpus| !cpus.both(&draft.net).is_empty())
        })
        .map(|group| format!("{mount}{}", group.path))
        .collect();
    if groups.is_empty() {
        return false;
    }
    let why = format!("CPUs of {} belong to a partition of somebody else: {}", draft.net, some_of(&groups));
    draft.refuse("foreign-partition", why, Some("--net-cpus with a list of other CPUs".into()));
    true
}

/// Changes for groups created after the plan was applied.
pub(super) fn for_new_groups(topology: &Topology, net: &Cpus) -> Vec<Change> {
    topology.cpusets.as_ref().map(|cpusets| narrow_siblings(cpusets, net)).unwrap_or_default()
}
