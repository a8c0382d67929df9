//! Generated machines of any shape, and very large ones, as files.

use proptest::prelude::*;
use spangap_machine::Kept;
use spangap_model::Cpus;
use std::fmt::Write as _;

/// How cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    V1,
    V2,
    Hybrid,
    Nothing,
}

/// A generated interface.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    pub queues: u32,
    pub most: u32,
    pub node: Option<u32>,
    /// A child of its PCI function, with a vector per direction.
    pub virtio: bool,
}

/// Shape of a machine. Sets of CPUs are encoded in the bits of a number, repeated.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub packages: u32,
    pub cores: u32,
    pub threads: u32,
    /// Whether second threads are numbered after all first ones.
    pub far: bool,
    pub nodes_of_package: u32,
    /// Offline CPUs other than 0: those whose bit and three others, 7 bits apart, are set.
    pub offline: u64,
    pub nics: Vec<Nic>,
    pub mounted: Mounted,
    /// Groups: index of the parent, and CPUs (0 for those of the parent).
    pub groups: Vec<(usize, u64)>,
    /// CPU manager: the CPUs that a container owns exclusively, 0 for policy `none`.
    pub kubelet: Option<u64>,
    /// Pinned threads: the group, and the CPUs.
    pub pinned: Vec<(usize, u64)>,
    pub irqbalance: bool,
}

/// A machine of any shape; [`Shape::kept`] renders its files.
pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    let nic = (1..17_u32, 0..48_u32, prop::option::of(0..8_u32), any::<bool>());
    let nic = nic.prop_map(|(queues, more, node, virtio)| Nic { queues, most: queues + more, node, virtio });
    let mounted = prop_oneof![
        3 => Just(Mounted::V1),
        4 => Just(Mounted::V2),
        2 => Just(Mounted::Hybrid),
        1 => Just(Mounted::Nothing),
    ];
    let cpus = (1..5_u32, 1..9_u32, prop::sample::select(vec![1_u32, 2, 2, 4]), any::<bool>(), 1..3_u32);
    let some = prop_oneof![Just(0_u64), any::<u64>()];
    let groups = prop::collection::vec((any::<usize>(), some.clone()), 0..31);
    let pinned = prop::collection::vec((any::<usize>(), 1..u64::MAX), 0..5);
    let others = (prop::option::of(some.clone()), pinned, any::<bool>());
    (cpus, some, prop::collection::vec(nic, 0..4), mounted, groups, others).prop_map(
        |((packages, cores, threads, far, nodes_of_package), offline, nics, mounted, groups, others)| {
            let (kubelet, pinned, irqbalance) = others;
            // Without groups their threads would belong nowhere.
            let pinned = if mounted == Mounted::Nothing { Vec::new() } else { pinned };
            Shape {
                packages,
                cores,
                threads,
                far,
                nodes_of_package,
                offline,
                nics,
                mounted,
                groups,
                kubelet,
                pinned,
                irqbalance,
            }
        },
    )
}

/// A machine with 256 CPUs and one group per container, five containers per pod.
pub(crate) fn large(containers: usize, mounted: Mounted) -> Kept {
    let nic = Nic { queues: 32, most: 63, node: Some(1), virtio: false };
    let pods = containers.div_ceil(5);
    // `kubepods`, pods below it, containers below these.
    let parents = std::iter::repeat_n(1, pods).chain((0..containers).map(|at| 2 + at / 5));
    let groups = std::iter::once((0, 0)).chain(parents.map(|parent| (parent, u64::MAX))).collect();
    let shape = Shape {
        packages: 2,
        cores: 64,
        threads: 2,
        far: true,
        nodes_of_package: 1,
        offline: 0,
        nics: vec![nic],
        mounted,
        groups,
        kubelet: Some(0),
        pinned: Vec::new(),
        irqbalance: false,
    };
    shape.kept()
}

/// CPUs selected by the bits of a number, at least one.
fn drawn(from: &Cpus, bits: u64) -> Cpus {
    let some: Cpus = from.iter().filter(|cpu| bits.rotate_right(*cpu % 64) & 1 == 1).collect();
    if some.is_empty() { from.iter().take(1).collect() } else { some }
}

