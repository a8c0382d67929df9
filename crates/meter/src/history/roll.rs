//! Writing: adds closed minutes to their rows, replaces open ones, and sums finer rows up into coarser ones.

use super::outbox;
use super::row::{Figures, WORST_STORED, decode_worst, encode_worst};
use super::step::{Step, cell, of_cell};
use super::{Checkpoint, History, HistoryError};
use crate::engine::PairMinute;
use rusqlite::{Connection, OptionalExtension, params};
use spangap_model::pair::WORST_KEPT;
use spangap_model::{KeptCall, PairKey, PairStats};
use std::collections::HashMap;

/// Precision of a pair's last activity; see [`History::forget_pairs`](super::History).
pub(super) const SEEN_WITHIN_S: u64 = 3_600;

/// Changes to the sizes of intervals, to be added once per transaction.
#[derive(Debug, Default)]
struct Sizes(HashMap<(Step, u64), [i64; 3]>);

impl Sizes {
    /// `change` contains rows, bytes of statistics and bytes of worst calls.
    fn add(&mut self, step: Step, unix_s: u64, change: [i64; 3]) {
        let sum = self.0.entry((step, step.start(unix_s))).or_default();
        sum.iter_mut().zip(change).for_each(|(sum, change)| *sum += change);
    }

    fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(
            "INSERT INTO bucket VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET
               row_count = row_count + ?3, stats_bytes = stats_bytes + ?4, worst_bytes = worst_bytes + ?5",
        )?;
        for ((step, unix_s), [rows, stats, worst]) in self.0 {
            add.execute(params![step.seconds() as i64, unix_s as i64, rows, stats, worst])?;
        }
        Ok(())
    }
}

/// One transaction's view of the tables.
struct Tables<'c> {
    connection: &'c Connection,
    sizes: Sizes,
    /// Whether the interval of a coarser row is already summed up.
    rolled: HashMap<(Step, u64), bool>,
    /// Whether changed rows are marked for a replica.
    marks: bool,
}

