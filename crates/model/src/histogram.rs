//! The one bucket scheme: OpenTelemetry's base-2 exponential histogram at scale 4, in seconds.
//!
//! Bucket `i` holds durations in `(base^i, base^(i+1)]` seconds with `base = 2^(1/16)`, as the OpenTelemetry
//! metrics data model defines them; Prometheus' native histogram of schema 4 calls the same bucket `i + 1`.
//! A bucket is 4.4 % wide. Zero has a count of its own.

/// Scale of the base-2 exponential scheme (OpenTelemetry `scale`, Prometheus `schema`).
pub const SCALE: i32 = 4;
/// Number of buckets per power of two.
const PER_OCTAVE: i32 = 1 << SCALE;
/// `bucket(1 ns)`: the lowest index a whole number of nanoseconds can have.
pub const MIN_INDEX: i32 = -479;
/// `bucket(u64::MAX ns)`: the highest.
pub const MAX_INDEX: i32 = 545;

/// 2^(j/16) as the mantissa bits of an f64, for j in 0..=15.
const MANTISSA_BOUNDS: [u64; 16] = mantissa_bounds();
/// For each value of the top 6 mantissa bits, the last j whose bound is not above it.
const FIRST_GUESS: [u8; 64] = first_guess();

const fn mantissa_bounds() -> [u64; 16] {
    // 2^(1/16) = 1.0442737824274138 to f64 precision; the others are its products taken from a table of
    // correctly rounded values, since powf is not const.
    const ROOTS: [f64; 16] = [
        1.0,
        1.044_273_782_427_413_8,
        1.090_507_732_665_257_7,
        1.138_788_634_756_691_6,
        1.189_207_115_002_721,
        1.241_857_812_073_484,
        1.296_839_554_651_009_6,
        1.354_255_546_936_892_7,
        std::f64::consts::SQRT_2,
        1.476_826_145_939_499_3,
        1.542_210_825_407_940_7,
        1.610_490_331_949_254_3,
        1.681_792_830_507_429,
        1.756_252_160_373_299_5,
        1.834_008_086_409_342_4,
        1.915_206_561_397_147_3,
    ];
    let mut bounds = [0; 16];
    let mut j = 0;
    while j < 16 {
        bounds[j] = ROOTS[j].to_bits() & ((1 << 52) - 1);
        j += 1;
    }
    bounds
}

const fn first_guess() -> [u8; 64] {
    let mut table = [0u8; 64];
    let mut i = 0;
    while i < 64 {
        let low = (i as u64) << 46;
        let mut j = 15;
        while MANTISSA_BOUNDS[j] > low {
            j -= 1;
        }
        table[i] = j as u8;
        i += 1;
    }
    table
}

/// The bucket of a duration of `ns` nanoseconds; `ns` must not be zero.
#[inline]
pub fn bucket_index(ns: u64) -> i32 {
    debug_assert!(ns != 0);
    let bits = (ns as f64 / 1e9).to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = bits & ((1 << 52) - 1);
    let mut j = FIRST_GUESS[(mantissa >> 46) as usize] as usize;
    while j < 15 && MANTISSA_BOUNDS[j + 1] <= mantissa {
        j += 1;
    }
    // Upper bounds are inclusive: a value that *is* a bound belongs to the bucket below it.
    let on_bound = (MANTISSA_BOUNDS[j] == mantissa) as i32;
    exponent * PER_OCTAVE + j as i32 - on_bound
}

/// Upper bound, inclusive, of bucket `index`, in nanoseconds.
pub fn upper_bound_ns(index: i32) -> f64 {
    ((index + 1) as f64 / PER_OCTAVE as f64).exp2() * 1e9
}

/// Lower bound, exclusive, of bucket `index`, in nanoseconds.
pub fn lower_bound_ns(index: i32) -> f64 {
    upper_bound_ns(index - 1)
}

/// A quantile with its uncertainty: the bucket it fell into and the sampling error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Estimate in nanoseconds, interpolated inside the bucket and never outside the observed minimum and
    /// maximum.
    pub value_ns: u64,
    /// Lower end of the 95 % confidence interval: the bucket's lower bound at the lower rank.
    pub low_ns: u64,
    /// Upper end of the 95 % confidence interval: the bucket's upper bound at the upper rank.
    pub high_ns: u64,
}

