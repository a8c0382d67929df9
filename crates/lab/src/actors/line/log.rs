//! Log of packet fates as JSON Lines, and the final counts.

use super::direction::{Counts, Fate};
use super::packet::Tcp;
use crate::LabError;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// Maximum number of entries; the rest is counted.
const MOST_ENTRIES: usize = 200_000;

/// A packet with a fate other than the constant delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Arrival at the line, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Direction.
    pub way: Direct,
    #[serde(flatten)]
    pub fate: Fate,
    /// The packet, if it is TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp: Option<Tcp>,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direct {
    /// From the end A to B.
    A,
    /// From B to A.
    B,
}

/// Printed by the actor when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// From A to B.
    pub a: Side,
    /// From B to A.
    pub b: Side,
    /// Entries of the log.
    pub logged: u64,
    /// Entries for which the log had no room.
    pub not_logged: u64,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Packets by fate.
    #[serde(flatten)]
    pub counts: Counts,
    /// Packets that the device refused: it is down, or they are malformed.
    pub refused: u64,
    /// Mean lateness of packets, in nanoseconds.
    pub late_mean_ns: u64,
    /// Packets more than a millisecond late.
    pub late_1ms: u64,
    /// Maximum lateness.
    pub late_most_ns: u64,
}

/// Keeps entries until the end: a write that waits for a disk would add a delay.
#[derive(Default)]
pub struct Log {
    entries: Vec<Entry>,
    not_kept: u64,
}

impl Log {
    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) {
        if self.entries.len() < MOST_ENTRIES {
            self.entries.push(entry);
        } else {
            self.not_kept += 1;
        }
    }

    /// Number of entries kept, and dropped.
    pub fn counts(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.not_kept)
    }

    /// Writes the log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        let write = || -> std::io::Result<()> {
            let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
            for entry in &self.entries {
                serde_json::to_writer(&mut file, entry)?;
                file.write_all(b"\n")?;
            }
            file.flush()
        };
        write().map_err(LabError::file("write", path))
    }
}

/// Reads a log.
///
/// # Errors
/// It cannot be read, or contains a malformed line.
pub fn read(path: &Path) -> Result<Vec<Entry>, LabError> {
    let text = std::fs::read_to_string(path).map_err(LabError::file("read", path))?;
    text.lines()
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| LabError::File {
                what: "understand",
                path: format!("{}, line {}", path.display(), number + 1).into(),
                source: std::io::Error::other(error),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::direction::Loss;
    use super::super::packet::{tcp, tests::v4};
    use super::*;

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let tcp = tcp(&v4(7, 100, 16));
        let fates = [
            Fate::Dropped { number: 3, because: Loss::Named },
            Fate::Delayed { number: 0, by_ns: 5 },
            Fate::Twice { number: 1 },
            Fate::Swapped { number: 2 },
            Fate::Again { after_ns: 200_000_000 },
        ];
        let entry = |(n, fate)| Entry { unix_ns: n as u64, way: Direct::B, fate, tcp: tcp.filter(|_| n > 0) };
        let mut log = Log::default();
        let entries: Vec<_> = fates.into_iter().enumerate().map(entry).collect();
        entries.iter().for_each(|entry| log.push(*entry));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        log.write(&path).expect("it can be written");
        assert_eq!(read(&path).expect("it is there"), entries);
        std::fs::write(&path, "{}\n").expect("it can be written");
        assert!(read(&path).expect_err("no entry").to_string().contains("line 1"));
    }

    #[test]
    fn it_is_bounded() {
        let mut log = Log::default();
        let entry = Entry { unix_ns: 0, way: Direct::A, fate: Fate::Twice { number: 1 }, tcp: None };
        (0..MOST_ENTRIES + 3).for_each(|_| log.push(entry));
        assert_eq!(log.counts(), (MOST_ENTRIES as u64, 3));
    }
}
