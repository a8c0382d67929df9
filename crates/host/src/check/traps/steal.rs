//! The hypervisor runs something else while this machine has work.

use super::super::finding::{FindingDraft, NoVerdict};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_machine::facts::stat::Times;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "steal", causes: &[Cause::Steal], look };

/// Share of the time in which a CPU was not idle.
const HIGH: f64 = 0.05;
const MEDIUM: f64 = 0.01;
const LOW: f64 = 0.002;
/// Fewer ticks than this are within the noise.
const MIN_TICKS: u64 = 2;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (times, cpus) = (look.times()?, look.cpus()?);
    let its = || times.iter().filter(|(cpu, _)| cpus.contains(**cpu));
    let all = its().fold(Times::default(), |all, (_, times)| all.plus(times));
    let wanted = all.total() - all.idle;
    let share = all.steal as f64 / wanted.max(1) as f64;
    let found = if all.steal < MIN_TICKS { None } else { severity(share, HIGH, MEDIUM, LOW) };
    let ever = look.after.stat.as_ref()?.values().fold(Times::default(), |all, times| all.plus(times));
    let boot = percent(ever.steal as f64, (ever.total() - ever.idle) as f64);
    if found.is_none() && !look.virtual_machine {
        return Ok(FindingDraft::fine("no virtual machine"));
    }
    let now = percent(all.steal as f64, wanted as f64);
    let summary = format!("{now} of the time that {} wanted to run, {boot} since boot", cpus.words());
    let mut each: Vec<_> = its().filter(|(_, times)| times.steal > 0).collect();
    each.sort_by_key(|(cpu, times)| (std::cmp::Reverse(times.steal), **cpu));
    let each: Vec<String> =
        each.iter().take(4).map(|(cpu, times)| format!("CPU {cpu} {} ms", times.steal * 10)).collect();
    let each = if each.is_empty() { "none".to_owned() } else { each.join(", ") };
    Ok(FindingDraft::when(found, summary)
        .counted(Cause::Steal, found.is_some())
        .evidence(format!("steal +{} ms: {each}", all.steal * 10), "/proc/stat")
        .means("the hypervisor gave the CPU to another guest, in the middle of whatever ran here; nothing on this \
        machine but this counter shows it")
        .fix("# ask for dedicated CPUs (no overcommit), or move the guest to another host; nothing inside the guest \
        helps"))
}
