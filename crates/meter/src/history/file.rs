//! The file: its schema, whether it is ours, and who may have it open.

use super::HistoryError;
use rusqlite::Connection;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// "spgn": tells the file from other SQLite files.
const APPLICATION_ID: i32 = 0x7370_676e;
pub const SCHEMA_VERSION: i32 = 1;
const SCHEMA: &str = "
CREATE TABLE run (
  run_id INTEGER PRIMARY KEY, started_unix_s INTEGER NOT NULL, checkpoint_unix_s INTEGER NOT NULL,
  closed INTEGER NOT NULL, spans TEXT NOT NULL);
CREATE TABLE pair (
  pair_id INTEGER PRIMARY KEY, client TEXT NOT NULL, server TEXT NOT NULL, method TEXT NOT NULL,
  UNIQUE (client, server, method));
CREATE TABLE minute (
  unix_s INTEGER NOT NULL, pair_id INTEGER NOT NULL, run_id INTEGER NOT NULL,
  calls INTEGER NOT NULL, stats BLOB NOT NULL, trace_ids BLOB NOT NULL, worst BLOB NOT NULL,
  PRIMARY KEY (unix_s, pair_id, run_id)) WITHOUT ROWID;
";

/// Makes the tables of a new file, and sets what holds for every connection.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    if connection.pragma_query_value(None, "user_version", |r| r.get::<_, i32>(0))? == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.execute_batch("VACUUM")?;
        // All or nothing: a kill in between would leave tables that nobody knows to be ours.
        connection.execute_batch(&format!(
            "BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        ))?;
    }
    Ok(())
}

/// Keeps other meters out of the directory.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks the file beside `path`.
    ///
    /// # Errors
    /// When another process has it.
    pub fn new(path: &Path) -> Result<Lock, HistoryError> {
        let lock_path: PathBuf = path.with_extension("lock");
        let path = lock_path.display().to_string();
        let file =
            File::create(&lock_path).map_err(|source| HistoryError::Io { path: path.clone(), source })?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(HistoryError::InUse { path }),
            Err(TryLockError::Error(source)) => Err(HistoryError::Io { path, source }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started may hold a copy of the descriptor for a moment.
        let _ = self.0.unlock();
    }
}

/// Refuses the files of other programs, and of newer versions of this one.
///
/// # Errors
/// What was found.
pub fn check_format(connection: &Connection, path: &str) -> Result<(), HistoryError> {
    let failed = |source| HistoryError::Database { path: path.to_string(), source };
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