impl<'c> Tables<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Tables<'c>> {
        let marks = outbox::is_kept(connection)?;
        Ok(Tables { connection, sizes: Sizes::default(), rolled: HashMap::new(), marks })
    }

    fn is_rolled(&mut self, step: Step, start_s: u64) -> rusqlite::Result<bool> {
        if let Some(known) = self.rolled.get(&(step, start_s)) {
            return Ok(*known);
        }
        let mut find = self
            .connection
            .prepare_cached("SELECT 1 FROM bucket WHERE step_s = ?1 AND unix_s = ?2 AND row_count > 0")?;
        let rolled = find.exists(params![step.seconds() as i64, start_s as i64])?;
        self.rolled.insert((step, start_s), rolled);
        Ok(rolled)
    }

    /// The figures of a row; `None` if they are missing or cannot be decoded.
    fn figures(&self, step: Step, start_s: u64, pair_id: i64) -> rusqlite::Result<Option<Figures>> {
        let mut get =
            self.connection.prepare_cached(&format!("SELECT stats FROM {} WHERE cell = ?1", step.table()))?;
        let mut rows = get.query([cell(start_s, pair_id)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Figures::decode(row.get_ref(0)?.as_blob()?, start_s))
    }

    fn put(&mut self, step: Step, start_s: u64, pair_id: i64, figures: &Figures) -> rusqlite::Result<()> {
        let cell = cell(start_s, pair_id);
        let mut size = self
            .connection
            .prepare_cached(&format!("SELECT length(stats) FROM {} WHERE cell = ?1", step.table()))?;
        let before: Option<i64> = size.query_row([cell], |row| row.get(0)).optional()?;
        let stats = figures.encode(start_s);
        self.sizes.add(step, start_s, [before.is_none() as i64, stats.len() as i64 - before.unwrap_or(0), 0]);
        let mut put = self
            .connection
            .prepare_cached(&format!("INSERT OR REPLACE INTO {} VALUES (?1, ?2, ?3)", step.table()))?;
        put.execute(params![cell, figures.stats.calls() as i64, stats])?;
        if self.marks {
            outbox::mark(self.connection, step, cell)?;
        }
        Ok(())
    }

    /// Adds to a row.
    fn add(&mut self, step: Step, start_s: u64, pair_id: i64, figures: &Figures) -> rusqlite::Result<()> {
        match self.figures(step, start_s, pair_id)? {
            None => self.put(step, start_s, pair_id, figures),
            Some(mut sum) => {
                sum.merge(figures);
                self.put(step, start_s, pair_id, &sum)
            }
        }
    }

    fn worst(&self, step: Step, cell: i64) -> rusqlite::Result<Option<Vec<KeptCall>>> {
        let mut get = self
            .connection
            .prepare_cached(&format!("SELECT worst FROM {} WHERE cell = ?1", step.worst_table()))?;
        let mut rows = get.query([cell])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(decode_worst(row.get_ref(0)?.as_blob()?))
    }

    fn put_worst(&mut self, step: Step, cell: i64, calls: &[KeptCall]) -> rusqlite::Result<()> {
        let mut size = self
            .connection
            .prepare_cached(&format!("SELECT length(worst) FROM {} WHERE cell = ?1", step.worst_table()))?;
        let before: Option<i64> = size.query_row([cell], |row| row.get(0)).optional()?;
        let (trace_ids, worst) = encode_worst(calls);
        let change = worst.len() as i64 - before.unwrap_or(0);
        self.sizes.add(step, of_cell(cell).0, [0, 0, change]);
        let mut put = self
            .connection
            .prepare_cached(&format!("INSERT OR REPLACE INTO {} VALUES (?1, ?2, ?3)", step.worst_table()))?;
        put.execute(params![cell, trace_ids, worst])?;
        Ok(())
    }

    /// Adds a closed minute to its own row, and to all coarser rows that already cover its interval.
    fn add_minute(&mut self, unix_s: u64, pair_id: i64, stats: &PairStats) -> rusqlite::Result<()> {
        let unix_s = Step::Minute.start(unix_s);
        let figures = Figures::of_minute(unix_s, stats);
        self.add(Step::Minute, unix_s, pair_id, &figures)?;
        if !stats.worst.is_empty() {
            let cell = cell(unix_s, pair_id);
            match self.worst(Step::Minute, cell)? {
                None => self.put_worst(Step::Minute, cell, &stats.worst)?,
                Some(stored) => {
                    let mut calls = PairStats { worst: stored, ..PairStats::default() };
                    calls.merge(&PairStats { worst: stats.worst.clone(), ..PairStats::default() });
                    self.put_worst(Step::Minute, cell, &calls.worst)?;
                }
            }
        }
        for step in Step::ROLLUPS {
            let start_s = step.start(unix_s);
            if self.is_rolled(step, start_s)? {
                self.add(step, start_s, pair_id, &figures)?;
            }
        }
        Ok(())
    }

    /// Makes the rows of one interval from those of the next finer step, pair by pair.
    fn roll(&mut self, step: Step, start_s: u64) -> rusqlite::Result<()> {
        let Some(finer) = step.finer() else { return Ok(()) };
        let starts = (start_s..start_s + step.seconds()).step_by(finer.seconds() as usize);
        let mut pairs = self.connection.prepare_cached("SELECT pair_id FROM pair")?;
        let pairs = pairs.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        for pair_id in pairs {
            let mut sum: Option<Figures> = None;
            for start_s in starts.clone() {
                let Some(figures) = self.figures(finer, start_s, pair_id)? else { continue };
                match &mut sum {
                    None => sum = Some(figures),
                    Some(sum) => sum.merge(&figures),
                }
            }
            let Some(sum) = sum else { continue };
            self.put(step, start_s, pair_id, &sum)?;
            self.keep_worst_of(step, pair_id, &sum)?;
        }
        Ok(())
    }

    /// Copies the worst calls of an interval to its step, where they outlive the minutes.
    fn keep_worst_of(&mut self, step: Step, pair_id: i64, sum: &Figures) -> rusqlite::Result<()> {
        let shown = &sum.tops[..sum.tops.len().min(WORST_STORED)];
        let Some(least_ns) = shown.last().map(|top| top.gap_ns) else { return Ok(()) };
        let mut minutes: Vec<u64> = shown.iter().map(|top| top.unix_s).collect();
        minutes.sort_unstable();
        minutes.dedup();
        for unix_s in minutes {
            let cell = cell(unix_s, pair_id);
            for finer in Step::ALL.into_iter().take_while(|finer| *finer < step) {
                if let Some(mut calls) = self.worst(finer, cell)? {
                    calls.retain(|call| call.gap_ns >= least_ns);
                    self.put_worst(step, cell, &calls)?;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Row id of a pair, inserting it if necessary. `known` avoids the look-up.
fn pair_id(
    connection: &Connection,
    known: &mut HashMap<PairKey, (i64, u64)>,
    key: &PairKey,
    unix_s: u64,
) -> rusqlite::Result<i64> {
    let hour = unix_s / SEEN_WITHIN_S;
    if let Some((id, seen)) = known.get(key)
        && *seen == hour
    {
        return Ok(*id);
    }
    let names = params![&*key.client, &*key.server, key.method.as_deref().unwrap_or(""), unix_s as i64];
    let mut put = connection.prepare_cached(
        "INSERT INTO pair (client, server, method, seen_unix_s) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET seen_unix_s = max(seen_unix_s, ?4) RETURNING pair_id",
    )?;
    let id = put.query_row(names, |row| row.get(0))?;
    known.insert(key.clone(), (id, hour));
    Ok(id)
}

impl History {
    pub(super) fn write(&mut self, checkpoint: &Checkpoint) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut tables = Tables::new(&transaction)?;
        let mut generation = self.generation;
        for batch in checkpoint.closed.iter().filter(|batch| batch.generation > self.generation) {
            for minute in batch.minutes.iter() {
                let id = pair_id(&transaction, &mut self.pairs, &minute.key, minute.unix_s)?;
                tables.add_minute(minute.unix_s, id, &minute.stats)?;
            }
            generation = batch.generation;
        }
        tables.sizes.write(&transaction)?;
        if let Some(outbox) = &self.outbox {
            outbox.settle(&transaction)?;
        }
        write_open(&transaction, &mut self.pairs, checkpoint.open)?;
        transaction.execute("UPDATE progress SET generation = ?1", [generation as i64])?;
        if let Some(counted) = checkpoint.counted {
            counted.write(&transaction)?;
        }
        transaction.execute(
            "UPDATE run SET checkpoint_unix_s = ?1, spans = ?2 WHERE run_id = ?3",
            params![
                checkpoint.now_unix_s as i64,
                serde_json::json!(checkpoint.spans).to_string(),
                self.run_id
            ],
        )?;
        transaction.commit()?;
        // A late minute may lie in an interval that had no rows before.
        let mut written = checkpoint.closed.iter().filter(|batch| batch.generation > self.generation);
        let is_late = |minute: &PairMinute| self.rolled_before_s.is_some_and(|rolled| minute.unix_s < rolled);
        if written.any(|batch| batch.minutes.iter().any(is_late)) {
            self.rolled_before_s = None;
        }
        self.generation = generation;
        Ok(())
    }

    /// Closes the minutes that the previous run left open, however it ended.
    pub(super) fn close_left_open(&mut self) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut tables = Tables::new(&transaction)?;
        {
            let mut open = transaction.prepare("SELECT cell, stats, worst FROM open_minute")?;
            let mut rows = open.query([])?;
            while let Some(row) = rows.next()? {
                let (unix_s, pair_id) = of_cell(row.get(0)?);
                let figures = Figures::decode(row.get_ref(1)?.as_blob()?, unix_s);
                let Some(Figures { mut stats, .. }) = figures else {
                    self.reader.count_damaged(1);
                    continue;
                };
                stats.worst = decode_worst(row.get_ref(2)?.as_blob()?).unwrap_or_default();
                tables.add_minute(unix_s, pair_id, &stats)?;
            }
        }
        tables.sizes.write(&transaction)?;
        transaction.execute("DELETE FROM open_minute", [])?;
        transaction.commit()
    }

    /// Converts minutes of an older format, as far as they can be decoded.
    pub(super) fn adopt(
        &mut self,
        minutes: &[(u64, i64, PairStats)],
        done: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut tables = Tables::new(&transaction)?;
        for (unix_s, pair_id, stats) in minutes {
            tables.add_minute(*unix_s, *pair_id, stats)?;
        }
        tables.sizes.write(&transaction)?;
        done(&transaction)?;
        transaction.commit()
    }

    /// Does one part of the deferred work: migrates rows of an older format, or sums up one finished
    /// interval. Returns whether there may be more.
    ///
    /// # Errors
    /// When the database refuses; the next call repeats the work.
    pub fn maintain(&mut self) -> Result<bool, HistoryError> {
        let failed = self.failed();
        if self.adopt_first_minutes().map_err(&failed)? {
            return Ok(true);
        }
        let settled_s = Step::TenMinutes.start(self.settled_before_s);
        if self.rolled_before_s == Some(settled_s) {
            return Ok(false);
        }
        for step in Step::ROLLUPS {
            let Some(start_s) = self.next_to_roll(step).map_err(&failed)? else { continue };
            let roll = || -> rusqlite::Result<()> {
                let transaction = self.connection.unchecked_transaction()?;
                let mut tables = Tables::new(&transaction)?;
                tables.roll(step, start_s)?;
                tables.sizes.write(&transaction)?;
                transaction.commit()
            };
            roll().map_err(&failed)?;
            return Ok(true);
        }
        self.rolled_before_s = Some(settled_s);
        Ok(false)
    }

    /// The oldest finished interval that has rows of the finer step and none of this one.
    fn next_to_roll(&self, step: Step) -> rusqlite::Result<Option<u64>> {
        let Some(finer) = step.finer() else { return Ok(None) };
        let mut find = self.connection.prepare_cached(
            "SELECT unix_s / ?2 * ?2 AS start FROM bucket WHERE step_s = ?1 AND row_count > 0
               AND unix_s < ?3 AND unix_s >= coalesce((SELECT dropped_before_s FROM horizon WHERE step_s = ?2), 0)
               AND NOT EXISTS (SELECT 1 FROM bucket AS rolled
                 WHERE rolled.step_s = ?2 AND rolled.unix_s = bucket.unix_s / ?2 * ?2 AND rolled.row_count > 0)
             ORDER BY unix_s LIMIT 1",
        )?;
        let seconds = [finer, step].map(|step| step.seconds() as i64);
        let before = step.start(self.settled_before_s) as i64;
        find.query_row(params![seconds[0], seconds[1], before], |row| row.get::<_, i64>(0))
            .optional()
            .map(|start| start.map(|start| start.max(0) as u64))
    }
}

fn write_open(
    connection: &Connection,
    known: &mut HashMap<PairKey, (i64, u64)>,
    open: &[PairMinute],
) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM open_minute", [])?;
    let mut put = connection.prepare_cached("INSERT INTO open_minute VALUES (?1, ?2, ?3, ?4, ?5)")?;
    // Two open minutes share a name for a moment after the wall clock was set.
    let mut by_cell: HashMap<i64, PairStats> = HashMap::new();
    for minute in open {
        let unix_s = Step::Minute.start(minute.unix_s);
        let id = pair_id(connection, known, &minute.key, unix_s)?;
        by_cell.entry(cell(unix_s, id)).or_default().merge(&minute.stats);
    }
    let mut in_order: Vec<_> = by_cell.into_iter().collect();
    in_order.sort_unstable_by_key(|(cell, _)| *cell);
    for (cell, stats) in in_order {
        let start_s = of_cell(cell).0;
        let (trace_ids, worst) = encode_worst(&stats.worst);
        let figures = Figures::of_minute(start_s, &stats).encode(start_s);
        put.execute(params![cell, stats.calls() as i64, figures, trace_ids, worst])?;
    }
    Ok(())
}

// The engine retains more candidates than a row stores.
const _: () = assert!(WORST_STORED <= WORST_KEPT);
