//! Call counters. Each calling thread has its own tally: its lock is practically uncontended, and once a second
//! the reporter takes the counts by exchanging them for empty ones.

use crate::contract::Phase;
use crate::contract::message::Failures;
use crate::distribution::Distribution;
use crate::status::status_name;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tonic::Code;

/// An ended call.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Phase in which it was due or sent.
    pub phase: Phase,
    /// Due time, monotonic clock; `None` in a closed loop.
    pub due_ns: Option<u64>,
    /// Monotonic time just before its send.
    pub sent_ns: u64,
    /// Monotonic time of its response, or of its end without one.
    pub done_ns: u64,
    /// Status and reason of a failure.
    pub failure: Option<(Code, &'a str)>,
}

impl Ended<'_> {
    /// Duration from its send.
    pub fn from_send_ns(&self) -> u64 {
        self.done_ns.saturating_sub(self.sent_ns)
    }

    /// Delay between due and sent; 0 in a closed loop.
    pub fn lateness_ns(&self) -> u64 {
        self.due_ns.map_or(0, |due_ns| self.sent_ns.saturating_sub(due_ns))
    }
}

/// Counts of one phase.
#[derive(Default)]
pub(crate) struct Counts {
    pub due: u64,
    pub skipped: u64,
    pub ok: u64,
    pub errors: BTreeMap<&'static str, Failures>,
    pub slow: u64,
    pub latency: Distribution,
    pub from_send: Distribution,
    pub lateness: Distribution,
}

impl Counts {
    pub fn is_empty(&self) -> bool {
        self.due == 0 && self.ok == 0 && self.errors.is_empty()
    }

    /// Clears the counts, and keeps the memory.
    pub fn clear(&mut self) {
        self.due = 0;
        self.skipped = 0;
        self.ok = 0;
        self.slow = 0;
        self.errors.clear();
        for distribution in [&mut self.latency, &mut self.from_send, &mut self.lateness] {
            if distribution.count() > 0 {
                distribution.clear();
            }
        }
    }

    /// Moves everything out of `other`.
    pub fn take_from(&mut self, other: &mut Counts) {
        self.due += other.due;
        self.skipped += other.skipped;
        self.ok += other.ok;
        self.slow += other.slow;
        for (name, failures) in std::mem::take(&mut other.errors) {
            let sum = self.errors.entry(name).or_default();
            *sum = Failures { count: sum.count + failures.count, last: failures.last };
        }
        let pairs = [
            (&mut self.latency, &mut other.latency),
            (&mut self.from_send, &mut other.from_send),
            (&mut self.lateness, &mut other.lateness),
        ];
        for (sum, part) in pairs.into_iter().filter(|(_, part)| part.count() > 0) {
            sum.add(part.max_ns(), part.sum_ns(), part.buckets());
        }
        other.clear();
    }
}

/// Counts of one thread. Lock it once for as many calls as possible: `tally.lock().ended(...)`.
pub struct Tally {
    counting: Mutex<Counting>,
}

/// A locked tally.
pub struct Counting {
    slow_ns: u64,
    phases: [Counts; 2],
    sent: u64,
    ended: u64,
}

impl Tally {
    /// Calls that take longer than `slow_ns` from their send count as slow.
    pub fn new(slow_ns: u64) -> Self {
        let counting = Counting { slow_ns, phases: Default::default(), sent: 0, ended: 0 };
        Tally { counting: Mutex::new(counting) }
    }

    /// For the exclusive use of this thread.
    pub fn lock(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges the counts of phases with news for `empty` ones. Returns the number of calls that have ended
    /// so far.
    pub(crate) fn exchange(&self, empty: &mut [Counts; 2]) -> u64 {
        let mut counting = self.lock();
        for (counts, empty) in counting.phases.iter_mut().zip(empty) {
            if !counts.is_empty() {
                std::mem::swap(counts, empty);
            }
        }
        counting.ended
    }

    /// Calls sent so far, ended or not.
    pub(crate) fn sent(&self) -> u64 {
        self.lock().sent
    }
}

impl Counting {
    fn phase(&mut self, phase: Phase) -> &mut Counts {
        &mut self.phases[usize::from(phase != Phase::Warmup)]
    }

    /// A call is about to be sent, `lateness_ns` after it was due (`None` in a closed loop).
    pub fn sent(&mut self, phase: Phase, lateness_ns: Option<u64>) {
        self.sent_many(phase, lateness_ns, 1);
    }

