//! When events are recorded, if the budget does not allow all the time; and what their probes cost.
//!
//! The probes work during the first part of each [`PERIOD`] of the Unix clock and rest during the remainder. The hosts of a call
//! thus record at the same time, whatever their shares are.

use spangap_host::probes::cost::UNCOUNTED_AT_TRACEPOINT_NS;
use spangap_host::recording::Rolling;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// From the start of one working time to that of the next: half of what the budget looks at, and less than a case asks for.
pub(crate) const PERIOD: Duration = Duration::from_millis(7_500);
/// Smallest share of the time: 0.75 s at a stretch.
pub(crate) const LEAST: f64 = 0.1;
/// A smaller share aims at this fraction of the limit.
const AIM: f64 = 0.8;

/// Whether the probes work at this moment, given their share of the time.
pub(crate) fn works_at(share: f64, unix_ns: i64) -> bool {
    let period_ns = PERIOD.as_nanos() as i64;
    share >= 1.0 || (unix_ns.rem_euclid(period_ns) as f64) < share * period_ns as f64
}

/// The next smaller share, for an agent that uses this many times its limit; `None` if there is none. Not all of its usage
/// depends on the share, so that several steps may be needed.
pub(crate) fn smaller(share: f64, of_limit: f64) -> Option<f64> {
    (share > LEAST).then(|| (share * AIM / of_limit.max(1.0)).clamp(LEAST, share))
}

/// CPU time of the probes, estimated from samples.
#[derive(Debug)]
pub(crate) struct Scales {
    /// Seconds in BPF programs while they were sampled, events written meanwhile, and nanoseconds of the samples, so far.
    sampled: (f64, u64, u64),
    /// Seconds that an event took in the latest sample.
    an_event: f64,
    /// Share of one CPU that resting probes took in the latest sample.
    at_rest: f64,
    /// Events written until the last weighing.
    written: u64,
    /// Seconds so far, by weighing: those of the last period.
    seconds: VecDeque<(Instant, f64)>,
}

impl Default for Scales {
    fn default() -> Scales {
        let seconds = VecDeque::from([(Instant::now(), 0.0)]);
        Scales { sampled: (0.0, 0, 0), an_event: 0.0, at_rest: 0.0, written: 0, seconds }
    }
}

impl Scales {
    /// Adds the time since the last weighing, throughout which the probes worked, or rested. What an event costs is sampled, how
    /// many there were is counted.
    pub fn weigh(&mut self, rolling: &mut Rolling, rested: bool) {
        if let Some(cost) = rolling.cost() {
            let sampled = (cost.seconds(UNCOUNTED_AT_TRACEPOINT_NS), cost.written, cost.sampled_ns);
            self.take_sample(sampled, rested);
        }
        self.add(Instant::now(), rolling.written(), rested);
    }

    fn take_sample(&mut self, sampled: (f64, u64, u64), rested: bool) {
        let spent = sampled.0 - self.sampled.0;
        let (events, ns) = (sampled.1 - self.sampled.1, sampled.2 - self.sampled.2);
        if rested && ns > 0 {
            self.at_rest = spent * 1e9 / ns as f64;
        } else if !rested && events > 0 {
            self.an_event = spent / events as f64;
        }
        self.sampled = sampled;
    }

    fn add(&mut self, now: Instant, written: u64, rested: bool) {
        let Some(&(before, seconds)) = self.seconds.back() else { return };
        let passed = now.duration_since(before).as_secs_f64();
        let events = written.saturating_sub(self.written) as f64;
        self.written = written;
        let took = if rested { self.at_rest * passed } else { self.an_event * events };
        self.seconds.push_back((now, seconds + took));
        while self.seconds.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= PERIOD) {
            self.seconds.pop_front();
        }
    }

    /// Share of one CPU: between the last two weighings or, for probes that rest at times, over the last period.
    pub fn share(&self, of_period: bool) -> f64 {
        let first = if of_period { 0 } else { self.seconds.len().saturating_sub(2) };
        let (Some(first), Some(last)) = (self.seconds.get(first), self.seconds.back()) else { return 0.0 };
        (last.1 - first.1) / last.0.duration_since(first.0).as_secs_f64().max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_work_at_the_same_time_and_each_for_its_share() {
        let ms = 1_000_000;
        for share in [0.1, 0.25, 1.0] {
            let works = (0..7_500).filter(|at| works_at(share, (1_800_000_000_000 + at) * ms)).count();
            assert_eq!(works as f64, share * 7_500.0);
        }
        let both = (-20_000..20_000).all(|at| !works_at(0.1, at * ms) || works_at(0.3, at * ms));
        assert!(both, "who works less works when the other one does");
    }

    #[test]
    fn shares_shrink_to_the_least() {
        let first = smaller(1.0, 2.0).unwrap();
        assert!((first - 0.4).abs() < 1e-9, "{first}");
        assert!((smaller(first, 1.1).unwrap() - 0.4 * 0.8 / 1.1).abs() < 1e-9);
        assert_eq!(smaller(first, 50.0), Some(LEAST));
        assert_eq!(smaller(LEAST, 2.0), None);
        assert!(smaller(1.0, 0.5).unwrap() < 1.0, "whoever asks has too much of something");
    }

    #[test]
    fn work_and_rest_are_weighed_apart() {
        let mut scales = Scales::default();
        let began = scales.seconds[0].0;
        let at = |ms| began + Duration::from_millis(ms);
        // Ten events of 1 ms in 100 ms; then 2 % of a CPU.
        scales.take_sample((0.010, 10, 100_000_000), false);
        scales.add(at(1_500), 150, false);
        assert!((scales.share(false) - 0.1).abs() < 1e-9);
        scales.take_sample((0.012, 10, 200_000_000), true);
        scales.add(at(7_500), 150, true);
        assert!((scales.share(false) - 0.02).abs() < 1e-9);
        assert!((scales.share(true) - (0.15 + 0.12) / 7.5).abs() < 1e-9);
        // A period later.
        scales.add(at(9_000), 450, false);
        assert!((scales.share(true) - (0.12 + 0.3) / 7.5).abs() < 1e-9);
    }
}
