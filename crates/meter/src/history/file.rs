//! The database file: schema, ownership check, lock, and further connections.

use super::HistoryError;
use super::step::Step;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// "spgn": distinguishes the file from other SQLite files.
pub const APPLICATION_ID: i32 = 0x7370_676e;
pub const SCHEMA_VERSION: i32 = 2;
/// Table with one row per run, minute and pair in files of schema version 1.
pub const FIRST_MINUTES: &str = "minute_of_first_schema";

/// How long a reader waits for a writer.
const PATIENCE: Duration = Duration::from_secs(60);

/// `row_count` is 0 where rows were dropped and only worst calls remain; `seen_unix_s` is the last time a
/// pair was active.
fn schema() -> String {
    let tables = Step::ALL.map(|step| {
        format!(
            "CREATE TABLE {} (cell INTEGER PRIMARY KEY, calls INTEGER NOT NULL, stats BLOB NOT NULL);
             CREATE TABLE {} (cell INTEGER PRIMARY KEY, trace_ids BLOB NOT NULL, worst BLOB NOT NULL);\n",
            step.table(),
            step.worst_table()
        )
    });
    tables.concat()
        + "CREATE TABLE open_minute (
             cell INTEGER PRIMARY KEY, calls INTEGER NOT NULL, stats BLOB NOT NULL,
             trace_ids BLOB NOT NULL, worst BLOB NOT NULL);
           CREATE TABLE bucket (
             step_s INTEGER NOT NULL, unix_s INTEGER NOT NULL, row_count INTEGER NOT NULL,
             stats_bytes INTEGER NOT NULL, worst_bytes INTEGER NOT NULL,
             PRIMARY KEY (step_s, unix_s)) WITHOUT ROWID;
           CREATE TABLE horizon (step_s INTEGER PRIMARY KEY, dropped_before_s INTEGER NOT NULL);
           CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL);
           INSERT INTO progress VALUES (1, 0);"
}

const RUN_AND_PAIR: &str = "
CREATE TABLE run (
  run_id INTEGER PRIMARY KEY, started_unix_s INTEGER NOT NULL, checkpoint_unix_s INTEGER NOT NULL,
  closed INTEGER NOT NULL, spans TEXT NOT NULL);
CREATE TABLE pair (
  pair_id INTEGER PRIMARY KEY, client TEXT NOT NULL, server TEXT NOT NULL, method TEXT NOT NULL,
  seen_unix_s INTEGER NOT NULL DEFAULT 0, UNIQUE (client, server, method));
";

/// Creates the tables of a new file or migrates an older one, and configures the connection.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    let version = connection.pragma_query_value(None, "user_version", |r| r.get::<_, i32>(0))?;
    let schema = schema();
    // One transaction: a kill in between would leave tables that cannot be recognised as ours.
    let made = |tables: &str| {
        format!(
            "BEGIN; {tables} {schema} PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    };
    match version {
        0 => {
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            connection.execute_batch("VACUUM")?;
            connection.execute_batch(&made(RUN_AND_PAIR))
        }
        // The rows stay in place, and are moved in small steps while the meter runs.
        1 => connection.execute_batch(&made(&format!(
            "ALTER TABLE minute RENAME TO {FIRST_MINUTES};
             ALTER TABLE pair ADD COLUMN seen_unix_s INTEGER NOT NULL DEFAULT 0;
             UPDATE pair SET seen_unix_s = coalesce((SELECT max(unix_s) FROM {FIRST_MINUTES}), 0);"
        ))),
        _ => Ok(()),
    }
}

/// Location of the database, for any number of connections.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file.
    Path(PathBuf),
    /// Name of a database in the memory of this process.
    Memory(String),
}

