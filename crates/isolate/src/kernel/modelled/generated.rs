//! Generated machines, and policies for them.

use super::{Group, Interface, Irq, Rx, State, Task};
use crate::plan::{IrqbalancePolicy, NetCpus, Policy};
use proptest::prelude::*;
use spangap_model::Cpus;
use std::collections::BTreeMap;

/// Differences between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flavour {
    /// Cgroup version 2.
    pub v2: bool,
    /// 6.2 and later: a thread's affinity survives a change of its cgroup.
    pub keeps_pinned: bool,
    /// A change of the number of queues creates new interrupts; otherwise the driver keeps and redistributes
    /// them.
    pub renumbers: bool,
    /// 6.1: an invalid partition becomes valid again by itself.
    pub recovers: bool,
    /// Before 6.1: partitions can only be `root`.
    pub no_isolated: bool,
}

const NAMES: [&str; 8] = [
    "/kubepods",
    "/kubepods/a",
    "/kubepods/a/1",
    "/kubepods/a/2",
    "/kubepods/b",
    "/system",
    "/system/x",
    "/z",
];

/// Seed of a group and its tasks.
type RawGroup = (bool, u16, Vec<(u16, bool)>);

/// A machine, and a policy for it.
pub(crate) fn generated() -> impl Strategy<Value = (State, Policy)> {
    let flavour = (any::<(bool, bool, bool, bool)>(), prop::bool::weighted(0.2)).prop_map(
        |((v2, keeps_pinned, renumbers, recovers), no_isolated)| Flavour {
            v2,
            keeps_pinned,
            renumbers,
            recovers,
            no_isolated,
        },
    );
    let group =
        (any::<bool>(), any::<u16>(), prop::collection::vec((any::<u16>(), prop::bool::weighted(0.3)), 0..3));
    let groups = prop::collection::vec(prop::option::weighted(0.6, group), NAMES.len());
    let roots = prop::collection::vec((any::<u16>(), prop::bool::weighted(0.3), 0..4_u32), 1..5);
    let queues = (1..5_u32, 0..4_u32, prop::collection::vec((any::<u16>(), any::<u16>(), 0..2_u64), 8));
    let two = prop::collection::vec((queues, any::<u8>()), 1..3);
    let policy =
        (prop::bool::weighted(0.4), prop::bool::weighted(0.9), any::<bool>(), 0..3_u32, any::<bool>());
    (
        flavour,
        3..6_u32,
        any::<bool>(),
        groups,
        roots,
        two,
        policy,
        prop::option::of(any::<u16>()),
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(flavour, cores, smt, groups, roots, interfaces, policy, banned, (enabled, balanced))| {
                let mut state = bare(flavour, cores, smt);
                state.enabled = !flavour.v2 || enabled;
                state.groups.get_mut("/").expect("it is there").balanced = balanced;
                add_interfaces(&mut state, &interfaces);
                add_groups(&mut state, &groups);
                add_root_tasks(&mut state, &roots);
                state.banned =
                    banned.map(|bits| (20..36).filter(|irq| bits >> (irq - 20) & 1 == 1).collect());
                let (queues, cpusets, both, count, leave) = policy;
                let net_cpus = match count {
                    0 => NetCpus::Auto,
                    // Beyond what every group has, so that few machines are refused.
                    1 => NetCpus::List(state.online.iter().skip(1).take(1).collect()),
                    count => NetCpus::Count(count),
                };
                let interfaces =
                    if both { state.interfaces.keys().cloned().collect() } else { vec!["eth0".to_owned()] };
                let irqbalance = if leave { IrqbalancePolicy::Leave } else { IrqbalancePolicy::Ban };
                (state, Policy { interfaces, net_cpus, queues, cpusets, irqbalance })
            },
        )
}

