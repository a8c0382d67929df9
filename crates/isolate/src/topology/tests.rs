//! Machines of any shape are read back as generated; any text at any path is read without a panic.

use super::generated::{Mounted, Shape, large, shape};
use super::*;
use proptest::prelude::*;
use spangap_machine::Kept;
use std::time::Instant;

/// Reads a machine from its files.
pub(super) fn read(files: &str) -> Topology {
    Topology::read(&Host::kept(Kept::parse(files).unwrap()))
}

/// Errors recorded for files whose path contains this text.
pub(super) fn told(machine: &Topology, path: &str) -> Vec<String> {
    machine.unknown.iter().map(ToString::to_string).filter(|told| told.contains(path)).collect()
}

/// A folder in memory if possible: thousands of files on a busy disk take long.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn is_as_made(shape: &Shape, machine: &Topology) -> Result<(), TestCaseError> {
    prop_assert_eq!(&machine.unknown, &Vec::new());
    let online = shape.online();
    prop_assert_eq!(&machine.online(), &online);
    for cpu in &machine.cpus {
        prop_assert!(cpu.siblings.contains(cpu.number) && cpu.siblings.len() <= shape.threads as usize);
        prop_assert!(cpu.package.is_some_and(|package| package < shape.packages) && cpu.node.is_some());
        prop_assert_eq!(cpu.cache.as_ref(), Some(&cpu.siblings));
    }
    prop_assert_eq!(machine.interfaces.len(), shape.nics.len());
    for (interface, nic) in machine.interfaces.iter().zip(&shape.nics) {
        prop_assert_eq!(interface.queues, Some(Queues { now: nic.queues, most: nic.most }));
        prop_assert_eq!(interface.rx.len(), nic.queues as usize);
        prop_assert_eq!(interface.node.is_some(), nic.node.is_some());
        let queues: Vec<u32> = interface.irqs.iter().filter_map(|irq| irq.queue).collect();
        let each = if nic.virtio { 2 } else { 1 };
        prop_assert_eq!(queues, (0..nic.queues * each).map(|at| at / each).collect::<Vec<_>>());
        prop_assert_eq!(interface.irqs.len(), (nic.queues * each) as usize + 1);
    }
    for irq in &machine.irqs {
        let expected: Vec<u64> = online.iter().map(|cpu| u64::from(cpu + irq.number)).collect();
        prop_assert_eq!((&irq.counts, irq.affinity.as_ref()), (&expected, Some(&online)));
    }
    prop_assert!(
        machine.load.iter().all(|load| load.net_rx == u64::from(load.cpu) + 2 && load.time_squeeze == 2)
    );
    prop_assert_eq!(machine.cpusets.is_some(), shape.mounted != Mounted::Nothing);
    let mut effective = vec![("/".to_owned(), online.clone())];
    if let Some(cpusets) = &machine.cpusets {
        prop_assert_eq!(cpusets.hybrid, shape.mounted == Mounted::Hybrid);
        let mut expected: Vec<_> =
            shape.groups().into_iter().map(|(path, _, effective)| (path, effective)).collect();
        let found = cpusets.groups.iter().map(|group| (group.path.clone(), group.effective.clone().unwrap()));
        let mut found: Vec<_> = found.collect();
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        found.sort_by(|one, other| one.0.cmp(&other.0));
        prop_assert_eq!(&found, &expected);
        let tasks: u32 = cpusets.groups.iter().map(|group| group.tasks).sum();
        prop_assert_eq!(tasks as usize, shape.pinned.len());
        effective = found;
    }
    // A thread that has all CPUs of its group is not pinned.
    for task in &machine.pinned {
        let (_, has) = effective.iter().find(|(path, _)| *path == task.group).unwrap();
        prop_assert!(!has.without(&task.allowed).is_empty() && task.allowed.without(has).is_empty());
    }
    prop_assert_eq!(machine.kubelet.is_some(), shape.kubelet.is_some());
    let banned = machine.irqbalance.as_ref().map(|irqbalance| irqbalance.banned.clone());
    prop_assert_eq!(banned, shape.irqbalance.then(|| Some(vec![9])));
    Ok(())
}

