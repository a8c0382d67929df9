//! The SMT sibling of a CPU in use handles interrupts of interfaces.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::remedy;
use super::{Trap, by_cpu};
use spangap_model::Cause;
use spangap_model::Cpus;
use std::collections::BTreeMap;

pub const TRAP: Trap = Trap { name: "smt", causes: &[Cause::SoftirqOnCpu], look };

/// Interrupts a second from which on a sibling disturbs.
const LOW: f64 = 500.0;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.siblings.values().all(|core| core.len() < 2) {
        return Ok(FindingDraft::fine("one thread per core"));
    }
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let (cpus, seconds) = (look.cpus()?, look.seconds()?);
    let core = |cpu: u32| look.siblings.get(&cpu).cloned().unwrap_or_default();
    let neighbours = cpus.iter().fold(Cpus::default(), |all, cpu| all.either(&core(cpu))).without(&cpus);
    if neighbours.is_empty() {
        return Ok(FindingDraft::fine("it may use both threads of its cores"));
    }
    let rows = look.happened(|counters| &counters.interrupts)?;
    let irqs: Vec<u32> = look.nics.as_ref()?.iter().flat_map(|nic| &nic.irqs).map(|irq| irq.number).collect();
    let mut landed: BTreeMap<u32, u64> = BTreeMap::new();
    let mut guilty = Vec::new();
    for row in rows.iter().filter(|row| row.name.parse().is_ok_and(|number| irqs.contains(&number))) {
        for (cpu, count) in row.counts.iter().filter(|(cpu, count)| neighbours.contains(**cpu) && **count > 0)
        {
            *landed.entry(*cpu).or_default() += count;
            guilty.extend(row.name.parse::<u32>().ok());
        }
    }
    guilty.dedup();
    let total: u64 = landed.values().sum();
    let found = (total as f64 / seconds >= LOW).then_some(Severity::Low);
    let rates = by_cpu(landed.iter().map(|(cpu, count)| (*cpu, *count)), seconds);
    let pairs: Vec<String> = landed
        .keys()
        .take(3)
        .map(|cpu| format!("{cpu} shares its core with {}", core(*cpu).both(&cpus)))
        .collect();
    let summary = if found.is_some() {
        format!("interrupts of interfaces on neighbours: {rates}")
    } else {
        format!("neighbours {neighbours} get no interrupts of interfaces to speak of")
    };
    let mut judged = FindingDraft::when(found, summary)
        .evidence(format!("interrupts of interfaces: {rates}"), "/proc/interrupts")
        .means("two threads of a core share its units and caches: while one handles packets, the other runs at about half speed");
    if !pairs.is_empty() {
        judged = judged.evidence(
            format!("CPU {}", pairs.join(", ")),
            "/sys/devices/system/cpu/cpuN/topology/thread_siblings_list",
        );
    }
    let free =
        look.online.as_ref().map(|online| online.without(&cpus).without(&neighbours)).unwrap_or_default();
    if free.is_empty() {
        return Ok(
            remedy::move_irqs(judged, look, &[]).fix("# no core is free of the process: give it fewer")
        );
    }
    let guilty: Vec<String> = guilty.iter().map(u32::to_string).collect();
    Ok(judged.fix(format!(
        "for irq in {}; do echo {free} > /proc/irq/$irq/smp_affinity_list; done",
        guilty.join(" ")
    )))
}
