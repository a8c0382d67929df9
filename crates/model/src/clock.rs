//! Offset and skew of one clock relative to another.

/// Most that a clock of a host is taken to gain or lose, millionths. NTP gives up at 500.
pub const MAX_SKEW_PPM: f64 = 1000.0;

/// A clock that differs from another by an offset, and by more the longer it has gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// What it is ahead of the other one at `since_unix_ns`; less than zero when it is behind.
    pub offset_ns: i64,
    /// What it gains afterwards, millionths of the time that passes; at most [`MAX_SKEW_PPM`] either way.
    pub skew_ppm: f64,
    /// A moment of the other clock, nanoseconds since 1970.
    pub since_unix_ns: i64,
}

impl Clock {
    /// What it shows when the other clock shows `unix_ns`; `None` outside of the years that 64 bits hold.
    pub fn at(&self, unix_ns: i64) -> Option<i64> {
        let gained = gained(unix_ns.checked_sub(self.since_unix_ns)?, self.skew_ppm);
        unix_ns.checked_add(self.offset_ns)?.checked_add(gained)
    }
}

/// What a clock gains while another one goes on by `elapsed_ns`.
pub fn gained(elapsed_ns: i64, skew_ppm: f64) -> i64 {
    (elapsed_ns as f64 * skew_ppm / 1e6).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_offset_and_what_is_gained() {
        let clock = Clock { offset_ns: -30, skew_ppm: 50.0, since_unix_ns: 1_000 };
        assert_eq!(clock.at(1_000), Some(970));
        assert_eq!(clock.at(1_000_001_000), Some(1_000_000_970 + 50_000));
        assert_eq!(clock.at(1_000 - 1_000_000), Some(970 - 1_000_000 - 50));
        assert_eq!(clock.at(i64::MIN), None);
        assert_eq!(Clock { offset_ns: 1, ..clock }.at(i64::MAX), None);
    }

    proptest! {
        /// Of two moments the later one stays the later one.
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
