//! Due times of calls. Pure arithmetic: the n-th time is computed from n alone, so errors cannot accumulate.

use std::fmt;

const SECOND_NS: u64 = 1_000_000_000;

/// Evenly spaced calls of an open loop: the times do not depend on how earlier calls went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// This many calls ...
    calls: u64,
    /// ... in this many nanoseconds.
    per_ns: u64,
}

/// Reason for an invalid schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// An interval of zero.
    #[error("an interval of 0 leaves no time between calls: expected at least 1ns")]
    NoInterval,
    /// A rate of zero.
    #[error("a rate of 0 makes no calls: expected at least 1 call per second (for less, give the interval)")]
    NoRate,
}

impl Schedule {
    /// `calls` calls in every `per_ns` nanoseconds.
    ///
    /// # Errors
    /// Either is 0.
    pub fn new(calls: u64, per_ns: u64) -> Result<Self, ScheduleError> {
        match (calls, per_ns) {
            (0, _) => Err(ScheduleError::NoRate),
            (_, 0) => Err(ScheduleError::NoInterval),
            (calls, per_ns) => Ok(Schedule { calls, per_ns }),
        }
    }

    /// Calls in every [`per_ns`](Self::per_ns).
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Period in nanoseconds, for [`calls`](Self::calls) calls.
    pub fn per_ns(&self) -> u64 {
        self.per_ns
    }

    /// One call every `interval_ns`.
    ///
    /// # Errors
    /// The interval is 0.
    pub fn every(interval_ns: u64) -> Result<Self, ScheduleError> {
        match interval_ns {
            0 => Err(ScheduleError::NoInterval),
            per_ns => Ok(Schedule { calls: 1, per_ns }),
        }
    }

    /// `rate` calls in every second.
    ///
    /// # Errors
    /// The rate is 0.
    pub fn per_second(rate: u32) -> Result<Self, ScheduleError> {
        match rate {
            0 => Err(ScheduleError::NoRate),
            rate => Ok(Schedule { calls: rate.into(), per_ns: SECOND_NS }),
        }
    }

    /// Due time of call `n`, in nanoseconds after call 0; rounded down to a whole nanosecond.
    pub fn intended_ns(&self, n: u64) -> u64 {
        let ns = u128::from(n) * u128::from(self.per_ns) / u128::from(self.calls);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Number of calls due before `ns` nanoseconds have passed.
    pub fn calls_before(&self, ns: u64) -> u64 {
        let calls = (u128::from(ns) * u128::from(self.calls)).div_ceil(u128::from(self.per_ns));
        u64::try_from(calls).unwrap_or(u64::MAX)
    }

    /// Calls per second.
    pub fn rate_per_s(&self) -> f64 {
        self.calls as f64 * SECOND_NS as f64 / self.per_ns as f64
    }

    /// Time between two calls in nanoseconds, rounded down.
    pub fn interval_ns(&self) -> u64 {
        self.per_ns / self.calls
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.calls == 1 {
            write!(f, "one call every {}", spangap_model::duration::format_ns(self.per_ns))
        } else {
            write!(f, "{} calls/s", self.calls)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_is_refused() {
        assert_eq!(Schedule::every(0), Err(ScheduleError::NoInterval));
        assert_eq!(Schedule::per_second(0), Err(ScheduleError::NoRate));
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_is_exact_every_second() {
        let thirds = Schedule::per_second(3).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| thirds.intended_ns(n)), [0, 333_333_333, 666_666_666, SECOND_NS]);
        assert_eq!(thirds.intended_ns(3 * 86_400 * 365), 86_400 * 365 * SECOND_NS);
    }

    fn schedules() -> impl Strategy<Value = Schedule> {
        prop_oneof![
            (1..=u64::MAX >> 20).prop_map(|ns| Schedule::every(ns).unwrap()),
            (1..=u32::MAX).prop_map(|rate| Schedule::per_second(rate).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn times_never_drift(schedule in schedules(), n in 0u64..1 << 40) {
            let exact = u128::from(n) * u128::from(schedule.per_ns) / u128::from(schedule.calls);
            prop_assume!(exact < u128::from(u64::MAX));
            prop_assert_eq!(u128::from(schedule.intended_ns(n)), exact);
        }

        #[test]
        fn neighbours_are_one_interval_apart(schedule in schedules(), n in 0u64..1 << 30) {
            prop_assume!(schedule.intended_ns(n + 1) < u64::MAX);
            let gap = schedule.intended_ns(n + 1) - schedule.intended_ns(n);
            prop_assert!(gap == schedule.interval_ns() || gap == schedule.interval_ns() + 1);
        }

        #[test]
        fn counting_agrees_with_the_times(schedule in schedules(), ns in 1u64..1 << 50) {
            let calls = schedule.calls_before(ns);
            prop_assert!(calls >= 1);
            prop_assert!(schedule.intended_ns(calls - 1) < ns);
            prop_assert!(schedule.intended_ns(calls) >= ns);
        }
    }
}
