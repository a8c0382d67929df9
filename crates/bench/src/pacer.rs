//! The thread that keeps the schedule. It does nothing else, and hands every call over the moment it is due.

use crate::clock;
use crate::report::Distribution;
use crate::schedule::Schedule;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a long sleep may delay the notice of a stop.
const LONGEST_SLEEP_NS: u64 = 50_000_000;

/// One due call.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// When it was due, monotonic clock.
    pub intended_ns: u64,
    /// Whether it counts, or only warms up.
    pub measured: bool,
}

/// What the thread does.
pub struct Pacer {
    /// The times, counted from `start_ns`.
    pub schedule: Schedule,
    /// Monotonic time of call 0.
    pub start_ns: u64,
    /// Number of the first call that counts.
    pub first_measured: u64,
    /// Number of calls; `None` goes on until stopped.
    pub calls: Option<u64>,
    /// Ends the thread early.
    pub stop: Arc<AtomicBool>,
}

/// What the thread did.
pub struct Paced {
    /// Measured calls that came due.
    pub due: u64,
    /// How late the thread itself was awake for each of them.
    pub lateness: Distribution,
    /// Timer slack it ran with, if the kernel told.
    pub timer_slack_ns: Option<u64>,
}

impl Pacer {
    /// Calls `fire` once for every due call, in order. A late thread catches up without skipping any.
    pub fn run(self, mut fire: impl FnMut(Slot)) -> Paced {
        let mut paced =
            Paced { due: 0, lateness: Distribution::default(), timer_slack_ns: clock::cut_timer_slack() };
        for n in 0..self.calls.unwrap_or(u64::MAX) {
            let intended_ns = self.start_ns.saturating_add(self.schedule.intended_ns(n));
            let Some(awake_ns) = self.sleep_until(intended_ns) else { break };
            let measured = n >= self.first_measured;
            fire(Slot { intended_ns, measured });
            if measured {
                paced.due += 1;
                paced.lateness.record(awake_ns - intended_ns);
            }
        }
        paced
    }

    /// The time at waking, or `None` when stopped.
    fn sleep_until(&self, intended_ns: u64) -> Option<u64> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let now = clock::monotonic_ns();
            if now >= intended_ns {
                return Some(now);
            }
            clock::sleep_until(intended_ns.min(now + LONGEST_SLEEP_NS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(schedule: Schedule, calls: Option<u64>) -> Pacer {
        let start_ns = clock::monotonic_ns();
        Pacer { schedule, start_ns, first_measured: 2, calls, stop: Arc::default() }
    }

    #[test]
    fn every_call_comes_due_once_and_never_early() {
        let pacer = pacer(Schedule::per_second(7_000).unwrap(), Some(50));
        let (schedule, start_ns) = (pacer.schedule, pacer.start_ns);
        let mut slots = Vec::new();
        let paced = pacer.run(|slot| {
            assert!(clock::monotonic_ns() >= slot.intended_ns);
            slots.push(slot);
        });
        let expected: Vec<u64> = (0..50).map(|n| start_ns + schedule.intended_ns(n)).collect();
        assert_eq!(slots.iter().map(|slot| slot.intended_ns).collect::<Vec<_>>(), expected);
        assert_eq!(slots.iter().filter(|slot| slot.measured).count(), 48);
        assert_eq!((paced.due, paced.lateness.count()), (48, 48));
    }

    #[test]
    fn stopping_does_not_wait_for_the_next_call() {
        let pacer = pacer(Schedule::every(3_600_000_000_000).unwrap(), None);
        let stop = pacer.stop.clone();
        let mut fired = 0;
        let paced = pacer.run(|_| {
            fired += 1;
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!((fired, paced.due), (1, 0));
    }
}