/// Every path that is read of a machine that has everything.
fn paths() -> Vec<String> {
    let rich = Shape {
        packages: 2,
        cores: 2,
        threads: 2,
        far: true,
        nodes_of_package: 1,
        offline: 0,
        nics: vec![
            generated::Nic { queues: 2, most: 4, node: Some(0), virtio: false },
            generated::Nic { queues: 1, most: 1, node: None, virtio: true },
        ],
        mounted: Mounted::Hybrid,
        groups: vec![(0, 1), (1, 1), (0, 3)],
        kubelet: Some(3),
        pinned: vec![(1, 1)],
        irqbalance: true,
    };
    let kept = |shape: &Shape| shape.kept().text();
    let both = kept(&rich) + &kept(&Shape { mounted: Mounted::V2, ..rich });
    let mut paths: Vec<String> =
        both.lines().filter_map(|line| line.strip_prefix("=== ")).map(str::to_owned).collect();
    let more = ["/proc/schedstat", "/sys/devices/system/cpu/nohz_full", "/etc/tuned/active_profile"];
    paths.extend(more.map(str::to_owned));
    paths.extend(["/var/lib/kubelet/config.yaml", "/proc/cgroups"].map(str::to_owned));
    for path in &mut paths {
        let end = path.find(" -> ").or_else(|| path.find(" : ")).unwrap_or(path.len());
        path.truncate(end);
    }
    paths.sort();
    paths.dedup();
    paths
}

/// Content as files have it, truncated, or of another kind.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[0-9,:/-]{0,12}",
        "( |\n|\t|[0-9]{1,20}|CPU[0-9]{1,3}|cpu[0-9]{1,9}|domain0|:|SLEEP|IRQ|BANNED|\\(|\\)|Combined:|0x|-){0,30}",
        r#"[{}":,a-z0-9]{0,30}"#,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn generated_machine_is_read_back(shape in shape()) {
        is_as_made(&shape, &Topology::read(&Host::kept(shape.kept())))?;
    }

    #[test]
    fn same_result_on_a_real_disk(shape in shape()) {
        let folder = folder();
        shape.kept().write_below(folder.path()).unwrap();
        is_as_made(&shape, &Topology::read(&Host::below(folder.path())))?;
    }

    #[test]
    fn no_text_at_any_path_panics(
        shape in shape(),
        changed in prop::collection::vec((prop::sample::select(paths()), any_text(), 0..4_u32), 1..8),
    ) {
        let mut text = shape.kept().text();
        for (path, content, kind) in changed {
            // A line that starts like an entry is an entry.
            let content = content.replace("=== ", "");
            let one_line = content.replace('\n', " ");
            text += &match kind {
                0 => format!("=== {path} -> {one_line}\n"),
                1 => format!("=== {path} : {one_line}\n"),
                2 => format!("=== {path} ! closed\n"),
                _ => format!("=== {path}\n{content}\n"),
            };
        }
        if let Ok(kept) = Kept::parse(&text) {
            let machine = Topology::read(&Host::kept(kept));
            prop_assert_eq!(machine.load.len(), machine.cpus.len());
            for irq in &machine.irqs {
                prop_assert_eq!(irq.counts.len(), machine.cpus.len());
            }
            serde_json::to_string(&machine).unwrap();
        }
    }
}

/// Prints the time it takes: `cargo test --release -p spangap-isolate --lib 2_000 -- --nocapture`.
#[test]
fn containers_by_the_2_000_on_256_cpus() {
    for mounted in [Mounted::V1, Mounted::V2] {
        let folder = folder();
        large(2_000, mounted).write_below(folder.path()).unwrap();
        let begun = Instant::now();
        let machine = Topology::read(&Host::below(folder.path()));
        let read = begun.elapsed();
        let policy = crate::plan::Policy {
            interfaces: vec!["eth0".to_owned()],
            net_cpus: crate::plan::NetCpus::Auto,
            queues: false,
            cpusets: true,
            irqbalance: crate::plan::IrqbalancePolicy::Ban,
        };
        let plan = crate::plan::Plan::new(&machine, &policy);
        let planned = begun.elapsed();
        assert_eq!((machine.cpus.len(), &machine.unknown), (256, &Vec::new()));
        assert_eq!(machine.cpusets.unwrap().groups.len(), 1 + 1 + 400 + 2_000);
        let changes = plan.map(|plan| plan.changes.len());
        println!("{mounted:?}: read in {read:?}, planned after {planned:?}: {changes:?} changes");
    }
}
