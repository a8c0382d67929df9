//! The history: an SQLite file with one row per run, minute and pair.
//!
//! Rows of minutes that are still open are written again at every checkpoint, so that a kill loses the seconds
//! since the last one. The file is bounded in age and size, oldest minutes first; what was dropped is counted.
//! A checkpoint that fails is kept in memory, up to a limit, and written with the next one.

mod file;
mod prune;
mod row;
mod unwritten;

use crate::engine::PairMinute;
use crate::report::Hole;
use file::{Lock, SCHEMA_VERSION, check_format};
use row::{decode_stats, decode_worst, encode_stats, encode_worst};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use spangap_model::{Accounting, PairKey, PairStats, WorstCall};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use unwritten::Unwritten;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Minutes older than this are dropped.
    pub max_age_s: u64,
    /// The file is kept below this, oldest minutes dropped first.
    pub max_bytes: u64,
}

/// What the start of a run found of the run before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// There was none.
    None,
    /// It closed the history at this time.
    Closed {
        /// UTC, ISO 8601.
        at: String,
    },
    /// It ended without closing it.
    Killed {
        /// Its last checkpoint, UTC, ISO 8601.
        checkpoint: String,
        /// Checkpoints are this far apart, so no more than this is lost.
        lost_s: u64,
    },
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastRun::None => write!(f, "new"),
            LastRun::Closed { at } => write!(f, "the last run closed it at {at}"),
            LastRun::Killed { checkpoint, lost_s } => write!(
                f,
                "the last run ended without closing it; figures after its checkpoint of {checkpoint} are lost \
                 (checkpoints are {lost_s} s apart)"
            ),
        }
    }
}

/// Why the history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The database refuses.
    #[error("history {path}: {source}")]
    Database {
        /// The file.
        path: String,
        /// The library's reason.
        source: rusqlite::Error,
    },
    /// The file is something else.
    #[error(
        "history {path}: {found}; expected a history of spangap, schema version {SCHEMA_VERSION} or older"
    )]
    Foreign {
        /// The file.
        path: String,
        /// What it is.
        found: String,
    },
    /// Another process has it.
    #[error("history {path}: in use by another process; give each meter its own --data directory")]
    InUse {
        /// The lock file.
        path: String,
    },
    /// The lock file cannot be made.
    #[error("history {path}: {source}")]
    Io {
        /// The lock file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The open history.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    path: String,
    limits: Limits,
    run_id: i64,
    /// Rows that could not be read and were left out of an answer.
    pub damaged_rows: u64,
    /// Rows dropped for age or size.
    pub pruned_rows: u64,
    /// What the last checkpoints could not write.
    unwritten: Unwritten,
    /// Held for as long as the history is open, and so the last field.
    lock: Option<Lock>,
}

/// Which rows an answer is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    /// Only this pair.
    pub pair: Option<&'a PairKey>,
    /// Leave out this run's minutes from this one on (Unix seconds): the engine still has them.
    pub open_from_s: Option<u64>,
    /// Read the worst calls too.
    pub worst: bool,
}

/// How far apart the recorder's checkpoints are; what a kill can lose.
pub const CHECKPOINT: Duration = Duration::from_secs(5);

