//! The outbox: rows that another store, which replicates the history, lacks or has in an earlier state.
//!
//! A change of a row marks it, in the same transaction, with a number that only grows. Whoever replicates sends rows
//! in the order of their marks, with the mark as the version of the row, and reports how far it has got; the next
//! checkpoint removes the marks up to there. A row that changes meanwhile has a new mark by then. A kill at any
//! moment leaves marks of rows that were sent: they are sent again, and replace themselves.

use super::read::View;
use super::row::Figures;
use super::step::{Step, cell, cells, of_cell};
use super::{History, HistoryError};
use crate::engine::PairMinute;
use rusqlite::{Connection, OptionalExtension, params};
use spangap_model::PairKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Created at the first use. `AUTOINCREMENT` gives no number twice, not even of a mark that was removed.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS replica (
  id INTEGER PRIMARY KEY CHECK (id = 1), history INTEGER NOT NULL, target TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS unsent (
  number INTEGER PRIMARY KEY AUTOINCREMENT, step_s INTEGER NOT NULL, cell INTEGER NOT NULL,
  UNIQUE (step_s, cell));";

/// How far a history has been sent, shared with whoever sends it.
#[derive(Debug, Default)]
pub struct Progress {
    sent: Mutex<Sent>,
    unsent_rows: AtomicU64,
    lost_rows: AtomicU64,
}

/// All marks of a history up to a number.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    history: u64,
    until: u64,
}

impl Progress {
    /// Reports that all rows of this history with a mark up to `until` are in the other store.
    pub fn sent(&self, history: u64, until: u64) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Sent { history, until };
    }

    /// Counts rows that were dropped, for age or size, or damaged before they could be sent.
    pub fn lost(&self, rows: u64) {
        self.lost_rows.fetch_add(rows, Relaxed);
    }

    /// Rows marked as of the last checkpoint.
    pub fn unsent_rows(&self) -> u64 {
        self.unsent_rows.load(Relaxed)
    }

    /// Rows that will never be sent, since the start.
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows.load(Relaxed)
    }
}

/// The replica of an open history.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    target: String,
    progress: Arc<Progress>,
}

impl Outbox {
    /// Begins to mark rows, and marks all that are there if they were not marked for this target before.
    pub fn prepare(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute_batch(TABLES)?;
        let known: Option<String> =
            connection.query_row("SELECT target FROM replica", [], |row| row.get(0)).optional()?;
        if known.as_deref() == Some(&self.target) {
            return Ok(());
        }
        let transaction = connection.unchecked_transaction()?;
        // A name that no other history has: their rows add up, and never replace each other.
        transaction.execute(
            "INSERT INTO replica VALUES (1, random() & 0x7fffffffffffffff, ?1)
             ON CONFLICT DO UPDATE SET target = ?1",
            [&self.target],
        )?;
        for step in Step::ALL {
            transaction.execute(
                &format!(
                    "INSERT OR REPLACE INTO unsent (step_s, cell) SELECT ?1, cell FROM {} ORDER BY cell",
                    step.table()
                ),
                [step.seconds() as i64],
            )?;
        }
        transaction.commit()
    }

    /// Removes the marks of rows that were sent.
    pub fn settle(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Sent { history, until } = *self.progress.sent.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .prepare_cached("DELETE FROM unsent WHERE number <= ?1 AND (SELECT history FROM replica) = ?2")?
            .execute(params![until as i64, history as i64])?;
        let unsent: i64 = connection.query_row("SELECT count(*) FROM unsent", [], |row| row.get(0))?;
        self.progress.unsent_rows.store(unsent.max(0) as u64, Relaxed);
        Ok(())
    }

    /// Counts marks that were removed with their rows.
    pub fn lost(&self, rows: u64) {
        self.progress.lost(rows);
    }
}

/// Whether changes of rows are marked, also before whoever sends them has started.
pub(super) fn is_kept(connection: &Connection) -> rusqlite::Result<bool> {
    let exists = connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'replica'")?
        .exists([])?;
    Ok(exists && connection.prepare_cached("SELECT 1 FROM replica WHERE target <> ''")?.exists([])?)
}

/// Marks a row that has changed.
pub(super) fn mark(connection: &Connection, step: Step, cell: i64) -> rusqlite::Result<()> {
    let mut put =
        connection.prepare_cached("INSERT OR REPLACE INTO unsent (step_s, cell) VALUES (?1, ?2)")?;
    put.execute(params![step.seconds() as i64, cell]).map(|_| ())
}

/// Removes the marks of rows that are dropped; returns how many there were.
pub(super) fn unmark(connection: &Connection, step: Step, until_s: u64) -> rusqlite::Result<u64> {
    let [first, last] = cells(0, until_s);
    let mut drop =
        connection.prepare_cached("DELETE FROM unsent WHERE step_s = ?1 AND cell BETWEEN ?2 AND ?3")?;
    drop.execute(params![step.seconds() as i64, first, last]).map(|rows| rows as u64)
}

