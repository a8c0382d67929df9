//! The CPUs of a machine with what is on them: the shape in JSON, and what the text, the picture and the page show.

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
use crate::topology::{CpuLoad, Irq, Topology};
use serde::Serialize;
use spangap_model::Cpus;
use spangap_model::evidence::Testimony;
use std::collections::{BTreeMap, BTreeSet};

/// A machine at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// What it was.
    pub topology: &'a Topology,
    /// For how long it had been up, nanoseconds; `None`: not told.
    pub uptime_ns: Option<u64>,
}

/// What is known besides the files of the machine.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Interfaces to be listed; empty: all.
    pub interfaces: Vec<String>,
    /// CPUs for the network of the plan that is applied.
    pub applied: Option<Cpus>,
    /// What a plan for these interfaces would be, when none is applied and somebody asked.
    pub planned: Option<Result<Plan, Vec<Refusal>>>,
    /// The wait between the readings was cut short.
    pub interrupted: bool,
    /// What is not known besides what [`Topology::unknown`] tells, and why.
    pub unknown: Vec<String>,
}

/// The CPUs of a machine, with what is on them.
#[derive(Clone, Debug, Serialize)]
pub struct ShowReport {
    /// The same as values that every instrument speaks in.
    pub evidence: Testimony,
    /// Time that the shares and rates below are of, nanoseconds; `None`: not told, and there are no rates.
    pub duration_ns: Option<u64>,
    /// There was one reading only: shares and rates are of the time since boot.
    pub since_boot: bool,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// CPUs for the network of the plan that is applied, or of the group that `isolate` made.
    pub net_cpus: Option<Cpus>,
    /// What a plan would choose.
    pub planned: Option<PlannedReport>,
    /// What is not known besides what [`Topology::unknown`] tells, and why.
    pub unknown: Vec<String>,
    /// One for each online CPU.
    pub cpus: Vec<CpuReport>,
    /// The machine as it is now; of its interfaces those that were asked for.
    pub topology: Topology,
}

/// What a plan would choose.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedReport {
    /// CPUs for the network; `None`: there is no plan.
    pub net_cpus: Option<Cpus>,
    /// Why these, or why there is none, one sentence each.
    pub why: Vec<String>,
}

/// A CPU, and what is on it. Shares are of the time of [`ShowReport::duration_ns`], 0 to 1; `None`: not told.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: u32,
    /// Share of softirqs.
    pub softirq_share: Option<f64>,
    /// Share of interrupts.
    pub irq_share: Option<f64>,
    /// Share of tasks.
    pub tasks_share: Option<f64>,
    /// Share that the hypervisor took.
    pub steal_share: Option<f64>,
    /// Share without work.
    pub idle_share: Option<f64>,
    /// Softirqs NET_RX, a second.
    pub net_rx_per_s: Option<f64>,
    /// Softirqs NET_TX, a second.
    pub net_tx_per_s: Option<f64>,
    /// Interrupts of devices, a second.
    pub interrupts_per_s: Option<f64>,
    /// Packets dropped since the backlog was full, in this time.
    pub backlog_dropped: u64,
    /// Times that NET_RX had to stop with packets left, in this time.
    pub time_squeeze: u64,
    /// Interrupts of interfaces that go here, or came here in this time.
    pub interrupts: Vec<InterruptReport>,
    /// Receive queues whose packets are handed here in software (RPS).
    pub steered: Vec<SteeredReport>,
    /// For the network, by the plan that is applied.
    pub net: bool,
    /// A plan would choose it for the network.
    pub planned: bool,
    /// Isolated at boot (`isolcpus=`).
    pub boot_isolated: bool,
    /// The scheduler balances tasks onto it; `None`: not told.
    pub balanced: Option<bool>,
    /// Containers that have it to themselves, `POD/CONTAINER`.
    pub exclusive_to: Vec<String>,
    /// Cgroups that are held to half of the CPUs at most, this one among them.
    pub groups: Vec<String>,
}