impl History {
    /// Opens or makes the history at `path`; `None` for one in memory.
    ///
    /// # Errors
    /// When the file cannot be opened, is no history of spangap, or another process has it open.
    pub fn open(
        path: Option<&Path>,
        limits: Limits,
        now_unix_s: u64,
    ) -> Result<(History, LastRun), HistoryError> {
        let name = path.map_or("(in memory)".to_string(), |p| p.display().to_string());
        let lock = path.map(Lock::new).transpose()?;
        let failed = |source| HistoryError::Database { path: name.clone(), source };
        let connection = match path {
            Some(path) => Connection::open_with_flags(path, OpenFlags::default()),
            None => Connection::open_in_memory(),
        };
        let connection = connection.map_err(failed)?;
        check_format(&connection, &name)?;
        let prepare = || -> rusqlite::Result<(i64, LastRun)> {
            file::prepare(&connection)?;
            let last = connection
                .query_row(
                    "SELECT closed, strftime('%Y-%m-%dT%H:%M:%SZ', checkpoint_unix_s, 'unixepoch') FROM run
                     ORDER BY run_id DESC LIMIT 1",
                    [],
                    |row| Ok((row.get::<_, bool>(0)?, row.get::<_, String>(1)?)),
                )
                .optional()?;
            connection.execute(
                "INSERT INTO run (started_unix_s, checkpoint_unix_s, closed, spans) VALUES (?1, ?1, 0, '{}')",
                [now_unix_s as i64],
            )?;
            let last = match last {
                None => LastRun::None,
                Some((true, at)) => LastRun::Closed { at },
                Some((false, checkpoint)) => LastRun::Killed { checkpoint, lost_s: CHECKPOINT.as_secs() },
            };
            Ok((connection.last_insert_rowid(), last))
        };
        let (run_id, last) = prepare().map_err(failed)?;
        let mut history = History {
            connection,
            path: name,
            limits,
            run_id,
            damaged_rows: 0,
            pruned_rows: 0,
            unwritten: Unwritten::default(),
            lock,
        };
        history.prune(now_unix_s)?;
        Ok((history, last))
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> HistoryError + use<> {
        let path = self.path.clone();
        move |source| HistoryError::Database { path: path.clone(), source }
    }

    /// Writes minutes, in one transaction; a minute that is there already is replaced. Then prunes, if the history
    /// has outgrown its limit.
    ///
    /// # Errors
    /// When the database refuses; nothing of this checkpoint is then written, and the next one tries again.
    pub fn checkpoint(
        &mut self,
        now_unix_s: u64,
        minutes: &[PairMinute],
        spans: &Accounting,
    ) -> Result<(), HistoryError> {
        let failed = self.failed();
        let late = self.unwritten.take();
        let written = self.write(now_unix_s, late.iter().chain(minutes), spans);
        if let Err(source) = written {
            self.unwritten.keep(late.into_iter().chain(minutes.iter().cloned()));
            return Err(failed(source));
        }
        if self.used_bytes().map_err(failed)? > self.limits.max_bytes {
            self.prune(now_unix_s)?;
        }
        Ok(())
    }

    fn write<'a>(
        &mut self,
        now_unix_s: u64,
        minutes: impl Iterator<Item = &'a PairMinute>,
        spans: &Accounting,
    ) -> rusqlite::Result<()> {
        let run_id = self.run_id;
        let transaction = self.connection.transaction()?;
        {
            let mut find = transaction.prepare_cached(
                "SELECT pair_id FROM pair WHERE client = ?1 AND server = ?2 AND method = ?3",
            )?;
            let mut add = transaction
                .prepare_cached("INSERT INTO pair (client, server, method) VALUES (?1, ?2, ?3)")?;
            let mut put = transaction
                .prepare_cached("INSERT OR REPLACE INTO minute VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            for minute in minutes {
                let key = &minute.key;
                let names = params![&*key.client, &*key.server, key.method.as_deref().unwrap_or("")];
                let pair_id: i64 = match find.query_row(names, |row| row.get(0)).optional()? {
                    Some(id) => id,
                    None => add.insert(names)?,
                };
                let (trace_ids, worst) = encode_worst(&minute.stats.worst);
                put.execute(params![
                    minute.unix_s as i64,
                    pair_id,
                    run_id,
                    minute.stats.calls() as i64,
                    encode_stats(&minute.stats),
                    trace_ids,
                    worst,
                ])?;
            }
            transaction.execute(
                "UPDATE run SET checkpoint_unix_s = ?1, spans = ?2 WHERE run_id = ?3",
                params![now_unix_s as i64, serde_json::json!(spans).to_string(), run_id],
            )?;
        }
        transaction.commit()
    }

    /// Marks the run as closed.
    ///
    /// # Errors
    /// As [`History::checkpoint`].
    pub fn close(&mut self, now_unix_s: u64) -> Result<(), HistoryError> {
        let done = self.connection.execute(
            "UPDATE run SET checkpoint_unix_s = ?1, closed = 1 WHERE run_id = ?2",
            params![now_unix_s as i64, self.run_id],
        );
        done.map(|_| ()).map_err(self.failed())
    }

    /// Whether it outlives the process.
    pub fn is_stored(&self) -> bool {
        self.lock.is_some()
    }

