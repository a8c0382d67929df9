//! CPUs isolated at boot get no load balancing: threads pile up on one of them.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "isolated-cpus", causes: &[Cause::RunQueue, Cause::SoftirqOnCpu], look };

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let isolated = &look.isolated;
    if isolated.is_empty() {
        let ticks = &look.nohz_full;
        return Ok(FindingDraft::fine(if ticks.is_empty() {
            "none".to_owned()
        } else {
            format!("none; nohz_full {ticks}")
        }));
    }
    let ticks =
        if look.nohz_full.is_empty() { String::new() } else { format!(", nohz_full {}", look.nohz_full) };
    let mut judged = None;
    for process in look.processes() {
        // A thread whose mask holds several isolated CPUs stays on the one where it was placed.
        let several = |thread: &&super::super::facts::process::Thread| thread.cpus.both(isolated).len() > 1;
        let stuck = process.threads.values().filter(several).count();
        if stuck > 1 {
            let summary = format!(
                "{} of {} may use several of the isolated CPUs {isolated}",
                counted(stuck, "thread"),
                process.comm
            );
            judged.get_or_insert(
                FindingDraft::trap(Severity::Medium, summary)
                    .means("the kernel does not balance load among isolated CPUs: threads started together stay on \
                    one while the others idle")
                    .fix(format!("set -- {}; for t in /proc/{}/task/*; do taskset -p -c $1 ${{t##*/}}; set -- \"$@\" $1; shift; done  # one after the other", isolated.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(" "), process.pid))
                    .fix("# or boot without isolcpus= and use a cpuset partition, or Kubernetes' static CPU manager"),
            );
        }
    }
    let aimed: Vec<String> = look
        .nics
        .iter()
        .flatten()
        .flat_map(|nic| nic.irqs.iter())
        .filter(|irq| {
            irq.affinity.as_ref().is_ok_and(|may| !may.is_empty() && may.without(isolated).is_empty())
        })
        .map(|irq| irq.number.to_string())
        .collect();
    let mut judged = match judged {
        Some(judged) => judged,
        None if !aimed.is_empty() => FindingDraft::trap(
            Severity::Medium,
            format!("interrupts of interfaces are aimed at the isolated CPUs {isolated}"),
        )
        .means("these CPUs were meant to be quiet, yet every packet of those queues is handled on them")
        .fix(format!(
            "for irq in {}; do echo {} > /proc/irq/$irq/smp_affinity_list; done",
            aimed.join(" "),
            look.online.as_ref().map(|online| online.without(isolated).to_string()).unwrap_or_default()
        )),
        None => FindingDraft::fine(format!("CPUs {isolated}{ticks}; nothing piles up there")),
    };
    judged = judged.evidence(format!("isolated {isolated}{ticks}"), ISOLATED);
    if !aimed.is_empty() {
        judged = judged.evidence(
            format!("may only go to isolated CPUs: {}", aimed.join(", ")),
            "/proc/irq/N/smp_affinity_list",
        );
    }
    Ok(judged)
}
