//! CPUs have no idle time left.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_model::Cause;
use spangap_model::Cpus;

pub const TRAP: Trap = Trap { name: "cpu-saturation", causes: &[Cause::CpuSaturated, Cause::RunQueue], look };

/// Busy share of all CPUs together.
const HIGH: f64 = 0.95;
const MEDIUM: f64 = 0.85;
const LOW: f64 = 0.70;
/// Busy share from which on a CPU counts as full.
const FULL: f64 = 0.95;
/// Fewer ticks than this are too few to judge by.
const MIN_TICKS: u64 = 10;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (times, cpus) = (look.times()?, look.cpus()?);
    let its: Vec<_> = times.iter().filter(|(cpu, _)| cpus.contains(**cpu)).collect();
    let (total, idle) =
        its.iter().fold((0, 0), |sum, (_, times)| (sum.0 + times.total(), sum.1 + times.idle));
    if total < MIN_TICKS {
        return Err(NoVerdict::from(
            "too little time between the two readings: the kernel counts in ticks of 10 ms",
        ));
    }
    let busy = total - idle;
    let full: Cpus = its
        .iter()
        .filter(|(_, times)| {
            (times.total() - times.idle) as f64 >= FULL * times.total() as f64 && times.total() > 0
        })
        .map(|(cpu, _)| **cpu)
        .collect();
    let found = severity(busy as f64 / total as f64, HIGH, MEDIUM, LOW);
    let what = if full.is_empty() || full.len() == its.len() {
        String::new()
    } else {
        format!(", {} full", full.words())
    };
    let summary = format!(
        "{} {} {} busy{what}",
        cpus.words(),
        if cpus.len() == 1 { "is" } else { "are" },
        percent(busy as f64, total as f64)
    );
    Ok(FindingDraft::when(found, summary)
        .counted(Cause::CpuSaturated, found == Some(Severity::High))
        .evidence(format!("{} ms of {} ms not idle", busy * 10, total * 10), "/proc/stat")
        .means("threads that wake up find no idle CPU and wait their turn; from about 70 %, latency rises steeply")
        .fix("top -H -d 1  # who runs; then fewer of them here, or more CPUs"))
}
