//! Durations of calls and their quantiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Durations to three significant digits, with exact maximum and mean.
#[derive(Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    max_ns: u64,
    sum_ns: u128,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("3 is between 0 and 5, all that is asked of it");
        Distribution { histogram, max_ns: 0, sum_ns: 0 }
    }
}

impl Distribution {
    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Adds one duration `times` times.
    pub fn record_n(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        // Fails only without memory for more buckets; the largest value already has one then.
        if self.histogram.record_n(ns, times).is_err() {
            self.histogram.saturating_record_n(ns, times);
        }
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns) * u128::from(times);
    }

    /// Durations added.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Exact maximum in nanoseconds, 0 if empty.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Exact sum in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// A value inside each non-empty bucket, and its count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
    }

    /// Adds counted values with a known exact maximum and sum.
    pub fn add(&mut self, max_ns: u64, sum_ns: u128, buckets: impl IntoIterator<Item = (u64, u64)>) {
        for (ns, count) in buckets {
            if self.histogram.record_n(ns, count).is_err() {
                self.histogram.saturating_record_n(ns, count);
            }
        }
        self.max_ns = self.max_ns.max(max_ns);
        self.sum_ns += sum_ns;
    }

    /// Removes all durations.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.max_ns = 0;
        self.sum_ns = 0;
    }

    /// The quantile that one in `one_in` durations exceeds: 100 for p99. `None` if fewer than `one_in` were
    /// added, since it would be the maximum under another name.
    fn exceeded_by_one_in(&self, one_in: u64) -> Option<u64> {
        if self.count() < one_in {
            return None;
        }
        let quantile = 1.0 - 1.0 / one_in as f64;
        Some(self.histogram.value_at_quantile(quantile).min(self.max_ns))
    }

    /// The reported quantiles.
    pub fn quantiles(&self) -> Quantiles {
        let some = |value| (self.count() > 0).then_some(value);
        Quantiles {
            p50_ns: self.exceeded_by_one_in(2),
            p90_ns: self.exceeded_by_one_in(10),
            p99_ns: self.exceeded_by_one_in(100),
            p999_ns: self.exceeded_by_one_in(1_000),
            p9999_ns: self.exceeded_by_one_in(10_000),
            max_ns: some(self.max_ns),
            mean_ns: some((self.sum_ns / u128::from(self.count().max(1))) as u64),
        }
    }
}

/// Quantiles of a distribution; null where there were too few values: fewer than 2 for p50, 10 for p90, 100 for
/// p99, 1,000 for p999, 10,000 for p9999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub p9999_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub mean_ns: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        values.into_iter().for_each(|ns| distribution.record(ns));
        distribution
    }

    #[test]
    fn too_few_values_give_no_quantile() {
        assert_eq!(of([]).quantiles(), Quantiles::default());
        let one = of([7]).quantiles();
        assert_eq!((one.p50_ns, one.max_ns, one.mean_ns), (None, Some(7), Some(7)));
        assert_eq!(of(0..9_999).quantiles().p9999_ns, None);
        assert!(of(0..10_000).quantiles().p9999_ns.is_some());
    }

    #[test]
    fn clearing_forgets() {
        let mut distribution = of([1, 2, 3]);
        distribution.clear();
        assert_eq!((distribution.count(), distribution.quantiles()), (0, Quantiles::default()));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_thousandth(mut values in prop::collection::vec(0u64..1 << 40, 100..300)) {
            let quantiles = of(values.iter().copied()).quantiles();
            values.sort_unstable();
            let rank = (0.99 * values.len() as f64).ceil() as usize - 1;
            let (p99, exact) = (quantiles.p99_ns.unwrap(), values[rank]);
            prop_assert!(p99 >= exact && p99 - exact <= exact / 1000 + 1, "{} {}", p99, exact);
            prop_assert_eq!(quantiles.max_ns, values.last().copied());
            let sum: u128 = values.iter().map(|&v| u128::from(v)).sum();
            prop_assert_eq!(u128::from(quantiles.mean_ns.unwrap()), sum / values.len() as u128);
        }
    }
}
