//! Migration of schema version 1, which had one row per run, minute and pair, in small steps while the meter
//! runs. Each step is one transaction, so an exit at any moment neither loses nor duplicates minutes.

use super::History;
use super::file::FIRST_MINUTES;
use super::row::{Figures, decode_worst};
use rusqlite::params;

/// Rows per step, which takes some tens of milliseconds.
const ROWS: i64 = 1_000;

impl History {
    /// Migrates some rows, newest first. Returns whether there may be more.
    pub(super) fn adopt_first_minutes(&mut self) -> rusqlite::Result<bool> {
        if !self.has_first_minutes()? {
            return Ok(false);
        }
        let (mut minutes, mut keys, mut damaged) = (Vec::new(), Vec::new(), 0);
        {
            let mut select = self.connection.prepare(&format!(
                "SELECT unix_s, pair_id, run_id, stats, worst FROM {FIRST_MINUTES}
                 ORDER BY unix_s DESC, pair_id DESC, run_id DESC LIMIT {ROWS}"
            ))?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let key: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
                let unix_s = key[0].max(0) as u64;
                let worst = decode_worst(row.get_ref(4)?.as_blob()?);
                match Figures::decode(row.get_ref(3)?.as_blob()?, unix_s) {
                    Some(Figures { mut stats, .. }) => {
                        damaged += worst.is_none() as u64;
                        stats.worst = worst.unwrap_or_default();
                        minutes.push((unix_s, key[1], stats));
                    }
                    None => damaged += 1,
                }
                keys.push(key);
            }
        }
        let empty = keys.len() < ROWS as usize;
        // Oldest first, in the order of the tables.
        minutes.reverse();
        self.adopt(&minutes, |transaction| {
            let mut delete = transaction.prepare(&format!(
                "DELETE FROM {FIRST_MINUTES} WHERE unix_s = ?1 AND pair_id = ?2 AND run_id = ?3"
            ))?;
            for [unix_s, pair_id, run_id] in &keys {
                delete.execute(params![unix_s, pair_id, run_id])?;
            }
            if empty {
                transaction.execute(&format!("DROP TABLE {FIRST_MINUTES}"), [])?;
            }
            Ok(())
        })?;
        self.reader.count_damaged(damaged);
        Ok(true)
    }

    fn has_first_minutes(&self) -> rusqlite::Result<bool> {
        let mut find = self
            .connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?;
        find.exists([FIRST_MINUTES])
    }

    /// Unix time of the newest minute still in the older format; answers do not yet include minutes up to it.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn first_minutes_before_s(&self) -> rusqlite::Result<Option<u64>> {
        if !self.has_first_minutes()? {
            return Ok(None);
        }
        let newest: Option<i64> =
            self.connection
                .query_row(&format!("SELECT max(unix_s) FROM {FIRST_MINUTES}"), [], |r| r.get(0))?;
        Ok(newest.map(|unix_s| unix_s.max(0) as u64))
    }

    /// Drops minutes of the older format that start before a time. Returns their number.
    pub(super) fn drop_first_minutes(&self, before_s: u64) -> rusqlite::Result<u64> {
        if !self.has_first_minutes()? {
            return Ok(0);
        }
        let delete = format!("DELETE FROM {FIRST_MINUTES} WHERE unix_s < ?1");
        Ok(self.connection.execute(&delete, [before_s.min(i64::MAX as u64) as i64])? as u64)
    }

    /// Drops the oldest tenth of the time range still in the older format, at least one minute.
    pub(super) fn drop_oldest_first_minutes(&self) -> rusqlite::Result<u64> {
        if !self.has_first_minutes()? {
            return Ok(0);
        }
        let delete = format!(
            "DELETE FROM {FIRST_MINUTES} WHERE unix_s <=
               (SELECT min(unix_s) + (max(unix_s) - min(unix_s)) / 10 FROM {FIRST_MINUTES})"
        );
        Ok(self.connection.execute(&delete, [])? as u64)
    }
}