/// A distribution of durations: sparse exponential buckets, zero count, exact sum, minimum and maximum.
///
/// Counts are exact; a quantile is known to within its bucket. Memory: 8 bytes for each bucket between the
/// lowest and the highest one used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    first: i32,
    counts: Vec<u64>,
    zero: u64,
    count: u64,
    sum_ns: u128,
    /// Minimum of all durations ever recorded; `retract` cannot raise it.
    min_ns: u64,
    /// No value is larger.
    max_ns: u64,
    /// Some value is at least this large. Equal to `max_ns` until the largest value is retracted.
    max_low_ns: u64,
}

impl Histogram {
    /// An empty distribution; allocates nothing.
    pub const fn new() -> Self {
        Histogram {
            first: 0,
            counts: Vec::new(),
            zero: 0,
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            max_low_ns: 0,
        }
    }

    /// A distribution from its parts, such as sums that a database has made: counts of buckets, of zeros, and the
    /// minimum, maximum and lower bound of the maximum. `None` if a bucket does not exist, or a
    /// count is too large.
    pub fn from_parts(
        buckets: impl IntoIterator<Item = (i32, u64)>,
        zero: u64,
        sum_ns: u128,
        [min_ns, max_ns, max_low_ns]: [u64; 3],
    ) -> Option<Histogram> {
        let mut of = Histogram { zero, count: zero, sum_ns, ..Histogram::new() };
        for (index, calls) in buckets {
            if !(MIN_INDEX..=MAX_INDEX).contains(&index) {
                return None;
            }
            let slot = of.slot(index);
            *slot = slot.checked_add(calls)?;
            of.count = of.count.checked_add(calls)?;
        }
        if of.count > 0 {
            (of.min_ns, of.max_ns, of.max_low_ns) = (min_ns, max_ns, max_low_ns);
        }
        Some(of)
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.count == 0 {
            (self.min_ns, self.max_ns, self.max_low_ns) = (u64::MAX, 0, 0);
        }
        self.count += 1;
        self.sum_ns += ns as u128;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.max_low_ns = self.max_low_ns.max(ns);
        if ns == 0 {
            self.zero += 1;
        } else {
            *self.slot(bucket_index(ns)) += 1;
        }
    }

    /// Removes a duration that was recorded before. The minimum stays. If the maximum is removed, the next one
    /// is known to within its bucket: see [`Histogram::max_low_ns`].
    pub fn retract(&mut self, ns: u64) {
        debug_assert!(self.count > 0);
        if ns == 0 {
            self.zero = self.zero.saturating_sub(1);
        } else {
            let slot = self.slot(bucket_index(ns));
            *slot = slot.saturating_sub(1);
        }
        self.count = self.count.saturating_sub(1);
        self.sum_ns = self.sum_ns.saturating_sub(ns as u128);
        if ns >= self.max_low_ns {
            self.narrow_max();
        }
    }

    /// The largest value may be gone: the remaining ones lie in the highest non-empty bucket.
    #[cold]
    fn narrow_max(&mut self) {
        let highest = self.counts.iter().rposition(|n| *n > 0).map(|at| self.first + at as i32);
        let (low, high) = match highest {
            // A bucket's lower bound is exclusive.
            Some(index) => (lower_bound_ns(index).floor() as u64, upper_bound_ns(index).ceil() as u64),
            None => (0, 0),
        };
        self.max_ns = self.max_ns.min(high);
        self.max_low_ns = low.max(1).min(self.max_ns);
    }

    /// Sets the maximum, if it is known from elsewhere.
    pub fn set_max_ns(&mut self, max_ns: u64) {
        if (self.max_low_ns..=self.max_ns).contains(&max_ns) {
            (self.max_low_ns, self.max_ns) = (max_ns, max_ns);
        }
    }

    #[inline]
    fn slot(&mut self, index: i32) -> &mut u64 {
        let at = index.wrapping_sub(self.first) as usize;
        if at >= self.counts.len() {
            self.widen(index);
        }
        &mut self.counts[(index - self.first) as usize]
    }

    #[cold]
    fn widen(&mut self, index: i32) {
        if self.counts.is_empty() {
            self.first = index;
            self.counts.push(0);
        } else if index < self.first {
            let missing = (self.first - index) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = index;
        } else {
            self.counts.resize((index - self.first) as usize + 1, 0);
        }
    }

