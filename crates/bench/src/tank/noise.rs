//! Precision of this machine's clock and timers, and the pauses it imposes on a thread.

use crate::clock::{cut_timer_slack, monotonic_ns, sleep_until};
use crate::distribution::Distribution;
use crate::report::Noise;
use rustix::thread::sched_getaffinity;
use std::io;

const READS: usize = 100;
const BATCHES: usize = 200;
const SLEEPS: usize = 200;
const SLEEP_NS: u64 = 1_000_000;
const WATCH_NS: u64 = 100_000_000;

/// Measures for about 0.3 s on a dedicated thread with the calling thread's affinity.
///
/// # Errors
/// No thread can be started, or the kernel does not report its CPUs.
pub fn measure() -> io::Result<Noise> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("noise".into());
        let measuring = thread.spawn_scoped(scope, of_this_thread)?;
        measuring.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

fn of_this_thread() -> io::Result<Noise> {
    let timer_slack_ns = cut_timer_slack();
    let mut lateness = Distribution::default();
    for _ in 0..SLEEPS {
        let due_ns = monotonic_ns() + SLEEP_NS;
        sleep_until(due_ns);
        lateness.record(monotonic_ns() - due_ns);
    }
    let mut batches: Vec<u64> = (0..BATCHES).map(|_| clock_reads_ns()).collect();
    batches.sort_unstable();
    let clock_read_ns = batches[BATCHES / 2].div_ceil(READS as u64);
    let (mut clock_step_ns, mut longest_pause_ns) = (u64::MAX, 0);
    let begun_ns = monotonic_ns();
    let mut last_ns = begun_ns;
    while last_ns - begun_ns < WATCH_NS {
        let now_ns = monotonic_ns();
        let step_ns = now_ns - last_ns;
        if step_ns > 0 {
            clock_step_ns = clock_step_ns.min(step_ns);
            longest_pause_ns = longest_pause_ns.max(step_ns);
        }
        last_ns = now_ns;
    }
    Ok(Noise {
        clock_read_ns,
        clock_step_ns,
        timer_lateness: lateness.quantiles(),
        timer_slack_ns,
        longest_pause_ns,
        watched_ns: last_ns - begun_ns,
        cpus: sched_getaffinity(None)?.count(),
        cannot_claim: Vec::new(),
    })
}

fn clock_reads_ns() -> u64 {
    let begun_ns = monotonic_ns();
    (1..READS).for_each(|_| _ = std::hint::black_box(monotonic_ns()));
    monotonic_ns() - begun_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_this_machine() {
        let noise = measure().unwrap();
        assert!(noise.clock_read_ns > 0 && noise.clock_step_ns > 0, "{noise:?}");
        assert!(noise.longest_pause_ns >= noise.clock_step_ns && noise.watched_ns >= WATCH_NS, "{noise:?}");
        assert!(noise.timer_lateness.p99_ns.is_some() && noise.cpus > 0, "{noise:?}");
    }
}
