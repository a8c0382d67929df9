//! The relation of CLOCK_MONOTONIC, which events use, to CLOCK_REALTIME, which captures and spans use.
//!
//! Both clocks run at the same rate, whatever adjusts it: their difference changes only when the time is set,
//! which is a *step*. So every reading between two steps bounds the same difference, and all of them together
//! bound it best.

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;

/// The difference between the clocks at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The moment, nanoseconds of CLOCK_MONOTONIC.
    pub mono_ns: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC is at least this, nanoseconds.
    pub low_ns: i64,
    /// ... and at most this.
    pub high_ns: i64,
    /// Whether the time was set since the previous reading, as far as the kernel reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stepped: bool,
}

/// Attempts per reading; the one with the shortest time between its two reads of CLOCK_MONOTONIC counts.
const ATTEMPTS: usize = 16;

impl Reading {
    /// Reads both clocks.
    pub fn take() -> Reading {
        let attempt = || {
            let before = clock(ClockId::Monotonic);
            let real = clock(ClockId::Realtime);
            let after = clock(ClockId::Monotonic);
            Reading { mono_ns: before as u64, low_ns: real - after, high_ns: real - before, stepped: false }
        };
        let best = (0..ATTEMPTS).map(|_| attempt()).min_by_key(|reading| reading.high_ns - reading.low_ns);
        best.expect("there was an attempt")
    }
}

fn clock(id: ClockId) -> i64 {
    let now = clock_gettime(id);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Notices when the time is set.
#[derive(Debug)]
pub struct StepWatch {
    timer: OwnedFd,
}

impl StepWatch {
    /// Listens from now on.
    pub fn new() -> io::Result<StepWatch> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let watch = StepWatch { timer };
        watch.arm()?;
        Ok(watch)
    }

    /// Whether the time was set since the last query. Steps of zero length are reported, too.
    pub fn stepped(&self) -> io::Result<bool> {
        match rustix::io::read(&self.timer, &mut [0; 8]) {
            Err(rustix::io::Errno::CANCELED) => {
                self.arm()?;
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
            // It has expired, in the distant future.
            Ok(_) => self.arm().map(|()| false),
        }
    }

    fn arm(&self) -> io::Result<()> {
        let never = Timespec { tv_sec: i64::from(i32::MAX) * 2, tv_nsec: 0 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.timer, flags, &once)?;
        Ok(())
    }
}

/// An interval in which the difference did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Its first and last reading, nanoseconds of CLOCK_MONOTONIC.
    from_ns: u64,
    to_ns: u64,
    low_ns: i64,
    high_ns: i64,
}

/// What all readings say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relation {
    stretches: Vec<Stretch>,
}

impl Relation {
    /// Takes the next reading.
    pub fn add(&mut self, reading: Reading) {
        let Reading { mono_ns, low_ns, high_ns, stepped } = reading;
        match self.stretches.last_mut() {
            Some(last) if !stepped && low_ns.max(last.low_ns) <= high_ns.min(last.high_ns) => {
                last.to_ns = mono_ns;
                last.low_ns = last.low_ns.max(low_ns);
                last.high_ns = last.high_ns.min(high_ns);
            }
            _ => self.stretches.push(Stretch { from_ns: mono_ns, to_ns: mono_ns, low_ns, high_ns }),
        }
    }

    /// How often the time was set, as far as that was seen.
    pub fn steps(&self) -> usize {
        self.stretches.len().saturating_sub(1)
    }

    /// A time of CLOCK_MONOTONIC in CLOCK_REALTIME, nanoseconds since 1970, and its error bound. `None`
    /// without any reading. Before the first reading and after the last one, it assumes that nobody set the
    /// time; between the readings on both sides of a step, the bound covers both.
    pub fn unix_ns(&self, mono_ns: u64) -> Option<(i64, u64)> {
        let next = self.stretches.partition_point(|stretch| stretch.to_ns < mono_ns);
        let after = self.stretches.get(next);
        let (low, high) = match (next.checked_sub(1).map(|before| self.stretches[before]), after) {
            (Some(before), Some(after)) if mono_ns < after.from_ns => {
                (before.low_ns.min(after.low_ns), before.high_ns.max(after.high_ns))
            }
            (_, Some(within)) => (within.low_ns, within.high_ns),
            (Some(last), None) => (last.low_ns, last.high_ns),
            (None, None) => return None,
        };
        let (offset, bound) = middle(low, high)?;
        Some((i64::try_from(mono_ns).ok()?.checked_add(offset)?, bound))
    }

