//! The CPUs of a machine with everything placed on them: JSON shape, text, picture, page.

mod evidence;
mod groups;
mod item;
mod layout;
mod lists;
mod map;
pub mod page;
pub mod picture;
#[cfg(test)]
mod tests;
pub mod text;
pub(super) mod words;

use crate::plan::{Plan, Refusal};
use crate::topology::{CpuLoad, Group, Irq, Topology};
use serde::Serialize;
use spangap_model::Cpus;
use spangap_model::evidence::Testimony;
use std::collections::{BTreeMap, BTreeSet};

/// The machine at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub topology: &'a Topology,
    /// Uptime in nanoseconds; `None` if unknown.
    pub uptime_ns: Option<u64>,
}

/// Facts beyond the machine's files.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Interfaces to list; empty for all.
    pub interfaces: Vec<String>,
    /// The network's CPUs under the applied plan.
    pub applied: Option<Cpus>,
    /// The plan that these interfaces would get, if none is applied and one was requested.
    pub planned: Option<Result<Plan, Vec<Refusal>>>,
    /// Whether the wait between the readings was interrupted.
    pub interrupted: bool,
    /// Further unknowns besides [`Topology::unknown`], with reasons.
    pub unknown: Vec<String>,
}

/// The CPUs of a machine with everything placed on them.
#[derive(Clone, Debug, Serialize)]
pub struct ShowReport {
    /// The same as evidence, the common form of all instruments.
    pub evidence: Testimony,
    /// Time that the shares and rates refer to, in nanoseconds; `None` if unknown, which leaves no rates.
    pub duration_ns: Option<u64>,
    /// Whether there was only one reading: shares and rates then refer to the time since boot.
    pub since_boot: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The network's CPUs under the applied plan, or in the group that `isolate` made.
    pub net_cpus: Option<Cpus>,
    /// The choice that a plan would make.
    pub planned: Option<PlannedReport>,
    /// Further unknowns besides [`Topology::unknown`], with reasons.
    pub unknown: Vec<String>,
    /// Online CPUs.
    pub cpus: Vec<CpuReport>,
    /// The machine's current state, with only the requested interfaces.
    pub topology: Topology,
}

/// The choice that a plan would make.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedReport {
    /// The network's CPUs; `None` if there is no plan.
    pub net_cpus: Option<Cpus>,
    /// Reasons for the choice or for the refusal, one sentence each.
    pub why: Vec<String>,
}

/// A CPU and everything placed on it. Shares are fractions of [`ShowReport::duration_ns`]; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuReport {
    pub cpu: u32,
    /// Time in softirqs.
    pub softirq_share: Option<f64>,
    /// Time in interrupts.
    pub irq_share: Option<f64>,
    /// Time running tasks.
    pub tasks_share: Option<f64>,
    /// Time taken by the hypervisor.
    pub steal_share: Option<f64>,
    /// Idle time.
    pub idle_share: Option<f64>,
    /// NET_RX softirqs per second.
    pub net_rx_per_s: Option<f64>,
    /// NET_TX softirqs per second.
    pub net_tx_per_s: Option<f64>,
    /// Device interrupts per second.
    pub interrupts_per_s: Option<f64>,
    /// Packets dropped because the backlog was full.
    pub backlog_dropped: u64,
    /// Times that NET_RX stopped with packets left.
    pub time_squeeze: u64,
    /// Interrupts of interfaces that are directed here, or arrived here.
    pub interrupts: Vec<InterruptReport>,
    /// Receive queues whose packets are steered here by software (RPS).
    pub steered: Vec<SteeredReport>,
    /// Whether the applied plan gives it to the network.
    pub net: bool,
    /// Whether a plan would choose it for the network.
    pub planned: bool,
    /// Whether it was isolated at boot (`isolcpus=`).
    pub boot_isolated: bool,
    /// Whether the scheduler balances tasks onto it; `None` if unknown.
    pub balanced: Option<bool>,
    /// Containers that own it exclusively, `POD/CONTAINER`.
    pub exclusive_to: Vec<String>,
    /// Cgroups confined to at most half of the CPUs, including this one.
    pub groups: Vec<String>,
    /// Those of them that are a container's.
    #[serde(skip)]
    pub container_groups: BTreeSet<String>,
}

/// An interrupt of an interface on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterruptReport {
    pub interface: String,
    pub irq: u32,
    /// Queue; `None` for an interrupt without one (configuration, events).
    pub queue: Option<u32>,
    /// Whether it is directed here; otherwise it only arrived here.
    pub goes_here: bool,
    /// Arrivals per second.
    pub per_s: Option<f64>,
}

/// Packets steered to a CPU by software.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SteeredReport {
    pub interface: String,
    /// Receive queue.
    pub queue: u32,
}

