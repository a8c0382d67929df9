//! A process has more busy threads than CPUs it may use.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;
use spangap_model::Cpus;
use std::collections::BTreeMap;

pub const TRAP: Trap = Trap { name: "cpu-pinning", causes: &[Cause::RunQueue], look };

/// A thread counts as busy from this share of the time on.
const AT_WORK: f64 = 0.02;
/// Several CPUs count as too few once the threads use this share of their time.
const FULL: f64 = 0.7;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let online = look.online.as_ref()?;
    let seconds = look.seconds();
    let mut worst: Option<FindingDraft> = None;
    let mut fine = Vec::new();
    for process in look.processes() {
        let cpus = process.cpus();
        let before = look.process_before(process.pid);
        let ran_s = |tid: &u32| {
            let now = process.threads.get(tid)?.sched.as_ref().ok()?.run_ns;
            let earlier = before?.threads.get(tid).and_then(|thread| thread.sched.as_ref().ok());
            Some(now.saturating_sub(earlier.map_or(0, |sched| sched.run_ns)) as f64 / 1e9)
        };
        // Threads by affinity mask.
        let mut masks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (tid, thread) in &process.threads {
            masks.entry(thread.cpus.to_string()).or_default().push(*tid);
        }
        let crowded = masks.iter().filter_map(|(mask, tids)| {
            let count = Cpus::parse_list(mask)?.len();
            let passed = *seconds.as_ref().ok()?;
            let busy =
                tids.iter().filter(|tid| ran_s(tid).is_some_and(|ran| ran >= AT_WORK * passed)).count();
            let ran: f64 = tids.iter().filter_map(ran_s).sum();
            // On a single CPU, two threads delay each other at any load.
            let full = count == 1 || ran >= FULL * count as f64 * passed;
            (count < online.len() && busy > count && full).then_some((mask, tids, busy, count))
        });
        let crowded: Vec<_> = crowded.collect();
        let threads = counted(process.threads.len(), "thread");
        if let Some((mask, tids, busy, count)) = crowded.first() {
            let severity = if *count == 1 { Severity::Medium } else { Severity::Low };
            let summary = format!("{busy} threads at work may use only CPU {mask} of {online}");
            let judged = FindingDraft::trap(severity, summary)
                .evidence(
                    format!("Cpus_allowed_list {mask} of {}", counted(tids.len(), "thread")),
                    format!("/proc/{}/task/{}/status", process.pid, tids[0]),
                )
                .means("its threads compete for too few CPUs while others may be idle")
                .fix(format!("taskset -a -p -c {online} {}", process.pid));
            worst.get_or_insert(judged);
        } else if cpus.len() == 1 && online.len() > 1 && process.threads.len() > 1 {
            let summary = format!("{threads} may use only CPU {cpus} of {online}");
            let judged = FindingDraft::trap(Severity::Low, summary)
                .evidence(
                    format!("Cpus_allowed_list {cpus} of all {threads}"),
                    format!("/proc/{}/status", process.pid),
                )
                .means("whenever two of its threads have work, one of them waits")
                .fix(format!("taskset -a -p -c {online} {}", process.pid));
            worst.get_or_insert(judged);
        } else {
            fine.push(format!("{threads} on {}", counted(cpus.len(), "CPU")));
        }
    }
    Ok(worst.unwrap_or_else(|| FindingDraft::fine(fine.join("; "))))
}
