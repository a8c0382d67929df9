//! The cgroups that restrict CPUs: their mount, the whole tree, and the owner of each.

use super::owner::owner;
use super::reading::Reading;
use super::{Cpusets, Group};
use spangap_machine::FactError;
use spangap_machine::facts::mountinfo::{self, CgroupMount, Version};
use spangap_machine::facts::process_cgroup::Membership;
use std::collections::BTreeSet;

/// Deeper than any real tree; links in a copy may form cycles.
const MAX_DEPTH: usize = 40;
/// More groups than any real machine has.
const MAX_GROUPS: usize = 200_000;

/// Reads the hierarchy that has the cpuset controller.
///
/// `kernel` holds the kernel threads.
pub(super) fn read(reading: &mut Reading, kernel: &BTreeSet<u32>) -> Option<(Cpusets, CgroupMount)> {
    let mounts = reading.needed(mountinfo::PATH, mountinfo::cgroups).unwrap_or_default();
    let has_cpuset = |reading: &mut Reading, mount: &CgroupMount| match mount.version {
        Version::V1 => mount.has("cpuset"),
        Version::V2 => {
            let controllers = reading.text(&format!("{}/cgroup.controllers", mount.point));
            controllers.is_some_and(|names| names.split_whitespace().any(|name| name == "cpuset"))
        }
    };
    let mut candidates: Vec<&CgroupMount> =
        mounts.iter().filter(|mount| has_cpuset(reading, mount)).collect();
    // A container manager may have mounted the same hierarchy a second time.
    candidates.sort_by_key(|mount| !mount.point.starts_with("/sys/fs/cgroup"));
    let Some(mount) = candidates.first() else {
        hidden(reading, &mounts);
        return None;
    };
    if mount.root != "/" {
        let why = format!("{} shows the groups below {} only, not the root", mount.point, mount.root);
        reading.unknown.push(FactError::Read { path: mountinfo::PATH.to_owned(), why, absent: false });
    }
    let enabled = reading.text(&format!("{}/cgroup.subtree_control", mount.point));
    let mut groups = Vec::new();
    walk(reading, mount, kernel, &mut groups);
    let cpusets = Cpusets {
        version: mount.version,
        mount: mount.point.clone(),
        hybrid: mounts.iter().any(|other| other.version != mount.version),
        enabled: mount.version == Version::V1
            || enabled.is_some_and(|names| names.split_whitespace().any(|name| name == "cpuset")),
        groups,
    };
    Some((cpusets, (*mount).clone()))
}

/// Reports cpusets that the kernel has but this mount namespace does not show.
fn hidden(reading: &mut Reading, mounts: &[CgroupMount]) {
    let listed = reading.text("/proc/cgroups").unwrap_or_default();
    let enabled = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words.as_slice(), ["cpuset", _, _, "1"])
    };
    if listed.lines().any(enabled) {
        let why = if mounts.is_empty() {
            "no cgroup is mounted here, although the kernel has cpusets: `ip netns exec` hides them behind a fresh \
             /sys until they are mounted there again (`mount -t cgroup2 cgroup2 /sys/fs/cgroup`, or `mount -t \
             cgroup -o cpuset cgroup /sys/fs/cgroup`)"
        } else {
            "no hierarchy with the cpuset controller is mounted here, although the kernel has one"
        };
        reading.unknown.push(FactError::Read {
            path: "/sys/fs/cgroup".to_owned(),
            why: why.to_owned(),
            absent: false,
        });
    }
}

/// Prefixes of the kernel's own files in a group's folder.
const FILES: [&str; 21] = [
    "cgroup.",
    "cpu.",
    "cpuset.",
    "cpuacct.",
    "memory.",
    "io.",
    "blkio.",
    "pids.",
    "hugetlb.",
    "rdma.",
    "misc.",
    "irq.",
    "dmem.",
    "devices.",
    "freezer.",
    "net_cls.",
    "net_prio.",
    "perf_event.",
    "notify_on_release",
    "release_agent",
    "tasks",
];

fn is_file(name: &str) -> bool {
    FILES.iter().any(|file| if file.ends_with('.') { name.starts_with(file) } else { name == *file })
}

/// Reads a group and all its descendants, parents first.
fn walk(reading: &mut Reading, mount: &CgroupMount, kernel: &BTreeSet<u32>, groups: &mut Vec<Group>) {
    let mut waiting = vec![("/".to_owned(), None, 0)];
    while let Some((path, parent, depth)) = waiting.pop() {
        let folder = format!("{}{}", mount.point, path.trim_end_matches('/'));
        let Some(mut group) = one(reading, mount.version, kernel, &path, &folder) else { continue };
        if group.effective.is_none() {
            // Without the controller, its tasks use its parent's CPUs.
            group.effective = parent.and_then(|parent: usize| groups[parent].effective.clone());
        }
        groups.push(group);
        if depth >= MAX_DEPTH || groups.len() >= MAX_GROUPS {
            let why = "there are more groups, or deeper ones, than can be".to_owned();
            reading.unknown.push(FactError::Read { path: folder, why, absent: false });
            continue;
        }
        let at = groups.len() - 1;
        let children = reading.names(&folder);
        let below = |name: &String| (format!("{}/{name}", path.trim_end_matches('/')), Some(at), depth + 1);
        waiting.extend(children.iter().rev().filter(|name| !is_file(name)).map(below));
    }
}

