//! Share of the excess that calls with a given value have, by the weight of each sampled call.

use super::attributes::Pool;
use super::{Quarter, Share};
use crate::samples::Drawn;
use fastrand::Rng;

/// Resampled samples behind an interval.
const RESAMPLED: usize = 200;

/// A sampled call: its number in the pool, and what it stands for.
#[derive(Clone, Copy, Debug)]
struct WeightedCall {
    call: usize,
    weight: f64,
}

/// What the samples say of all calls.
#[derive(Debug)]
pub struct Effects {
    /// Each with the calls that it stands for.
    by_call: Vec<WeightedCall>,
    /// Each with the lost time that it stands for, nanoseconds.
    by_time: Vec<WeightedCall>,
    gaps_ns: Vec<u64>,
    /// Median gap of all calls, nanoseconds.
    pub typical_ns: f64,
    /// Lost time beyond a typical gap for each call, nanoseconds.
    pub excess_ns: f64,
    /// The same samples drawn again from themselves.
    again: Vec<(Vec<WeightedCall>, Vec<WeightedCall>)>,
}

impl Effects {
    /// Of a pool and the samples it is made of.
    pub fn new(pool: &Pool<'_>, samples: &[Drawn]) -> Effects {
        let number =
            |call: &spangap_model::KeptCall| pool.numbers.get(&(call.trace_id, call.client_span_id)).copied();
        let (mut by_call, mut by_time) = (Vec::new(), Vec::new());
        for drawn in samples {
            let each = drawn.calls as f64 / drawn.by_call.len().max(1) as f64;
            let calls = drawn.by_call.iter().filter_map(number);
            by_call.extend(calls.map(|call| WeightedCall { call, weight: each }));
            let stands_for: f64 = drawn.by_time.iter().map(|(_, lost_ns)| lost_ns).sum();
            // The sum is known exactly, what each has of it is estimated.
            let scale = drawn.lost_ns as f64 / stands_for.max(1.0);
            let calls = drawn.by_time.iter().filter_map(|(call, lost_ns)| Some((number(call)?, lost_ns)));
            by_time.extend(calls.map(|(call, lost_ns)| WeightedCall { call, weight: lost_ns * scale }));
        }
        let gaps_ns: Vec<u64> = pool.calls.iter().map(|call| call.call.gap_ns).collect();
        let typical_ns =
            median(by_call.iter().map(|one| (gaps_ns[one.call], one.weight)).collect()).unwrap_or(0);
        let mut rng = Rng::with_seed(0x5ba9);
        let mut resample = |from: &[WeightedCall]| -> Vec<WeightedCall> {
            from.iter().filter_map(|_| rng.choice(from).copied()).collect()
        };
        let again = (0..RESAMPLED).map(|_| (resample(&by_call), resample(&by_time))).collect();
        let mut effects =
            Effects { by_call, by_time, gaps_ns, typical_ns: typical_ns as f64, excess_ns: 0.0, again };
        effects.excess_ns = effects.excess(&effects.by_call, &effects.by_time, |_| true);
        effects
    }

    fn excess(&self, by_call: &[WeightedCall], by_time: &[WeightedCall], of: impl Fn(usize) -> bool) -> f64 {
        let sum = |sample: &[WeightedCall]| -> f64 {
            sample.iter().filter(|one| of(one.call)).map(|one| one.weight).sum()
        };
        sum(by_time) - self.typical_ns * sum(by_call)
    }

    /// What calls with a mark have of the excess.
    pub fn share(&self, marked: &[bool]) -> Share {
        self.share_where(|call| marked[call], |_| true)
    }

    /// What calls with a mark have of the excess of some.
    pub fn share_among(&self, marked: &[bool], among: &[bool]) -> Share {
        self.share_where(|call| marked[call] && among[call], |call| among[call])
    }

    fn share_where(&self, is_marked: impl Fn(usize) -> bool, is_among: impl Fn(usize) -> bool) -> Share {
        let share = |by_call: &[WeightedCall], by_time: &[WeightedCall]| {
            let all = self.excess(by_call, by_time, &is_among);
            (all > 0.0).then(|| self.excess(by_call, by_time, &is_marked) / all)
        };
        let Some(mid) = share(&self.by_call, &self.by_time) else { return Share::default() };
        let again = self.again.iter().filter_map(|(by_call, by_time)| share(by_call, by_time));
        let mut again: Vec<f64> = again.collect();
        again.sort_by(f64::total_cmp);
        let at = |part: f64| again.get((part * again.len() as f64) as usize).copied().unwrap_or(mid);
        let within = |share: f64| share.clamp(-1.0, 1.0);
        Share { low: within(at(0.05).min(mid)), mid: within(mid), high: within(at(0.95).max(mid)) }
    }

    /// Share of all calls that carry a mark.
    pub fn share_of_calls(&self, marked: &[bool]) -> f64 {
        self.share_of_calls_where(|call| marked[call], |_| true)
    }

    /// Share of some calls that carry a mark.
    pub fn share_of_calls_among(&self, marked: &[bool], among: &[bool]) -> f64 {
        self.share_of_calls_where(|call| marked[call] && among[call], |call| among[call])
    }

    fn share_of_calls_where(
        &self,
        is_marked: impl Fn(usize) -> bool,
        is_among: impl Fn(usize) -> bool,
    ) -> f64 {
        let weight = |of: &dyn Fn(usize) -> bool| -> f64 {
            self.by_call.iter().filter(|one| of(one.call)).map(|one| one.weight).sum()
        };
        let (all, with) = (weight(&is_among), weight(&is_marked));
        if all > 0.0 { with / all } else { 0.0 }
    }

    /// Median gap of some calls, as drawn by call.
    pub fn median_ns(&self, of: impl Fn(usize) -> bool) -> Option<u64> {
        let calls = self.by_call.iter().filter(|one| of(one.call));
        median(calls.map(|one| (self.gaps_ns[one.call], one.weight)).collect())
    }
}

/// The weighted median.
fn median(mut values: Vec<(u64, f64)>) -> Option<u64> {
    values.sort_by_key(|(value, _)| *value);
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    values
        .iter()
        .find(|(_, weight)| {
            below += weight;
            below >= half
        })
        .map(|(value, _)| *value)
}

/// Four groups of as many calls each, by the size of a number; those with the same number stay together.
pub fn quarters(pool: &Pool<'_>, values: &[Option<f64>]) -> Vec<Quarter> {
    let calls = pool.calls.iter().zip(values);
    let mut calls: Vec<(f64, u64)> =
        calls.filter_map(|(call, value)| Some(((*value)?, call.call.gap_ns))).collect();
    calls.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let all = calls.len();
    let mut quarters: Vec<Vec<(f64, u64)>> = vec![Vec::new(); 4];
    let mut before = 0;
    for same in calls.chunk_by(|a, b| a.0 == b.0) {
        quarters[(before * 4 / all.max(1)).min(3)].extend(same);
        before += same.len();
    }
    let quarters = quarters.into_iter().filter(|calls| !calls.is_empty()).map(|mut calls| {
        let (from, to) = (calls[0].0, calls[calls.len() - 1].0);
        calls.sort_by_key(|(_, gap_ns)| *gap_ns);
        Quarter { from, to, calls: calls.len() as u64, median_gap_ns: calls[calls.len() / 2].1 }
    });
    quarters.collect()
}
