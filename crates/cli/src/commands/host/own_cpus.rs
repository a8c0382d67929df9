//! Keeps this program off the CPUs of the processes it observes, so that the observation does not disturb them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// Moves this thread, and those it starts from now on, to CPUs that no thread of these processes may use, if
/// there are any.
pub fn from_processes(pids: &[u32]) {
    let mut theirs = CpuSet::new();
    for pid in pids {
        for tid in threads(*pid) {
            // A thread that ended in the meantime needs no CPU.
            let Ok(of_thread) = sched_getaffinity(Some(tid)) else { continue };
            cpus(&of_thread).for_each(|cpu| theirs.set(cpu));
        }
    }
    from(&theirs);
}

/// The same for these CPUs.
pub fn from_cpus(cpus: &[u16]) {
    let mut theirs = CpuSet::new();
    cpus.iter()
        .map(|cpu| usize::from(*cpu))
        .filter(|cpu| *cpu < CpuSet::MAX_CPU)
        .for_each(|cpu| theirs.set(cpu));
    from(&theirs);
}

fn from(theirs: &CpuSet) {
    let Ok(mine) = sched_getaffinity(None) else { return };
    let mut aside = CpuSet::new();
    cpus(&mine).filter(|cpu| !theirs.is_set(*cpu)).for_each(|cpu| aside.set(cpu));
    if aside.count() > 0 {
        // Failing to move is harmless: the cost shows in the report.
        let _ = sched_setaffinity(None, &aside);
    }
}

fn cpus(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu))
}

fn threads(pid: u32) -> Vec<rustix::thread::Pid> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    tids.filter_map(rustix::thread::Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Runs in a thread of its own, so that the other threads keep their affinity.
    fn where_it_ends(aside: impl FnOnce() + Send + 'static) -> Vec<usize> {
        let seen = std::thread::spawn(move || {
            aside();
            cpus(&sched_getaffinity(None).expect("one's own")).collect()
        });
        seen.join().expect("it ends")
    }

    #[test]
    fn moves_aside_only_where_possible() {
        let all: Vec<usize> = cpus(&sched_getaffinity(None).expect("one's own")).collect();
        let [first, .., last] = all[..] else { return println!("not run: one CPU") };
        let others = all.clone();
        assert_eq!(where_it_ends(move || from_cpus(&[last as u16])), all[..all.len() - 1]);
        assert_eq!(
            where_it_ends(move || from_cpus(&others.iter().map(|cpu| *cpu as u16).collect::<Vec<_>>())),
            all
        );
        let pinned =
            Command::new("taskset").args(["-c", &first.to_string(), "cat"]).stdin(Stdio::piped()).spawn();
        let Ok(mut pinned) = pinned else { return println!("not run: no program taskset") };
        let pid = pinned.id();
        let is_cat = || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "cat\n");
        while !is_cat() {
            std::thread::yield_now();
        }
        assert_eq!(where_it_ends(move || from_processes(&[pid])), all[1..]);
        drop(pinned.stdin.take());
        pinned.wait().expect("it ends");
    }
}
