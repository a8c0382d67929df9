//! Offset and skew of one clock relative to another.

/// Maximum assumed drift of a host's clock, in parts per million. NTP gives up at 500.
pub const MAX_SKEW_PPM: f64 = 1000.0;

/// A clock that differs from another by an offset and a constant drift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Offset at `since_unix_ns`; negative if it is behind.
    pub offset_ns: i64,
    /// Drift, in parts per million; at most [`MAX_SKEW_PPM`] in either direction.
    pub skew_ppm: f64,
    /// Reference time on the other clock, in nanoseconds since 1970.
    pub since_unix_ns: i64,
}

impl Clock {
    /// Its reading when the other clock reads `unix_ns`; `None` outside the range of 64 bits.
    pub fn at(&self, unix_ns: i64) -> Option<i64> {
        let gained = gained(unix_ns.checked_sub(self.since_unix_ns)?, self.skew_ppm);
        unix_ns.checked_add(self.offset_ns)?.checked_add(gained)
    }
}

/// Drift accumulated while another clock advances by `elapsed_ns`.
pub fn gained(elapsed_ns: i64, skew_ppm: f64) -> i64 {
    (elapsed_ns as f64 * skew_ppm / 1e6).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offset_and_drift() {
        let clock = Clock { offset_ns: -30, skew_ppm: 50.0, since_unix_ns: 1_000 };
        assert_eq!(clock.at(1_000), Some(970));
        assert_eq!(clock.at(1_000_001_000), Some(1_000_000_970 + 50_000));
        assert_eq!(clock.at(1_000 - 1_000_000), Some(970 - 1_000_000 - 50));
        assert_eq!(clock.at(i64::MIN), None);
        assert_eq!(Clock { offset_ns: 1, ..clock }.at(i64::MAX), None);
    }

    proptest! {
        /// The mapping preserves the order of times.
        #[test]
        fn time_goes_on(from in 0..i64::MAX / 4, by in 0..1_i64 << 40, skew_ppm in -MAX_SKEW_PPM..MAX_SKEW_PPM, offset_ns in -(1_i64 << 50)..1 << 50) {
            let clock = Clock { offset_ns, skew_ppm, since_unix_ns: from };
            let (first, second) = (clock.at(from).unwrap(), clock.at(from + by).unwrap());
            prop_assert_eq!(first, from + offset_ns);
            prop_assert!(second >= first);
            prop_assert!((second - first - by).abs() as f64 <= by as f64 * skew_ppm.abs() / 1e6 + 1.0);
        }
    }
}