/// Reads a group; `None` if it is not one.
fn one(
    reading: &mut Reading,
    version: Version,
    kernel: &BTreeSet<u32>,
    path: &str,
    folder: &str,
) -> Option<Group> {
    let file = |name: &str| format!("{folder}/{name}");
    let v1 = version == Version::V1;
    let cpus = reading.list(&file("cpuset.cpus"));
    let (effective, listings) = match v1 {
        // Before Linux 3.17 this file does not exist, and the configured set is the effective one.
        true => {
            (reading.list(&file("cpuset.effective_cpus")).or_else(|| cpus.clone()), ["tasks", "cgroup.procs"])
        }
        false => (reading.list(&file("cpuset.cpus.effective")), ["cgroup.threads", "cgroup.procs"]),
    };
    let tasks = listings.iter().find_map(|name| members(reading, kernel, &file(name)));
    if path != "/" && cpus.is_none() && effective.is_none() && tasks.is_none() {
        return None;
    }
    let flag = |reading: &mut Reading, name: &str| v1.then(|| reading.number::<u32>(&file(name))).flatten();
    let exclusive = flag(reading, "cpuset.cpu_exclusive");
    let balanced = flag(reading, "cpuset.sched_load_balance");
    let mems = if v1 { reading.text(&file("cpuset.mems")) } else { None };
    let partition = if v1 { None } else { reading.text(&file("cpuset.cpus.partition")) };
    Some(Group {
        path: path.to_owned(),
        cpus,
        effective,
        mems: mems.map(|mems| mems.trim().to_owned()),
        exclusive: exclusive.is_some_and(|exclusive| exclusive != 0),
        balanced: balanced.is_none_or(|balanced| balanced != 0),
        partition: partition.map(|partition| partition.trim().to_owned()),
        tasks: tasks.map_or(0, |(tasks, _)| tasks),
        kernel_tasks: tasks.map_or(0, |(_, kernel)| kernel),
        owner: owner(path),
    })
}

/// Number of tasks in a listing, and how many of them are kernel threads. The listing of threads is unreadable
/// in a group with threaded children.
fn members(reading: &Reading, kernel: &BTreeSet<u32>, path: &str) -> Option<(u32, u32)> {
    let text = reading.files.read(path).ok()?;
    let ours = |word: &&str| word.parse().is_ok_and(|task| kernel.contains(&task));
    let all = text.split_whitespace().count();
    let of_kernel = if kernel.is_empty() { 0 } else { text.split_whitespace().filter(ours).count() };
    Some((u32::try_from(all).ok()?, u32::try_from(of_kernel).ok()?))
}

