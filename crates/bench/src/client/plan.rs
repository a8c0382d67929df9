//! Start and end of a run's phases. The end may come earlier than planned, never later.

use crate::contract::Phase;
use std::sync::atomic::{AtomicU64, Ordering};

/// Times of a run on the monotonic clock, in nanoseconds. Before it starts, it counts as over.
#[derive(Debug, Default)]
pub struct Plan {
    start_ns: AtomicU64,
    measured_from_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl Plan {
    /// Starts at `start_ns`, with a warm-up and a measured phase of these lengths; a measured phase of length 0
    /// lasts until [`end_by`](Self::end_by).
    pub fn start(&self, start_ns: u64, warmup_ns: u64, duration_ns: u64) {
        let measured_from_ns = start_ns.saturating_add(warmup_ns);
        let end_ns = match duration_ns {
            0 => u64::MAX,
            duration_ns => measured_from_ns.saturating_add(duration_ns),
        };
        self.start_ns.store(start_ns, Ordering::Relaxed);
        self.measured_from_ns.store(measured_from_ns, Ordering::Relaxed);
        // Stored last, so that a reader who sees a time before the end sees the other times too.
        self.end_ns.store(end_ns, Ordering::Release);
    }

    /// No call may start at or after `ns`.
    pub fn end_by(&self, ns: u64) {
        self.end_ns.fetch_min(ns, Ordering::AcqRel);
    }

    /// Monotonic time of the start.
    pub fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    /// Time from which on no call starts; `u64::MAX` while unknown.
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Phase of a call due or sent at `at_ns`; `None` once the time for calls is over.
    pub fn phase_at(&self, at_ns: u64) -> Option<Phase> {
        if at_ns >= self.end_ns() {
            None
        } else if at_ns < self.measured_from_ns.load(Ordering::Relaxed) {
            Some(Phase::Warmup)
        } else {
            Some(Phase::Measured)
        }
    }

    /// The first phase: the warm-up, if there is one.
    pub fn first(&self) -> Phase {
        self.phase_at(self.start_ns()).unwrap_or(Phase::Drain)
    }

    /// End of a phase with calls, and the phase that follows; `None` for the others, whose ends are not
    /// planned.
    pub fn end_of(&self, phase: Phase) -> Option<(u64, Phase)> {
        let (measured_from_ns, end_ns) = (self.measured_from_ns.load(Ordering::Relaxed), self.end_ns());
        match phase {
            Phase::Warmup if measured_from_ns < end_ns => Some((measured_from_ns, Phase::Measured)),
            Phase::Warmup | Phase::Measured => Some((end_ns, Phase::Drain)),
            Phase::Drain | Phase::Drained => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_call_starts_before_the_run() {
        assert_eq!(Plan::default().phase_at(0), None);
    }

    proptest! {
        /// Walking from end to end visits every phase that calls were admitted to, and only those.
        #[test]
        fn phases_follow_each_other(start in 1u64..1000, warmup in 0u64..50, duration in 0u64..50,
                                    early in prop::option::of(0u64..200)) {
            let plan = Plan::default();
            plan.start(start, warmup, duration);
            plan.end_by(start + early.unwrap_or(150));
            let (mut at, mut phase) = (start, plan.first());
            while let Some((end, next)) = plan.end_of(phase) {
                prop_assert!(end > at, "{phase:?} is empty");
                for ns in at..end {
                    prop_assert_eq!(plan.phase_at(ns), Some(phase));
                }
                (at, phase) = (end, next);
            }
            prop_assert_eq!((at, phase), (plan.end_ns(), Phase::Drain));
            prop_assert_eq!(plan.phase_at(at), None);
            // Without a duration the end comes from outside, at 199 at the latest.
            let planned = start + warmup + if duration == 0 { 200 } else { duration };
            prop_assert_eq!(at, planned.min(start + early.unwrap_or(150)));
        }
    }
}