impl ShowReport {
    /// Combines two readings of a machine; without the first one, figures refer to the time since boot.
    pub fn new(before: Option<Reading<'_>>, now: Reading<'_>, known: &Circumstances) -> ShowReport {
        let mut topology = now.topology.clone();
        if !known.interfaces.is_empty() {
            topology.interfaces.retain(|interface| known.interfaces.contains(&interface.name));
        }
        let duration_ns = match before {
            Some(before) => now.uptime_ns.zip(before.uptime_ns).and_then(|(now, then)| now.checked_sub(then)),
            None => now.uptime_ns,
        };
        let net_cpus = known.applied.clone().or_else(|| ours(&topology));
        let mut report = ShowReport {
            evidence: Testimony::default(),
            duration_ns: duration_ns.filter(|ns| *ns > 0),
            since_boot: before.is_none(),
            interrupted: known.interrupted,
            net_cpus,
            planned: known.planned.as_ref().and_then(planned),
            unknown: known.unknown.clone(),
            cpus: Vec::new(),
            topology,
        };
        let over = ReadingDeltas::new(before.map(|before| before.topology), &report);
        report.cpus = report.topology.cpus.iter().map(|cpu| report.cpu(cpu.number, &over)).collect();
        report.evidence = evidence::evidence(&report);
        report
    }

    fn cpu(&self, cpu: u32, over: &ReadingDeltas<'_>) -> CpuReport {
        let topology = &self.topology;
        let load = over.load(cpu);
        let whole = load.map_or(0, |load| {
            load.tasks_ticks + load.softirq_ticks + load.irq_ticks + load.steal_ticks + load.idle_ticks
        });
        let share = |ticks: fn(&CpuLoad) -> u64| {
            load.filter(|_| whole > 0).map(|load| ticks(&load) as f64 / whole as f64)
        };
        let planned = self.planned.as_ref().and_then(|planned| planned.net_cpus.as_ref());
        let restricted = || over.groups.get(&cpu).into_iter().flatten().copied();
        CpuReport {
            cpu,
            softirq_share: share(|load| load.softirq_ticks),
            irq_share: share(|load| load.irq_ticks),
            tasks_share: share(|load| load.tasks_ticks),
            steal_share: share(|load| load.steal_ticks),
            idle_share: share(|load| load.idle_ticks),
            net_rx_per_s: load.and_then(|load| over.per_s(load.net_rx)),
            net_tx_per_s: load.and_then(|load| over.per_s(load.net_tx)),
            interrupts_per_s: over.per_s(over.all_irqs.get(&cpu).copied().unwrap_or(0)),
            backlog_dropped: load.map_or(0, |load| load.backlog_dropped),
            time_squeeze: load.map_or(0, |load| load.time_squeeze),
            interrupts: over.of_interfaces.get(&cpu).cloned().unwrap_or_default(),
            steered: over.steered.get(&cpu).cloned().unwrap_or_default(),
            net: self.net_cpus.as_ref().is_some_and(|net| net.contains(cpu)),
            planned: planned.is_some_and(|net| net.contains(cpu)),
            boot_isolated: topology.boot.isolated.contains(cpu),
            balanced: topology.balanced.as_ref().map(|balanced| balanced.contains(cpu)),
            exclusive_to: topology
                .kubelet
                .iter()
                .flat_map(|kubelet| &kubelet.exclusive)
                .filter(|one| one.cpus.contains(cpu))
                .map(|one| format!("{}/{}", one.pod, one.container))
                .collect(),
            groups: restricted().map(groups::name).collect(),
            container_groups: restricted()
                .filter(|group| groups::is_container(group))
                .map(groups::name)
                .collect(),
        }
    }
}

/// CPUs of the network's group, made by `isolate`.
fn ours(topology: &Topology) -> Option<Cpus> {
    let groups = &topology.cpusets.as_ref()?.groups;
    let net = groups.iter().find(|group| groups::is_net(group))?;
    net.cpus.clone().filter(|cpus| !cpus.is_empty()).or_else(|| net.effective.clone())
}

fn planned(plan: &Result<Plan, Vec<Refusal>>) -> Option<PlannedReport> {
    match plan {
        Ok(plan) => Some(PlannedReport { net_cpus: Some(plan.net_cpus.clone()), why: plan.choice.clone() }),
        Err(refusals) if refusals.is_empty() => None,
        Err(refusals) => {
            let why = refusals.iter().map(|refusal| match &refusal.help {
                Some(help) => format!("{}: {} ({help})", refusal.rule, refusal.why),
                None => format!("{}: {}", refusal.rule, refusal.why),
            });
            Some(PlannedReport { net_cpus: None, why: why.collect() })
        }
    }
}

/// Differences between two readings, by CPU.
struct ReadingDeltas<'a> {
    now: &'a Topology,
    before: Option<&'a Topology>,
    duration_ns: Option<u64>,
    /// Interrupts of all devices.
    all_irqs: BTreeMap<u32, u64>,
    of_interfaces: BTreeMap<u32, Vec<InterruptReport>>,
    steered: BTreeMap<u32, Vec<SteeredReport>>,
    groups: BTreeMap<u32, Vec<&'a Group>>,
}

