//! Runnable threads wait for a CPU.

use super::super::finding::{FindingDraft, NoVerdict};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_model::Cause;
use spangap_model::duration::format_ns;

pub const TRAP: Trap = Trap { name: "run-queue-wait", causes: &[Cause::RunQueue], look };

/// Time waited per time run.
const HIGH: f64 = 0.5;
const MEDIUM: f64 = 0.1;
const LOW: f64 = 0.03;
/// A process that ran for less than this cannot be judged.
const MIN_RUN_NS: u64 = 1_000_000;
/// Below this share of the elapsed time, waiting costs calls little.
const MIN_WAIT_SHARE: f64 = 0.005;

struct QueueWait {
    name: String,
    path: String,
    run_ns: u64,
    wait_ns: u64,
}

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid); cpu-pressure covers the whole machine"));
    }
    let seconds = look.seconds()?;
    let mut threads = Vec::new();
    for process in look.processes() {
        let Some(before) = look.process_before(process.pid) else { continue };
        for (tid, thread) in &process.threads {
            let now = thread.sched.as_ref()?;
            // For a thread started in between, all its time counts.
            let earlier = before.threads.get(tid).and_then(|thread| thread.sched.as_ref().ok().copied());
            let earlier = earlier.unwrap_or_default();
            threads.push(QueueWait {
                name: format!("{} ({tid})", thread.comm),
                path: format!("/proc/{}/task/{tid}/schedstat", process.pid),
                run_ns: now.run_ns.saturating_sub(earlier.run_ns),
                wait_ns: now.wait_ns.saturating_sub(earlier.wait_ns),
            });
        }
    }
    let (run_ns, wait_ns) = threads.iter().fold((0_u64, 0_u64), |sum, thread| {
        (sum.0.saturating_add(thread.run_ns), sum.1.saturating_add(thread.wait_ns))
    });
    if run_ns.saturating_add(wait_ns) < MIN_RUN_NS {
        return Ok(FindingDraft::fine(format!("it ran for {} only: nothing to wait for", format_ns(run_ns))));
    }
    let found = if wait_ns as f64 / 1e9 / seconds < MIN_WAIT_SHARE {
        None
    } else {
        severity(wait_ns as f64 / run_ns.max(1) as f64, HIGH, MEDIUM, LOW)
    };
    let of = percent(wait_ns as f64, run_ns as f64);
    let summary = format!("waited {} for {} on a CPU ({of})", format_ns(wait_ns), format_ns(run_ns));
    let judged =
        FindingDraft::when(found, summary).counted(Cause::RunQueue, found.is_some()).of_the_processes();
    let mut judged = judged.means(
        "its threads were ready to run and had to wait: other threads, interrupts or its own quota kept them off \
         the CPUs. Each wait falls in the middle of a call, wherever a thread was woken",
    );
    threads.sort_by(|a, b| (b.wait_ns, &a.path).cmp(&(a.wait_ns, &b.path)));
    for thread in threads.iter().take(2).filter(|thread| thread.wait_ns > 0) {
        let what =
            format!("{} waited {}, ran {}", thread.name, format_ns(thread.wait_ns), format_ns(thread.run_ns));
        judged = judged.evidence(what, thread.path.clone());
    }
    for pid in &look.pids {
        judged = judged.fix(format!("spangap host thieves --pid {pid}  # names who had the CPUs"));
    }
    Ok(judged)
}
