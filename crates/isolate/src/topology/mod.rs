//! What a machine is: CPUs, interfaces and their interrupts, cgroups, and who else moves things.
//!
//! Read from files below any root, so that a copy of another machine serves as well. Two things are no files on a
//! machine and are in a copy: `/ethtool/IF` is what `ethtool -l IF` prints, `/irqbalance/setup` what irqbalance answers
//! to `setup` on its socket.

mod balancers;
mod boot;
mod cpus;
mod cpusets;
mod interfaces;
mod irqs;
mod kubelet;
mod load;
#[cfg(test)]
pub(crate) mod made_up;
mod owner;
mod reading;
mod tasks;
#[cfg(test)]
mod tests;

use reading::Reading;
use serde::Serialize;
pub use spangap_machine::facts::mountinfo::Version;
use spangap_machine::{FactError, Host};
use spangap_model::Cpus;

/// What a machine is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Topology {
    /// Online CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// Network interfaces of the namespace that was looked at, by name.
    pub interfaces: Vec<Interface>,
    /// Interrupts, by number.
    pub irqs: Vec<Irq>,
    /// What each online CPU did since boot.
    pub load: Vec<CpuLoad>,
    /// CPUs that the scheduler balances between; `None`: not told (`/proc/schedstat`).
    pub balanced: Option<Cpus>,
    /// The cgroups that say who may run on which CPU; `None` where no cpuset controller is mounted.
    pub cpusets: Option<Cpusets>,
    /// The kubelet's CPU manager, if there is one.
    pub kubelet: Option<Kubelet>,
    /// A running irqbalance.
    pub irqbalance: Option<Irqbalance>,
    /// A running tuned.
    pub tuned: Option<Tuned>,
    /// What was decided at boot.
    pub boot: Boot,
    /// Threads that may not run on every CPU that their cgroup has, and all threads `napi/IF-N`.
    pub pinned: Vec<PinnedTask>,
    /// `net.core.rps_sock_flow_entries`: above 0 packets can follow applications to their CPUs.
    pub rps_sock_flow_entries: Option<u64>,
    /// What could not be read, and why.
    #[serde(serialize_with = "in_words")]
    pub unknown: Vec<FactError>,
}

fn in_words<S: serde::Serializer>(errors: &[FactError], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(errors.iter().map(ToString::to_string))
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// All threads of its core, itself included.
    pub siblings: Cpus,
    /// Package.
    pub package: Option<u32>,
    /// NUMA node.
    pub node: Option<u32>,
    /// CPUs that share its last-level cache, itself included.
    pub cache: Option<Cpus>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Driver, of a device.
    pub driver: Option<String>,
    /// PCI address, `0000:3b:00.0`.
    pub pci: Option<String>,
    /// NUMA node of the device; `None`: no device, or the firmware does not say (-1).
    pub node: Option<u32>,
    /// Whether it is up.
    pub up: bool,
    /// Combined queues now, and at most; `None`: not told, or none.
    pub queues: Option<Queues>,
    /// Its interrupts, queues in order first.
    pub irqs: Vec<InterfaceIrq>,
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// Packets received since it was made.
    pub rx_packets: Option<u64>,
    /// Whether packets are handled by kernel threads `napi/IF-N` instead of softirqs.
    pub threaded: bool,
    /// Interfaces below it, of a bond, bridge or VLAN.
    pub lower: Vec<String>,
}

/// Combined queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Now.
    pub now: u32,
    /// At most.
    pub most: u32,
}

/// An interrupt of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceIrq {
    /// Its number.
    pub irq: u32,
    /// The queue it is of; `None`: of none (configuration, events).
    pub queue: Option<u32>,
}

/// A receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RxQueue {
    /// Its number.
    pub queue: u32,
    /// CPUs that its packets are handed to in software; empty: those of its interrupt.
    pub rps_cpus: Option<Cpus>,
    /// Entries of its flow table; above 0, and with `net.core.rps_sock_flow_entries` above 0, packets follow the
    /// application to its CPU.
    pub rps_flow_cnt: Option<u64>,
}

/// A transmit queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TxQueue {
    /// Its number.
    pub queue: u32,
    /// CPUs that use it; empty: any; `None`: cannot be set.
    pub xps_cpus: Option<Cpus>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// Who asked for it, as in `/proc/interrupts`.
    pub name: String,
    /// CPUs it may go to.
    pub affinity: Option<Cpus>,
    /// CPUs it goes to; stale until the next one comes.
    pub effective: Option<Cpus>,
    /// How many came since boot, on each online CPU in the order of [`Topology::cpus`].
    pub counts: Vec<u64>,
}

/// What one CPU did since boot. Times are ticks of 1/100 s (`USER_HZ`), from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuLoad {
    /// CPU.
    pub cpu: u32,
    /// Time of tasks: user, nice and system.
    pub tasks_ticks: u64,
    /// Time of softirqs.
    pub softirq_ticks: u64,
    /// Time of interrupts.
    pub irq_ticks: u64,
    /// Time of the hypervisor.
    pub steal_ticks: u64,
    /// Time without work, idle and iowait.
    pub idle_ticks: u64,
    /// Softirqs NET_RX, from `/proc/softirqs`.
    pub net_rx: u64,
    /// Softirqs NET_TX.
    pub net_tx: u64,
    /// Packets dropped since the backlog was full, from `/proc/net/softnet_stat`.
    pub backlog_dropped: u64,
    /// Times that NET_RX had to stop with packets left.
    pub time_squeeze: u64,
}

