//! Limits of the history: age, and size on disk. Each kind of row has a share of the size; when the total is
//! too large, the kind furthest above its share loses its oldest rows. Minutes therefore reach back less far
//! than hours, and a history of many pairs becomes coarser before it becomes shorter.

use super::outbox;
use super::roll::SEEN_WITHIN_S;
use super::step::{Step, cells};
use super::{History, HistoryError};
use crate::export::snapshot::HistoryFigures;
use crate::report::HistorySteps;
use rusqlite::{OptionalExtension, params};

/// Shares of the size in thousandths: statistics and worst calls of each step. With 500 pairs, 1 GiB holds
/// hours for a fortnight.
const SHARES: [(Step, [u64; 2]); 4] = [
    (Step::Minute, [260, 200]),
    (Step::TenMinutes, [180, 60]),
    (Step::Hour, [190, 60]),
    (Step::Day, [30, 20]),
];
/// A kind above its share loses one part in this many of its time range at once.
const PART: u64 = 20;

impl History {
    /// Drops rows beyond the maximum age, then rows of kinds above their share until the file is below its
    /// limit.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn prune(&mut self, now_unix_s: u64) -> Result<(), HistoryError> {
        self.prune_within(now_unix_s)
    }

    /// Like [`History::prune`]; a time of 0 drops nothing for its age.
    pub(super) fn prune_within(&mut self, now_unix_s: u64) -> Result<(), HistoryError> {
        let dropped = self.drop_rows(now_unix_s).map_err(self.failed())?;
        self.pruned_rows += dropped.minutes;
        match &self.outbox {
            Some(outbox) => outbox.lost(dropped.unsent),
            None => self.dropped_unsent += dropped.unsent,
        }
        if dropped.any {
            self.shrink().map_err(self.failed())?;
            self.pairs.clear();
        }
        Ok(())
    }

    fn drop_rows(&self, now_unix_s: u64) -> rusqlite::Result<Dropped> {
        let mut dropped = Dropped::default();
        let oldest_s = now_unix_s.saturating_sub(self.limits.max_age_s);
        for step in Step::ALL {
            for worst in [true, false] {
                self.drop_kind(step, worst, step.start(oldest_s), &mut dropped)?;
            }
        }
        dropped.count_minutes(self.drop_first_minutes(oldest_s)?);
        while self.used_bytes()? > self.limits.max_bytes {
            let before = self.used_bytes()?;
            match self.most_above_its_share()? {
                Some((step, worst, until_s)) => self.drop_kind(step, worst, until_s, &mut dropped)?,
                None => {
                    dropped.count_minutes(self.drop_oldest_first_minutes()?);
                    if self.used_bytes()? >= before && !self.drop_oldest_minute(&mut dropped)? {
                        break;
                    }
                }
            }
        }
        Ok(dropped)
    }

    /// The kind furthest above its share, and the time before which to drop it. Rows not yet summed up in a
    /// coarser one are spared.
    fn most_above_its_share(&self) -> rusqlite::Result<Option<(Step, bool, u64)>> {
        let mut most: Option<(u64, (Step, bool, u64))> = None;
        for (step, shares) in SHARES {
            for (worst, share) in [(false, shares[0]), (true, shares[1])] {
                let column = if worst { "worst_bytes" } else { "stats_bytes" };
                let spared = match step.coarser() {
                    Some(coarser) if !worst => self
                        .connection
                        .query_row(
                            "SELECT max(unix_s) FROM bucket WHERE step_s = ?1 AND row_count > 0",
                            [coarser.seconds() as i64],
                            |row| row.get::<_, Option<i64>>(0),
                        )?
                        .map_or(0, |newest| newest + coarser.seconds() as i64),
                    _ => i64::MAX,
                };
                let kind = self.connection.query_row(
                    &format!(
                        "SELECT total({column}), min(unix_s), max(unix_s) FROM bucket
                         WHERE step_s = ?1 AND {column} > 0 AND unix_s < ?2"
                    ),
                    params![step.seconds() as i64, spared],
                    |row| {
                        Ok((
                            row.get::<_, f64>(0)?,
                            row.get::<_, Option<i64>>(1)?,
                            row.get::<_, Option<i64>>(2)?,
                        ))
                    },
                )?;
                let (bytes, Some(oldest), Some(newest)) = kind else { continue };
                let (oldest, newest) = (oldest.max(0) as u64, newest.max(0) as u64);
                let above = bytes as u64 / share;
                if most.as_ref().is_none_or(|(most, _)| above > *most) {
                    let until_s = step.start(oldest + (newest - oldest) / PART) + step.seconds();
                    most = Some((above, (step, worst, until_s)));
                }
            }
        }
        Ok(most.map(|(_, kind)| kind))
    }

    fn drop_oldest_minute(&self, dropped: &mut Dropped) -> rusqlite::Result<bool> {
        let span = self.connection.query_row(
            "SELECT min(unix_s), max(unix_s) FROM bucket WHERE step_s = 60 AND row_count > 0",
            [],
            |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?;
        let (Some(oldest), Some(newest)) = span else { return Ok(false) };
        let (oldest, newest) = (oldest.max(0) as u64, newest.max(0) as u64);
        let until_s = Step::Minute.start(oldest + (newest - oldest) / 10) + 60;
        self.drop_kind(Step::Minute, true, until_s, dropped)?;
        self.drop_kind(Step::Minute, false, until_s, dropped)?;
        Ok(true)
    }

    /// Drops the rows of a step, or its worst calls, that start before a time.
    fn drop_kind(
        &self,
        step: Step,
        worst: bool,
        until_s: u64,
        dropped: &mut Dropped,
    ) -> rusqlite::Result<()> {
        if until_s == 0 {
            return Ok(());
        }
        let transaction = self.connection.unchecked_transaction()?;
        let (table, columns) = match worst {
            true => (step.worst_table(), "worst_bytes = 0"),
            false => (step.table(), "row_count = 0, stats_bytes = 0"),
        };
        let rows = transaction
            .execute(&format!("DELETE FROM {table} WHERE cell BETWEEN ?1 AND ?2"), cells(0, until_s))?;
        let of = params![step.seconds() as i64, until_s.min(i64::MAX as u64) as i64];
        if rows > 0 {
            transaction
                .execute(&format!("UPDATE bucket SET {columns} WHERE step_s = ?1 AND unix_s < ?2"), of)?;
            transaction.execute(
                "DELETE FROM bucket WHERE step_s = ?1 AND unix_s < ?2 AND row_count = 0 AND worst_bytes = 0",
                of,
            )?;
            if !worst {
                if outbox::is_kept(&transaction)? {
                    dropped.unsent += outbox::unmark(&transaction, step, until_s)?;
                }
                transaction.execute(
                    "INSERT INTO horizon VALUES (?1, ?2) ON CONFLICT DO UPDATE
                     SET dropped_before_s = max(dropped_before_s, ?2)",
                    of,
                )?;
            }
            dropped.any = true;
            if step == Step::Minute && !worst {
                dropped.minutes += rows as u64;
            }
        }
        transaction.commit()
    }

    /// Deletes the runs and pairs that have no rows left, and returns free pages to the file system.
    fn shrink(&self) -> rusqlite::Result<()> {
        let oldest: i64 = self.connection.query_row(
            "SELECT coalesce(min(unix_s), 0) FROM bucket WHERE row_count > 0",
            [],
            |row| row.get(0),
        )?;
        self.connection.execute(
            "DELETE FROM run WHERE run_id <> ?1 AND checkpoint_unix_s < ?2",
            [self.run_id, oldest],
        )?;
        // A row may start a day before the time its pair was last active in it.
        if self.first_minutes_before_s()?.is_none() {
            let margin = (2 * SEEN_WITHIN_S + Step::Day.seconds()) as i64;
            self.connection.execute("DELETE FROM pair WHERE seen_unix_s < ?1", [oldest - margin])?;
        }
        // The pragma frees one page per step.
        let mut vacuum = self.connection.prepare("PRAGMA incremental_vacuum")?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).optional().map(|_| ())
    }

    fn pragma(&self, name: &str) -> rusqlite::Result<u64> {
        let value: i64 = self.connection.pragma_query_value(None, name, |row| row.get(0))?;
        Ok(value.max(0) as u64)
    }

    /// Bytes of the database in use, without free pages and without the write-ahead log.
    pub(super) fn used_bytes(&self) -> rusqlite::Result<u64> {
        Ok((self.pragma("page_count")? - self.pragma("freelist_count")?) * self.pragma("page_size")?)
    }

    /// Contents of each step.
    pub(super) fn sizes(&self) -> rusqlite::Result<Vec<HistorySteps>> {
        let mut select = self.connection.prepare_cached(
            "SELECT min(unix_s) FILTER (WHERE row_count > 0), min(unix_s) FILTER (WHERE worst_bytes > 0),
               coalesce(sum(row_count), 0), coalesce(sum(stats_bytes + worst_bytes), 0)
             FROM bucket WHERE step_s = ?1",
        )?;
        let mut step = |step: Step| {
            select.query_row([step.seconds() as i64], |row| {
                let second = |at| row.get::<_, Option<i64>>(at).map(|s| s.map(|s| s.max(0) as u64));
                Ok(HistorySteps {
                    step_s: step.seconds(),
                    from_unix_s: second(0)?,
                    worst_from_unix_s: second(1)?,
                    rows: row.get::<_, i64>(2)?.max(0) as u64,
                    bytes: row.get::<_, i64>(3)?.max(0) as u64,
                })
            })
        };
        Step::ALL.into_iter().map(&mut step).collect()
    }

    /// Size and losses of the history, for the metrics.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn figures(&self) -> Result<HistoryFigures, HistoryError> {
        let size = |path: &str| std::fs::metadata(path).map_or(0, |file| file.len());
        let path = self.place.name();
        let bytes = match self.is_stored() {
            true => size(&path) + size(&format!("{path}-wal")),
            false => self.used_bytes().map_err(self.failed())?,
        };
        Ok(HistoryFigures {
            bytes,
            bytes_limit: self.limits.max_bytes,
            pruned_rows: self.pruned_rows,
            damaged_rows: self.reader.damaged_rows(),
            ..HistoryFigures::default()
        })
    }
}

/// Rows dropped by one pruning.
#[derive(Debug, Default)]
struct Dropped {
    /// Rows of any step that a replica lacks.
    unsent: u64,
    any: bool,
    /// Rows of minutes: their time is then known less finely, or not at all.
    minutes: u64,
}

impl Dropped {
    fn count_minutes(&mut self, rows: u64) {
        self.any |= rows > 0;
        self.minutes += rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_to_one() {
        assert_eq!(SHARES.iter().flat_map(|(_, shares)| shares).sum::<u64>(), 1000);
        assert_eq!(SHARES.map(|(step, _)| step), Step::ALL);
    }
}
