//! irqbalance moves interrupts between CPUs, including onto those of the process.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::{Inspection, Irqbalance};
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "irqbalance", causes: &[Cause::SoftirqOnCpu], look };

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let running = look.irqbalance.as_ref()?;
    let Some(Irqbalance { pid, told, environment }) = running.first() else {
        return Ok(FindingDraft::fine("not running"));
    };
    let cpus = look.cpus()?;
    let banned = told.iter().find_map(|word| {
        let list = word.strip_prefix("IRQBALANCE_BANNED_CPULIST=").map(super::super::Cpus::parse_list);
        list.or_else(|| word.strip_prefix("IRQBALANCE_BANNED_CPUS=").map(super::super::Cpus::parse_mask))?
    });
    // Without an explicit ban list it avoids the CPUs isolated at boot.
    let isolated = look.isolated.either(&look.nohz_full);
    let spared = banned.clone().unwrap_or(isolated);
    let exposed = cpus.without(&spared);
    let told = if told.is_empty() { "nothing".to_owned() } else { told.join(" ") };
    if exposed.is_empty() || look.whole_machine() {
        let summary = format!(
            "runs (pid {pid}); {}",
            if exposed.is_empty() {
                "it spares the CPUs of the process"
            } else {
                "it may move any interrupt"
            }
        );
        return Ok(FindingDraft::fine(summary).evidence(told, format!("/proc/{pid}/cmdline")));
    }
    let all = spared.either(&cpus);
    let mut judged = FindingDraft::trap(
        Severity::Low,
        format!("runs (pid {pid}) and may put interrupts on {}", exposed.words()),
    )
    .evidence(format!("told: {told}"), format!("/proc/{pid}/environ"))
    .means(
        "every 10 s it moves interrupts where it sees fit: affinities set by hand do not last, and latency \
             changes when it moves one",
    )
    .fix(format!(
        "echo IRQBALANCE_BANNED_CPULIST={all} >> /etc/default/irqbalance; systemctl restart irqbalance"
    ))
    .fix("systemctl disable --now irqbalance  # if interrupts are placed by hand");
    if let Err(error) = environment {
        judged = judged.unknown(error);
    }
    Ok(judged)
}
