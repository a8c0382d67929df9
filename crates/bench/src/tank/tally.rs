//! Sums a client's intervals. Pure.

use crate::contract::{Interval, Phase};
use crate::distribution::{Distribution, Quantiles};
use crate::report::{Progress, Second};
use std::collections::BTreeMap;

/// Sums over one phase.
#[derive(Default)]
pub struct Sums {
    /// Calls that came due or, in a closed loop, were sent.
    pub due: u64,
    /// Due calls that were not made.
    pub skipped: u64,
    /// Calls that ended with OK.
    pub ok: u64,
    /// Other calls by status name, with the last one's reason.
    pub errors: BTreeMap<String, (u64, String)>,
    /// Calls above the slow threshold.
    pub slow: u64,
    /// From the intended time, OK calls; empty in a closed loop.
    pub latency: Distribution,
    /// From the send, OK calls.
    pub from_send: Distribution,
    /// From the intended time to the send, all calls made; empty in a closed loop.
    pub lateness: Distribution,
    /// Time covered.
    pub duration_ns: u64,
    /// CPU time of the client.
    pub cpu_ns: u64,
    /// Context switches of the client.
    pub context_switches: u64,
    /// Records that found no room.
    pub records_dropped: u64,
}

impl Sums {
    fn add(&mut self, interval: &Interval) {
        self.due += interval.due;
        self.skipped += interval.skipped;
        self.ok += interval.ok;
        for (name, failures) in &interval.errors {
            let (count, last) = self.errors.entry(name.clone()).or_default();
            *count += failures.count;
            if failures.count > 0 {
                last.clone_from(&failures.last);
            }
        }
        self.slow += interval.slow;
        interval.latency.add_to(&mut self.latency);
        interval.from_send.add_to(&mut self.from_send);
        interval.lateness.add_to(&mut self.lateness);
        self.duration_ns += interval.duration_ns;
        self.cpu_ns += interval.cpu_ns;
        self.context_switches += interval.context_switches;
        self.records_dropped += interval.records_dropped;
    }

    /// Calls that did not end with OK.
    pub fn failed(&self) -> u64 {
        self.errors.values().map(|(count, _)| count).sum()
    }

    /// Calls made whose outcome is known.
    pub fn calls(&self) -> u64 {
        self.ok + self.failed()
    }
}

/// A client's results so far.
#[derive(Default)]
pub struct Tally {
    /// Sums of the warm-up.
    pub warmup: Sums,
    /// Sums of the measured phase.
    pub measured: Sums,
    /// One entry per interval. Warm-up calls that ended later count in the last warm-up entry.
    pub seconds: Vec<Second>,
    /// Index of the warm-up's last entry, and its latencies.
    last_of_warmup: Option<(usize, Distribution)>,
    /// Start of the first phase.
    start_unix_ns: Option<u64>,
    /// Start of the measured phase.
    pub measured_from_unix_ns: Option<u64>,
    open: bool,
}

impl Tally {
    /// An empty tally, for an open or closed loop.
    pub fn new(open: bool) -> Self {
        Tally { open, ..Tally::default() }
    }

    /// A phase has begun.
    pub fn phase(&mut self, phase: Phase, unix_ns: u64) {
        self.start_unix_ns.get_or_insert(unix_ns);
        if phase == Phase::Measured {
            self.measured_from_unix_ns.get_or_insert(unix_ns);
        }
    }

    /// Adds an interval, and returns its summary.
    pub fn add(&mut self, interval: &Interval) -> Progress {
        let warming_up = interval.phase == Phase::Warmup;
        match warming_up {
            true => self.warmup.add(interval),
            false => self.measured.add(interval),
        }
        let mut distribution = Distribution::default();
        let of_calls = if self.open { &interval.latency } else { &interval.from_send };
        of_calls.add_to(&mut distribution);
        let latency = distribution.quantiles();
        // A wall clock that was set back appears as a negative time.
        let start_unix_ns = *self.start_unix_ns.get_or_insert(interval.at_unix_ns);
        let at_s = (i128::from(interval.at_unix_ns) - i128::from(start_unix_ns)) as f64 / 1e9;
        let errors = interval.errors.values().map(|failures| failures.count).sum();
        let second = Second {
            at_s,
            measured: !warming_up,
            ok: interval.ok,
            errors,
            skipped: interval.skipped,
            p50_ns: latency.p50_ns,
            p99_ns: latency.p99_ns,
            max_ns: latency.max_ns,
        };
        match &mut self.last_of_warmup {
            Some((last, latencies)) if warming_up && interval.duration_ns == 0 => {
                of_calls.add_to(latencies);
                add_late(&mut self.seconds[*last], &second, &latencies.quantiles());
            }
            // An interval after its phase may contain only the client's own figures.
            _ if interval.duration_ns > 0 || second.ok + second.errors + second.skipped > 0 => {
                if warming_up {
                    self.last_of_warmup = Some((self.seconds.len(), distribution));
                }
                self.seconds.push(second);
            }
            _ => {}
        }
        let in_flight = interval.in_flight as usize;
        Progress { elapsed_s: at_s, warming_up, ok: interval.ok, errors, latency, in_flight }
    }

    /// The reported latency: from the intended time where calls have one.
    pub fn latency(&self) -> &Distribution {
        if self.open { &self.measured.latency } else { &self.measured.from_send }
    }

    /// Records that found no room in the client.
    pub fn records_dropped(&self) -> u64 {
        self.warmup.records_dropped + self.measured.records_dropped
    }
}

