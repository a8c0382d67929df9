//! Minutes that a checkpoint could not write, because the disk was full for example.

use crate::engine::PairMinute;
use spangap_model::PairKey;
use std::collections::BTreeMap;

/// Rows kept for the next checkpoint. With whole spans a row is some kilobytes.
const MAX_ROWS: usize = 10_000;

/// Minutes that wait for the next checkpoint; bounded, oldest dropped first.
#[derive(Debug, Default)]
pub struct Unwritten {
    minutes: BTreeMap<(u64, PairKey), PairMinute>,
    /// Rows that were dropped because there were too many.
    pub lost: u64,
}

impl Unwritten {
    /// Keeps minutes; a later state of a minute replaces an earlier one.
    pub fn keep(&mut self, minutes: impl IntoIterator<Item = PairMinute>) {
        for minute in minutes {
            self.minutes.insert((minute.unix_s, minute.key.clone()), minute);
            if self.minutes.len() > MAX_ROWS {
                self.minutes.pop_first();
                self.lost += 1;
            }
        }
    }

    /// Hands them over, oldest first.
    pub fn take(&mut self) -> Vec<PairMinute> {
        std::mem::take(&mut self.minutes).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::PairStats;

    #[test]
    fn the_newest_state_of_the_newest_minutes_is_kept() {
        let minute = |unix_s: u64, calls: u64| {
            let mut stats = PairStats::default();
            (0..calls).for_each(|_| stats.gap.record(1));
            PairMinute {
                unix_s,
                key: PairKey { client: "a".into(), server: "b".into(), method: None },
                stats,
            }
        };
        let mut unwritten = Unwritten::default();
        unwritten.keep((0..MAX_ROWS as u64 + 7).map(|i| minute(60 * i, 1)));
        unwritten.keep([minute(60 * 7, 2)]);
        assert_eq!(unwritten.lost, 7);
        let kept = unwritten.take();
        assert_eq!((kept.len(), kept[0].unix_s, kept[0].stats.calls()), (MAX_ROWS, 420, 2));
        assert!(unwritten.take().is_empty());
    }
}
