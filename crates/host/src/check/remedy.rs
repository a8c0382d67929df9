//! Commands that several traps suggest. They are printed, never executed.

use super::facts::kubelet;
use super::finding::FindingDraft;
use super::look::Inspection;
use spangap_model::Cpus;

/// Where every CPU is used for everything, one CPU in this many goes to the network.
const CPUS_PER_NETWORK_CPU: usize = 16;

/// A division of the CPUs between network and processes.
pub struct CpuSplit {
    /// CPUs for the interrupts and softirqs of interfaces.
    pub network: Cpus,
    /// CPUs for the processes; `None` to leave them where they are.
    pub processes: Option<Cpus>,
}

/// Finds CPUs for the network that the processes can do without. `None` on a single-CPU machine.
pub fn apart(look: &Inspection) -> Option<CpuSplit> {
    let used = look.cpus().ok()?;
    let online = look.online.as_ref().ok()?;
    let others = online.without(&used);
    if !others.is_empty() {
        // CPUs on the interface's node are preferred, if any is left.
        let nodes = look.nics.iter().flatten().filter_map(|nic| look.nodes.get(&nic.node?));
        let near = nodes.fold(Cpus::default(), |all, node| all.either(node)).both(&others);
        return Some(CpuSplit { network: if near.is_empty() { others } else { near }, processes: None });
    }
    if online.len() < 2 {
        return None;
    }
    let some = (online.len() / CPUS_PER_NETWORK_CPU).max(1);
    let first: Cpus = online.iter().take(some).collect();
    // Network and processes should not share a core.
    let network = first
        .iter()
        .filter_map(|cpu| look.siblings.get(&cpu))
        .fold(first.clone(), |all, core| all.either(core));
    let network = if network.len() < online.len() { network } else { first };
    Some(CpuSplit { processes: Some(online.without(&network)), network })
}

/// Adds commands that move these interrupts away from the processes.
pub fn move_irqs(mut judged: FindingDraft, look: &Inspection, irqs: &[u32]) -> FindingDraft {
    let Some(apart) = apart(look) else {
        return judged.fix("# one CPU only: there is no other to move them to");
    };
    if look.irqbalance.as_ref().is_ok_and(|running| !running.is_empty()) {
        judged = judged.fix("systemctl stop irqbalance  # otherwise it moves them back");
    }
    if !irqs.is_empty() {
        let irqs: Vec<String> = irqs.iter().map(u32::to_string).collect();
        let (irqs, cpus) = (irqs.join(" "), &apart.network);
        judged =
            judged.fix(format!("for irq in {irqs}; do echo {cpus} > /proc/irq/$irq/smp_affinity_list; done"));
    }
    move_processes(judged, look, apart.processes.as_ref())
}

/// Adds commands that confine the processes to these CPUs.
pub fn move_processes(mut judged: FindingDraft, look: &Inspection, cpus: Option<&Cpus>) -> FindingDraft {
    let Some(cpus) = cpus else { return judged };
    for process in look.processes() {
        let in_pod = process.groups.iter().flatten().any(|group| kubelet::pod(&group.name).is_some());
        judged = if in_pod {
            judged.fix("# in Kubernetes: give the pod whole CPUs (request = limit) under the static CPU manager policy")
        } else {
            judged.fix(format!("taskset -a -p -c {cpus} {}", process.pid))
        };
    }
    judged
}
