//! `cpu.stat` of a cgroup, of both versions: throttling by its quota.

use super::figures::keyed;
use crate::{FactError, Known};

/// File name in a cgroup's folder.
pub const NAME: &str = "cpu.stat";

/// Throttling of a cgroup since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which it ran.
    pub periods: u64,
    /// Periods in which it used up its quota.
    pub throttled: u64,
    /// Total time that its CPUs were throttled.
    pub ns: u64,
}

/// Parses it. `None` for a version 2 cgroup without a CPU controller, which cannot be throttled.
///
/// # Errors
/// A line is missing.
pub fn throttled(path: &str, text: &str) -> Known<Option<Throttled>> {
    let stat = keyed(text);
    let figure = |name: &str| stat.get(name).copied();
    let Some(periods) = figure("nr_periods") else {
        let of_v2 = figure("usage_usec").is_some();
        return if of_v2 { Ok(None) } else { Err(FactError::malformed(path, 0, text, "a line nr_periods")) };
    };
    let ns = figure("throttled_usec").map(|us| us.saturating_mul(1_000)).or_else(|| figure("throttled_time"));
    match (figure("nr_throttled"), ns) {
        (Some(throttled), Some(ns)) => Ok(Some(Throttled { periods, throttled, ns })),
        _ => Err(FactError::malformed(
            path,
            0,
            text,
            "lines nr_throttled and throttled_usec or throttled_time",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_throttling_in_either_version(periods in 0_u64..1 << 50, stopped in 0_u64..1 << 50, us in 0_u64..1 << 48) {
            let expected = Ok(Some(Throttled { periods, throttled: stopped, ns: us * 1_000 }));
            let v2 = format!("usage_usec 5\nnr_periods {periods}\nnr_throttled {stopped}\nthrottled_usec {us}\nnr_bursts 0\n");
            prop_assert_eq!(throttled("/p", &v2), expected.clone());
            let v1 = format!("nr_periods {periods}\nnr_throttled {stopped}\nthrottled_time {}\n", us * 1_000);
            prop_assert_eq!(throttled("/p", &v1), expected);
        }
    }

    #[test]
    fn missing_quota_and_malformed_files() {
        assert_eq!(throttled("/p", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n"), Ok(None));
        for bad in ["", "nr_periods 3\nnr_throttled 1\n", "nr_periods -1\n"] {
            assert!(throttled("/p", bad).is_err(), "{bad}");
        }
    }
}