/// CPUs with nothing on them.
fn bare(flavour: Flavour, cores: u32, smt: bool) -> State {
    let online: Cpus = (0..cores * if smt { 2 } else { 1 }).collect();
    let mut files = BTreeMap::from([("/proc/sys/kernel/random/boot_id".to_owned(), "boot".to_owned())]);
    for cpu in online.iter() {
        let core = cpu % cores;
        let siblings = if smt { format!("{core},{}", core + cores) } else { cpu.to_string() };
        files.insert(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        files.insert(format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0".into());
    }
    files.insert("/sys/devices/system/node/node0/cpulist".into(), online.to_string());
    let root = Group {
        cpus: if flavour.v2 { Cpus::default() } else { online.clone() },
        mems: Cpus::from_iter([0]),
        exclusive: true,
        balanced: true,
        effective: online.clone(),
        ..Group::default()
    };
    State {
        flavour,
        online,
        files,
        groups: BTreeMap::from([("/".to_owned(), root)]),
        enabled: true,
        tasks: BTreeMap::new(),
        irqs: BTreeMap::new(),
        interfaces: BTreeMap::new(),
        banned: None,
    }
}

/// The online CPUs whose bit is set; never none.
fn some(of: &Cpus, bits: u16) -> Cpus {
    let chosen: Cpus = of.iter().filter(|cpu| bits >> (cpu % 16) & 1 == 1).collect();
    if chosen.is_empty() { of.clone() } else { chosen }
}

type RawInterface = ((u32, u32, Vec<(u16, u16, u64)>), u8);

fn add_interfaces(state: &mut State, interfaces: &[RawInterface]) {
    let mut number = 20;
    for (at, ((now, more, values), flags)) in interfaces.iter().enumerate() {
        let name = format!("eth{at}");
        let mut irq = |name: String, queue, affinity, managed| {
            // Other devices own the numbers in between.
            number += 1 + u32::from(number % 3 == 0);
            state.irqs.insert(number, Irq { name, affinity, managed, queue });
        };
        irq(format!("{name}-config"), None, state.online.clone(), false);
        for queue in 0..*now {
            let (affinity, _, _) = values[queue as usize];
            let managed = flags >> queue & 1 == 1 && flags & 0x80 != 0;
            let affinity = some(&state.online, affinity);
            irq(format!("{name}-TxRx-{queue}"), Some((name.clone(), queue)), affinity, managed);
        }
        let rx = values.iter().take(*now as usize).map(|(_, rps, flows)| Rx {
            rps: if flags & 0x40 != 0 { some(&state.online, *rps) } else { Cpus::default() },
            flows: *flows,
        });
        let xps = values.iter().take(*now as usize).map(|(xps, _, _)| some(&state.online, *xps));
        let node = if flags & 0x20 != 0 { -1 } else { 0 };
        let interface = Interface { node, now: *now, most: now + more, rx: rx.collect(), xps: xps.collect() };
        state.interfaces.insert(name, interface);
    }
}

fn add_groups(state: &mut State, groups: &[Option<RawGroup>]) {
    let mut tid = 100;
    for (name, raw) in NAMES.iter().zip(groups) {
        let above = super::parent(name).to_owned();
        let (Some((inherits, bits, tasks)), Some(above)) = (raw, state.groups.get(&above).cloned()) else {
            continue;
        };
        let mut group = Group { mems: above.mems.clone(), balanced: true, ..Group::default() };
        if !state.flavour.v2 {
            // Containing CPU 0, no group consists only of CPUs that may become the network's.
            let zero = Cpus::from_iter([0]);
            group.cpus = if *inherits { above.cpus.clone() } else { some(&above.cpus, *bits).either(&zero) };
        } else {
            group.mems = Cpus::default();
            if state.enabled && !inherits {
                group.cpus = some(&state.online, bits | 1);
            }
        }
        state.groups.insert((*name).to_owned(), group);
        if state.flavour.v2 {
            state.compute_v2();
        }
        for (bits, pinned) in tasks {
            tid += 1;
            let effective = state.effective(name);
            add_task(state, tid, format!("app {tid}"), name, pinned.then(|| some(&effective, bits | 1)));
        }
    }
}

fn add_task(state: &mut State, tid: u32, comm: String, group: &str, asked: Option<Cpus>) {
    let effective = state.effective(group);
    let allowed = asked.as_ref().map_or(effective.clone(), |asked| asked.both(&effective));
    let group = group.to_owned();
    state.tasks.insert(tid, Task { comm, kernel: false, bound: false, group, allowed, asked });
}

fn add_root_tasks(state: &mut State, roots: &[(u16, bool, u32)]) {
    for ((bits, pinned, kind), tid) in roots.iter().zip(2..) {
        let online = state.online.clone();
        add_task(state, tid, format!("root {tid}"), "/", pinned.then(|| some(&online, bits | 1)));
        let task = state.tasks.get_mut(&tid).expect("it was just added");
        (task.kernel, task.bound) = (*kind > 1, *kind > 2);
        if task.bound {
            task.allowed = Cpus::from_iter(online.iter().take(1));
        }
    }
}
