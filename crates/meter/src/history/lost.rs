//! Time lost per step: of all pairs together, or of a few separately.

use super::HistoryError;
use super::read::{UnwrittenMinutes, View};
use super::row::{Figures, Lost};
use super::step::{Step, cells, of_cell};
use super::sums::{Covered, covered, end_of};
use spangap_model::PairKey;
use std::collections::{BTreeMap, HashMap};

/// Up to this many pairs are looked up one by one; for more, all rows of an interval are scanned in order.
const LOOKED_UP: usize = 256;

/// Step lengths that a person would choose, in seconds.
const STEPS_S: [u64; 11] = [60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];

/// The shortest step of which at most `points` cover the interval.
pub fn step_for(from_s: u64, to_s: u64, points: u64) -> u64 {
    let span_s = to_s.saturating_sub(from_s);
    let fits = |step: &u64| span_s.div_ceil(*step) <= points.max(1);
    let days = span_s.div_ceil(points.max(1)).div_ceil(86_400) * 86_400;
    STEPS_S.into_iter().find(fits).unwrap_or(days)
}

impl View {
    /// Time lost by each matching pair in each step of the minutes that `from_s..=to_s` touches. `each`
    /// receives the pair, the start of the step, and a part of the time lost in it; parts of one step arrive
    /// in any order.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn lost(
        &self,
        (from_s, to_s): (u64, u64),
        step_s: u64,
        matches: impl Fn(&PairKey) -> bool,
        memory: &UnwrittenMinutes,
        mut each: impl FnMut(&PairKey, u64, Lost),
    ) -> Result<Covered, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let start_of = |unix_s: u64| unix_s - unix_s % step_s;
        for (minute, _) in memory.minutes(from_s, to_s).filter(|(minute, _)| matches(&minute.key)) {
            each(&minute.key, start_of(minute.unix_s), Lost::of(&minute.stats));
        }
        let buckets = self.buckets(from_s, to_s)?;
        let whole = buckets.cover(from_s, end_of(to_s)).rows;
        let pairs: HashMap<i64, PairKey> =
            self.pairs_known()?.into_iter().filter(|(_, key)| matches(key)).collect();
        let mut rows = self.rows()?;
        let (Some((_, first_s)), Some((last, last_s))) = (whole.first(), whole.last()) else {
            return Ok(covered(&buckets, &whole, from_s));
        };
        // A coarser row that replaces dropped finer ones counts in the step in which it starts.
        let mut parts: BTreeMap<(u64, Step), u64> = BTreeMap::new();
        let mut begin_s = start_of(*first_s);
        while begin_s < last_s + last.seconds() {
            let until_s = (begin_s + step_s).min(end_of(to_s));
            for (step, at) in buckets.cover(from_s.max(begin_s), until_s).rows {
                if start_of(at) == begin_s {
                    parts.insert((at, step), begin_s);
                }
            }
            begin_s += step_s;
        }
        for ((at, step), begin_s) in parts {
            self.go_on()?;
            if pairs.len() <= LOOKED_UP {
                for (id, key) in &pairs {
                    if let Some(lost) = rows.lost(step, at, *id).map_err(|e| self.failed(e))? {
                        each(key, begin_s, lost);
                    }
                }
            } else {
                let mut take = |id: i64, lost: Lost| {
                    if let Some(key) = pairs.get(&id) {
                        each(key, begin_s, lost);
                    }
                };
                self.scan_lost(step, at, &mut take).map_err(|e| self.failed(e))?;
            }
        }
        Ok(covered(&buckets, &whole, from_s))
    }

    fn scan_lost(&self, step: Step, at: u64, take: &mut dyn FnMut(i64, Lost)) -> rusqlite::Result<()> {
        let select = format!("SELECT cell, stats FROM {} WHERE cell BETWEEN ?1 AND ?2", step.table());
        let mut select = self.connection().prepare_cached(&select)?;
        let mut rows = select.query(cells(at, at + 60))?;
        let mut damaged = 0;
        while let Some(row) = rows.next()? {
            match Figures::decode_lost(row.get_ref(1)?.as_blob()?) {
                Some(lost) => take(of_cell(row.get(0)?).1, lost),
                None => damaged += 1,
            }
        }
        self.count_damaged(damaged);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_shortest_that_fits() {
        assert_eq!(step_for(0, 900, 30), 60);
        assert_eq!(step_for(0, 86_400, 30), 3_600);
        assert_eq!(step_for(0, 86_400, 200), 600);
        assert_eq!(step_for(5, 5, 30), 60);
        assert_eq!(step_for(0, 3_000 * 86_400, 100), 30 * 86_400);
        for span_s in [1, 59, 3_601, 999_999, 77_777_777] {
            for points in [1, 7, 120] {
                assert!(span_s / step_for(0, span_s, points) <= points, "{span_s} in {points}");
            }
        }
    }
}
