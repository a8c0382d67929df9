//! The history: an SQLite file with one row per pair for each minute, ten minutes, hour and day.
//!
//! A row is a sum, and sums are exact: a late minute, or one that two runs share, is added to its row and to
//! those of all coarser steps that already exist. Coarser rows are made when their interval is over. A query
//! of one day therefore reads some forty rows of a pair instead of 1,440. Worst calls are in separate tables,
//! which are read only for calls to be shown; rows contain their gaps.
//!
//! Open minutes are written at every checkpoint, so that a kill loses only the seconds since the last one.
//! They have their own table and become ordinary minutes when they close, or at the next start. The file is
//! bounded in age and size; dropped rows are counted. One connection writes; each reader has its own.

mod aside;
mod file;
mod first;
mod lost;
mod minutes;
mod offsets;
mod outbox;
mod prune;
mod read;
mod roll;
mod row;
mod step;
mod sums;
mod waiting;

use crate::engine::PairMinute;
use crate::report::HistorySteps;
use file::{Lock, Place, SCHEMA_VERSION, check_format};
pub use lost::step_for;
pub use minutes::{Figure, Minutes, Needs, Stored};
pub use offsets::Counted;
pub use outbox::{Progress, Unsent};
pub use read::{Cancel, MAX_POINTS, OverTime, Reader, SHOWN, UnwrittenMinutes, View, Worst, keep_worst};
pub use row::{Lost, Top, decode_worst};
use rusqlite::{Connection, OptionalExtension, params};
use spangap_model::{Accounting, PairKey, PairStats};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use step::Step;
pub use sums::{Buckets, Cover, Covered, covered, end_of};
pub use waiting::{Batch, MAX_BYTES as MAX_WAITING_BYTES, Waiting};

/// Limits on age and size.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum age of a row.
    pub max_age_s: u64,
    /// Maximum size of the file: the finest and oldest rows are dropped first.
    pub max_bytes: u64,
}

/// State of the previous run, as found by this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// There was no previous run.
    None,
    /// Unknown: the disk is full, and the file cannot even be opened.
    Unread,
    /// The run closed the history.
    Closed {
        /// Time of closing, UTC, ISO 8601.
        at: String,
    },
    /// The run ended without closing the history.
    Killed {
        /// Its last checkpoint, UTC, ISO 8601.
        checkpoint: String,
        /// Distance between checkpoints, which bounds the loss.
        lost_s: u64,
    },
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastRun::None => write!(f, "new"),
            LastRun::Unread => write!(
                f,
                "cannot be opened because the disk is full; until it can, minutes wait in memory and answers lack what \
                 earlier runs recorded"
            ),
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
    /// The database refused.
    #[error("history {path}: {reason}")]
    Database {
        /// The file.
        path: String,
        /// The library's reason.
        reason: rusqlite::Error,
    },
    /// The file has another format.
    #[error(
        "history {path}: {found}; expected a history of spangap, schema version {SCHEMA_VERSION} or older. Move it away, \
         or choose another --data directory"
    )]
    Foreign {
        /// The file.
        path: String,
        /// The format found.
        found: String,
    },
    /// Another process holds the lock.
    #[error("history {path}: in use by another process; give each meter its own --data directory")]
    InUse {
        /// The lock file.
        path: String,
    },
    /// The directory does not exist and cannot be created.
    #[error("cannot make the history's directory {path}: {reason}")]
    Directory {
        /// The directory.
        path: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The lock file cannot be created, or a damaged history cannot be moved aside.
    #[error("history {path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The log from which the minutes came does not take note of them.
    #[error("{0}")]
    Source(String),
    /// The store of all meters' minutes refuses, or does not answer.
    #[error("ClickHouse: {0}")]
    Shared(String),
    /// The query was cancelled, since nobody waits for the answer any more.
    #[error("the query was cancelled")]
    Cancelled,
}

impl HistoryError {
    /// Whether the database itself is broken, as opposed to temporarily unavailable.
    pub fn is_damage(&self) -> bool {
        matches!(self, HistoryError::Database { reason, .. } if file::is_damage(reason))
    }

