//! How far each partition of a log has been counted, written in one transaction with the minutes that came of it: a
//! process that dies at any moment leaves both or neither.

use super::{History, HistoryError};
use crate::engine::partitions::PartitionMark;
use rusqlite::{Connection, OptionalExtension, params};

/// Created at the first use; a history without a log does not have them.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS log_reader (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS log_partition (
  log TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL, time_ms INTEGER NOT NULL,
  waiting INTEGER NOT NULL, PRIMARY KEY (log, partition)) WITHOUT ROWID;";

/// How far partitions have been counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// Name of the log and of those who read it together.
    pub log: &'a str,
    /// Name of this history among them.
    pub reader: &'a str,
    /// Its partitions.
    pub partitions: &'a [PartitionMark],
}

impl Counted<'_> {
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        // A history that replaces a damaged one has no tables yet.
        connection.execute_batch(TABLES)?;
        connection.execute("INSERT OR IGNORE INTO log_reader VALUES (1, ?1)", [self.reader])?;
        let mut put =
            connection.prepare_cached("INSERT OR REPLACE INTO log_partition VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for mark in self.partitions {
            let (time_ms, waiting) = (mark.time_ms as i64, mark.waiting as i64);
            put.execute(params![self.log, mark.partition, mark.next_offset, time_ms, waiting])?;
        }
        Ok(())
    }
}

impl History {
    /// How far the partitions of a log have been counted, and the name by which this history is known to others who
    /// read the log. `new_name` becomes the name of a history that has none.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn counted(
        &mut self,
        log: &str,
        new_name: &str,
    ) -> Result<(String, Vec<PartitionMark>), HistoryError> {
        let read = || -> rusqlite::Result<(String, Vec<PartitionMark>)> {
            self.connection.execute_batch(TABLES)?;
            self.connection.execute("INSERT OR IGNORE INTO log_reader VALUES (1, ?1)", [new_name])?;
            let name =
                self.connection.query_row("SELECT name FROM log_reader", [], |row| row.get(0)).optional()?;
            let mut select = self.connection.prepare(
                "SELECT partition, next_offset, time_ms, waiting FROM log_partition WHERE log = ?1 ORDER BY partition",
            )?;
            let marks = select.query_map([log], |row| {
                Ok(PartitionMark {
                    partition: row.get(0)?,
                    next_offset: row.get(1)?,
                    time_ms: row.get::<_, i64>(2)?.max(0) as u64,
                    waiting: row.get::<_, i64>(3)?.max(0) as u64,
                })
            })?;
            Ok((name.unwrap_or_else(|| new_name.into()), marks.collect::<rusqlite::Result<_>>()?))
        };
        read().map_err(self.failed())
    }

    /// Notes from where partitions are counted, before anything of them is.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn claim(&mut self, counted: &Counted) -> Result<(), HistoryError> {
        let failed = self.failed();
        let mut write = || {
            let transaction = self.connection.transaction()?;
            counted.write(&transaction)?;
            transaction.commit()
        };
        write().map_err(failed)
    }

    /// Goes back to the last checkpoint, as the next run would after a kill: minutes that were open then become
    /// ordinary ones, and whatever was counted since is forgotten.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn close_open_minutes(&mut self) -> Result<(), HistoryError> {
        self.close_left_open().map_err(self.failed())
    }
}
