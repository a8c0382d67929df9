//! Queries of the history. Each has its own connection and sees one snapshot of the database, without holding
//! a lock. Minutes not yet in the database come from memory.

use super::file::Place;
use super::row::Top;
use super::step::{Step, of_cell};
use super::sums::{Buckets, Covered, Rows, covered, end_of};
use super::{HistoryError, row::decode_worst};
use crate::engine::PairMinute;
use crate::report::Hole;
use rusqlite::{Connection, InterruptHandle, OptionalExtension, Row, params};
use spangap_model::{KeptCall, PairKey, PairStats};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Idle connections retained for later queries.
const IDLE: usize = 4;
/// Maximum number of points of a pair over time; a longer interval has longer steps.
pub const MAX_POINTS: u64 = 1_500;
/// Worst calls of a pair in a sum.
pub const SHOWN: usize = 5;

/// Cancels a query whose answer nobody waits for any more.
#[derive(Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    running: Mutex<Option<InterruptHandle>>,
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl Cancel {
    /// Makes the query end soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        if let Some(running) = &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.interrupt();
        }
    }

    /// Whether the query is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    fn set_running(&self, handle: Option<InterruptHandle>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }
}

/// Minutes that are in memory but not in the database.
#[derive(Clone, Debug, Default)]
pub struct UnwrittenMinutes {
    /// Closed minutes that wait to be written.
    pub waiting: Vec<Arc<Vec<PairMinute>>>,
    /// Open minutes.
    pub open: Vec<PairMinute>,
}

impl UnwrittenMinutes {
    pub(super) fn minutes(&self, from_s: u64, to_s: u64) -> impl Iterator<Item = (&PairMinute, bool)> {
        let waiting = self.waiting.iter().flat_map(|batch| batch.iter()).map(|minute| (minute, false));
        let all = waiting.chain(self.open.iter().map(|minute| (minute, true)));
        all.filter(move |(minute, _)| (from_s..=to_s).contains(&minute.unix_s))
    }
}

/// One pair over time.
#[derive(Clone, Debug)]
pub struct OverTime {
    /// Start of each point, with its statistics (without worst calls) and whether it can still change.
    pub points: BTreeMap<u64, (PairStats, bool)>,
    /// Sum of all points, with their worst calls.
    pub total: PairStats,
    /// Length of a point.
    pub step: Step,
    /// Time range covered.
    pub covered: Covered,
}

/// The worst calls of some pairs.
#[derive(Clone, Debug)]
pub struct Worst {
    /// Largest gap first.
    pub calls: Vec<(PairKey, KeptCall)>,
    /// Calls with a smaller gap may be missing.
    pub floor_ns: u64,
}

/// Handle for queries; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    idle: Mutex<Idle>,
    damaged_rows: AtomicU64,
}

#[derive(Debug)]
struct Idle {
    place: Place,
    connections: Vec<Connection>,
    /// Counts the databases: connections to an earlier one are not reused.
    file: u64,
}

impl Reader {
    pub(super) fn new(place: Place) -> Reader {
        let idle = Mutex::new(Idle { place, connections: Vec::new(), file: 0 });
        Reader(Arc::new(Shared { idle, damaged_rows: AtomicU64::new(0) }))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directs new connections to this database, even if it is another file of the same name.
    pub(super) fn turn_to(&self, place: Place) {
        let mut idle = self.idle();
        idle.place = place;
        idle.connections.clear();
        idle.file += 1;
    }

    pub(super) fn count_damaged(&self, rows: u64) {
        self.0.damaged_rows.fetch_add(rows, Relaxed);
    }

    /// Rows skipped because they could not be decoded.
    pub fn damaged_rows(&self) -> u64 {
        self.0.damaged_rows.load(Relaxed)
    }

    /// A snapshot of the database.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn view(&self, cancel: Arc<Cancel>) -> Result<View, HistoryError> {
        let (idle, file, place) = {
            let mut idle = self.idle();
            (idle.connections.pop(), idle.file, idle.place.clone())
        };
        let failed = |reason| HistoryError::Database { path: place.name(), reason };
        let connection = idle.map_or_else(|| place.open_to_read(), Ok).map_err(failed)?;
        let begin = || -> rusqlite::Result<i64> {
            connection.execute_batch("BEGIN")?;
            connection.query_row("SELECT generation FROM progress", [], |row| row.get(0))
        };
        let generation = begin().map_err(failed)? as u64;
        cancel.set_running(Some(connection.get_interrupt_handle()));
        Ok(View { connection: Some(connection), place, file, generation, reader: self.clone(), cancel })
    }
}