    /// The minutes from `from_s` to `to_s` (Unix seconds, both ends included), one entry per run, minute and pair.
    ///
    /// # Errors
    /// When the database refuses. A damaged row is left out and counted.
    pub fn minutes(&mut self, from_s: u64, to_s: u64, which: Which) -> Result<Vec<PairMinute>, HistoryError> {
        let failed = self.failed();
        let (found, damaged) = self.select(from_s, to_s, which).map_err(failed)?;
        self.damaged_rows += damaged;
        Ok(found)
    }

    fn select(&self, from_s: u64, to_s: u64, which: Which) -> rusqlite::Result<(Vec<PairMinute>, u64)> {
        let mut select = self.connection.prepare_cached(
            "SELECT unix_s, client, server, method, stats, CASE WHEN ?8 THEN worst END
             FROM minute JOIN pair USING (pair_id)
             WHERE unix_s BETWEEN ?1 AND ?2 AND NOT (run_id = ?3 AND unix_s >= ?4)
               AND (?5 IS NULL OR (client = ?5 AND server = ?6 AND method = ?7))
             ORDER BY unix_s",
        )?;
        let pair = which.pair;
        let open_from = which.open_from_s.map_or(i64::MAX, |s| s as i64);
        let rows = select.query_map(
            params![
                from_s as i64,
                i64::try_from(to_s).unwrap_or(i64::MAX),
                self.run_id,
                open_from,
                pair.map(|p| &*p.client),
                pair.map(|p| &*p.server),
                pair.map(|p| p.method.as_deref().unwrap_or("")),
                which.worst,
            ],
            |row| read_minute(row, which.worst),
        )?;
        let (mut found, mut damaged) = (Vec::new(), 0);
        for row in rows {
            match row? {
                Some(minute) => found.push(minute),
                None => damaged += 1,
            }
        }
        Ok((found, damaged))
    }

    /// A worst call by its trace id, and by its CLIENT span id if that is given; the newest one there is.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn find_call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
    ) -> Result<Option<(PairKey, WorstCall)>, HistoryError> {
        let find = || -> rusqlite::Result<Option<(PairKey, WorstCall)>> {
            let mut select = self.connection.prepare_cached(
                "SELECT client, server, method, worst FROM minute JOIN pair USING (pair_id)
                 WHERE instr(trace_ids, ?1) > 0 ORDER BY unix_s DESC",
            )?;
            let mut rows = select.query([&trace_id[..]])?;
            while let Some(row) = rows.next()? {
                let worst: Vec<u8> = row.get(3)?;
                let call = decode_worst(&worst).into_iter().flatten().find(|call| {
                    call.trace_id == *trace_id && client_span_id.is_none_or(|id| call.client_span_id == *id)
                });
                if let Some(call) = call {
                    return Ok(Some((read_key(row, 0)?, call)));
                }
            }
            Ok(None)
        };
        find().map_err(self.failed())
    }

    /// Stretches of at least a minute between two runs.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn holes(&self) -> Result<Vec<Hole>, HistoryError> {
        let find = || -> rusqlite::Result<Vec<Hole>> {
            let mut select = self.connection.prepare_cached(
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
        find().map_err(self.failed())
    }
}

fn read_key(row: &Row, at: usize) -> rusqlite::Result<PairKey> {
    let text = |at| row.get::<_, String>(at).map(|text| text.into());
    let method: String = row.get(at + 2)?;
    let method = (!method.is_empty()).then(|| method.into());
    Ok(PairKey { client: text(at)?, server: text(at + 1)?, method })
}

/// `None` when the row's blobs do not decode.
fn read_minute(row: &Row, with_worst: bool) -> rusqlite::Result<Option<PairMinute>> {
    let unix_s = row.get::<_, i64>(0)?.max(0) as u64;
    let key = read_key(row, 1)?;
    let Some(mut stats) = decode_stats(row.get_ref(4)?.as_blob()?) else { return Ok(None) };
    if with_worst {
        let Some(worst) = decode_worst(row.get_ref(5)?.as_blob()?) else { return Ok(None) };
        stats.worst = worst;
    }
    Ok(Some(PairMinute { unix_s, key, stats }))
}

/// Adds up minutes by pair.
pub fn by_pair(minutes: Vec<PairMinute>) -> std::collections::HashMap<PairKey, PairStats> {
    let mut pairs = std::collections::HashMap::<PairKey, PairStats>::new();
    for minute in minutes {
        pairs.entry(minute.key).or_default().merge(&minute.stats);
    }
    pairs
}