    /// Whether the only obstacle is that the disk is full: the same attempt succeeds once there is room.
    pub fn is_disk_full(&self) -> bool {
        match self {
            HistoryError::Database { path, reason } => file::is_disk_full(reason, Path::new(path)),
            HistoryError::Directory { reason, .. } | HistoryError::Io { reason, .. } => {
                file::is_no_room(reason)
            }
            _ => false,
        }
    }
}

/// Data that one checkpoint writes.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    /// Current time in Unix seconds.
    pub now_unix_s: u64,
    /// Minutes that can no longer change; they are added to the existing rows.
    pub closed: &'a [Batch],
    /// All open minutes; they replace those of the last checkpoint.
    pub open: &'a [PairMinute],
    /// No minute before this time (Unix seconds) is open.
    pub settled_before_s: u64,
    /// Accounting of all spans of the run.
    pub spans: &'a Accounting,
    /// How far each partition of a log has been counted in these minutes, and whose log it is.
    pub counted: Option<Counted<'a>>,
}

/// An unreadable history that was moved aside.
#[derive(Clone, Debug)]
pub struct SetAside {
    /// Its new path.
    pub to: PathBuf,
    /// Reason.
    pub reason: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the history was damaged ({}); it was set aside as {} and a new one begun",
            self.reason,
            self.to.display()
        )
    }
}

/// The history, open for writing.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    place: Place,
    limits: Limits,
    run_id: i64,
    /// Number of the last batch written.
    generation: u64,
    /// Row ids of pairs, and the hour in which each was last recorded as active.
    pairs: HashMap<PairKey, (i64, u64)>,
    settled_before_s: u64,
    /// The time up to which no finished interval is left to sum up, if the last search found none.
    rolled_before_s: Option<u64>,
    /// Minutes dropped because of age or size.
    pruned_rows: u64,
    reader: Reader,
    set_aside: Vec<SetAside>,
    last_run: LastRun,
    /// What marks rows for a replica, if there is one.
    outbox: Option<outbox::Outbox>,
    /// Marked rows dropped before it was known for whom.
    dropped_unsent: u64,
    /// Set while an empty database in memory replaces a file that cannot be opened because the disk is full.
    unopened: Option<Unopened>,
    /// Held as long as the history is open; hence the last field.
    lock: Option<Lock>,
}

/// A file that every checkpoint tries to open.
#[derive(Debug)]
struct Unopened {
    path: PathBuf,
    limits: Limits,
    since_unix_s: u64,
    problem: String,
}

/// Time between the recorder's checkpoints; a kill can lose this much.
pub const CHECKPOINT: Duration = Duration::from_secs(5);
/// A database in memory cannot grow beyond 1 GiB; this leaves room for one checkpoint.
const MAX_BYTES_IN_MEMORY: u64 = 960 << 20;
/// A larger advance of the clock since the last run is suspect: nothing is dropped for its age at once.
const CLOCK_DOUBTED_S: u64 = 86_400;

