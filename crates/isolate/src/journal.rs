//! The journal: what was there before, on disk before anything is changed, and all that happened since.
//!
//! JSON Lines, only ever appended to. The first line is the [`Head`], with the whole plan; each further one a
//! [`Record`]. A value is written to the machine only after its [`Record::Change`] is on disk, so that a line that was
//! cut short at the end of the file stands for a change that was not begun.

use crate::place::Place;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// What holds for all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Names the format.
    pub format: String,
    /// Identity of the run of the machine: after another boot there is nothing to undo.
    pub boot_id: String,
    /// Network namespace (inode) that the interfaces are in, where it is not a copy.
    pub net_namespace: Option<u64>,
    /// The copy that it was applied to; `None`: this machine.
    pub root: Option<PathBuf>,
    /// When, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// After how long it is rolled back unless confirmed; `None`: never by itself.
    pub confirm_within_ns: Option<u64>,
    /// What was to be done.
    pub plan: Plan,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "record", deny_unknown_fields)]
pub enum Record {
    /// The process that rolls back unless told otherwise.
    Guard {
        /// Its id.
        pid: u32,
        /// When it was started, ticks since boot.
        start_ticks: u64,
    },
    /// A value is about to be written.
    Change(Entry),
    /// The kernel did not take one that was not needed.
    Refused {
        /// Where.
        place: Place,
        /// What it said.
        why: String,
    },
    /// All is done.
    Applied {
        /// When, nanoseconds since 1970.
        time_unix_ns: u64,
    },
    /// It is to stay.
    Confirmed {
        /// When, nanoseconds since 1970.
        time_unix_ns: u64,
    },
    /// It was undone, by whom.
    RolledBack {
        /// When, nanoseconds since 1970.
        time_unix_ns: u64,
        /// `rollback`, `guard: not confirmed in time`, `apply: IRQ 41 ...`.
        by: String,
        /// Places that were left, since somebody else changed them meanwhile.
        left: Vec<Place>,
    },
}

/// A value that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Where.
    pub place: Place,
    /// What was there; `None`: nothing, it is made.
    pub old: Option<String>,
    /// What is written.
    pub new: String,
}

/// Why a journal cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not a journal, or no longer.
    #[error(
        "journal {path} is damaged at line {line}: found {found}, expected {expected}: nothing was touched"
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// Something is applied already.
    #[error("a plan is applied already (journal {journal}): `spangap isolate rollback` first")]
    Applied {
        /// Where that is written.
        journal: PathBuf,
    },
}

/// A journal as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal {
    /// What holds for all of it.
    pub head: Head,
    /// What happened, in order.
    pub records: Vec<Record>,
}

impl Journal {
    /// The values that were, or were about to be, written, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.records.iter().filter_map(|record| match record {
            Record::Change(entry) => Some(entry),
            _ => None,
        })
    }
}

/// Where the journal is. There is one open journal at most: what is applied is undone before anything else is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// Held by whoever changes something: `apply`, `confirm`, `rollback`, the guard.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held")] std::fs::File);

/// A journal that is being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    #[expect(dead_code, reason = "to come")]
    file: std::fs::File,
}

impl Folder {
    /// Made when the journal is begun.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Waits until nobody else changes anything.
    ///
    /// # Errors
    /// When the folder cannot be made or locked.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        Err(self.not_yet())
    }

    /// The open journal, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn open(&self) -> Result<Option<(PathBuf, Journal)>, JournalError> {
        Err(self.not_yet())
    }

    /// Begins one.
    ///
    /// # Errors
    /// When there is an open one, or it cannot be written.
    pub fn begin(&self, _lock: &Lock, _head: &Head) -> Result<Writer, JournalError> {
        Err(self.not_yet())
    }

    /// Goes on writing the open one.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn append(&self, _lock: &Lock) -> Result<Writer, JournalError> {
        Err(self.not_yet())
    }

    /// Everything is undone, or is to be forgotten: the journal is put aside as `last`, in place of the one before.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn close(&self, _lock: &Lock) -> Result<(), JournalError> {
        Err(self.not_yet())
    }

    fn not_yet(&self) -> JournalError {
        let source = io::Error::from(io::ErrorKind::Unsupported);
        JournalError::Io { what: "use", path: self.0.clone(), source }
    }
}

impl Writer {
    /// Its path.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Writes records, so that they outlive this process and the power.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, _records: &[Record]) -> Result<(), JournalError> {
        Err(Folder(self.path.clone()).not_yet())
    }
}