impl Shape {
    /// Number of a CPU.
    fn number(&self, core: u32, thread: u32) -> u32 {
        let cores = self.packages * self.cores;
        if self.far { thread * cores + core } else { core * self.threads + thread }
    }

    pub fn online(&self) -> Cpus {
        let is_offline =
            |cpu: u32| cpu > 0 && (0..4).all(|bit| self.offline.rotate_right(cpu + bit * 7) & 1 == 1);
        (0..self.packages * self.cores * self.threads).filter(|cpu| !is_offline(*cpu)).collect()
    }

    fn nodes(&self) -> u32 {
        self.packages * self.nodes_of_package.min(self.cores)
    }

    fn node_of(&self, core: u32) -> u32 {
        core * self.nodes() / (self.packages * self.cores)
    }

    /// Groups: path, own CPUs (empty: the parent's), effective CPUs. The root first.
    pub fn groups(&self) -> Vec<(String, Cpus, Cpus)> {
        const DEPTH: usize = 4;
        let online = self.online();
        let mut groups: Vec<(String, Cpus, Cpus)> = vec![("/".to_owned(), online.clone(), online)];
        for (at, (parent, bits)) in self.groups.iter().enumerate() {
            let (above, _, effective) = groups[parent % groups.len()].clone();
            let above = if above.matches('/').count() >= DEPTH { String::new() } else { above };
            let effective = if above.is_empty() { groups[0].2.clone() } else { effective };
            let name = match (at, above.as_str()) {
                (0, _) => "kubepods".to_owned(),
                (_, "/kubepods") => format!("pod{at}"),
                (at, _) if at % 5 == 3 => format!("unit-{at}.service"),
                (at, _) => format!("{at:x}"),
            };
            let own = match (*bits, self.mounted) {
                (0, Mounted::V2) => Cpus::default(),
                (0 | u64::MAX, _) => effective.clone(),
                (bits, _) => drawn(&effective, bits),
            };
            let gets = if own.is_empty() { effective } else { own.clone() };
            groups.push((format!("{}/{name}", above.trim_end_matches('/')), own, gets));
        }
        groups
    }

    pub fn kept(&self) -> Kept {
        let mut text = String::new();
        self.cpus(&mut text);
        self.tables(&mut text);
        self.interfaces(&mut text);
        self.cgroups_and_tasks(&mut text);
        Kept::parse(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn cpus(&self, text: &mut String) {
        let online = self.online();
        let mut put = |path: String, content: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "=== {path}\n{content}");
        };
        put("/sys/devices/system/cpu/online".into(), online.to_string());
        put("/sys/devices/system/cpu/isolated".into(), String::new());
        let mut nodes = vec![Vec::new(); self.nodes() as usize];
        for core in 0..self.packages * self.cores {
            let all = (0..self.threads).map(|thread| self.number(core, thread));
            let siblings: Cpus = all.filter(|cpu| online.contains(*cpu)).collect();
            nodes[self.node_of(core) as usize].extend(siblings.iter());
            for cpu in siblings.iter() {
                let at = format!("/sys/devices/system/cpu/cpu{cpu}");
                put(format!("{at}/topology/thread_siblings_list"), siblings.to_string());
                put(format!("{at}/topology/physical_package_id"), (core / self.cores).to_string());
                put(format!("{at}/cache/index2/level"), "2".into());
                put(format!("{at}/cache/index2/shared_cpu_list"), siblings.to_string());
            }
        }
        for (node, cpus) in nodes.into_iter().enumerate() {
            put(format!("/sys/devices/system/node/node{node}/cpulist"), Cpus::from_iter(cpus).to_string());
        }
        put("/proc/cmdline".into(), "quiet".into());
        put("/proc/sys/kernel/random/boot_id".into(), "5a1f0000-0000-4000-8000-000000000000".into());
        put("/proc/sys/kernel/osrelease".into(), "6.1.0".into());
    }

