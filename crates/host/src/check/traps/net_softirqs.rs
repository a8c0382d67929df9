//! Network softirqs run on the CPUs that the process may use, and preempt its threads.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::remedy;
use super::{Trap, by_cpu, percent, rate, severity};
use spangap_model::Cause;
use spangap_model::Cpus;
use std::collections::BTreeMap;

pub const TRAP: Trap = Trap { name: "net-softirqs", causes: &[Cause::SoftirqOnCpu], look };

/// Share of a CPU's time spent in interrupts and softirqs.
const HIGH: f64 = 0.20;
const MEDIUM: f64 = 0.05;
const LOW: f64 = 0.02;
/// Softirqs a second on one CPU that are a trap even if they take little time in total: each of them can hit a
/// call.
const LOW_PER_SECOND: f64 = 1_000.0;
/// Below this rate, softirq time is not due to the network.
const NETWORK_PER_SECOND: f64 = 50.0;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (seconds, cpus) = (look.seconds()?, look.cpus()?);
    let rows = look.happened(|counters| &counters.softirqs)?;
    let mut network: BTreeMap<u32, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.name == "NET_RX" || row.name == "NET_TX") {
        for (cpu, count) in row.counts.iter().filter(|(cpu, _)| cpus.contains(**cpu)) {
            *network.entry(*cpu).or_default() += count;
        }
    }
    let most = network.values().copied().max().unwrap_or(0);
    let times = look.times();
    let of_cpu = |cpu: u32| {
        let times = times.as_ref().ok()?.get(&cpu)?;
        Some(((times.irq + times.softirq) as f64, times.total() as f64))
    };
    let share = network
        .iter()
        .filter(|(_, count)| **count as f64 / seconds >= NETWORK_PER_SECOND)
        .filter_map(|(cpu, _)| of_cpu(*cpu).map(|(part, of)| (*cpu, part, of)))
        .max_by(|a, b| (a.1 / a.2.max(1.0)).total_cmp(&(b.1 / b.2.max(1.0))));
    let by_time = share.and_then(|(_, part, of)| severity(part / of.max(1.0), HIGH, MEDIUM, LOW));
    let by_rate = (most as f64 / seconds >= LOW_PER_SECOND).then_some(Severity::Low);
    // For the whole machine, packet processing somewhere is normal; a CPU full of it is not.
    let found =
        if look.whole_machine() { by_time.filter(|by| *by == Severity::High) } else { by_time.or(by_rate) };
    let total: u64 = network.values().sum();
    let hit: Cpus = network.iter().filter(|(_, count)| **count > 0).map(|(cpu, _)| *cpu).collect();
    let rates = by_cpu(network.into_iter(), seconds);
    let took = share.filter(|_| found.is_some()).map_or(String::new(), |(cpu, part, of)| {
        format!("; interrupts and softirqs took {} of CPU {cpu}", percent(part, of))
    });
    let summary = match hit.is_empty() {
        true => "none".to_owned(),
        false => format!("{} on {}{took}", rate(total, seconds), hit.words()),
    };
    let mut judged = FindingDraft::when(found, summary)
        .evidence(format!("NET_RX and NET_TX: {rates}"), "/proc/softirqs")
        .means(
            "a softirq runs in place of whatever had the CPU; a thread in the middle of a call waits until the \
             packets are handled. The process's own loopback traffic is included",
        );
    if let Some((cpu, part, of)) = share {
        judged = judged.evidence(
            format!("CPU {cpu}: {:.0} ms of {:.0} ms in interrupts and softirqs", part * 10.0, of * 10.0),
            "/proc/stat",
        );
    }
    if let Err(why) = times {
        judged = judged.unknown(why);
    }
    for pid in &look.pids {
        judged =
            judged.fix(format!("spangap host thieves --pid {pid}  # tells which device's packets they are"));
    }
    let interrupts = look.happened(|counters| &counters.interrupts).unwrap_or_default();
    let came = |number: u32| {
        let row = interrupts.iter().find(|row| row.name == number.to_string());
        row.is_some_and(|row| row.counts.iter().any(|(cpu, count)| cpus.contains(*cpu) && *count > 0))
    };
    let irqs: Vec<u32> = look.nics.iter().flatten().flat_map(|nic| &nic.irqs).map(|irq| irq.number).collect();
    let irqs: Vec<u32> = irqs.into_iter().filter(|number| came(*number)).collect();
    if irqs.is_empty() && !interrupts.is_empty() {
        // Nothing to move: the packets originate on this machine, or another CPU steered them here.
        return Ok(judged.evidence(
            "no interface interrupted here: the packets are from loopback or veth, or were steered here by RPS",
            "/proc/interrupts",
        ));
    }
    Ok(remedy::move_irqs(judged, look, &irqs))
}