impl<'a> ReadingDeltas<'a> {
    fn new(before: Option<&'a Topology>, report: &'a ShowReport) -> ReadingDeltas<'a> {
        let now = &report.topology;
        let mut over = ReadingDeltas {
            now,
            before,
            duration_ns: report.duration_ns,
            all_irqs: BTreeMap::new(),
            of_interfaces: BTreeMap::new(),
            steered: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        let counts: BTreeMap<u32, BTreeMap<u32, u64>> =
            now.irqs.iter().map(|irq| (irq.number, over.counts(irq))).collect();
        for (cpu, count) in counts.values().flatten() {
            *over.all_irqs.entry(*cpu).or_default() += count;
        }
        let irqs: BTreeMap<u32, &Irq> = now.irqs.iter().map(|irq| (irq.number, irq)).collect();
        for interface in &now.interfaces {
            for one in &interface.irqs {
                let none = BTreeMap::new();
                let came = counts.get(&one.irq).unwrap_or(&none);
                let goes = irqs.get(&one.irq).map(|irq| goes(irq)).unwrap_or_default();
                // Since boot it may have arrived at any CPU at some time.
                let recently = came.iter().filter(|(_, count)| before.is_some() && **count > 0);
                let cpus: BTreeSet<u32> = goes.iter().chain(recently.map(|(cpu, _)| *cpu)).collect();
                for cpu in cpus {
                    let report = InterruptReport {
                        interface: interface.name.clone(),
                        irq: one.irq,
                        queue: one.queue,
                        goes_here: goes.contains(cpu),
                        per_s: over.per_s(came.get(&cpu).copied().unwrap_or(0)),
                    };
                    over.of_interfaces.entry(cpu).or_default().push(report);
                }
            }
            for rx in &interface.rx {
                for cpu in rx.rps_cpus.iter().flat_map(Cpus::iter) {
                    let steered = SteeredReport { interface: interface.name.clone(), queue: rx.queue };
                    over.steered.entry(cpu).or_default().push(steered);
                }
            }
        }
        for (cpus, group) in groups::restricted(now) {
            for cpu in cpus.iter() {
                over.groups.entry(cpu).or_default().push(group);
            }
        }
        over
    }

    /// Arrivals of an interrupt, by CPU.
    fn counts(&self, irq: &Irq) -> BTreeMap<u32, u64> {
        let by_cpu = |topology: &Topology, irq: &Irq| -> BTreeMap<u32, u64> {
            topology.cpus.iter().map(|cpu| cpu.number).zip(irq.counts.iter().copied()).collect()
        };
        let mut counts = by_cpu(self.now, irq);
        let Some(before) = self.before else { return counts };
        // The counter of a number that now belongs to another interrupt starts anew.
        let same = before.irqs.iter().find(|old| old.number == irq.number && old.name == irq.name);
        for (cpu, count) in same.map(|old| by_cpu(before, old)).unwrap_or_default() {
            if let Some(now) = counts.get_mut(&cpu) {
                *now = now.checked_sub(count).unwrap_or(*now);
            }
        }
        counts
    }

    /// Load of a CPU between the readings.
    fn load(&self, cpu: u32) -> Option<CpuLoad> {
        let of = |topology: &Topology| topology.load.iter().find(|load| load.cpu == cpu).copied();
        let now = of(self.now)?;
        let Some(before) = self.before else { return Some(now) };
        // A CPU that came online in between has no figures.
        let old = of(before)?;
        let less = |field: fn(&CpuLoad) -> u64| field(&now).saturating_sub(field(&old));
        Some(CpuLoad {
            cpu,
            tasks_ticks: less(|load| load.tasks_ticks),
            softirq_ticks: less(|load| load.softirq_ticks),
            irq_ticks: less(|load| load.irq_ticks),
            steal_ticks: less(|load| load.steal_ticks),
            idle_ticks: less(|load| load.idle_ticks),
            net_rx: less(|load| load.net_rx),
            net_tx: less(|load| load.net_tx),
            backlog_dropped: less(|load| load.backlog_dropped),
            time_squeeze: less(|load| load.time_squeeze),
        })
    }

    fn per_s(&self, count: u64) -> Option<f64> {
        self.duration_ns.map(|ns| count as f64 * 1e9 / ns as f64)
    }
}

/// Target of an interrupt: the effective affinity, else the configured one. The effective affinity is stale
/// until the next interrupt; it is ignored if it contradicts the configured one.
fn goes(irq: &Irq) -> Cpus {
    let may = irq.affinity.as_ref();
    let told = irq.effective.as_ref().map(|told| may.map_or(told.clone(), |may| told.both(may)));
    told.filter(|cpus| !cpus.is_empty()).or_else(|| may.cloned()).unwrap_or_default()
}