    /// Interrupts of the interfaces: number, name, and interface.
    fn irqs(&self) -> Vec<(u32, String, usize)> {
        let mut irqs = Vec::new();
        for (at, nic) in self.nics.iter().enumerate() {
            let first = 100 + 100 * at as u32;
            for queue in 0..nic.queues {
                if nic.virtio {
                    irqs.push((first + 1 + 2 * queue, format!("virtio{at}-input.{queue}"), at));
                    irqs.push((first + 2 + 2 * queue, format!("virtio{at}-output.{queue}"), at));
                } else {
                    irqs.push((first + 1 + queue, format!("eth{at}-TxRx-{queue}"), at));
                }
            }
            irqs.push((
                first,
                if nic.virtio { format!("virtio{at}-config") } else { format!("eth{at}") },
                at,
            ));
        }
        irqs.sort();
        irqs
    }

    fn tables(&self, text: &mut String) {
        let online = self.online();
        let every = |figure: u32| online.iter().map(|cpu| format!(" {}", cpu + figure)).collect::<String>();
        let heading: String = online.iter().map(|cpu| format!(" CPU{cpu}")).collect();
        *text += &format!("=== /proc/interrupts\n{heading}\n");
        for (number, name, _) in self.irqs() {
            *text += &format!("{number}:{}  PCI-MSI {number}-edge      {name}\n", every(number));
        }
        *text += &format!("LOC:{}  Local timer interrupts\n", every(9));
        *text += &format!("=== /proc/softirqs\n{heading}\nNET_TX:{}\nNET_RX:{}\n", every(1), every(2));
        *text += "=== /proc/stat\n";
        text.extend(online.iter().map(|cpu| format!("cpu{cpu} 10 0 5 900 0 1 2 0 0 0\n")));
        *text += "=== /proc/net/softnet_stat\n";
        text.extend(online.iter().map(|cpu| format!("5 1 2 0 0 0 0 0 0 0 0 0 {cpu:x} 0 0\n")));
        for (number, ..) in self.irqs() {
            let first = online.iter().next().unwrap_or(0);
            *text += &format!("=== /proc/irq/{number}/smp_affinity_list\n{online}\n");
            *text += &format!("=== /proc/irq/{number}/effective_affinity_list\n{first}\n");
        }
    }

    fn interfaces(&self, text: &mut String) {
        let names: String = (0..self.nics.len()).map(|at| format!(" eth{at}")).collect();
        *text += &format!("=== /sys/class/net : lo{names}\n");
        let irqs = self.irqs();
        for (at, nic) in self.nics.iter().enumerate() {
            let function = format!("/sys/devices/pci0000:{at:02x}/0000:{at:02x}:01.0");
            let (device, driver) = match nic.virtio {
                true => (format!("{function}/virtio{at}"), "virtio_net"),
                false => (function.clone(), "ice"),
            };
            let link = device.trim_start_matches("/sys/");
            *text += &format!("=== /sys/class/net/eth{at} -> ../../{link}/net/eth{at}\n");
            *text += &format!("=== {device}/driver -> ../../bus/{driver}\n");
            let node = nic.node.map_or(-1, |node| i64::from(node % self.nodes()));
            *text += &format!("=== {function}/numa_node\n{node}\n=== {function}/msi_irqs :");
            text.extend(irqs.iter().filter(|irq| irq.2 == at).map(|irq| format!(" {}", irq.0)));
            let of = format!("/sys/class/net/eth{at}");
            *text += &format!("\n=== {of}/flags\n0x1003\n=== {of}/operstate\nup\n=== {of}/threaded\n0\n");
            for queue in 0..nic.queues {
                *text += &format!("=== {of}/queues/rx-{queue}/rps_cpus\n0\n");
                *text += &format!("=== {of}/queues/rx-{queue}/rps_flow_cnt\n0\n");
                *text += &format!("=== {of}/queues/tx-{queue}/xps_cpus\n0\n");
            }
            *text += &format!(
                "=== /ethtool/eth{at}\nPre-set maximums:\nCombined:\t{}\nCurrent hardware settings:\nCombined:\t{}\n",
                nic.most, nic.queues
            );
        }
    }