/// Adds calls that ended after their phase to its last entry, whose latencies then have these quantiles.
fn add_late(last: &mut Second, late: &Second, latency: &Quantiles) {
    *last = Second {
        ok: last.ok + late.ok,
        errors: last.errors + late.errors,
        skipped: last.skipped + late.skipped,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        max_ns: latency.max_ns,
        ..*last
    };
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::contract::Histogram;
    use crate::contract::message::Failures;
    use proptest::prelude::*;

    pub fn interval(phase: Phase) -> Interval {
        Interval {
            phase,
            at_unix_ns: 0,
            duration_ns: 0,
            due: 0,
            skipped: 0,
            ok: 0,
            errors: BTreeMap::new(),
            slow: 0,
            latency: Histogram::default(),
            from_send: Histogram::default(),
            lateness: Histogram::default(),
            in_flight: 0,
            cpu_ns: 0,
            context_switches: 0,
            records_dropped: 0,
        }
    }

    prop_compose! {
        fn any_interval()(measured: bool, ok in prop::collection::vec(1u64..1 << 30, 0..50), failed in 0u64..9,
                          skipped in 0u64..9, at in 0u64..1 << 40, numbers in any::<[u16; 4]>()) -> Interval {
            let mut latencies = Distribution::default();
            ok.iter().for_each(|&ns| latencies.record(ns));
            let latency = Histogram::from(&latencies);
            let errors = (failed > 0).then(|| {
                ("UNAVAILABLE".to_owned(), Failures { count: failed, last: format!("the {failed} of {at}") })
            });
            Interval {
                at_unix_ns: at,
                duration_ns: numbers[0].into(),
                due: ok.len() as u64 + failed + skipped,
                skipped,
                ok: ok.len() as u64,
                errors: errors.into_iter().collect(),
                slow: numbers[1].into(),
                from_send: latency.clone(),
                latency,
                cpu_ns: numbers[2].into(),
                records_dropped: numbers[3].into(),
                ..interval(if measured { Phase::Measured } else { Phase::Warmup })
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_the_sums(intervals in prop::collection::vec(any_interval(), 0..20)) {
            let mut tally = Tally::new(true);
            for interval in &intervals {
                tally.add(interval);
            }
            let of = |phase: Phase, figure: fn(&Interval) -> u64| -> u64 {
                intervals.iter().filter(|interval| interval.phase == phase).map(figure).sum()
            };
            for (phase, sums) in [(Phase::Warmup, &tally.warmup), (Phase::Measured, &tally.measured)] {
                prop_assert_eq!(sums.due, of(phase, |interval| interval.due));
                prop_assert_eq!(sums.due, sums.skipped + sums.ok + sums.failed());
                prop_assert_eq!(sums.slow, of(phase, |interval| interval.slow));
                prop_assert_eq!(sums.duration_ns, of(phase, |interval| interval.duration_ns));
                prop_assert_eq!(sums.cpu_ns, of(phase, |interval| interval.cpu_ns));
                prop_assert_eq!(sums.latency.count(), sums.ok);
                let last = intervals.iter().rev().find(|one| one.phase == phase && !one.errors.is_empty());
                let last = last.map(|one| one.errors["UNAVAILABLE"].last.clone());
                prop_assert_eq!(sums.errors.get("UNAVAILABLE").map(|(_, last)| last.clone()), last);
            }
            prop_assert_eq!(tally.seconds.iter().filter(|second| second.measured).map(|second| second.ok).sum::<u64>(), tally.measured.ok);
            prop_assert_eq!(tally.records_dropped(), intervals.iter().map(|interval| interval.records_dropped).sum::<u64>());
        }
    }

    #[test]
    fn late_warm_up_calls_count_in_its_last_entry() {
        let mut tally = Tally::new(false);
        let told = |phase, at_s: u64, duration_ns, latencies: &[u64]| {
            let mut distribution = Distribution::default();
            latencies.iter().for_each(|&ns| distribution.record(ns));
            let (ok, from_send) = (latencies.len() as u64, Histogram::from(&distribution));
            Interval { at_unix_ns: at_s * 1_000_000_000, duration_ns, ok, from_send, ..interval(phase) }
        };
        tally.phase(Phase::Warmup, 1_000_000_000);
        for interval in [
            told(Phase::Warmup, 2, 1_000_000_000, &[10, 10, 10]),
            told(Phase::Warmup, 3, 0, &[30]),
            told(Phase::Measured, 3, 1_000_000_000, &[20]),
            told(Phase::Warmup, 4, 0, &[]),
            told(Phase::Measured, 4, 0, &[50]),
        ] {
            tally.add(&interval);
        }
        let rows: Vec<_> =
            tally.seconds.iter().map(|s| (s.at_s, s.measured, s.ok, s.p50_ns, s.max_ns)).collect();
        let warmup = (1.0, false, 4, Some(10), Some(30));
        assert_eq!(rows, [warmup, (2.0, true, 1, None, Some(20)), (3.0, true, 1, None, Some(50))]);
    }

    #[test]
    fn a_closed_loop_has_its_latency_from_the_send() {
        let mut tally = Tally::new(false);
        let from_send = Histogram { max: 5, sum: 5, buckets: vec![(5, 1)] };
        tally.phase(Phase::Measured, 1_000_000_000);
        let progress =
            tally.add(&Interval { at_unix_ns: 3_000_000_000, ok: 1, from_send, ..interval(Phase::Measured) });
        assert_eq!((progress.elapsed_s, progress.latency.max_ns), (2.0, Some(5)));
        assert_eq!(tally.latency().max_ns(), 5);
    }
}
