//! The rows of a period, and their sums.

use super::row::{Figures, Lost, decode_worst};
use super::step::{Step, cell};
use rusqlite::{CachedStatement, Connection};
use spangap_model::{KeptCall, PairStats};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Rows of a time range: the coarsest that lie completely within it.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    /// Step and start of each row, in order of time.
    pub rows: Vec<(Step, u64)>,
}

/// Time range that an answer covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// First second of the first row: earlier than requested where only coarser rows remain, later where none
    /// do.
    pub from_unix_s: u64,
}

/// Intervals that have rows.
#[derive(Clone, Debug)]
pub struct Buckets {
    there: [BTreeSet<u64>; 4],
    /// Time before which rows of each step were dropped.
    dropped_before_s: [u64; 4],
}

impl Buckets {
    /// Those of another store: starts, and the time before which each step lacks rows that a coarser one has.
    pub fn of(there: [BTreeSet<u64>; 4], dropped_before_s: [u64; 4]) -> Buckets {
        Buckets { there, dropped_before_s }
    }

    /// All intervals that touch `from_s..until_s`.
    pub fn read(connection: &Connection, from_s: u64, until_s: u64) -> rusqlite::Result<Buckets> {
        let mut buckets = Buckets { there: Default::default(), dropped_before_s: [0; 4] };
        let mut select = connection.prepare_cached(
            "SELECT unix_s FROM bucket WHERE step_s = ?1 AND unix_s >= ?2 AND unix_s < ?3 AND row_count > 0",
        )?;
        let mut dropped =
            connection.prepare_cached("SELECT dropped_before_s FROM horizon WHERE step_s = ?1")?;
        for step in Step::ALL {
            let clamped = |unix_s: u64| unix_s.min(i64::MAX as u64) as i64;
            let range = [step.seconds() as i64, clamped(step.start(from_s)), clamped(until_s)];
            for start in select.query_map(range, |row| row.get::<_, i64>(0))? {
                buckets.there[step as usize].insert(start?.max(0) as u64);
            }
            let mut rows = dropped.query([step.seconds() as i64])?;
            if let Some(row) = rows.next()? {
                buckets.dropped_before_s[step as usize] = row.get::<_, i64>(0)?.max(0) as u64;
            }
        }
        Ok(buckets)
    }

    /// The rows of `from_s..until_s`, which are whole minutes. Where finer rows were dropped, a coarser row
    /// that extends beyond the range is included as a whole.
    pub fn cover(&self, from_s: u64, until_s: u64) -> Cover {
        let mut cover = Cover::default();
        let first = self.there.iter().filter_map(|starts| starts.first()).min();
        let last = self.there.iter().filter_map(|starts| starts.last()).max();
        let (Some(first), Some(last)) = (first, last) else { return cover };
        let from_s = from_s.max(*first);
        let until_s = until_s.min(last + Step::Day.seconds());
        let mut day_s = Step::Day.start(from_s);
        while day_s < until_s {
            self.descend(Step::Day, day_s, (from_s, until_s), &mut cover.rows);
            day_s += Step::Day.seconds();
        }
        cover
    }

    fn descend(&self, step: Step, start_s: u64, range: (u64, u64), rows: &mut Vec<(Step, u64)>) {
        let end_s = start_s + step.seconds();
        let (from_s, until_s) = (start_s.max(range.0), end_s.min(range.1));
        if from_s >= until_s {
            return;
        }
        let is_there = self.there[step as usize].contains(&start_s);
        let Some(finer) = step.finer() else {
            rows.extend(is_there.then_some((step, start_s)));
            return;
        };
        let whole = (from_s, until_s) == (start_s, end_s);
        if is_there && (whole || from_s < self.dropped_before_s[finer as usize]) {
            rows.push((step, start_s));
            return;
        }
        for start_s in (start_s..end_s).step_by(finer.seconds() as usize) {
            self.descend(finer, start_s, range, rows);
        }
    }

    /// The finest step that still has all its rows since `from_s`, else the coarsest step.
    pub fn finest_since(&self, from_s: u64) -> Step {
        let has_all = |step: &Step| self.dropped_before_s[*step as usize] <= from_s;
        Step::ALL.into_iter().find(has_all).unwrap_or(Step::Day)
    }