/// One snapshot of the database.
#[derive(Debug)]
pub struct View {
    /// Taken only on drop.
    connection: Option<Connection>,
    place: Place,
    file: u64,
    generation: u64,
    reader: Reader,
    cancel: Arc<Cancel>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.cancel.set_running(None);
        let Some(connection) = self.connection.take() else { return };
        // A connection that cannot even end its transaction is closed instead of reused.
        let ended = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        let mut idle = self.reader.idle();
        if ended && idle.file == self.file && idle.connections.len() < IDLE {
            idle.connections.push(connection);
        }
    }
}

impl View {
    /// Number of the last batch in the snapshot.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is taken when the view is dropped")
    }

    pub(super) fn failed(&self, reason: rusqlite::Error) -> HistoryError {
        match self.cancel.is_cancelled() {
            true => HistoryError::Cancelled,
            false => HistoryError::Database { path: self.place.name(), reason },
        }
    }

    pub(super) fn rows(&self) -> Result<Rows<'_>, HistoryError> {
        let rows = Rows::new(self.connection(), &self.reader.0.damaged_rows);
        rows.map_err(|e| self.failed(e))
    }

    pub(super) fn count_damaged(&self, rows: u64) {
        self.reader.count_damaged(rows);
    }

    pub(super) fn go_on(&self) -> Result<(), HistoryError> {
        if self.cancel.is_cancelled() { Err(HistoryError::Cancelled) } else { Ok(()) }
    }

    pub(super) fn buckets(&self, from_s: u64, to_s: u64) -> Result<Buckets, HistoryError> {
        Buckets::read(self.connection(), from_s, end_of(to_s)).map_err(|e| self.failed(e))
    }

    pub(super) fn pairs_known(&self) -> Result<Vec<(i64, PairKey)>, HistoryError> {
        let read = || -> rusqlite::Result<Vec<(i64, PairKey)>> {
            let mut select =
                self.connection().prepare_cached("SELECT pair_id, client, server, method FROM pair")?;
            select.query_map([], |row| Ok((row.get(0)?, read_key(row, 1)?)))?.collect()
        };
        read().map_err(|e| self.failed(e))
    }

    fn pair_id(&self, key: &PairKey) -> Result<Option<i64>, HistoryError> {
        let mut select = self
            .connection()
            .prepare_cached("SELECT pair_id FROM pair WHERE client = ?1 AND server = ?2 AND method = ?3")
            .map_err(|e| self.failed(e))?;
        let names = params![&*key.client, &*key.server, key.method.as_deref().unwrap_or("")];
        select.query_row(names, |row| row.get(0)).optional().map_err(|e| self.failed(e))
    }

    /// The sum of every pair over the minutes that `from_s..=to_s` touches, one after the other, with the few
    /// worst calls of each.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn pairs(
        &self,
        from_s: u64,
        to_s: u64,
        memory: &UnwrittenMinutes,
        each: impl FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError> {
        self.pairs_of((from_s, to_s), memory, true, |_| true, each)
    }

    /// Like [`View::pairs`], for the matching pairs; rows of other pairs are not read, and worst calls only with `worst`.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn pairs_of(
        &self,
        (from_s, to_s): (u64, u64),
        memory: &UnwrittenMinutes,
        worst: bool,
        matches: impl Fn(&PairKey) -> bool,
        mut each: impl FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let buckets = self.buckets(from_s, to_s)?;
        let cover = buckets.cover(from_s, end_of(to_s));
        let mut in_memory: HashMap<&PairKey, Vec<&PairStats>> = HashMap::new();
        for (minute, _) in memory.minutes(from_s, to_s).filter(|(minute, _)| matches(&minute.key)) {
            in_memory.entry(&minute.key).or_default().push(&minute.stats);
        }
        let mut rows = self.rows()?;
        for (id, key) in self.pairs_known()? {
            if !matches(&key) {
                continue;
            }
            self.go_on()?;
            let mut figures = rows.sum(&cover.rows, id).map_err(|e| self.failed(e))?;
            let mut stats = std::mem::take(&mut figures.stats);
            for minute in in_memory.remove(&key).into_iter().flatten() {
                stats.merge(minute);
            }
            if !stats.is_empty() {
                if worst {
                    rows.add_worst(&mut stats, &figures, id, SHOWN).map_err(|e| self.failed(e))?;
                }
                each(key, stats);
            }
        }
        for (key, minutes) in in_memory {
            let mut stats = PairStats::default();
            minutes.into_iter().for_each(|minute| stats.merge(minute));
            each(key.clone(), stats);
        }
        Ok(covered(&buckets, &cover.rows, from_s))
    }

    /// The sum of one pair without its worst calls, over the minutes that `from_s..=to_s` touches: no other pair is looked at.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn pair(
        &self,
        key: &PairKey,
        (from_s, to_s): (u64, u64),
        memory: &UnwrittenMinutes,
    ) -> Result<PairStats, HistoryError> {
        self.go_on()?;
        let from_s = Step::Minute.start(from_s);
        let mut stats = PairStats::default();
        if let Some(id) = self.pair_id(key)? {
            let cover = self.buckets(from_s, to_s)?.cover(from_s, end_of(to_s));
            stats = self.rows()?.sum(&cover.rows, id).map_err(|e| self.failed(e))?.stats;
        }
        let unwritten = memory.minutes(from_s, to_s).filter(|(minute, _)| minute.key == *key);
        unwritten.for_each(|(minute, _)| stats.merge(&minute.stats));
        Ok(stats)
    }

    /// One pair over time. Points are minutes, or longer where the interval is long or minutes were dropped.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn over_time(
        &self,
        key: &PairKey,
        from_s: u64,
        to_s: u64,
        memory: &UnwrittenMinutes,
    ) -> Result<OverTime, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let buckets = self.buckets(from_s, to_s)?;
        let cover = buckets.cover(from_s, end_of(to_s));
        let span_s = match cover.rows.first() {
            Some((_, first_s)) => to_s.saturating_sub(from_s.max(*first_s)),
            None => 0,
        };
        let fits = |step: &&Step| span_s / step.seconds() <= MAX_POINTS;
        let fitting = Step::ALL.iter().find(fits).copied().unwrap_or(Step::Day);
        let first_s = cover.rows.first().map_or(from_s, |(_, first_s)| from_s.max(*first_s));
        let step = fitting.max(buckets.finest_since(first_s));
        let mut over_time = OverTime {
            points: BTreeMap::new(),
            total: PairStats::default(),
            step,
            covered: covered(&buckets, &cover.rows, from_s),
        };
        let mut rows = self.rows()?;
        if let Some(id) = self.pair_id(key)? {
            let mut total = super::row::Figures::default();
            // Point by point, so that no row extends beyond one.
            let starts = cover.rows.first().map(|(_, first_s)| step.start(*first_s));
            let mut start_s = starts.unwrap_or(u64::MAX);
            let last_s = cover.rows.last().map_or(0, |(row, start_s)| start_s + row.seconds());
            while start_s < last_s {
                self.go_on()?;
                let until_s = (start_s + step.seconds()).min(end_of(to_s));
                let point = buckets.cover(from_s.max(start_s), until_s);
                // A coarser row that replaces dropped finer ones counts in the point in which it starts.
                let starting = point.rows.iter().filter(|(row, at)| *row <= step || *at == start_s);
                let starting: Vec<_> = starting.copied().collect();
                let figures = rows.sum(&starting, id).map_err(|e| self.failed(e))?;
                if !figures.stats.is_empty() {
                    total.merge(&figures);
                    over_time.points.insert(start_s, (figures.stats, false));
                }
                start_s += step.seconds();
            }
            over_time.total = total.stats.clone();
            self.add_memory(&mut over_time, key, (from_s, to_s), memory);
            rows.add_worst(&mut over_time.total, &total, id, SHOWN).map_err(|e| self.failed(e))?;
        } else {
            self.add_memory(&mut over_time, key, (from_s, to_s), memory);
        }
        Ok(over_time)
    }

    fn add_memory(
        &self,
        to: &mut OverTime,
        key: &PairKey,
        (from_s, to_s): (u64, u64),
        memory: &UnwrittenMinutes,
    ) {
        for (minute, open) in memory.minutes(from_s, to_s).filter(|(minute, _)| minute.key == *key) {
            let point = to.points.entry(to.step.start(minute.unix_s)).or_default();
            point.0.merge(&PairStats { worst: Vec::new(), ..minute.stats.clone() });
            point.1 |= open;
            to.total.merge(&minute.stats);
        }
    }

    /// The `limit` worst calls of all matching pairs, among those with a gap within `gap_ns`.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn worst(
        &self,
        from_s: u64,
        to_s: u64,
        matches: impl Fn(&PairKey) -> bool,
        gap_ns: RangeInclusive<u64>,
        limit: usize,
        memory: &UnwrittenMinutes,
    ) -> Result<Worst, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let cover = self.buckets(from_s, to_s)?.cover(from_s, end_of(to_s));
        let of_memory: Vec<&PairMinute> = memory
            .minutes(from_s, to_s)
            .map(|(minute, _)| minute)
            .filter(|minute| matches(&minute.key))
            .collect();
        let mut floor_ns = of_memory.iter().map(|minute| minute.stats.worst_floor_ns).max().unwrap_or(0);
        let mut calls: Vec<(PairKey, KeptCall)> = of_memory
            .iter()
            .flat_map(|minute| minute.stats.worst.iter().map(|call| (minute.key.clone(), call.clone())))
            .filter(|(_, call)| gap_ns.contains(&call.gap_ns))
            .collect();
        keep_worst(&mut calls, limit);

        let mut rows = self.rows()?;
        let pairs: Vec<_> = self.pairs_known()?.into_iter().filter(|(_, key)| matches(key)).collect();
        let mut tops: Vec<(Top, usize)> = Vec::new();
        for (number, (id, _)) in pairs.iter().enumerate() {
            self.go_on()?;
            for (step, start_s) in &cover.rows {
                let row = rows.one(*step, *start_s, *id).map_err(|e| self.failed(e))?;
                let Some(row) = row else { continue };
                floor_ns = floor_ns.max(row.stats.worst_floor_ns);
                let within = row.tops.into_iter().filter(|top| gap_ns.contains(&top.gap_ns));
                tops.extend(within.map(|top| (top, number)));
            }
            if tops.len() > 2 * limit {
                tops.sort_unstable_by_key(|(top, _)| std::cmp::Reverse(top.gap_ns));
                tops.truncate(limit);
            }
        }
        tops.sort_unstable_by_key(|(top, _)| std::cmp::Reverse(top.gap_ns));
        tops.truncate(limit);
        let least_ns = match calls.len() < limit {
            true => 0,
            false => calls.last().map_or(0, |(_, call)| call.gap_ns),
        };
        let mut minutes: Vec<(usize, u64)> = tops
            .iter()
            .filter(|(top, _)| top.gap_ns >= least_ns)
            .map(|(top, number)| (*number, top.unix_s))
            .collect();
        minutes.sort_unstable();
        minutes.dedup();
        for (number, unix_s) in minutes {
            self.go_on()?;
            let (id, key) = &pairs[number];
            let stored = rows.worst_of(unix_s, *id).map_err(|e| self.failed(e))?;
            let within = stored.into_iter().filter(|call| gap_ns.contains(&call.gap_ns));
            calls.extend(within.map(|call| (key.clone(), call)));
            if calls.len() > 2 * limit {
                keep_worst(&mut calls, limit);
            }
        }
        keep_worst(&mut calls, limit);
        Ok(Worst { calls, floor_ns })
    }

    /// The most recent worst call with this trace id, and with this CLIENT span id if given.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
        memory: &UnwrittenMinutes,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError> {
        let is_it = |call: &&KeptCall| {
            call.trace_id == *trace_id && client_span_id.is_none_or(|id| call.client_span_id == *id)
        };
        for (minute, _) in memory.minutes(0, u64::MAX) {
            if let Some(call) = minute.stats.worst.iter().find(is_it) {
                return Ok(Some((minute.key.clone(), call.clone())));
            }
        }
        let find = |step: Step| -> rusqlite::Result<Option<(PairKey, KeptCall)>> {
            // The ids precede the spans, so a search through all rows reads little of each.
            let mut select = self.connection().prepare_cached(&format!(
                "SELECT cell, worst FROM {} WHERE instr(trace_ids, ?1) > 0 ORDER BY cell DESC",
                step.worst_table()
            ))?;
            let mut rows = select.query([&trace_id[..]])?;
            while let Some(row) = rows.next()? {
                let calls = decode_worst(row.get_ref(1)?.as_blob()?);
                if let Some(call) = calls.iter().flatten().find(is_it) {
                    let (_, pair_id) = of_cell(row.get(0)?);
                    let key = self.connection().query_row(
                        "SELECT client, server, method FROM pair WHERE pair_id = ?1",
                        [pair_id],
                        |row| read_key(row, 0),
                    )?;
                    return Ok(Some((key, call.clone())));
                }
            }
            Ok(None)
        };
        for step in Step::ALL {
            self.go_on()?;
            if let Some(found) = find(step).map_err(|e| self.failed(e))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The rows of one step that start in `from_s..=to_s`, in order of time; with `worst`, including the
    /// worst calls stored beside them.
    ///
    /// # Errors
    /// When the database refuses, or the query was cancelled.
    pub fn stored(
        &self,
        step: Step,
        from_s: u64,
        to_s: u64,
        worst: bool,
    ) -> Result<Vec<PairMinute>, HistoryError> {
        let mut rows = self.rows()?;
        let pairs: HashMap<i64, PairKey> = self.pairs_known()?.into_iter().collect();
        let mut read = || -> rusqlite::Result<Vec<PairMinute>> {
            let mut select = self.connection().prepare_cached(&format!(
                "SELECT cell FROM {} WHERE cell BETWEEN ?1 AND ?2 ORDER BY cell",
                step.table()
            ))?;
            let range = super::step::cells(from_s, to_s.saturating_add(1));
            let cells = select.query_map(range, |row| row.get::<_, i64>(0))?;
            let mut found = Vec::new();
            for cell in cells {
                let (unix_s, id) = of_cell(cell?);
                let (Some(figures), Some(key)) = (rows.one(step, unix_s, id)?, pairs.get(&id)) else {
                    continue;
                };
                let mut stats = figures.stats.clone();
                if worst {
                    rows.add_worst(&mut stats, &figures, id, SHOWN)?;
                }
                found.push(PairMinute { unix_s, key: key.clone(), stats });
            }
            Ok(found)
        };
        read().map_err(|e| self.failed(e))
    }

    /// Intervals of at least a minute between two runs.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn holes(&self) -> Result<Vec<Hole>, HistoryError> {
        let find = || -> rusqlite::Result<Vec<Hole>> {
            let mut select = self.connection().prepare_cached(
                "SELECT checkpoint_unix_s, next FROM (
                   SELECT checkpoint_unix_s, lead(started_unix_s) OVER (ORDER BY run_id) AS next FROM run)
                 WHERE next >= checkpoint_unix_s + 60 ORDER BY next DESC LIMIT 100",
            )?;
            let holes = select.query_map([], |row| {
                let second = |at| row.get::<_, i64>(at).map(|s| s.max(0) as u64);
                Ok(Hole { from_unix_s: second(0)?, to_unix_s: second(1)? })
            })?;
            holes.collect()
        };
        find().map_err(|e| self.failed(e))
    }
}

/// Keeps the `limit` calls with the largest gaps, largest first.
pub fn keep_worst(calls: &mut Vec<(PairKey, KeptCall)>, limit: usize) {
    calls.sort_by(|(_, a), (_, b)| b.gap_ns.cmp(&a.gap_ns).then_with(|| a.trace_id.cmp(&b.trace_id)));
    calls.truncate(limit);
}

fn read_key(row: &Row, at: usize) -> rusqlite::Result<PairKey> {
    let text = |at| row.get::<_, String>(at).map(|text| text.into());
    let method: String = row.get(at + 2)?;
    let method = (!method.is_empty()).then(|| method.into());
    Ok(PairKey { client: text(at)?, server: text(at + 1)?, method })
}
