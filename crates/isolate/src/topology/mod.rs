//! The machine: CPUs, interfaces with their interrupts, cgroups, and services that move tasks and interrupts.
//!
//! Read from files below any root, so a copy of another machine works as well. Two files exist only in copies:
//! `/ethtool/IF` holds the output of `ethtool -l IF`, and `/irqbalance/setup` the response of irqbalance to
//! `setup` on its socket.

mod balancers;
mod boot;
mod cpus;
mod cpusets;
#[cfg(test)]
pub(crate) mod generated;
mod interfaces;
mod irqs;
mod kubelet;
mod load;
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

/// A machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Topology {
    /// Online CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// Network interfaces of this namespace, by name.
    pub interfaces: Vec<Interface>,
    /// Interrupts, by number.
    pub irqs: Vec<Irq>,
    /// Load of each online CPU since boot.
    pub load: Vec<CpuLoad>,
    /// CPUs that the scheduler balances; `None` if unknown (`/proc/schedstat`).
    pub balanced: Option<Cpus>,
    /// The cgroups that restrict CPUs; `None` if no cpuset controller is mounted.
    pub cpusets: Option<Cpusets>,
    /// The kubelet's CPU manager, if any.
    pub kubelet: Option<Kubelet>,
    /// A running irqbalance.
    pub irqbalance: Option<Irqbalance>,
    /// A running tuned.
    pub tuned: Option<Tuned>,
    /// Boot settings.
    pub boot: Boot,
    /// Threads that may not use all CPUs of their cgroup, and all threads `napi/IF-N`.
    pub pinned: Vec<PinnedTask>,
    /// `net.core.rps_sock_flow_entries`: above 0, packets can follow applications to their CPUs.
    pub rps_sock_flow_entries: Option<u64>,
    /// Files that could not be read, and why.
    #[serde(serialize_with = "in_words")]
    pub unknown: Vec<FactError>,
}

fn in_words<S: serde::Serializer>(errors: &[FactError], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(errors.iter().map(ToString::to_string))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    pub number: u32,
    /// All threads of its core, itself included.
    pub siblings: Cpus,
    pub package: Option<u32>,
    /// NUMA node.
    pub node: Option<u32>,
    /// CPUs that share its last-level cache, itself included.
    pub cache: Option<Cpus>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    /// Driver, for a device.
    pub driver: Option<String>,
    /// PCI address, `0000:3b:00.0`.
    pub pci: Option<String>,
    /// NUMA node of the device; `None` without a device, or if the firmware does not say (-1).
    pub node: Option<u32>,
    /// Whether it is up.
    pub up: bool,
    /// Current and maximum number of combined queues; `None` if unknown or none.
    pub queues: Option<Queues>,
    /// Interrupts; those of queues first, in queue order.
    pub irqs: Vec<InterfaceIrq>,
    pub rx: Vec<RxQueue>,
    pub tx: Vec<TxQueue>,
    /// Packets received since it was created.
    pub rx_packets: Option<u64>,
    /// Whether kernel threads `napi/IF-N` process packets instead of softirqs.
    pub threaded: bool,
    /// Lower interfaces of a bond, bridge or VLAN.
    pub lower: Vec<String>,
}

/// Combined queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Current number.
    pub now: u32,
    /// Maximum.
    pub most: u32,
}

