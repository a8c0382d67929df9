//! Classic buckets, for scrapers without native histograms. Their bounds are powers of two of seconds, which
//! are also bounds of the native buckets, so their counts are exact.

use super::exemplar::Exemplar;
use spangap_model::Histogram;
use spangap_model::histogram::SCALE;

/// Exponents of the lowest and the highest finite bound: 2^-20 s (0.95 us) to 2^6 s (64 s).
const EXPONENTS: std::ops::RangeInclusive<i32> = -20..=6;

/// A bucket in Prometheus' form.
#[derive(Clone, Debug)]
pub struct ClassicBucket<'e, 'a> {
    /// Inclusive upper bound in seconds; the last is infinite.
    pub upper_bound_s: f64,
    /// Number of durations at or below the bound.
    pub cumulative_count: u64,
    /// The most recent exemplar between the previous bound and this one.
    pub exemplar: Option<&'e Exemplar<'a>>,
}

/// Buckets of a distribution; `exemplars` must be sorted by time.
pub fn buckets<'e, 'a>(histogram: &Histogram, exemplars: &'e [Exemplar<'a>]) -> Vec<ClassicBucket<'e, 'a>> {
    let mut buckets: Vec<ClassicBucket> = EXPONENTS
        .map(|exponent| f64::from(exponent).exp2())
        .chain([f64::INFINITY])
        .map(|upper_bound_s| ClassicBucket { upper_bound_s, cumulative_count: 0, exemplar: None })
        .collect();
    let last = buckets.len() - 1;
    buckets[0].cumulative_count = histogram.zero_count();
    for (index, n) in histogram.buckets() {
        // Bucket `index` ends at 2^((index + 1) / 2^SCALE): it lies in the classic bucket of the next power
        // of two.
        let exponent = (index >> SCALE) + 1;
        let at = (exponent - EXPONENTS.start()).clamp(0, last as i32) as usize;
        buckets[at].cumulative_count += n;
    }
    let mut below = 0;
    for bucket in &mut buckets {
        below += bucket.cumulative_count;
        bucket.cumulative_count = below;
    }
    for exemplar in exemplars {
        let value_s = exemplar.value_ns as f64 / 1e9;
        let at = buckets.partition_point(|bucket| bucket.upper_bound_s < value_s);
        buckets[at].exemplar = Some(exemplar);
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_are_exact(values in prop::collection::vec(prop_oneof![0u64..5000, 0u64..200_000_000_000, Just(1_000_000_000), Just(62_500_000)], 0..100)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|ns| histogram.record(*ns));
            for bucket in buckets(&histogram, &[]) {
                let exact = values.iter().filter(|ns| **ns as f64 / 1e9 <= bucket.upper_bound_s).count() as u64;
                prop_assert_eq!(bucket.cumulative_count, exact, "at or below {} s", bucket.upper_bound_s);
            }
        }
    }
}