    /// A time of CLOCK_REALTIME in CLOCK_MONOTONIC, and its error bound. `None` without any reading, for a
    /// time that a step skipped, and for one before this host was started. If a step back repeated a time,
    /// the bound covers both.
    pub fn mono_ns(&self, unix_ns: i64) -> Option<(u64, u64)> {
        let last = self.stretches.len().checked_sub(1)?;
        let mut found: Option<(i64, i64)> = None;
        for (place, stretch) in self.stretches.iter().enumerate() {
            let low = unix_ns.checked_sub(stretch.high_ns)?;
            let high = unix_ns.checked_sub(stretch.low_ns)?;
            // An interval reaches to its neighbours' readings, because nobody knows when the step was in
            // between.
            let from = if place == 0 { i64::MIN } else { self.stretches[place - 1].to_ns as i64 };
            let to = if place == last { i64::MAX } else { self.stretches[place + 1].from_ns as i64 };
            if high >= from && low <= to {
                found = Some(found.map_or((low, high), |(least, most)| (least.min(low), most.max(high))));
            }
        }
        let (low, high) = found?;
        middle(low, high).and_then(|(ns, bound)| Some((u64::try_from(ns).ok()?, bound)))
    }
}

/// Middle of an interval, and the distance to its ends.
fn middle(low: i64, high: i64) -> Option<(i64, u64)> {
    let bound = high.checked_sub(low)?.unsigned_abs().div_ceil(2);
    Some((high.checked_sub_unsigned(bound)?, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mono_ns: u64, low_ns: i64, high_ns: i64) -> Reading {
        Reading { mono_ns, low_ns, high_ns, stepped: false }
    }

    fn relation(readings: &[Reading]) -> Relation {
        let mut relation = Relation::default();
        readings.iter().for_each(|&one| relation.add(one));
        relation
    }

    #[test]
    fn readings_together_bound_better_than_each() {
        let relation = relation(&[reading(100, 1000, 1040), reading(200, 1030, 1090)]);
        assert_eq!(relation.steps(), 0);
        assert_eq!(relation.unix_ns(150), Some((1185, 5)));
        assert_eq!(relation.unix_ns(5), Some((1040, 5)), "before the first");
        assert_eq!(relation.mono_ns(1185), Some((150, 5)));
        assert_eq!(relation.mono_ns(1000), None, "before the host was started");
    }

    #[test]
    fn across_a_step_both_are_possible() {
        let relation =
            relation(&[reading(100, 1000, 1010), reading(200, 1000, 1010), reading(300, 5000, 5010)]);
        assert_eq!(relation.steps(), 1);
        assert_eq!(relation.unix_ns(150), Some((1155, 5)));
        assert_eq!(relation.unix_ns(250), Some((250 + 3005, 2005)));
        assert_eq!(relation.unix_ns(300), Some((5305, 5)));
        assert_eq!(relation.unix_ns(900), Some((5905, 5)));
        assert_eq!(relation.mono_ns(1155), Some((150, 5)));
        assert_eq!(relation.mono_ns(5305), Some((300, 5)));
        assert_eq!(relation.mono_ns(3000), None, "left out by the step");
    }

    #[test]
    fn a_step_back_brings_moments_twice() {
        let relation =
            relation(&[reading(100, 1000, 1000), reading(200, 1000, 1000), reading(300, 900, 900)]);
        assert_eq!(relation.mono_ns(1095), Some((95, 0)));
        // 1195: the 195th nanosecond before the step, or the 295th after it, if it was then.
        assert_eq!(relation.mono_ns(1195), Some((245, 50)));
        assert_eq!(relation.mono_ns(1400), Some((500, 0)));
    }

    #[test]
    fn a_step_that_is_told_counts_although_the_bounds_still_overlap() {
        let second = Reading { stepped: true, ..reading(200, 1005, 1020) };
        let relation = relation(&[reading(100, 1000, 1010), second]);
        assert_eq!(relation.steps(), 1);
        assert_eq!(relation.unix_ns(250), Some((250 + 1012, 8)));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let relation = relation(&[reading(u64::MAX, i64::MIN, i64::MAX)]);
        assert_eq!(relation.unix_ns(u64::MAX), None);
        relation.mono_ns(i64::MIN);
        assert_eq!(Relation::default().unix_ns(1), None);
        assert_eq!(Relation::default().mono_ns(1), None);
    }

    #[test]
    fn the_clocks_of_this_machine_agree_with_themselves() {
        let relation = relation(&[Reading::take(), Reading::take()]);
        let before = std::time::SystemTime::now();
        let mono = clock(ClockId::Monotonic) as u64;
        let after = std::time::SystemTime::now();
        let unix = |time: std::time::SystemTime| {
            time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64
        };
        let (now, bound) = relation.unix_ns(mono).unwrap();
        let bound = bound as i64;
        assert!(unix(before) - bound <= now && now <= unix(after) + bound);
        assert!(!StepWatch::new().unwrap().stepped().unwrap());
    }
}