    /// A number of calls is about to be sent at once.
    pub fn sent_many(&mut self, phase: Phase, lateness_ns: Option<u64>, calls: u64) {
        self.sent += calls;
        let counts = self.phase(phase);
        counts.due += calls;
        if let Some(lateness_ns) = lateness_ns {
            counts.lateness.record_n(lateness_ns, calls);
        }
    }

    /// A due call is skipped, because too many are in flight.
    pub fn skipped(&mut self, phase: Phase) {
        let counts = self.phase(phase);
        counts.due += 1;
        counts.skipped += 1;
    }

    /// A call that was [`sent`](Self::sent), on any tally, has ended. Returns whether it was slow.
    pub fn ended(&mut self, call: &Ended<'_>) -> bool {
        self.ended_many(call, 1)
    }

    /// A number of calls have ended alike.
    pub fn ended_many(&mut self, call: &Ended<'_>, calls: u64) -> bool {
        self.ended += calls;
        let from_send_ns = call.from_send_ns();
        let slow = from_send_ns > self.slow_ns;
        let counts = self.phase(call.phase);
        counts.slow += if slow { calls } else { 0 };
        match call.failure {
            None => {
                counts.ok += calls;
                counts.from_send.record_n(from_send_ns, calls);
                if let Some(due_ns) = call.due_ns {
                    counts.latency.record_n(call.done_ns.saturating_sub(due_ns), calls);
                }
            }
            Some((code, reason)) => {
                let failures = counts.errors.entry(status_name(code)).or_default();
                failures.count += calls;
                if failures.last != reason {
                    failures.last = reason.to_owned();
                }
            }
        }
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Phase, lateness, time from the send, status.
    fn calls() -> impl Strategy<Value = Vec<(bool, Option<u32>, u32, i32)>> {
        prop::collection::vec((any::<bool>(), any::<Option<u32>>(), any::<u32>(), 0i32..17), 0..200)
    }

    proptest! {
        #[test]
        fn all_exchanges_together_hold_every_call_once(calls in calls(), every in 1usize..20) {
            let tally = Tally::new(1 << 31);
            let (mut spare, mut sums): ([Counts; 2], [Counts; 2]) = Default::default();
            for (n, &(measured, lateness, took, code)) in calls.iter().enumerate() {
                let phase = if measured { Phase::Measured } else { Phase::Warmup };
                let lateness = lateness.map(u64::from);
                tally.lock().sent(phase, lateness);
                let sent_ns = 1 << 40;
                let code = Code::from_i32(code);
                let slow = tally.lock().ended(&Ended {
                    phase, due_ns: lateness.map(|late| sent_ns - late), sent_ns, done_ns: sent_ns + u64::from(took),
                    failure: (code != Code::Ok).then_some((code, "why")),
                });
                prop_assert_eq!(slow, took > 1 << 31);
                if n % every == 0 {
                    tally.exchange(&mut spare);
                    sums.iter_mut().zip(&mut spare).for_each(|(sum, part)| sum.take_from(part));
                }
            }
            prop_assert_eq!(tally.exchange(&mut spare), tally.sent());
            sums.iter_mut().zip(&mut spare).for_each(|(sum, part)| sum.take_from(part));
            for (sum, measured) in sums.iter().zip([false, true]) {
                let of: Vec<_> = calls.iter().filter(|call| call.0 == measured).collect();
                let ok = of.iter().filter(|call| call.3 == 0);
                prop_assert_eq!(sum.due, of.len() as u64);
                prop_assert_eq!(sum.ok + sum.errors.values().map(|f| f.count).sum::<u64>(), sum.due);
                prop_assert_eq!(sum.slow, of.iter().filter(|call| call.2 > 1 << 31).count() as u64);
                prop_assert_eq!(sum.lateness.count(), of.iter().filter(|call| call.1.is_some()).count() as u64);
                prop_assert_eq!(sum.from_send.sum_ns(), ok.clone().map(|call| u128::from(call.2)).sum::<u128>());
                let latency: u128 =
                    ok.filter_map(|call| Some(u128::from(call.1?) + u128::from(call.2))).sum();
                prop_assert_eq!(sum.latency.sum_ns(), latency);
            }
        }
    }

    #[test]
    fn the_last_reason_stays() {
        let tally = Tally::new(u64::MAX);
        for reason in ["first", "second", "second"] {
            let call = Ended { phase: Phase::Measured, due_ns: None, sent_ns: 1, done_ns: 2, failure: None };
            tally.lock().ended(&Ended { failure: Some((Code::Internal, reason)), ..call });
        }
        let mut taken: [Counts; 2] = Default::default();
        tally.exchange(&mut taken);
        assert_eq!(taken[1].errors["INTERNAL"], Failures { count: 3, last: "second".into() });
    }
}