    /// Minutes before this time were dropped.
    pub fn minutes_dropped_before_s(&self) -> u64 {
        self.dropped_before_s[0]
    }
}

/// End of the minute that contains `to_s`.
pub fn end_of(to_s: u64) -> u64 {
    Step::Minute.start(to_s).saturating_add(60)
}

/// The time range that these rows cover, of one that begins at `from_s`.
pub fn covered(buckets: &Buckets, rows: &[(Step, u64)], from_s: u64) -> Covered {
    let all_there = from_s >= buckets.minutes_dropped_before_s();
    let first_s = rows.first().map(|(_, start_s)| *start_s).filter(|_| !all_there);
    Covered { from_unix_s: first_s.unwrap_or(from_s) }
}

/// Reads the rows of one pair after the other.
pub struct Rows<'c> {
    stats: [CachedStatement<'c>; 4],
    worst: [CachedStatement<'c>; 4],
    damaged: &'c AtomicU64,
}

impl<'c> Rows<'c> {
    /// A reader over one connection.
    pub fn new(connection: &'c Connection, damaged: &'c AtomicU64) -> rusqlite::Result<Rows<'c>> {
        let stats = |step: Step| {
            connection.prepare_cached(&format!("SELECT stats FROM {} WHERE cell = ?1", step.table()))
        };
        let worst = |step: Step| {
            connection.prepare_cached(&format!("SELECT worst FROM {} WHERE cell = ?1", step.worst_table()))
        };
        let [a, b, c, d] = Step::ALL;
        Ok(Rows {
            stats: [stats(a)?, stats(b)?, stats(c)?, stats(d)?],
            worst: [worst(a)?, worst(b)?, worst(c)?, worst(d)?],
            damaged,
        })
    }

    /// Reads one row; a damaged one is counted and skipped.
    pub fn one(&mut self, step: Step, start_s: u64, pair_id: i64) -> rusqlite::Result<Option<Figures>> {
        let mut rows = self.stats[step as usize].query([cell(start_s, pair_id)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let figures = Figures::decode(row.get_ref(0)?.as_blob()?, start_s);
        if figures.is_none() {
            self.damaged.fetch_add(1, Relaxed);
        }
        Ok(figures)
    }

    /// Reads calls and time lost of one row; a damaged one is counted and skipped.
    pub fn lost(&mut self, step: Step, start_s: u64, pair_id: i64) -> rusqlite::Result<Option<Lost>> {
        let mut rows = self.stats[step as usize].query([cell(start_s, pair_id)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let lost = Figures::decode_lost(row.get_ref(0)?.as_blob()?);
        if lost.is_none() {
            self.damaged.fetch_add(1, Relaxed);
        }
        Ok(lost)
    }

    /// Sum of the rows of one pair.
    pub fn sum(&mut self, rows: &[(Step, u64)], pair_id: i64) -> rusqlite::Result<Figures> {
        let mut sum = Figures::default();
        for (step, start_s) in rows {
            if let Some(figures) = self.one(*step, *start_s, pair_id)? {
                sum.merge(&figures);
            }
        }
        Ok(sum)
    }

    /// The worst calls stored for a minute; those of a coarser step if the minute's own were dropped.
    pub fn worst_of(&mut self, unix_s: u64, pair_id: i64) -> rusqlite::Result<Vec<KeptCall>> {
        for statement in &mut self.worst {
            let mut rows = statement.query([cell(unix_s, pair_id)])?;
            let Some(row) = rows.next()? else { continue };
            match decode_worst(row.get_ref(0)?.as_blob()?) {
                Some(calls) => return Ok(calls),
                None => self.damaged.fetch_add(1, Relaxed),
            };
        }
        Ok(Vec::new())
    }

    /// Adds the `shown` worst calls listed by the rows to those already in `stats`.
    pub fn add_worst(
        &mut self,
        stats: &mut PairStats,
        figures: &Figures,
        pair_id: i64,
        shown: usize,
    ) -> rusqlite::Result<()> {
        let mut read = BTreeSet::new();
        for top in &figures.tops {
            if stats.worst.get(shown - 1).is_some_and(|least| least.gap_ns >= top.gap_ns) {
                break;
            }
            if read.insert(top.unix_s) {
                let worst = self.worst_of(top.unix_s, pair_id)?;
                stats.merge(&PairStats { worst, ..PairStats::default() });
            }
        }
        Ok(())
    }
}