impl History {
    /// Marks changed rows for a replica at `target` from now on, beginning with all that are there; `None` marks no more.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn replicate(&mut self, target: Option<&str>) -> Result<Option<Arc<Progress>>, HistoryError> {
        let failed = self.failed();
        let Some(target) = target else {
            if is_kept(&self.connection).map_err(&failed)? {
                let forget = "UPDATE replica SET target = ''; DELETE FROM unsent;";
                self.connection.execute_batch(forget).map_err(&failed)?;
            }
            return Ok(None);
        };
        let outbox = Outbox { target: target.into(), progress: Arc::default() };
        outbox.prepare(&self.connection).map_err(&failed)?;
        outbox.settle(&self.connection).map_err(&failed)?;
        outbox.lost(std::mem::take(&mut self.dropped_unsent));
        let progress = outbox.progress.clone();
        self.outbox = Some(outbox);
        Ok(Some(progress))
    }
}

/// A row to send, in the state of the view.
#[derive(Debug)]
pub struct Unsent {
    /// Its mark, and version.
    pub number: u64,
    /// Length of its interval.
    pub step: Step,
    /// The pair, start of the interval, and statistics without the worst calls.
    pub row: PairMinute,
    /// Gap and minute of the worst calls.
    pub tops: Vec<super::Top>,
    /// The trace ids of the minute's worst calls, and these calls as stored.
    pub worst: Option<(Vec<u8>, Vec<u8>)>,
}

impl View {
    /// The name of this history among those that are replicated; `None` if it is not.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn replicated_as(&self) -> Result<Option<u64>, HistoryError> {
        let find = || {
            if !is_kept(self.connection())? {
                return Ok(None);
            }
            self.connection()
                .query_row("SELECT history FROM replica", [], |row| row.get::<_, i64>(0))
                .optional()
        };
        Ok(find().map_err(|e| self.failed(e))?.map(|history| history as u64))
    }

    /// Up to `limit` rows with a mark above `after`, in the order of their marks, until `each` returns false. Returns the
    /// last mark seen, and how many rows are gone or damaged.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn unsent(
        &self,
        after: u64,
        limit: usize,
        mut each: impl FnMut(Unsent) -> bool,
    ) -> Result<(u64, u64), HistoryError> {
        let (mut last, mut gone) = (after, 0);
        if !self.has_marks(after).map_err(|e| self.failed(e))? {
            return Ok((last, gone));
        }
        let pairs: HashMap<i64, PairKey> = self.pairs_known()?.into_iter().collect();
        let mut read = || -> rusqlite::Result<()> {
            let mut select = self.connection().prepare_cached(
                "SELECT number, step_s, cell FROM unsent WHERE number > ?1 ORDER BY number LIMIT ?2",
            )?;
            let marks = select.query_map(params![after as i64, limit as i64], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })?;
            for mark in marks {
                let (number, step_s, cell) = mark?;
                last = number as u64;
                let step = Step::ALL.into_iter().find(|step| step.seconds() as i64 == step_s);
                let (unix_s, pair_id) = of_cell(cell);
                let found = match (step, pairs.get(&pair_id)) {
                    (Some(step), Some(key)) => {
                        self.figures(step, cell, unix_s)?.map(|figures| (step, key, figures))
                    }
                    _ => None,
                };
                let Some((step, key, Figures { stats, tops })) = found else {
                    gone += 1;
                    continue;
                };
                let worst = if step == Step::Minute { self.worst_blobs(cell)? } else { None };
                let row = PairMinute { unix_s, key: key.clone(), stats };
                if !each(Unsent { number: last, step, row, tops, worst }) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|e| self.failed(e))?;
        Ok((last, gone))
    }

    fn has_marks(&self, after: u64) -> rusqlite::Result<bool> {
        self.connection()
            .prepare_cached("SELECT 1 FROM unsent WHERE number > ?1 LIMIT 1")?
            .exists([after as i64])
    }

    /// Whether any row of this interval has a mark above `after`.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn is_unsent(&self, step: Step, unix_s: u64, after: u64) -> Result<bool, HistoryError> {
        let find = || {
            self.connection()
                .prepare_cached(
                    "SELECT 1 FROM unsent WHERE step_s = ?1 AND cell BETWEEN ?2 AND ?3 AND number > ?4 LIMIT 1",
                )?
                .exists(params![
                    step.seconds() as i64,
                    cell(unix_s, 0),
                    cell(unix_s + 60, 0) - 1,
                    after as i64
                ])
        };
        find().map_err(|e| self.failed(e))
    }

    fn figures(&self, step: Step, cell: i64, start_s: u64) -> rusqlite::Result<Option<Figures>> {
        let select = format!("SELECT stats FROM {} WHERE cell = ?1", step.table());
        let mut select = self.connection().prepare_cached(&select)?;
        let stats: Option<Vec<u8>> = select.query_row([cell], |row| row.get(0)).optional()?;
        Ok(stats.and_then(|stats| Figures::decode(&stats, start_s)))
    }

    fn worst_blobs(&self, cell: i64) -> rusqlite::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let select = format!("SELECT trace_ids, worst FROM {} WHERE cell = ?1", Step::Minute.worst_table());
        let mut select = self.connection().prepare_cached(&select)?;
        select.query_row([cell], |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }
}
