//! The bounds of the history: by age, and by size on disk.

use super::{History, HistoryError};
use crate::export::snapshot::HistoryFigures;

impl History {
    /// Drops what is too old, then the oldest minutes until the file is below its limit.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn prune(&mut self, now_unix_s: u64) -> Result<(), HistoryError> {
        let dropped = self.drop_minutes(now_unix_s).map_err(self.failed())?;
        self.pruned_rows += dropped;
        if dropped > 0 {
            self.shrink().map_err(self.failed())?;
        }
        Ok(())
    }

    /// How many rows were dropped.
    fn drop_minutes(&self, now_unix_s: u64) -> rusqlite::Result<u64> {
        let oldest = now_unix_s.saturating_sub(self.limits.max_age_s) as i64;
        let mut dropped = self.connection.execute("DELETE FROM minute WHERE unix_s < ?1", [oldest])?;
        while self.used_bytes()? > self.limits.max_bytes {
            // A tenth of the stored stretch at a time; at least the oldest minute.
            let some = self.connection.execute(
                "DELETE FROM minute WHERE unix_s <=
                   (SELECT min(unix_s) + (max(unix_s) - min(unix_s)) / 10 FROM minute)",
                [],
            )?;
            if some == 0 {
                break;
            }
            dropped += some;
        }
        Ok(dropped as u64)
    }

    /// Forgets the runs and pairs that have no minutes left, and gives free pages back to the file system.
    fn shrink(&self) -> rusqlite::Result<()> {
        self.connection.execute(
            "DELETE FROM run WHERE run_id <> ?1 AND checkpoint_unix_s <
               (SELECT coalesce(min(unix_s), 0) FROM minute)",
            [self.run_id],
        )?;
        self.connection.execute("DELETE FROM pair WHERE pair_id NOT IN (SELECT pair_id FROM minute)", [])?;
        // The pragma frees one page each time it is stepped.
        let mut vacuum = self.connection.prepare("PRAGMA incremental_vacuum")?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }

    fn pragma(&self, name: &str) -> rusqlite::Result<u64> {
        let value: i64 = self.connection.pragma_query_value(None, name, |row| row.get(0))?;
        Ok(value.max(0) as u64)
    }

    /// Bytes of the database in use, without free pages and without the write-ahead log.
    pub(super) fn used_bytes(&self) -> rusqlite::Result<u64> {
        Ok((self.pragma("page_count")? - self.pragma("freelist_count")?) * self.pragma("page_size")?)
    }

    /// Size and losses of the history, for the metrics.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn figures(&self) -> Result<HistoryFigures, HistoryError> {
        let size = |path: &str| std::fs::metadata(path).map_or(0, |file| file.len());
        let bytes = match self.is_stored() {
            true => size(&self.path) + size(&format!("{}-wal", self.path)),
            false => self.used_bytes().map_err(self.failed())?,
        };
        Ok(HistoryFigures {
            bytes,
            pruned_rows: self.pruned_rows,
            damaged_rows: self.damaged_rows,
            unwritten_rows: self.unwritten.lost,
        })
    }
}