    /// Adds every count of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 && other.counts.is_empty() {
            return;
        }
        if let Some(last) = other.counts.len().checked_sub(1) {
            self.slot(other.first);
            self.slot(other.first + last as i32);
            let at = (other.first - self.first) as usize;
            for (mine, theirs) in self.counts[at..].iter_mut().zip(&other.counts) {
                *mine += theirs;
            }
        }
        if self.count == 0 {
            (self.min_ns, self.max_ns, self.max_low_ns) = (u64::MAX, 0, 0);
        }
        if other.count > 0 {
            self.min_ns = self.min_ns.min(other.min_ns);
            self.max_ns = self.max_ns.max(other.max_ns);
            self.max_low_ns = self.max_low_ns.max(other.max_low_ns);
        }
        self.zero += other.zero;
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    /// Raises every bucket, the zero count and the sum to at least those of `other`; the count follows the
    /// buckets.
    ///
    /// An exported counter must not decrease after [`Histogram::retract`]: raising the previously exported
    /// figures to the current ones gives figures that only grow.
    pub fn raise_to(&mut self, other: &Histogram) {
        if let Some(last) = other.counts.len().checked_sub(1) {
            self.slot(other.first);
            self.slot(other.first + last as i32);
            let at = (other.first - self.first) as usize;
            for (mine, theirs) in self.counts[at..].iter_mut().zip(&other.counts) {
                *mine = (*mine).max(*theirs);
            }
        }
        if other.count > 0 {
            self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
            self.max_ns = self.max_ns.max(other.max_ns);
            self.max_low_ns = self.max_low_ns.max(other.max_low_ns);
        }
        self.zero = self.zero.max(other.zero);
        self.count = self.zero + self.counts.iter().sum::<u64>();
        self.sum_ns = self.sum_ns.max(other.sum_ns);
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of zero durations.
    pub fn zero_count(&self) -> u64 {
        self.zero
    }

    /// Exact sum in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Minimum; `None` if empty.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Lower bound of the maximum, and at most [`Histogram::max_ns`]; both are equal unless the maximum was
    /// retracted. `None` if empty.
    pub fn max_low_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_low_ns)
    }

    /// Maximum; `None` if empty.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Mean in nanoseconds; `None` if empty.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum_ns / self.count as u128) as u64)
    }

    /// Non-empty buckets as `(index, count)`, lowest first, without zero.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        (self.first..).zip(&self.counts).filter(|(_, n)| **n > 0).map(|(i, n)| (i, *n))
    }

    /// Number of durations at or below `bound_ns`, counting whole buckets only: exact if `bound_ns` is a
    /// bucket's upper bound.
    pub fn count_at_or_below(&self, bound_ns: f64) -> u64 {
        let within = self.buckets().take_while(|(i, _)| upper_bound_ns(*i) <= bound_ns * (1.0 + 1e-12));
        self.zero + within.map(|(_, n)| n).sum::<u64>()
    }

    /// The `q` quantile (0 to 1) by nearest rank, with its 95 % interval; `None` if empty.
    ///
    /// The interval covers the bucket's width and the sampling error of the rank: the rank of a quantile over
    /// `n` draws has standard deviation `sqrt(n q (1-q))` (order statistics, normal approximation).
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        if self.count == 0 {
            return None;
        }
        let n = self.count as f64;
        let rank = (q * n).ceil().clamp(1.0, n);
        let spread = 1.96 * (n * q * (1.0 - q)).sqrt();
        let (value, ..) = self.at_rank(rank);
        let (_, low, _) = self.at_rank((rank - spread).floor().max(1.0));
        let (.., high) = self.at_rank((rank + spread).ceil().min(n));
        // Beyond the last draw, only the observed maximum bounds the quantile from above.
        Some(Quantile { value_ns: value, low_ns: low, high_ns: high })
    }

    /// Value, lower and upper bound of the duration at 1-based `rank`.
    fn at_rank(&self, rank: f64) -> (u64, u64, u64) {
        let mut below = self.zero as f64;
        if rank <= below {
            return (0, 0, 0);
        }
        for (index, n) in self.buckets() {
            let here = n as f64;
            if rank <= below + here {
                let low = lower_bound_ns(index).max(self.min_ns as f64);
                let high = upper_bound_ns(index).min(self.max_ns as f64);
                // The k-th of n values spread evenly inside the bucket.
                let share = (rank - below - 0.5) / here;
                return ((low + (high - low) * share).round() as u64, low as u64, high.ceil() as u64);
            }
            below += here;
        }
        (self.max_ns, self.max_ns, self.max_ns)
    }

    /// Compact encoding for storage; [`Histogram::decode`] is the inverse.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.counts.len());
        put_varint(&mut out, self.count);
        put_varint(&mut out, self.zero);
        put_varint(&mut out, self.sum_ns as u64);
        put_varint(&mut out, (self.sum_ns >> 64) as u64);
        put_varint(&mut out, if self.count == 0 { 0 } else { self.min_ns });
        put_varint(&mut out, self.max_ns);
        put_varint(&mut out, (self.first as i64 + 1024).max(0) as u64);
        put_varint(&mut out, self.counts.len() as u64);
        for n in &self.counts {
            put_varint(&mut out, *n);
        }
        if self.max_low_ns != self.max_ns && self.count > 0 {
            put_varint(&mut out, self.max_low_ns);
        }
        out
    }

    /// Decodes the output of [`Histogram::encode`]; `None` if it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Option<Histogram> {
        let input = &mut bytes;
        let count = take_varint(input)?;
        let zero = take_varint(input)?;
        let sum_ns = take_varint(input)? as u128 | (take_varint(input)? as u128) << 64;
        let min_ns = take_varint(input)?;
        let max_ns = take_varint(input)?;
        let first = i32::try_from(take_varint(input)?).ok()?.checked_sub(1024)?;
        let len = take_varint(input)? as usize;
        // A wider range than durations can have is damage, and the next merge would allocate for it.
        let plausible =
            len == 0 || (first >= MIN_INDEX && len <= 2048 && first <= MAX_INDEX + 1 - len as i32);
        if !plausible || len > input.len() || sum_ns > count as u128 * max_ns as u128 {
            return None;
        }
        let counts = (0..len).map(|_| take_varint(input)).collect::<Option<Vec<_>>>()?;
        let max_low_ns =
            if input.is_empty() { max_ns } else { take_varint(input).filter(|low| *low <= max_ns)? };
        let total = counts.iter().try_fold(zero, |sum, n| sum.checked_add(*n))?;
        (total == count && input.is_empty()).then_some(Histogram {
            first,
            counts,
            zero,
            count,
            sum_ns,
            min_ns: if count == 0 { u64::MAX } else { min_ns },
            max_ns,
            max_low_ns,
        })
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        value |= ((byte & 0x7f) as u64) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn powers_of_two_seconds_lie_on_upper_bounds() {
        for (ns, upper_s) in
            [(500_000_000u64, 0.5), (1_000_000_000, 1.0), (2_000_000_000, 2.0), (250_000_000, 0.25)]
        {
            assert_eq!(upper_bound_ns(bucket_index(ns)) / 1e9, upper_s);
            assert!(upper_bound_ns(bucket_index(ns + 1)) / 1e9 > upper_s);
        }
        assert_eq!(bucket_index(1), MIN_INDEX);
        assert_eq!(bucket_index(u64::MAX), MAX_INDEX);
    }

    #[test]
    fn an_empty_histogram_knows_nothing() {
        let h = Histogram::default();
        assert_eq!((h.quantile(0.5), h.mean_ns(), h.min_ns(), h.max_ns()), (None, None, None, None));
        assert_eq!(Histogram::decode(&h.encode()).unwrap().count(), 0);
    }

    #[test]
    fn few_calls_say_so_in_the_interval() {
        let mut h = Histogram::new();
        (1..=20).for_each(|i| h.record(i * 1_000_000));
        let p99 = h.quantile(0.99).unwrap();
        assert!(p99.low_ns <= 19_500_000 && p99.high_ns == 20_000_000, "{p99:?}");
    }

    proptest! {
        #[test]
        fn a_duration_lies_inside_its_bucket(ns in 1u64..u64::MAX / 2) {
            let i = bucket_index(ns);
            let v = ns as f64;
            prop_assert!(v > lower_bound_ns(i) * (1.0 - 1e-12) && v <= upper_bound_ns(i) * (1.0 + 1e-12), "{ns} in {i}");
        }

        #[test]
        fn quantiles_are_within_one_bucket(mut values in prop::collection::vec(1u64..100_000_000_000, 1..400), q in 0.0f64..=1.0) {
            let mut h = Histogram::new();
            values.iter().for_each(|v| h.record(*v));
            values.sort_unstable();
            let exact = values[((q * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
            let got = h.quantile(q).unwrap();
            prop_assert!((bucket_index(got.value_ns.max(1)) - bucket_index(exact)).abs() <= 1);
            prop_assert!(got.low_ns <= exact && exact <= got.high_ns);
        }

        #[test]
        fn merge_equals_recording_all(a in prop::collection::vec(0u64..1_000_000_000_000, 0..50), b in prop::collection::vec(0u64..1_000_000_000_000, 0..50)) {
            let (mut ha, mut hb, mut all) = (Histogram::new(), Histogram::new(), Histogram::new());
            a.iter().for_each(|v| { ha.record(*v); all.record(*v) });
            b.iter().for_each(|v| { hb.record(*v); all.record(*v) });
            ha.merge(&hb);
            prop_assert_eq!(ha.buckets().collect::<Vec<_>>(), all.buckets().collect::<Vec<_>>());
            prop_assert_eq!((ha.count(), ha.sum_ns(), ha.min_ns(), ha.max_ns()), (all.count(), all.sum_ns(), all.min_ns(), all.max_ns()));
            let back = Histogram::decode(&all.encode()).unwrap();
            prop_assert_eq!(back.buckets().collect::<Vec<_>>(), all.buckets().collect::<Vec<_>>());
            prop_assert_eq!(back.quantile(0.9), all.quantile(0.9));
        }

        #[test]
        fn retract_undoes_record(values in prop::collection::vec(0u64..1_000_000_000, 1..50), extra in 0u64..1_000_000_000) {
            let mut h = Histogram::new();
            values.iter().for_each(|v| h.record(*v));
            let before = h.buckets().collect::<Vec<_>>();
            let (count, sum) = (h.count(), h.sum_ns());
            h.record(extra);
            h.retract(extra);
            prop_assert_eq!((h.buckets().collect::<Vec<_>>(), h.count(), h.sum_ns()), (before, count, sum));
        }

        #[test]
        fn the_largest_value_lies_within_its_bound(values in prop::collection::vec(0u64..3_000_000_000, 1..60), takes in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
            let mut h = Histogram::new();
            let mut left = values.clone();
            values.iter().for_each(|v| h.record(*v));
            for take in takes {
                if left.is_empty() { break; }
                h.retract(left.swap_remove(take.index(left.len())));
                let back = Histogram::decode(&h.encode()).unwrap();
                let mut merged = Histogram::new();
                merged.merge(&h);
                for h in [&h, &back, &merged] {
                    let (low, high) = (h.max_low_ns(), h.max_ns());
                    prop_assert_eq!(low.is_some(), !left.is_empty());
                    if let Some(max) = left.iter().copied().max() {
                        let (low, high) = (low.unwrap(), high.unwrap());
                        prop_assert!(low <= max.max(1) && max <= high, "{} in {}..={}", max, low, high);
                        prop_assert!(high as f64 <= low as f64 * 1.05 + 2.0, "{}..={}", low, high);
                    }
                }
            }
            let max = left.iter().copied().max().unwrap_or(0);
            if !left.is_empty() {
                h.set_max_ns(max);
                prop_assert!(max == 0 || h.max_ns() == Some(max) && h.max_low_ns() == Some(max));
            }
            h.record(4_000_000_000);
            prop_assert_eq!((h.max_ns(), h.max_low_ns()), (Some(4_000_000_000), Some(4_000_000_000)));
        }

        #[test]
        fn raising_gives_the_larger_of_each_bucket(a in prop::collection::vec(0u64..1_000_000, 0..50), b in prop::collection::vec(0u64..1_000_000, 0..50)) {
            let (mut ha, mut hb) = (Histogram::new(), Histogram::new());
            a.iter().for_each(|v| ha.record(*v));
            b.iter().for_each(|v| hb.record(*v));
            let mut raised = ha.clone();
            raised.raise_to(&hb);
            let of = |h: &Histogram, index| h.buckets().find(|(i, _)| *i == index).map_or(0, |(_, n)| n);
            for index in MIN_INDEX..0 {
                prop_assert_eq!(of(&raised, index), of(&ha, index).max(of(&hb, index)));
            }
            prop_assert_eq!(raised.zero_count(), ha.zero_count().max(hb.zero_count()));
            prop_assert_eq!(raised.count(), raised.zero_count() + raised.buckets().map(|(_, n)| n).sum::<u64>());
            prop_assert_eq!(raised.sum_ns(), ha.sum_ns().max(hb.sum_ns()));
            let smallest = a.iter().chain(&b).min().copied();
            prop_assert_eq!((raised.min_ns(), raised.max_ns()), (smallest, a.iter().chain(&b).max().copied()));
        }

        #[test]
        fn damaged_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Histogram::decode(&bytes);
        }
    }
}