impl Place {
    /// The file at `path`, or a new database in memory.
    pub fn new(path: Option<&Path>) -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        match path {
            Some(path) => Place::Path(path.into()),
            None => {
                let number = NUMBER.fetch_add(1, Relaxed);
                Place::Memory(format!("file:/history-{number}?vfs=memdb"))
            }
        }
    }

    /// Name in messages.
    pub fn name(&self) -> String {
        match self {
            Place::Path(path) => path.display().to_string(),
            Place::Memory(_) => "(in memory)".into(),
        }
    }

    /// Opens the writing connection.
    pub fn open(&self) -> rusqlite::Result<Connection> {
        match self {
            Place::Path(path) => Connection::open_with_flags(path, OpenFlags::default()),
            Place::Memory(name) => Connection::open_with_flags(name, OpenFlags::default()),
        }
    }

    /// Opens a further, read-only connection.
    pub fn open_to_read(&self) -> rusqlite::Result<Connection> {
        // Readers also write the index of the write-ahead log, so the file is not opened read-only.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match self {
            Place::Path(path) => Connection::open_with_flags(path, flags),
            Place::Memory(name) => Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI),
        }?;
        connection.pragma_update(None, "query_only", true)?;
        // In memory there is no write-ahead log: who reads waits for who writes, which takes seconds for thousands of pairs.
        connection.busy_timeout(PATIENCE)?;
        Ok(connection)
    }
}

/// Excludes other meters from the directory.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Creates the directory of `path` if necessary, and locks a file beside `path`.
    ///
    /// # Errors
    /// When another process holds the lock.
    pub fn new(path: &Path) -> Result<Lock, HistoryError> {
        if let Some(directory) = path.parent() {
            if directory.exists() && !directory.is_dir() {
                let reason = std::io::Error::from(std::io::ErrorKind::NotADirectory);
                return Err(HistoryError::Directory { path: directory.display().to_string(), reason });
            }
            std::fs::create_dir_all(directory).map_err(|reason| HistoryError::Directory {
                path: directory.display().to_string(),
                reason,
            })?;
        }
        let lock_path: PathBuf = path.with_extension("lock");
        let path = lock_path.display().to_string();
        let file =
            File::create(&lock_path).map_err(|reason| HistoryError::Io { path: path.clone(), reason })?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(HistoryError::InUse { path }),
            Err(TryLockError::Error(reason)) => Err(HistoryError::Io { path, reason }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is starting may hold a copy of the descriptor for a moment.
        let _ = self.0.unlock();
    }
}

/// Rejects the files of other programs, and of newer versions of this one.
///
/// # Errors
/// The format that was found.
pub fn check_format(connection: &Connection, path: &str) -> Result<(), HistoryError> {
    let failed = |reason| HistoryError::Database { path: path.to_string(), reason };
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    let foreign = |found| Err(HistoryError::Foreign { path: path.to_string(), found });
    match (tables, number("application_id")?, number("user_version")?) {
        (0, _, _) => Ok(()),
        (_, APPLICATION_ID, version) if version <= SCHEMA_VERSION => Ok(()),
        (_, APPLICATION_ID, version) => {
            foreign(format!("written by a newer spangap, schema version {version}"))
        }
        _ => foreign("an SQLite file of another program".into()),
    }
}

/// Whether the file system is full, or our quota is.
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the database at `path` was refused for lack of room. When SQLite cannot create or grow a file
/// beside the database, it does not report why, so this writes another file of that size.
pub fn is_disk_full(error: &rusqlite::Error, path: &Path) -> bool {
    const BYTES: usize = 64 << 10;
    let probe = path.with_extension("probe");
    let has_no_room = || {
        let written = std::fs::write(&probe, vec![1; BYTES]);
        let _ = std::fs::remove_file(&probe);
        written.is_err_and(|error| is_no_room(&error))
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => has_no_room(),
        _ => false,
    }
}

/// Whether the database itself is broken, as opposed to temporarily unavailable.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            matches!(code.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                // One of our tables is missing: the schema is broken.
                || message.as_deref().is_some_and(|text| text.starts_with("no such table"))
        }
        _ => false,
    }
}