/// From `/proc/PID/cgroup`: the task's group in the hierarchy with the cpuset controller.
pub(super) fn group_of(all: &[Membership], mount: &CgroupMount) -> Option<String> {
    let its = all.iter().find(|one| match mount.version {
        Version::V1 => one.has("cpuset"),
        Version::V2 => one.is_v2(),
    });
    let below = mount.below(&its?.path)?;
    Some(if below.is_empty() { "/".to_owned() } else { below.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::Owner;
    use super::super::tests::{read, told};
    use super::*;
    use spangap_machine::facts::process_cgroup;

    const V1: &str = "=== /proc/self/mountinfo\n22 1 0:2 / /proc rw - proc proc rw\n\
        30 22 0:30 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n\
        31 22 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &str =
        "=== /proc/self/mountinfo\n30 22 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_1_beside_an_empty_version_2() {
        let at = "/sys/fs/cgroup/cpuset";
        let machine = read(&format!(
            "{V1}=== {at}/cpuset.cpus\n0-7\n=== {at}/cpuset.mems\n0\n=== {at}/cpuset.cpu_exclusive\n1\n\
             === {at}/cpuset.sched_load_balance\n0\n=== {at}/tasks\n1\n2\n3\n=== {at}/docker/cpuset.cpus\n0-3\n\
             === {at}/docker/cpuset.effective_cpus\n0-2\n=== {at}/docker/77aa/cpuset.cpus\n1\n\
             === {at}/docker/77aa/tasks\n9\n=== {at}/kubepods.slice/cpuset.cpus\n0-7\n=== {at}/README\nno group\n",
        ));
        let cpusets = machine.cpusets.as_ref().unwrap();
        assert_eq!((cpusets.version, cpusets.mount.as_str(), cpusets.hybrid), (Version::V1, at, true));
        assert!(cpusets.enabled);
        let paths: Vec<&str> = cpusets.groups.iter().map(|group| group.path.as_str()).collect();
        assert_eq!(paths, ["/", "/docker", "/docker/77aa", "/kubepods.slice"]);
        let [root, docker, container, _] = cpusets.groups.as_slice() else { unreachable!() };
        assert_eq!(
            (root.tasks, root.exclusive, root.balanced, root.mems.as_deref()),
            (3, true, false, Some("0"))
        );
        assert_eq!(root.owner, Owner::Root);
        assert_eq!(
            (docker.effective.as_ref().unwrap().to_string(), docker.balanced),
            ("0-2".to_owned(), true)
        );
        assert_eq!((container.effective.as_ref().unwrap().to_string(), container.tasks), ("1".to_owned(), 1));
    }

    #[test]
    fn version_2() {
        let at = "/sys/fs/cgroup";
        let machine = read(&format!(
            "{V2}=== {at}/cgroup.controllers\ncpuset cpu io memory\n=== {at}/cgroup.subtree_control\ncpu cpuset\n\
             === {at}/cpuset.cpus.effective\n0-3\n=== {at}/system.slice/cpuset.cpus\n\n\
             === {at}/system.slice/cpuset.cpus.effective\n0-3\n=== {at}/system.slice/cpuset.cpus.partition\nmember\n\
             === {at}/system.slice/cgroup.threads ! Operation not supported (os error 95)\n\
             === {at}/system.slice/cgroup.procs\n3\n4\n=== {at}/user.slice/cgroup.threads\n5\n\
             === {at}/spangap-net/cpuset.cpus\n3\n=== {at}/spangap-net/cpuset.cpus.partition\nisolated\n"
        ));
        let cpusets = machine.cpusets.as_ref().unwrap();
        assert_eq!((cpusets.version, cpusets.hybrid, cpusets.enabled), (Version::V2, false, true));
        let [root, net, system, user] = cpusets.groups.as_slice() else { panic!("{:?}", cpusets.groups) };
        assert_eq!((&root.cpus, root.effective.as_ref().unwrap().len()), (&None, 4));
        assert_eq!((net.partition.as_deref(), &net.owner), (Some("isolated"), &Owner::Ours));
        assert_eq!((system.cpus.as_ref().unwrap().len(), system.tasks), (0, 2));
        assert_eq!((&user.cpus, user.effective.as_ref().unwrap().len(), user.tasks), (&None, 4, 1));
        let none = read(&format!(
            "{V2}=== {at}/cgroup.controllers\nio\n=== /proc/cgroups\n#subsys_name x\ncpuset\t0\t9\t0\n"
        ));
        assert_eq!((&none.cpusets, told(&none, "cgroup")), (&None, vec![]));
    }

    #[test]
    fn below_ip_netns_exec_nothing_is_mounted() {
        let machine = read(
            "=== /proc/self/mountinfo\n22 1 0:2 / /sys rw - sysfs netns rw\n\
             === /proc/cgroups\n#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t9\t1\n",
        );
        assert_eq!(machine.cpusets, None);
        assert!(
            told(&machine, "/sys/fs/cgroup")[0].contains("`ip netns exec` hides them"),
            "{:?}",
            machine.unknown
        );
    }

    #[test]
    fn mounts_of_other_forms() {
        let below =
            "=== /proc/self/mountinfo\n1 2 0:3 /docker/x /sys/fs/cgroup/cpuset rw - cgroup c rw,cpuset\n";
        assert!(told(&read(below), "mountinfo")[0].contains("below /docker/x only"));
        let bad = read(&format!(
            "{V1}=== /sys/fs/cgroup/cpuset/cpuset.cpus\nall\n=== /sys/fs/cgroup/cpuset/cpuset.cpu_exclusive\nx\n"
        ));
        assert_eq!(told(&bad, "/cpuset/").len(), 2, "{:?}", bad.unknown);
    }

    #[test]
    fn the_group_of_a_task() {
        let group = |text: &str, version, root: &str| {
            let (point, controllers) = (String::new(), Vec::new());
            let mount = CgroupMount { version, point, root: root.to_owned(), controllers };
            group_of(&process_cgroup::parse("/proc/7/cgroup", text).unwrap(), &mount)
        };
        let text = "4:cpu,cpuacct:/a\n3:cpuset:/docker/x\n0::/system.slice\n";
        assert_eq!(group(text, Version::V1, "/").as_deref(), Some("/docker/x"));
        assert_eq!(group(text, Version::V1, "/docker/x").as_deref(), Some("/"));
        assert_eq!(group(text, Version::V1, "/docker").as_deref(), Some("/x"));
        assert_eq!(group(text, Version::V2, "/").as_deref(), Some("/system.slice"));
        // Its name starts like that of the visible part, but it is a sibling.
        assert_eq!(group("3:cpuset:/docker/xy\n", Version::V1, "/docker/x"), None);
        assert_eq!(group("0::/../x\n", Version::V2, "/"), None);
        assert_eq!(group("1:cpu:/\n", Version::V2, "/"), None);
    }
}