    fn cgroups_and_tasks(&self, text: &mut String) {
        let v1 = self.mounted != Mounted::V2;
        let mount = if v1 { "/sys/fs/cgroup/cpuset" } else { "/sys/fs/cgroup" };
        *text += "=== /proc/self/mountinfo\n20 1 0:1 / /proc rw - proc proc rw\n";
        *text += match self.mounted {
            Mounted::V1 => "30 1 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
            Mounted::V2 => "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            Mounted::Hybrid => {
                "30 1 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                 31 1 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            }
            Mounted::Nothing => "",
        };
        let groups = self.groups();
        let mut pinned: Vec<(u32, usize, Cpus)> = Vec::new();
        for (at, (group, bits)) in self.pinned.iter().enumerate() {
            let group = group % groups.len();
            pinned.push((5000 + at as u32, group, drawn(&groups[group].2, *bits)));
        }
        let balancer = self.irqbalance.then_some((812, 0, self.online()));
        for (tid, group, allowed) in pinned.iter().chain(balancer.iter()) {
            let path = &groups[*group].0;
            let at = format!("/proc/{tid}");
            let comm = if *tid == 812 { "irqbalance" } else { "pinned" };
            let stat = format!("{tid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {tid} 0 0");
            *text +=
                &format!("=== {at}/stat\n{stat}\n=== {at}/comm\n{comm}\n=== {at}/task/{tid}/stat\n{stat}\n");
            *text += &format!("=== {at}/task/{tid}/status\nCpus_allowed_list:\t{allowed}\n");
            let line = if v1 { format!("3:cpuset:{path}") } else { format!("0::{path}") };
            *text += &format!("=== {at}/cgroup\n{line}\n=== {at}/task/{tid}/cgroup\n{line}\n");
        }
        if self.irqbalance {
            *text += "=== /irqbalance/setup\nSLEEP 10 IRQ 9 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000\n";
        }
        if let Some(bits) = self.kubelet {
            let alone = drawn(&self.online(), bits);
            let state = match bits {
                0 => r#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#.to_owned(),
                _ => format!(
                    r#"{{"policyName":"static","defaultCpuSet":"{}","entries":{{"u":{{"c":"{alone}"}}}},"checksum":1}}"#,
                    self.online().without(&alone)
                ),
            };
            *text += &format!("=== /var/lib/kubelet/cpu_manager_state\n{state}\n");
        }
        if self.mounted == Mounted::Nothing {
            *text += "=== /proc/1/comm\ninit\n";
            return;
        }
        if !v1 {
            *text += &format!(
                "=== {mount}/cgroup.controllers\ncpuset cpu\n=== {mount}/cgroup.subtree_control\ncpuset cpu\n"
            );
        }
        let mems = Cpus::from_iter(0..self.nodes());
        for (at, (path, own, effective)) in groups.iter().enumerate() {
            let of = format!("{mount}{}", path.trim_end_matches('/'));
            let (gets, tasks) = if v1 {
                ("cpuset.effective_cpus", "tasks")
            } else {
                ("cpuset.cpus.effective", "cgroup.threads")
            };
            *text += &format!("=== {of}/{gets}\n{effective}\n=== {of}/{tasks}\n");
            text.extend(pinned.iter().filter(|task| task.1 == at).map(|task| format!("{}\n", task.0)));
            if v1 {
                *text += &format!("=== {of}/cpuset.cpus\n{own}\n=== {of}/cpuset.mems\n{mems}\n");
                *text += &format!("=== {of}/cpuset.cpu_exclusive\n{}\n", u32::from(at == 0));
                *text += &format!("=== {of}/cpuset.sched_load_balance\n1\n");
            } else if at > 0 {
                *text += &format!("=== {of}/cpuset.cpus\n{own}\n=== {of}/cpuset.cpus.partition\nmember\n");
            }
        }
    }
}
