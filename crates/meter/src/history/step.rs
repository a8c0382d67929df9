//! Time steps of the history, and row numbers.

/// Length of the interval that one row covers. Each step is a multiple of the next finer one, and intervals
/// start at multiples of their length since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A minute, the resolution of the engine.
    Minute,
    /// Ten minutes.
    TenMinutes,
    /// An hour.
    Hour,
    /// A day, UTC.
    Day,
}

impl Step {
    /// All steps, finest first.
    pub const ALL: [Step; 4] = [Step::Minute, Step::TenMinutes, Step::Hour, Step::Day];
    /// Steps whose rows are sums of finer ones.
    pub const ROLLUPS: [Step; 3] = [Step::TenMinutes, Step::Hour, Step::Day];

    /// Length of the step.
    pub fn seconds(self) -> u64 {
        match self {
            Step::Minute => 60,
            Step::TenMinutes => 600,
            Step::Hour => 3_600,
            Step::Day => 86_400,
        }
    }

    /// Start of the interval that contains `unix_s`.
    pub fn start(self, unix_s: u64) -> u64 {
        unix_s - unix_s % self.seconds()
    }

    /// The next finer step.
    pub(super) fn finer(self) -> Option<Step> {
        Step::ALL[..self as usize].last().copied()
    }

    /// The next coarser step.
    pub(super) fn coarser(self) -> Option<Step> {
        Step::ALL.get(self as usize + 1).copied()
    }

    /// Table of the statistics.
    pub(super) fn table(self) -> &'static str {
        ["minute", "ten_minutes", "hour", "day"][self as usize]
    }

    /// Table of the worst calls.
    pub(super) fn worst_table(self) -> &'static str {
        ["minute_worst", "ten_minutes_worst", "hour_worst", "day_worst"][self as usize]
    }
}

const PAIR_BITS: u32 = 32;

/// The number of a row: start of its interval and pair in one integer, so that rows are ordered by time and
/// one row is found with a single descent.
pub(super) fn cell(unix_s: u64, pair_id: i64) -> i64 {
    ((unix_s / 60).min(i32::MAX as u64) as i64) << PAIR_BITS | pair_id
}

/// First and last number of the rows that start in `from_s..until_s`.
pub(super) fn cells(from_s: u64, until_s: u64) -> [i64; 2] {
    [cell(from_s, 0), cell(until_s, 0) - 1]
}

/// Start of the row's interval, and its pair.
pub(super) fn of_cell(cell: i64) -> (u64, i64) {
    ((cell >> PAIR_BITS).max(0) as u64 * 60, cell & ((1 << PAIR_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_nest_and_rows_are_ordered_by_time() {
        for pair in Step::ALL.windows(2) {
            assert_eq!(pair[1].seconds() % pair[0].seconds(), 0);
            assert_eq!((pair[1].finer(), pair[0].coarser()), (Some(pair[0]), Some(pair[1])));
        }
        assert_eq!(of_cell(cell(1_700_000_040, 77)), (1_700_000_040, 77));
        let [first, last] = cells(600, 1200);
        assert!(first <= cell(600, 1) && cell(1140, i32::MAX as i64) <= last && last < cell(1200, 0));
        assert!(cell(u64::MAX, 1) > cell(1_700_000_000, 1));
    }
}
