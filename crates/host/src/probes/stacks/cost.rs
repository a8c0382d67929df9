//! Cost of sampling: on the sampled CPUs, and in this process.

use super::perf_event::{Sampler, this_cpu};
use super::record::{Record, parse};
use spangap_machine::facts::schedstat;
use spangap_machine::read_here;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Cost of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// CPU time of one sample on the sampled CPU, in nanoseconds: the timer interrupt and the stack walk,
    /// measured on one CPU before the start. `None` if too small to measure, or if no measurement was allowed.
    pub sample_ns: Option<u64>,
    /// Resulting share of each CPU, 0 to 1.
    pub cpu_share: Option<f64>,
    /// CPU time of the thread that reads the samples, in nanoseconds.
    pub reader_ns: u64,
}

/// Sampling rate of the trial.
const TRIAL_HZ: u64 = 10_000;
const TRIAL: Duration = Duration::from_millis(2);
const TRIALS: usize = 5;

impl Cost {
    pub(super) fn begin(hz: u32) -> Cost {
        let sample_ns = trial();
        let cpu_share = sample_ns.map(|ns| ns as f64 * f64::from(hz) / 1e9);
        Cost { sample_ns, cpu_share, reader_ns: thread_ns() }
    }

    pub(super) fn end(&mut self) {
        self.reader_ns = thread_ns().saturating_sub(self.reader_ns);
    }
}

/// CPU time of this thread, in nanoseconds; 0 if the kernel does not count it (CONFIG_SCHED_INFO=n).
fn thread_ns() -> u64 {
    let path = format!("/proc/thread-self/{}", schedstat::NAME);
    read_here(&path, schedstat::parse).map_or(0, |sched| sched.run_ns)
}

fn work(rounds: u64) -> Duration {
    let began = Instant::now();
    let mut value = 1u64;
    for round in 0..rounds {
        value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round);
    }
    black_box(value);
    began.elapsed()
}

/// The same work with and without samples, taking the fastest of several runs of each, because every
/// disturbance makes a run slower. The CPU is sampled rather than the thread, because a thread's first event
/// makes the kernel patch its scheduler; a run whose thread was migrated has too few samples of its own, and is
/// discarded.
fn trial() -> Option<u64> {
    let mut sampler = Sampler::open(this_cpu()?, 1_000_000_000 / TRIAL_HZ, 64 << 10).ok()?;
    let own = std::process::id();
    let mut rounds = 1 << 10;
    while work(rounds) < TRIAL {
        rounds *= 2;
    }
    let mut without = Duration::MAX;
    let mut with: Option<(Duration, u64)> = None;
    for _ in 0..TRIALS {
        without = without.min(work(rounds));
        sampler.enable().ok()?;
        let took = work(rounds);
        sampler.disable().ok()?;
        let mut samples = 0;
        sampler.drain(&mut |record| {
            samples += u64::from(matches!(parse(record), Some(Record::Sample { tgid, .. }) if tgid == own));
        });
        let expected = took.as_nanos() as u64 * TRIAL_HZ / 1_000_000_000;
        if samples > expected / 2 && with.is_none_or(|(fastest, _)| took < fastest) {
            with = Some((took, samples));
        }
    }
    let (took, samples) = with?;
    let more = took.checked_sub(without)?.as_nanos() as u64;
    more.checked_div(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_uses_cpu_time_and_it_shows() {
        // A thread that the scheduler has not accounted for yet shows no time; its first tick comes soon.
        for _ in 0..1_000_000 {
            if thread_ns() > 0 {
                break;
            }
            work(1000);
        }
        let before = thread_ns();
        if before == 0 {
            println!("not run: this kernel does not count the time of a thread");
            return;
        }
        while thread_ns() == before {
            work(1000);
        }
    }
}