/// An interrupt of an interface on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterruptReport {
    /// Interface.
    pub interface: String,
    /// Number of the interrupt.
    pub irq: u32,
    /// Queue; `None`: it is of none (configuration, events).
    pub queue: Option<u32>,
    /// It goes here now. Else it only came here in this time.
    pub goes_here: bool,
    /// How many came here, a second.
    pub per_s: Option<f64>,
}

/// Packets handed to a CPU in software.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SteeredReport {
    /// Interface.
    pub interface: String,
    /// Receive queue.
    pub queue: u32,
}

impl ShowReport {
    /// Lays two readings of a machine over each other; without the first, figures are those since boot.
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
        let over = Over::new(before.map(|before| before.topology), &report);
        report.cpus = report.topology.cpus.iter().map(|cpu| report.cpu(cpu.number, &over)).collect();
        report.evidence = evidence::evidence(&report);
        report
    }

    fn cpu(&self, cpu: u32, over: &Over<'_>) -> CpuReport {
        let topology = &self.topology;
        let load = over.load(cpu);
        let whole = load.map_or(0, |load| {
            load.tasks_ticks + load.softirq_ticks + load.irq_ticks + load.steal_ticks + load.idle_ticks
        });
        let share = |ticks: fn(&CpuLoad) -> u64| {
            load.filter(|_| whole > 0).map(|load| ticks(&load) as f64 / whole as f64)
        };
        let planned = self.planned.as_ref().and_then(|planned| planned.net_cpus.as_ref());
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
            groups: over.groups.get(&cpu).cloned().unwrap_or_default(),
        }
    }
}

/// CPUs of the group that `isolate` made for the network.
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

/// What lies between two readings, by CPU.
struct Over<'a> {
    now: &'a Topology,
    before: Option<&'a Topology>,
    duration_ns: Option<u64>,
    /// Interrupts of all devices.
    all_irqs: BTreeMap<u32, u64>,
    of_interfaces: BTreeMap<u32, Vec<InterruptReport>>,
    steered: BTreeMap<u32, Vec<SteeredReport>>,
    groups: BTreeMap<u32, Vec<String>>,
}

impl<'a> Over<'a> {
    fn new(before: Option<&'a Topology>, report: &'a ShowReport) -> Over<'a> {
        let now = &report.topology;
        let mut over = Over {
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
                // Since boot it may have come to any CPU at some time.
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
        for (cpus, name) in groups::restricted(now) {
            for cpu in cpus.iter() {
                over.groups.entry(cpu).or_default().push(name.clone());
            }
        }
        over
    }

    /// How often an interrupt came, by CPU.
    fn counts(&self, irq: &Irq) -> BTreeMap<u32, u64> {
        let by_cpu = |topology: &Topology, irq: &Irq| -> BTreeMap<u32, u64> {
            topology.cpus.iter().map(|cpu| cpu.number).zip(irq.counts.iter().copied()).collect()
        };
        let mut counts = by_cpu(self.now, irq);
        let Some(before) = self.before else { return counts };
        // A number that is another's by now begins anew.
        let same = before.irqs.iter().find(|old| old.number == irq.number && old.name == irq.name);
        for (cpu, count) in same.map(|old| by_cpu(before, old)).unwrap_or_default() {
            if let Some(now) = counts.get_mut(&cpu) {
                *now = now.checked_sub(count).unwrap_or(*now);
            }
        }
        counts
    }

    /// What a CPU did meanwhile.
    fn load(&self, cpu: u32) -> Option<CpuLoad> {
        let of = |topology: &Topology| topology.load.iter().find(|load| load.cpu == cpu).copied();
        let now = of(self.now)?;
        let Some(before) = self.before else { return Some(now) };
        // A CPU that came online meanwhile tells nothing of this time.
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

/// Where an interrupt goes: what the controller was told, else where it may go. What it was told is old until the next
/// one comes: where that is none of the CPUs it may go to, it does not count.
fn goes(irq: &Irq) -> Cpus {
    let may = irq.affinity.as_ref();
    let told = irq.effective.as_ref().map(|told| may.map_or(told.clone(), |may| told.both(may)));
    told.filter(|cpus| !cpus.is_empty()).or_else(|| may.cloned()).unwrap_or_default()
}