/// An interrupt of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceIrq {
    pub irq: u32,
    /// Queue; `None` for an interrupt without one (configuration, events).
    pub queue: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RxQueue {
    pub queue: u32,
    /// CPUs that its packets are steered to by software; empty: those of its interrupt.
    pub rps_cpus: Option<Cpus>,
    /// Size of its flow table; above 0, and with `net.core.rps_sock_flow_entries` above 0, packets follow the
    /// application to its CPU.
    pub rps_flow_cnt: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TxQueue {
    pub queue: u32,
    /// CPUs that transmit through it; empty: any; `None`: not configurable.
    pub xps_cpus: Option<Cpus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irq {
    pub number: u32,
    /// Label in `/proc/interrupts`.
    pub name: String,
    /// Configured affinity.
    pub affinity: Option<Cpus>,
    /// Effective affinity; stale until the next interrupt.
    pub effective: Option<Cpus>,
    /// Count since boot on each online CPU, in the order of [`Topology::cpus`].
    pub counts: Vec<u64>,
}

/// Load of one CPU since boot. Times are ticks of 1/100 s (`USER_HZ`), from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuLoad {
    pub cpu: u32,
    /// Time running tasks: user, nice and system.
    pub tasks_ticks: u64,
    /// Time in softirqs.
    pub softirq_ticks: u64,
    /// Time in interrupts.
    pub irq_ticks: u64,
    /// Time taken by the hypervisor.
    pub steal_ticks: u64,
    /// Idle time, including iowait.
    pub idle_ticks: u64,
    /// NET_RX softirqs, from `/proc/softirqs`.
    pub net_rx: u64,
    /// NET_TX softirqs.
    pub net_tx: u64,
    /// Packets dropped because the backlog was full, from `/proc/net/softnet_stat`.
    pub backlog_dropped: u64,
    /// Times that NET_RX stopped with packets left.
    pub time_squeeze: u64,
}

/// The hierarchy with the cpuset controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpusets {
    /// Cgroup version.
    pub version: Version,
    /// Mount point.
    pub mount: String,
    /// Whether the other version is mounted, too (hybrid).
    pub hybrid: bool,
    /// Version 2: whether the root's children have the controller.
    pub enabled: bool,
    /// All groups, parents before children, the root first.
    pub groups: Vec<Group>,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Path below the mount: `/` is the root.
    pub path: String,
    /// Content of `cpuset.cpus`. Version 2: empty means the parent's; `None` if the file does not exist.
    pub cpus: Option<Cpus>,
    /// Effective CPUs; those of its parent if it lacks the controller.
    pub effective: Option<Cpus>,
    /// Version 1: `cpuset.mems`, which a group needs before it can have tasks.
    pub mems: Option<String>,
    /// Version 1: `cpuset.cpu_exclusive`.
    pub exclusive: bool,
    /// Version 1: `cpuset.sched_load_balance`.
    pub balanced: bool,
    /// Version 2: `cpuset.cpus.partition`.
    pub partition: Option<String>,
    /// Number of tasks, kernel threads included.
    pub tasks: u32,
    /// Number of kernel threads.
    pub kernel_tasks: u32,
    pub owner: Owner,
}

/// Owner of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Owner {
    /// The root group.
    Root,
    /// Made by `isolate`.
    Ours,
    /// The kubelet: the group of all pods, a QoS class, a pod, or a container.
    Kubelet {
        /// Pod uid.
        pod: Option<String>,
        /// Container id.
        container: Option<String>,
    },
    /// A systemd unit: slice, service or scope.
    Systemd { unit: String },
    /// Anybody else.
    Other,
}

/// The kubelet's CPU manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kubelet {
    /// Policy, `none` or `static`.
    pub policy: String,
    /// CPUs that containers share; empty under `none`.
    pub shared: Cpus,
    /// CPUs that containers own exclusively.
    pub exclusive: Vec<ExclusiveCpus>,
    /// `reservedSystemCPUs` of its configuration, if readable.
    pub reserved: Option<Cpus>,
}

/// CPUs that one container owns exclusively.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExclusiveCpus {
    /// Pod uid.
    pub pod: String,
    pub container: String,
    pub cpus: Cpus,
}

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    pub pid: u32,
    /// Interrupts that it leaves alone; `None` if it cannot be asked (no socket).
    pub banned: Option<Vec<u32>>,
    /// Systemd unit.
    pub unit: Option<String>,
}

/// A running tuned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tuned {
    pub pid: u32,
    /// Active profile.
    pub profile: Option<String>,
}

/// Boot settings, which only a reboot changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Boot {
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

/// A thread that may not use all CPUs of its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinnedTask {
    pub tid: u32,
    pub pid: u32,
    /// Start time, in ticks since boot.
    pub start_ticks: u64,
    pub comm: String,
    /// CPUs it may run on.
    pub allowed: Cpus,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// Whether its affinity is immutable (`PF_NO_SETAFFINITY`).
    pub bound: bool,
    /// Cgroup, below the mount.
    pub group: String,
}

impl Topology {
    /// Reads the machine. Unreadable files are left out, and listed in [`Topology::unknown`].
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

    /// An interface by name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}
