//! Calls of a time range as counts of buckets, and what can be computed from these.

use super::figure::{LEAST_FOR_P99, Statistic};
use spangap_model::Histogram;
use spangap_model::histogram::{lower_bound_ns, upper_bound_ns};
use std::collections::BTreeMap;

/// Calls of a time range, as bucket counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Bucket and number of calls, lowest bucket first.
    buckets: Vec<(i32, u64)>,
    zero: u64,
    sum_ns: u128,
    /// Their number, zero durations included.
    pub calls: u64,
}

impl Counts {
    /// All of a distribution.
    pub fn of(histogram: &Histogram) -> Counts {
        Counts {
            buckets: histogram.buckets().filter(|(_, count)| *count > 0).collect(),
            zero: histogram.zero_count(),
            sum_ns: histogram.sum_ns(),
            calls: histogram.count(),
        }
    }

    /// The difference since an earlier state. A retraction can take back more calls than were added: then it
    /// is zero.
    pub fn since(&self, before: &Counts) -> Counts {
        let mut old = before.buckets.iter().peekable();
        let buckets: Vec<(i32, u64)> = self
            .buckets
            .iter()
            .filter_map(|(bucket, count)| {
                while old.next_if(|(other, _)| other < bucket).is_some() {}
                let had = old.next_if(|(other, _)| other == bucket).map_or(0, |(_, had)| *had);
                Some((*bucket, count.checked_sub(had).filter(|more| *more > 0)?))
            })
            .collect();
        let zero = self.zero.saturating_sub(before.zero);
        Counts {
            calls: zero + buckets.iter().map(|(_, count)| count).sum::<u64>(),
            buckets,
            zero,
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }

    /// Adds those of another time range.
    pub fn add(&mut self, other: &Counts) {
        let mut all = BTreeMap::<i32, u64>::new();
        for (bucket, count) in self.buckets.iter().chain(&other.buckets) {
            *all.entry(*bucket).or_default() += count;
        }
        self.buckets = all.into_iter().collect();
        self.zero += other.zero;
        self.sum_ns += other.sum_ns;
        self.calls += other.calls;
    }

    /// A quantile, interpolated within its bucket, nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> f64 {
        let rank = q * self.calls as f64;
        let mut below = self.zero as f64;
        if rank <= below {
            return 0.0;
        }
        for (bucket, count) in &self.buckets {
            let within = (rank - below) / *count as f64;
            if within <= 1.0 {
                let (low, high) = (lower_bound_ns(*bucket), upper_bound_ns(*bucket));
                return low * (high / low).powf(within);
            }
            below += *count as f64;
        }
        self.buckets.last().map_or(0.0, |(bucket, _)| upper_bound_ns(*bucket))
    }

    /// Mean, nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.calls.max(1) as f64
    }

    /// Number of calls in buckets beyond a duration.
    pub fn over(&self, ns: u64) -> u64 {
        let beyond = |bucket: i32| lower_bound_ns(bucket) >= ns as f64;
        self.buckets.iter().filter(|(bucket, _)| beyond(*bucket)).map(|(_, count)| count).sum()
    }

    pub(super) fn statistic(&self, statistic: Statistic) -> Option<f64> {
        match statistic {
            Statistic::Median => Some(self.quantile_ns(0.5)),
            Statistic::Mean => Some(self.mean_ns()),
            Statistic::P90 => Some(self.quantile_ns(0.9)),
            Statistic::P99 => (self.calls >= LEAST_FOR_P99).then(|| self.quantile_ns(0.99)),
            Statistic::Slowest | Statistic::Lasting => None,
        }
    }
}
