//! Version 1: every group gives up the network's CPUs, leaves first, and tasks of the root move to a group
//! without them.
//!
//! The root cannot be narrowed, so its tasks need a group of their own (`spangap-apps`). Nothing is ever put
//! into the network's group: it only holds the CPUs so that the scheduler does not balance there, which is
//! optional, because it is empty of tasks anyway. It is not made exclusive (`cpu_exclusive`): container
//! runtimes give a new top-level group the root's CPUs, which the kernel would then refuse, and no container
//! would start.

use super::draft::{Draft, file};
use super::{Change, Part, Weight};
use crate::place::Place;
use crate::topology::{Cpusets, Group, Owner, Topology};
use spangap_model::Cpus;
use spangap_report::figures::counted;

/// The group of the network's CPUs, below the mount; also in version 2.
pub(super) const NET: &str = "/spangap-net";
/// The group of the tasks that were in the root.
pub(super) const APPS: &str = "/spangap-apps";

/// Whether a group is ours, or below one of ours.
pub(super) fn ours(path: &str) -> bool {
    [NET, APPS]
        .iter()
        .any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Adds the changes.
pub(super) fn plan(draft: &mut Draft<'_>, cpusets: &Cpusets) {
    let mount = cpusets.mount.trim_end_matches('/');
    let find = |path: &str| cpusets.groups.iter().find(|group| group.path == path);
    let Some(root) = find("/") else {
        draft.note(
            Weight::Warning,
            format!("The cpusets at {mount} cannot be read: applications stay where they are."),
        );
        return;
    };
    let mems = root.mems.clone().unwrap_or_else(|| "0".into());
    let home = draft.home();
    let (apps, net) = (find(APPS), find(NET));
    if left_over(draft, mount, apps, &home) | left_over(draft, mount, net, &draft.net.clone()) {
        return;
    }
    let write = |group: &str, name: &str, to: &str, why: &str| {
        file(Part::Cpusets, format!("{mount}{group}/{name}"), None, to.to_owned(), why.to_owned())
    };
    let make = |group: &str, why: &str| Change {
        part: Part::Cpusets,
        place: Place::Group { path: format!("{mount}{group}") },
        from: None,
        to: "made".into(),
        otherwise: None,
        why: why.to_owned(),
        needed: true,
    };
    let mut changes = Vec::new();
    if apps.is_none() {
        changes.push(make(
            APPS,
            "the root cannot be narrowed, so its tasks get a group without the network's CPUs",
        ));
        changes.push(write(
            APPS,
            "cpuset.cpus",
            &home.to_string(),
            "all CPUs but the network's, and those isolated at boot",
        ));
        changes.push(write(
            APPS,
            "cpuset.mems",
            &mems,
            "memory of all nodes, as in the root: a group without memory cannot have tasks",
        ));
    }
    // Kernel threads bound to a CPU stay in the root for good, so it never becomes empty.
    let bound = draft.topology.pinned.iter().filter(|task| task.bound && task.group == "/").count();
    if apps.is_none_or(|apps| apps.tasks == 0) && root.tasks as usize > bound {
        changes.push(Change {
            part: Part::Cpusets,
            place: Place::Tasks { from: mount.to_owned(), to: format!("{mount}{APPS}") },
            from: Some("back".into()),
            to: "moved".into(),
            otherwise: None,
            why: "tasks of the root leave the network's CPUs; kernel threads bound to a CPU stay".into(),
            needed: true,
        });
    }
    let narrowed = narrow(cpusets, &draft.net);
    let with_set = cpusets.groups.iter().filter(|group| group.path != "/" && !ours(&group.path)).count();
    if with_set > narrowed.len() {
        let text =
            format!("{} of {} need no change.", with_set - narrowed.len(), counted(with_set, "cgroup"));
        draft.note(Weight::Remark, text);
    }
    changes.extend(narrowed);
    if net.is_none() {
        changes.push(make(NET, "holds the network's CPUs, and no task"));
        changes.push(write(NET, "cpuset.cpus", &draft.net.to_string(), "the network's CPUs"));
        changes.push(write(NET, "cpuset.mems", &mems, "as in the root"));
    }
    let mut optional = |change: Change| changes.push(Change { needed: false, ..change });
    if net.is_none_or(|net| net.balanced) {
        let change =
            write(NET, "cpuset.sched_load_balance", "0", "the scheduler pulls no task to these CPUs");
        optional(Change { from: net.map(|_| "1".into()), ..change });
    }
    if root.balanced {
        let why = "while the root balances over all CPUs, the network's are included; the other groups go on \
        balancing among themselves";
        let change = write("", "cpuset.sched_load_balance", "0", why);
        optional(Change { from: Some("1".into()), ..change });
    }
    draft.changes.extend(changes);
    draft.note(
        Weight::Remark,
        "A group created later at the top level gets the root's CPUs, including the network's: `status` and \
         `verify` report it.",
    );
    draft.note(
        Weight::Impossible,
        "The root cgroup of version 1 keeps all CPUs: `verify` finds what is started in \
    it later, and that has to be moved.",
    );
    if cpusets.hybrid {
        draft.note(
            Weight::Remark,
            format!("Both cgroup versions are mounted; cpusets are version 1 here ({mount})."),
        );
    }
}

/// Every foreign group gives up the network's CPUs, children before parents: a parent cannot lack what a child
/// has. A set that would become empty is kept: existing ones lead to a refusal, and one of a later container is
/// deliberate.
pub(super) fn narrow(cpusets: &Cpusets, net: &Cpus) -> Vec<Change> {
    cpusets.groups.iter().rev().filter_map(|group| narrow_one(cpusets, group, net)).collect()
}

/// The change by which one group gives up the network's CPUs; `None` if it has none of them. Also for version
/// 2.
pub(super) fn narrow_one(cpusets: &Cpusets, group: &Group, net: &Cpus) -> Option<Change> {
    let now = group.cpus.as_ref()?;
    let to = now.without(net);
    if group.path == "/" || ours(&group.path) || to == *now || to.is_empty() {
        return None;
    }
    let why = match &group.owner {
        Owner::Kubelet { container: Some(_), .. } => "a container leaves the network's CPUs".to_owned(),
        Owner::Kubelet { .. } => {
            "containers started later inherit a set without the network's CPUs".to_owned()
        }
        Owner::Systemd { unit } => format!("{unit} leaves the network's CPUs"),
        _ => "leaves the network's CPUs".to_owned(),
    };
    let path = format!("{}{}/cpuset.cpus", cpusets.mount.trim_end_matches('/'), group.path);
    Some(file(Part::Cpusets, path, Some(now.to_string()), to.to_string(), why))
}

/// A group of ours with other CPUs is a leftover of another plan: a new plan on top would not know the original
/// values.
pub(super) fn left_over(draft: &mut Draft<'_>, mount: &str, group: Option<&Group>, wanted: &Cpus) -> bool {
    let Some(group) = group.filter(|group| group.cpus.as_ref() != Some(wanted)) else { return false };
    let has = group.cpus.as_ref().map_or_else(|| "no CPUs".to_owned(), Cpus::words);
    draft.refuse(
        "left-over-group",
        format!("{mount}{} already exists, with {has} instead of {wanted}", group.path),
        Some(format!("spangap isolate rollback; or, if nothing is applied: rmdir {mount}{}", group.path)),
    );
    true
}

/// Changes for groups created after the plan was applied.
pub(super) fn for_new_groups(topology: &Topology, net: &Cpus) -> Vec<Change> {
    topology.cpusets.as_ref().map(|cpusets| narrow(cpusets, net)).unwrap_or_default()
}