/// The hierarchy with the cpuset controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpusets {
    /// Its interface.
    pub version: Version,
    /// Where it is mounted.
    pub mount: String,
    /// Whether the other version is mounted, too (hybrid).
    pub hybrid: bool,
    /// Version 2: whether the children of the root have the controller.
    pub enabled: bool,
    /// All groups, parents before children, the root first.
    pub groups: Vec<Group>,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Below the mount: `/` is the root.
    pub path: String,
    /// What is written in `cpuset.cpus`. Version 2: empty means those of the parent; `None` where it has no such file.
    pub cpus: Option<Cpus>,
    /// CPUs that its tasks get; those of its parent where it does not have the controller.
    pub effective: Option<Cpus>,
    /// Version 1: `cpuset.mems`, which a group needs before it can have tasks.
    pub mems: Option<String>,
    /// Version 1: `cpuset.cpu_exclusive`.
    pub exclusive: bool,
    /// Version 1: `cpuset.sched_load_balance`.
    pub balanced: bool,
    /// Version 2: `cpuset.cpus.partition`.
    pub partition: Option<String>,
    /// Tasks in it, kernel threads included.
    pub tasks: u32,
    /// How many of these are threads of the kernel.
    pub kernel_tasks: u32,
    /// Whose it is.
    pub owner: Owner,
}

/// Whose a cgroup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Owner {
    /// The root.
    Root,
    /// Made by `isolate`.
    Ours,
    /// The kubelet's: all pods, a class of them, a pod, or a container in it.
    Kubelet {
        /// Uid of the pod.
        pod: Option<String>,
        /// Id of the container.
        container: Option<String>,
    },
    /// A unit of systemd: slice, service or scope.
    Systemd {
        /// Its name.
        unit: String,
    },
    /// Somebody else's.
    Other,
}

/// The kubelet's CPU manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kubelet {
    /// Its policy, `none` or `static`.
    pub policy: String,
    /// CPUs that containers share; empty under `none`.
    pub shared: Cpus,
    /// CPUs that containers have to themselves.
    pub exclusive: Vec<ExclusiveCpus>,
    /// `reservedSystemCPUs` of its configuration, where that can be read.
    pub reserved: Option<Cpus>,
}

/// CPUs that one container has to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExclusiveCpus {
    /// Uid of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Its CPUs.
    pub cpus: Cpus,
}

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    /// Process.
    pub pid: u32,
    /// Interrupts that it leaves alone; `None`: it cannot be asked (no socket).
    pub banned: Option<Vec<u32>>,
    /// Its systemd unit.
    pub unit: Option<String>,
}

/// A running tuned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tuned {
    /// Process.
    pub pid: u32,
    /// Active profile.
    pub profile: Option<String>,
}

/// What was decided at boot, and cannot be changed without another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Boot {
    /// Identity of this run of the machine.
    pub id: String,
    /// `uname -r`.
    pub kernel: String,
    /// `isolcpus=`.
    pub isolated: Cpus,
    /// `nohz_full=`.
    pub nohz_full: Cpus,
    /// `rcu_nocbs=`.
    pub rcu_nocbs: Cpus,
    /// `irqaffinity=`.
    pub irqaffinity: Option<Cpus>,
}

/// A thread that may not run on every CPU that its cgroup has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinnedTask {
    /// Thread.
    pub tid: u32,
    /// Process.
    pub pid: u32,
    /// When it was started, ticks since boot.
    pub start_ticks: u64,
    /// Its name.
    pub comm: String,
    /// CPUs it may run on.
    pub allowed: Cpus,
    /// A thread of the kernel.
    pub kernel: bool,
    /// Nobody may change its CPUs (`PF_NO_SETAFFINITY`).
    pub bound: bool,
    /// Its cgroup, below the mount.
    pub group: String,
}

impl Topology {
    /// Reads all of it. What cannot be read is left out, and is in [`Topology::unknown`].
    pub fn read(files: &Host) -> Topology {
        let reading = &mut Reading::new(files);
        let cpus = cpus::read(reading);
        let online: Cpus = cpus.iter().map(|cpu| cpu.number).collect();
        let irqs = irqs::read(reading, &cpus);
        let tasks = tasks::scan(reading, &online);
        let cpusets = cpusets::read(reading, &tasks.kernel);
        let in_groups = cpusets.as_ref().map(|(cpusets, place)| (cpusets, place));
        Topology {
            interfaces: interfaces::read(reading, &irqs),
            load: load::read(reading, &cpus),
            balanced: load::balanced(reading),
            kubelet: kubelet::read(reading),
            irqbalance: balancers::irqbalance(reading, &tasks),
            tuned: balancers::tuned(reading, &tasks),
            boot: boot::read(reading, &online),
            pinned: tasks::pinned(reading, &tasks, &online, in_groups),
            rps_sock_flow_entries: reading.number("/proc/sys/net/core/rps_sock_flow_entries"),
            cpus,
            irqs,
            cpusets: cpusets.map(|(cpusets, _)| cpusets),
            unknown: std::mem::take(&mut reading.unknown),
        }
    }

    /// All online CPUs.
    pub fn online(&self) -> Cpus {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// An interface by its name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}
