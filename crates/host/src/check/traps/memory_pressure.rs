//! Memory is short: work waits for reclaim and faults its own pages back in.

use super::super::facts::memory::Memory;
use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::stalls::{self, Stall};
use super::{Trap, percent, rate, severity};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "memory-pressure", causes: &[Cause::ServerApp, Cause::ClientApp], look };

/// Share of the time in which at least one task waited for memory.
const HIGH: f64 = 0.2;
const MEDIUM: f64 = 0.05;
const LOW: f64 = 0.01;
/// Major faults a second. Each one reads from disk and takes 0.1 ms at best, so 100 a second cost at least 1 %
/// of the time.
const MANY_FAULTS: f64 = 1_000.0;
const SOME_FAULTS: f64 = 100.0;
/// A cgroup may fill its limit with pages of files that it reads only once, which is harmless. It is a trap
/// once the cgroup also faults its own pages back in this often a second.
const FAULTS_AT_LIMIT: f64 = 10.0;

const SYSTEM: &str = "/proc/pressure/memory";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let seconds = look.seconds()?;
    let machine = (SYSTEM, &look.before()?.memory_pressure, &look.after.memory_pressure);
    let of_group = |memory: &Memory| (format!("{}/memory.pressure", memory.folder), memory.pressure.clone());
    let stalls = stalls::of(look, machine, &of_group)?;
    let worst = stalls.iter().map(|stall| stall.share(seconds)).fold(0.0, f64::max);
    let mut found = severity(worst, HIGH, MEDIUM, LOW);
    let mut judged_facts = Vec::new();
    let mut said = vec![format!("some task waited for memory {} of the time", percent(worst, 1.0))];
    for (before, after) in look.memories() {
        let grown = |of: &dyn Fn(&Memory) -> Option<u64>| Some(of(after)?.saturating_sub(of(before)?));
        let faults = grown(&|memory| memory.major_faults.as_ref().ok().copied()).unwrap_or(0);
        let at_limit = grown(&|memory| memory.at_limit.as_ref().ok().copied()).unwrap_or(0);
        let kills = grown(&|memory| memory.kills.as_ref().ok().copied()).unwrap_or(0);
        let faults_per_s = faults as f64 / seconds;
        let mut worse = severity(faults_per_s, f64::INFINITY, MANY_FAULTS, SOME_FAULTS);
        if at_limit > 0 && faults_per_s >= FAULTS_AT_LIMIT {
            worse = Some(Severity::High);
        }
        if kills > 0 {
            worse = Some(Severity::High);
            said.push(format!("{kills} processes of its cgroup were killed for lack of memory"));
        }
        if worse.is_some() {
            said.push(format!("its cgroup reads back its own pages: {} major faults", rate(faults, seconds)));
        }
        found = [found, worse].into_iter().flatten().min();
        judged_facts.push((format!("pgmajfault +{faults}"), after.stat()));
        judged_facts.push((format!("at its limit {at_limit} times"), after.limit_file()));
    }
    let judged = FindingDraft::when(found, said.join("; "));
    let judged =
        stalls.iter().map(Stall::evidence).fold(judged, |judged, (what, path)| judged.evidence(what, path));
    let judged = judged_facts.into_iter().fold(judged, |judged, (what, path)| judged.evidence(what, path));
    Ok(judged
        .means("a thread that needs a page waits until another page is evicted, and evicted pages, including code \
        and mapped files, are read back from disk when needed")
        .fix("spangap host offcpu --pid PID  # names reclaim and page-fault with how long they took")
        .fix("# raise the memory limit (memory.max, memory.limit_in_bytes), or use less memory"))
}
