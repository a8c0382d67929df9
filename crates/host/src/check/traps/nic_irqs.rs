//! Interrupts of network interfaces arrive on the CPUs that the process may use.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::remedy;
use super::{Trap, by_cpu, counted, rate};
use spangap_model::Cause;
use spangap_model::Cpus;
use std::collections::BTreeMap;

pub const TRAP: Trap = Trap { name: "nic-irqs", causes: &[Cause::SoftirqOnCpu], look };

/// Interrupts a second, on all CPUs of the process together.
const HIGH: f64 = 20_000.0;
const MEDIUM: f64 = 1_000.0;
const LOW: f64 = 20.0;
/// Maximum number of evidence lines.
const SHOWN: usize = 4;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (seconds, cpus) = (look.seconds()?, look.cpus()?);
    let rows = look.happened(|counters| &counters.interrupts)?;
    let rows: BTreeMap<&str, _> = rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let nics = look.nics.as_ref()?;
    let mut landed: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut lines, mut aimed, mut all) = (Vec::new(), Vec::new(), 0);
    for nic in nics {
        for irq in &nic.irqs {
            let Some(row) = rows.get(irq.number.to_string().as_str()) else { continue };
            all += 1;
            let here: Vec<(u32, u64)> = row
                .counts
                .iter()
                .filter(|(cpu, _)| cpus.contains(**cpu))
                .map(|(cpu, count)| (*cpu, *count))
                .collect();
            let count: u64 = here.iter().map(|(_, count)| count).sum();
            for (cpu, count) in &here {
                *landed.entry(*cpu).or_default() += count;
            }
            if count > 0 {
                lines.push((count, irq, by_cpu(here.into_iter(), seconds)));
            }
            if count > 0 || irq.affinity.as_ref().is_ok_and(|may| !may.both(&cpus).is_empty()) {
                aimed.push(irq.number);
            }
        }
    }
    if all == 0 {
        let with_hardware = nics.iter().any(|nic| nic.driver.is_some());
        let why = if with_hardware {
            "no interrupt could be matched to an interface by its name or device"
        } else {
            "there is no hardware interface here (is this a separate network namespace?)"
        };
        return Err(NoVerdict::from(why));
    }
    let total: u64 = landed.values().sum();
    let found =
        if look.whole_machine() { None } else { super::severity(total as f64 / seconds, HIGH, MEDIUM, LOW) };
    // The process may use every CPU: unless someone reserves CPUs, this is unavoidable.
    let everywhere = look.online.as_ref().is_ok_and(|online| *online == cpus);
    let found = if everywhere { found.map(|found| found.max(Severity::Medium)) } else { found };
    let hit: Cpus = landed.iter().filter(|(_, count)| **count > 0).map(|(cpu, _)| *cpu).collect();
    let summary = if hit.is_empty() {
        format!("none of {} reached {}; {} may", counted(all, "interrupt line"), cpus.words(), aimed.len())
    } else {
        format!("{} on {}, from {} of {all} lines", rate(total, seconds), hit.words(), lines.len())
    };
    let mut judged = FindingDraft::when(found, summary).means(
        "each interrupt stops the thread that runs there, and its softirq then handles the queue's packets on the \
         same CPU: time taken from the call in progress",
    );
    lines.sort_by_key(|(count, irq, _)| (std::cmp::Reverse(*count), irq.number));
    for (_, irq, where_to) in lines.iter().take(SHOWN) {
        judged = judged.evidence(format!("{} {}: {where_to}", irq.number, irq.label), "/proc/interrupts");
    }
    for error in nics.iter().flat_map(|nic| &nic.irqs).filter_map(|irq| irq.affinity.as_ref().err()) {
        judged = judged.unknown(error);
    }
    Ok(remedy::move_irqs(judged, look, &aimed))
}
