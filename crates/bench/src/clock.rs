//! The two clocks of a call, and exact sleeping. Durations come from the monotonic clock; the wall clock only
//! dates the start of a call.

use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::num::NonZeroU64;

const SECOND_NS: u64 = 1_000_000_000;

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// `CLOCK_REALTIME` in nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    read(ClockId::Realtime)
}

/// Sleeps until the monotonic clock shows at least `monotonic_ns`. Resumes after interruptions.
pub fn sleep_until(monotonic_ns: u64) {
    let until =
        Timespec { tv_sec: (monotonic_ns / SECOND_NS) as i64, tv_nsec: (monotonic_ns % SECOND_NS) as _ };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// Lets this thread's timers fire when due instead of up to 50 us later. Returns the slack now in force.
pub fn cut_timer_slack() -> Option<u64> {
    // The returned figure shows whether the kernel refused.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    rustix::thread::current_timer_slack().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_never_ends_early() {
        assert_eq!(cut_timer_slack(), Some(1));
        for ahead_ns in [0, 1, 1_000, 2_000_000] {
            let until = monotonic_ns() + ahead_ns;
            sleep_until(until);
            assert!(monotonic_ns() >= until);
        }
    }
}
