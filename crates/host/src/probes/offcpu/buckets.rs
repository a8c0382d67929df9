//! Histograms of durations: 16 equal buckets per power of two of microseconds, as the program counts them.

/// Logarithm of the number of buckets per power of two.
const SUB: u32 = 4;
/// Number of buckets. The last one has no upper bound.
pub const BUCKETS: usize = ((32 - SUB + 1) << SUB) as usize;
/// Factor from nanoseconds to bucket units (64ths of a microsecond), times 2^32. Rounded up, so that whole
/// microseconds are bucket edges, to within a billionth.
const UNITS: u64 = 274_877_907;
/// Durations from here on go to the last bucket, which starts at 65 s; longer ones would overflow the
/// arithmetic.
const OPEN_FROM: u64 = 66_000_000_000;

/// Bucket of a duration.
pub fn bucket(ns: u64) -> usize {
    if ns >= OPEN_FROM {
        return BUCKETS - 1;
    }
    let units = (ns * UNITS) >> 32;
    match units.checked_ilog2() {
        Some(log) if log >= SUB => (((log - SUB) << SUB) as u64 + (units >> (log - SUB))) as usize,
        _ => units as usize,
    }
}

/// Lower edge of a bucket, in 64ths of a microsecond.
fn low_units(bucket: usize) -> u64 {
    let log = (bucket as u64 >> SUB).saturating_sub(1);
    (bucket as u64 - (log << SUB)) << log
}

/// Lower edge of a bucket, in nanoseconds. That of the bucket after the last is the largest possible time.
pub fn low_ns(bucket: usize) -> u64 {
    if bucket >= BUCKETS { u64::MAX } else { (low_units(bucket) << 32).div_ceil(UNITS) }
}

/// Bounds of a duration, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bound, in nanoseconds.
    pub low_ns: u64,
    /// Upper bound, in nanoseconds.
    pub high_ns: u64,
}

impl Bounds {
    /// Midpoint, in nanoseconds.
    pub fn middle_ns(self) -> u64 {
        self.low_ns + (self.high_ns - self.low_ns) / 2
    }

    /// Distance of the bounds from the midpoint, in nanoseconds.
    pub fn bound_ns(self) -> u64 {
        self.high_ns - self.middle_ns()
    }
}

/// A histogram of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Counts by bucket.
    pub counts: Vec<u64>,
    /// Sum, in nanoseconds; exact.
    pub sum_ns: u64,
    /// Maximum, in nanoseconds; exact.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean in nanoseconds; `None` if empty.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// Quantile of the given share; `None` if empty.
    pub fn quantile(&self, share: f64) -> Option<Bounds> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let at = self.counts.iter().position(|&here| {
            seen += here;
            seen >= rank
        })?;
        Some(Bounds { low_ns: low_ns(at), high_ns: (low_ns(at + 1) - 1).min(self.max_ns) })
    }

    /// Non-empty buckets: their bounds, both inclusive, and their counts.
    pub fn filled(&self) -> impl Iterator<Item = (Bounds, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(at, &count)| (Bounds { low_ns: low_ns(at), high_ns: low_ns(at + 1) - 1 }, count))
    }

    /// Counts by powers of two of microseconds: below 2, from 2, from 4, from 8, and so on.
    pub fn by_power_of_two(&self) -> Vec<u64> {
        let mut rows = Vec::new();
        for (at, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let row = (low_units(at) / 64).max(1).ilog2() as usize;
            rows.resize(rows.len().max(row + 1), 0);
            rows[row] += count;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous() {
        assert_eq!(low_ns(0), 0);
        for at in 0..BUCKETS {
            assert_eq!(bucket(low_ns(at)), at);
            if at > 0 {
                assert_eq!(bucket(low_ns(at) - 1), at - 1);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(OPEN_FROM - 1), BUCKETS - 1);
    }

    #[test]
    fn powers_of_two_of_microseconds_are_edges() {
        for power in 0..=25 {
            let ns = 1000 << power;
            let low = low_ns(bucket(ns));
            assert!(low <= ns && ns - low <= ns >> 30, "2^{power} us: {low} ns");
            let mut histogram = Histogram::default();
            histogram.record(ns);
            histogram.record(ns - 100);
            let mut rows = vec![0; power + 1];
            rows[power] += 1;
            rows[power.saturating_sub(1)] += 1;
            assert_eq!(histogram.by_power_of_two(), rows, "2^{power} us");
        }
    }

    #[test]
    fn bucket_width_is_at_most_a_sixteenth() {
        for at in 16..BUCKETS - 1 {
            let (low, high) = (low_ns(at), low_ns(at + 1));
            assert!((high - low) * 16 <= low + 16, "{low}..{high}");
        }
    }

    #[test]
    fn quantiles_hold_the_true_value() {
        let mut histogram = Histogram::default();
        let mut all: Vec<u64> = (0..10_000_u64).map(|n| n * n * 37 % 900_000_007).collect();
        all.iter().for_each(|&ns| histogram.record(ns));
        all.sort_unstable();
        for share in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((all.len() as f64 * share).ceil() as usize).max(1);
            let Bounds { low_ns, high_ns } = histogram.quantile(share).unwrap();
            assert!((low_ns..=high_ns).contains(&all[rank - 1]), "{share}");
        }
        assert_eq!(histogram.quantile(1.0).unwrap().high_ns, *all.last().unwrap());
        assert_eq!(histogram.sum_ns, all.iter().sum::<u64>());
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn rows_are_those_of_cpudist() {
        let mut histogram = Histogram::default();
        // Below 2 us, 2 to 3 us, 4 to 7 us.
        for ns in [0, 999, 1_999, 2_000, 3_999, 4_000, 7_999] {
            histogram.record(ns);
        }
        assert_eq!(histogram.by_power_of_two(), [3, 2, 2]);
    }
}
