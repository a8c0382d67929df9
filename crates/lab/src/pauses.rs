//! Pauses of the machine itself: intervals in which a CPU ran nothing of a run, for whatever reason. They are
//! caused by a hypervisor that takes the CPU away, and by real-time work of others, but by no fault of the lab:
//! its most urgent programs have a lower priority than the witness.

use crate::host_clock::now_unix_ns;
use crate::stage::cpus;
use crate::truth::Active;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of a witness's wake-ups. Long enough to leave idle CPUs idle.
const EVERY: Duration = Duration::from_millis(5);
/// A witness later than this was kept off its CPU; timers alone are late by microseconds.
const LATE: Duration = Duration::from_millis(3);

/// One thread per usable CPU, which wakes up every 5 ms and records when it could not run.
#[derive(Debug)]
pub struct Witness {
    threads: Vec<(Sender<()>, JoinHandle<Vec<Active>>)>,
}

impl Witness {
    /// Observes until [`Witness::end`].
    pub fn start() -> Witness {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        Witness { threads: cpus.map(watch).collect() }
    }

    /// Intervals in which any of the CPUs stood still, in order and without overlap.
    pub fn end(self) -> Vec<Active> {
        let (ends, threads): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(ends);
        united(threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect())
    }
}

fn watch(cpu: usize) -> (Sender<()>, JoinHandle<Vec<Active>>) {
    let (end, ended) = channel();
    let thread = std::thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(cpu);
        let urgent = sched_setaffinity(None, &only).is_ok() && most_urgent();
        let mut pauses = Vec::new();
        // Without the priority, its lateness would say nothing about the machine.
        if !urgent {
            return pauses;
        }
        loop {
            let begun = Instant::now();
            if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let late = begun.elapsed().saturating_sub(EVERY);
            if late > LATE {
                let to_unix_ns = now_unix_ns();
                let from_unix_ns = to_unix_ns.saturating_sub(late.as_nanos() as u64);
                pauses.push(Active { from_unix_ns, to_unix_ns });
            }
        }
        pauses
    });
    (end, thread)
}

/// Raises the calling thread above all threads of a run; returns whether that succeeded.
fn most_urgent() -> bool {
    let thread = gettid().as_raw_nonzero().to_string();
    let set = Command::new("chrt").args(["-f", "-p", &cpus::WITNESS.to_string(), &thread]).output();
    set.is_ok_and(|output| output.status.success())
}

/// Union of intervals.
fn united(mut stretches: Vec<Active>) -> Vec<Active> {
    stretches.sort_unstable_by_key(|one| one.from_unix_ns);
    let mut united: Vec<Active> = Vec::new();
    for one in stretches {
        match united.last_mut() {
            Some(last) if one.from_unix_ns <= last.to_unix_ns => {
                last.to_unix_ns = last.to_unix_ns.max(one.to_unix_ns)
            }
            _ => united.push(one),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_two_cpus_count_once() {
        let one = |from_unix_ns, to_unix_ns| Active { from_unix_ns, to_unix_ns };
        assert_eq!(
            united(vec![one(30, 40), one(10, 20), one(15, 32), one(50, 60)]),
            [one(10, 40), one(50, 60)]
        );
        assert_eq!(united(Vec::new()), []);
    }

    #[test]
    fn a_witness_ends_when_told() {
        for pause in Witness::start().end() {
            assert!(pause.length_ns() > LATE.as_nanos() as u64, "{pause:?}");
        }
    }
}