impl History {
    /// Opens or creates the history at `path`; `None` for one in memory. A damaged history is moved aside. If
    /// the disk is full, this succeeds nevertheless: every checkpoint fails until there is room, as it does
    /// when the disk fills up later.
    ///
    /// # Errors
    /// When the file cannot be opened, is not a history of spangap, or is in use by another process.
    pub fn open(path: Option<&Path>, limits: Limits, now_unix_s: u64) -> Result<History, HistoryError> {
        let Some(path) = path else { return History::open_at(Place::new(None), limits, now_unix_s) };
        let mut lock = None;
        match History::open_file(path, &mut lock, limits, now_unix_s) {
            Ok(history) => Ok(History { lock, ..history }),
            Err(error) if error.is_disk_full() => {
                let unopened = Unopened {
                    path: path.into(),
                    limits,
                    since_unix_s: now_unix_s,
                    problem: error.to_string(),
                };
                let stand_in = History::open_at(Place::new(None), limits, now_unix_s)?;
                Ok(History { last_run: LastRun::Unread, unopened: Some(unopened), lock, ..stand_in })
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock first, and keeps it for the next attempt if the rest fails.
    fn open_file(
        path: &Path,
        lock: &mut Option<Lock>,
        limits: Limits,
        now_unix_s: u64,
    ) -> Result<History, HistoryError> {
        if lock.is_none() {
            *lock = Some(Lock::new(path)?);
        }
        let place = Place::new(Some(path));
        match History::open_at(place.clone(), limits, now_unix_s) {
            Err(error) if error.is_damage() && aside::was_history(path) => {
                let aside = set_aside(path, now_unix_s, error.to_string())?;
                let new = History::open_at(place, limits, now_unix_s)?;
                Ok(History { set_aside: vec![aside], ..new })
            }
            Err(HistoryError::Database { path, reason }) if file::is_damage(&reason) => {
                let found = format!("another file, or one damaged beyond recognition ({reason})");
                Err(HistoryError::Foreign { path, found })
            }
            done => done,
        }
    }

    fn open_at(place: Place, mut limits: Limits, now_unix_s: u64) -> Result<History, HistoryError> {
        if matches!(place, Place::Memory(_)) {
            limits.max_bytes = limits.max_bytes.min(MAX_BYTES_IN_MEMORY);
        }
        let name = place.name();
        let failed = |reason| HistoryError::Database { path: name.clone(), reason };
        let connection = place.open().map_err(failed)?;
        check_format(&connection, &name)?;
        file::prepare(&connection).map_err(failed)?;
        let last_run = || {
            connection
                .query_row(
                    "SELECT closed, strftime('%Y-%m-%dT%H:%M:%SZ', checkpoint_unix_s, 'unixepoch'), checkpoint_unix_s
                     FROM run ORDER BY run_id DESC LIMIT 1",
                    [],
                    |row| Ok((row.get::<_, bool>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)),
                )
                .optional()
        };
        let last_run = last_run().map_err(failed)?;
        let doubted = last_run
            .as_ref()
            .is_some_and(|(.., checkpoint_s)| now_unix_s > (*checkpoint_s).max(0) as u64 + CLOCK_DOUBTED_S);
        let last_run = match last_run {
            None => LastRun::None,
            Some((true, at, _)) => LastRun::Closed { at },
            Some((false, checkpoint, _)) => LastRun::Killed { checkpoint, lost_s: CHECKPOINT.as_secs() },
        };
        let mut history = History {
            reader: Reader::new(place.clone()),
            connection,
            place,
            limits,
            run_id: 0,
            generation: 0,
            pairs: HashMap::new(),
            settled_before_s: 0,
            rolled_before_s: None,
            pruned_rows: 0,
            set_aside: Vec::new(),
            last_run,
            outbox: None,
            dropped_unsent: 0,
            unopened: None,
            lock: None,
        };
        history.begin(now_unix_s).map_err(failed)?;
        match history.prune_within(if doubted { 0 } else { now_unix_s }) {
            // The run has begun, and must not begin twice. Old rows are dropped once there is room.
            Err(error) if !error.is_disk_full() => Err(error),
            _ => Ok(history),
        }
    }

    /// Begins a run: closes the minutes that the last run left open.
    fn begin(&mut self, now_unix_s: u64) -> rusqlite::Result<()> {
        self.close_left_open()?;
        self.connection.execute(
            "INSERT INTO run (started_unix_s, checkpoint_unix_s, closed, spans) VALUES (?1, ?1, 0, '{}')",
            [now_unix_s as i64],
        )?;
        self.run_id = self.connection.last_insert_rowid();
        let generation: i64 =
            self.connection.query_row("SELECT generation FROM progress", [], |row| row.get(0))?;
        self.generation = generation as u64;
        Ok(())
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> HistoryError + use<> {
        let path = self.place.name();
        move |reason| HistoryError::Database { path: path.clone(), reason }
    }

    /// Opens the file if a full disk prevented it until now. Batches keep the numbers assigned in the
    /// meantime.
    fn open_late(&mut self, now_unix_s: u64) -> Result<(), HistoryError> {
        let Some(unopened) = &self.unopened else { return Ok(()) };
        let new = History::open_file(&unopened.path, &mut self.lock, unopened.limits, now_unix_s)?;
        // Minutes recorded since an earlier time are about to be written.
        new.connection
            .execute(
                "UPDATE run SET started_unix_s = ?1 WHERE run_id = ?2",
                params![unopened.since_unix_s as i64, new.run_id],
            )
            .map_err(new.failed())?;
        self.limits = unopened.limits;
        self.go_on_with(new)?;
        self.unopened = None;
        Ok(())
    }

    /// Switches to another database. Batches keep their numbers, and readers their handle.
    fn go_on_with(&mut self, new: History) -> Result<(), HistoryError> {
        new.connection
            .execute("UPDATE progress SET generation = ?1", [self.generation as i64])
            .map_err(new.failed())?;
        if let Some(outbox) = &self.outbox {
            outbox.prepare(&new.connection).map_err(new.failed())?;
        }
        self.reader.turn_to(new.place.clone());
        self.place = new.place;
        self.connection = new.connection;
        self.run_id = new.run_id;
        self.last_run = new.last_run;
        self.set_aside.extend(new.set_aside);
        self.pairs.clear();
        self.rolled_before_s = None;
        Ok(())
    }

    /// Writes minutes in one transaction, then prunes if the history exceeds its limit.
    ///
    /// # Errors
    /// When the database refuses; none of this checkpoint is written then, and the next one may include it
    /// again.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), HistoryError> {
        self.open_late(checkpoint.now_unix_s)?;
        let failed = self.failed();
        if let Err(reason) = self.write(checkpoint) {
            // Row ids from a failed transaction are not in the database.
            self.pairs.clear();
            return Err(failed(reason));
        }
        self.settled_before_s = checkpoint.settled_before_s;
        if self.used_bytes().map_err(failed)? > self.limits.max_bytes {
            self.prune(checkpoint.now_unix_s)?;
        }
        Ok(())
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

    /// Whether the history outlives the process.
    pub fn is_stored(&self) -> bool {
        self.unopened.is_some() || matches!(self.place, Place::Path(_))
    }

    /// How the previous run ended.
    pub fn last_run(&self) -> &LastRun {
        &self.last_run
    }

    /// Why the file could not be opened; `None` if it is open.
    pub fn unopened(&self) -> Option<&str> {
        self.unopened.as_ref().map(|unopened| unopened.problem.as_str())
    }

    /// A handle for queries from any thread.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Number of the last batch written.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Histories moved aside since the start, the predecessors of this one.
    pub fn set_aside(&self) -> &[SetAside] {
        &self.set_aside
    }

    /// Moves the damaged history aside, and continues with a new one.
    ///
    /// # Errors
    /// When the old one cannot be moved or a new one cannot be created; the old one then stays.
    pub fn replace(&mut self, now_unix_s: u64, reason: String) -> Result<(), HistoryError> {
        let Place::Path(path) = &self.place else { return Ok(()) };
        self.reader.turn_to(self.place.clone());
        let aside = set_aside(path, now_unix_s, reason)?;
        let new = History::open_at(self.place.clone(), self.limits, now_unix_s)?;
        let last_run = self.last_run.clone();
        self.go_on_with(History { set_aside: vec![aside], last_run, ..new })
    }

    /// Contents of each step.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn steps(&self) -> Result<Vec<HistorySteps>, HistoryError> {
        self.sizes().map_err(self.failed())
    }
}

fn set_aside(path: &Path, now_unix_s: u64, reason: String) -> Result<SetAside, HistoryError> {
    let failed = |reason| HistoryError::Io { path: path.display().to_string(), reason };
    let to = aside::set_aside(path, now_unix_s).map_err(failed)?;
    Ok(SetAside { to, reason })
}

/// Sums up minutes by pair.
pub fn by_pair(minutes: Vec<PairMinute>) -> HashMap<PairKey, PairStats> {
    let mut pairs = HashMap::<PairKey, PairStats>::new();
    for minute in minutes {
        pairs.entry(minute.key).or_default().merge(&minute.stats);
    }
    pairs
}
