//! The journal: all old values, on disk before anything is changed, and everything that happened since.
//!
//! JSON Lines, each with a checksum, append-only. The first line is the [`Head`], written twice, with the whole
//! plan; each further line is a [`Record`]. A value is written to the machine only after its [`Record::Change`]
//! is on disk, so a truncated line at the end of the file stands for a change that was never begun. A damaged
//! journal is used as far as it is readable, and the damage is reported.

use crate::place::Place;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use spangap_machine::facts::boot_id;
use spangap_machine::{Host, Known};
use spangap_undo::file::{lock_folder, make_folder, put, set_aside, sync_folder};
use spangap_undo::guard::Process;
use spangap_undo::{Appender, FileError, ParsedJournal};
pub use spangap_undo::{Damage, Lock};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

mod salvage;
#[cfg(test)]
mod tests;
pub use salvage::HeadRead;
#[cfg(test)]
pub(crate) use tests::head;

/// Facts about the whole journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Format identifier.
    pub format: String,
    /// Boot id: after a reboot there is nothing to undo.
    pub boot_id: String,
    /// Network namespace (inode) of the interfaces; `None` for a copy.
    pub net_namespace: Option<u64>,
    /// The copy that the plan was applied to; `None` for this machine.
    pub root: Option<PathBuf>,
    /// Start, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time until the automatic rollback unless confirmed; `None` for no automatic rollback.
    pub confirm_within_ns: Option<u64>,
    pub plan: Plan,
}

/// An event in the history of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "record", deny_unknown_fields)]
pub enum Record {
    /// The guard: a process that rolls back unless told otherwise.
    Guard {
        pid: u32,
        /// Start time, in ticks since boot.
        start_ticks: u64,
    },
    /// A value is about to be written.
    Change(Entry),
    /// Pre-existing cgroups whose own set equals what their parent's set will become: they stay unchanged, both
    /// now and during a rollback. Any other group with these CPUs was created later and inherited them.
    Unchanged {
        /// Their folders.
        groups: Vec<String>,
    },
    /// The kernel refused an optional change.
    Refused {
        /// Where.
        place: Place,
        /// The kernel's error.
        why: String,
    },
    /// The plan is fully applied.
    Applied {
        /// Time, in nanoseconds since 1970.
        time_unix_ns: u64,
    },
    /// The user confirmed the plan.
    Confirmed {
        /// Time, in nanoseconds since 1970.
        time_unix_ns: u64,
    },
    /// A rollback begins. Without this record, an unchanged number of queues would not show whether it was ever
    /// changed.
    Undoing,
    /// A rollback finished.
    RolledBack {
        /// Time, in nanoseconds since 1970.
        time_unix_ns: u64,
        /// Who rolled back: `rollback`, `guard: not confirmed in time`, `apply: IRQ 41 ...`.
        by: String,
        /// Places left alone because somebody else had changed them.
        left: Vec<Place>,
    },
}

/// A value about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Where.
    pub place: Place,
    /// Old value; `None` if the place does not exist yet.
    pub old: Option<String>,
    /// New value; equal to the old one where the value is only held against side effects of other changes.
    pub new: String,
    /// For an interrupt, the identity behind its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<IrqName>,
}

/// Identity of an interrupt: after a change of the number of queues its number may belong to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IrqName {
    /// Name in `/proc/interrupts`.
    pub name: String,
    pub interface: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Error of a file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a journal, or is damaged from the start.
    #[error(
        "journal {path} is damaged at {damage}: nothing of it can be used, and nothing was touched; `spangap isolate \
         rollback --forget` sets it aside"
    )]
    Damaged {
        path: PathBuf,
        /// The first damaged place.
        damage: Box<Damage>,
    },
    /// Written by another version of this program.
    #[error(
        "journal {path} is a \"{found}\", expected a journal of this version: \"{}\" or \"{}\"",
        Head::FORMAT,
        Head::BEFORE
    )]
    Version {
        path: PathBuf,
        /// Its format identifier.
        found: String,
    },
    /// A plan is already applied.
    #[error("a plan is already applied (journal {journal}): `spangap isolate rollback` first")]
    Applied { journal: PathBuf },
}

/// A journal as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal {
    /// Facts about the whole journal.
    pub head: Head,
    /// Records in order, as far as readable.
    pub records: Vec<Record>,
    /// Unreadable parts.
    pub damage: Vec<Damage>,
    /// How much of the head is readable.
    pub head_read: HeadRead,
}

impl Head {
    /// Value of [`Head::format`].
    pub const FORMAT: &str = "spangap isolate journal 2";
    /// Its value before lines had checksums.
    pub const BEFORE: &str = "spangap isolate journal 1";
}

impl Journal {
    /// An undamaged journal.
    pub fn new(head: Head, records: Vec<Record>) -> Journal {
        Journal { head, records, damage: Vec::new(), head_read: HeadRead::Whole }
    }

    /// Parses a journal; `path` is for errors. Bytes after the last newline are ignored: the line was never
    /// completely on disk, so nothing that it describes was begun.
    ///
    /// # Errors
    /// Nothing is readable, or the journal is of another version.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Journal, JournalError> {
        let ParsedJournal { head, records, mut damage, unfinished } = spangap_undo::journal::parse(bytes);
        let (head, head_read) = salvage::head(head, bytes);
        if head_read != HeadRead::Whole && !damage.iter().any(|damage| damage.lost) {
            let why = match &unfinished {
                Some(_) => "the end of the line is missing",
                None => "the head names two boots of the machine",
            };
            let range = unfinished.unwrap_or(0..bytes.len());
            damage.push(Damage::at(bytes, 1, range, why));
        }
        if head_read == HeadRead::Lost
            && records.is_empty()
            && let Some(damage) = damage.first()
        {
            return Err(JournalError::Damaged { path: path.to_owned(), damage: Box::new(damage.clone()) });
        }
        if ![Head::FORMAT, Head::BEFORE].contains(&&*head.format) {
            return Err(JournalError::Version { path: path.to_owned(), found: head.format });
        }
        Ok(Journal { head, records, damage, head_read })
    }

    /// Whether everything is readable.
    pub fn is_whole(&self) -> bool {
        self.head_read == HeadRead::Whole && !self.damage.iter().any(|damage| damage.lost)
    }

    /// Unreadable parts that have no second copy.
    pub fn lost(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().filter(|damage| damage.lost)
    }

    /// The values that were, or were about to be, written, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.records.iter().filter_map(|record| match record {
            Record::Change(entry) => Some(entry),
            _ => None,
        })
    }

    /// When the plan was fully applied, in nanoseconds since 1970; `None` if it is not.
    pub fn applied(&self) -> Option<u64> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Applied { time_unix_ns } => Some(*time_unix_ns),
            _ => None,
        })
    }

    /// When it was confirmed, in nanoseconds since 1970.
    pub fn confirmed(&self) -> Option<u64> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Confirmed { time_unix_ns } => Some(*time_unix_ns),
            _ => None,
        })
    }

    /// The latest rollback: time (nanoseconds since 1970), originator, and places left alone.
    pub fn rolled_back(&self) -> Option<(u64, &str, &[Place])> {
        self.records.iter().rev().find_map(|record| match record {
            Record::RolledBack { time_unix_ns, by, left } => Some((*time_unix_ns, &**by, &**left)),
            _ => None,
        })
    }

    /// Whether a rollback began but did not finish.
    pub fn undoing(&self) -> bool {
        let last = |is: fn(&Record) -> bool| self.records.iter().rposition(is);
        last(|record| *record == Record::Undoing) > last(|record| matches!(record, Record::RolledBack { .. }))
    }

    pub fn guard(&self) -> Option<Process> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Guard { pid, start_ticks } => Some(Process { pid: *pid, start_ticks: *start_ticks }),
            _ => None,
        })
    }

    /// Whether the journal stems from another boot: then there is nothing to undo. If the machine or the head
    /// does not tell, the boot is assumed to be the same.
    pub fn of_another_boot(&self, files: &Host) -> bool {
        self.head_read != HeadRead::Lost && boot_id(files).is_ok_and(|now| now != self.head.boot_id)
    }
}

/// Boot id of this machine.
///
/// # Errors
/// The machine does not tell.
pub fn boot_id(files: &Host) -> Known<String> {
    files.parsed(boot_id::PATH, boot_id::parse)
}

/// Folder of the journal. At most one journal is open: a plan must be undone before the next is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// A journal open for writing.
#[derive(Debug)]
pub struct Writer {
    appender: Appender,
    #[cfg(test)]
    pub(crate) dies: Option<KillPoint>,
}

/// For tests: the process is killed in the middle of a write.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillPoint {
    /// Number of complete writes before.
    pub after: u32,
    /// Bytes of the next write that still reach the disk.
    pub bytes: usize,
}

impl Folder {
    /// The folder is created when it is first locked.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn open_path(&self) -> PathBuf {
        self.0.join("open.journal")
    }

    /// Waits for exclusive access among `apply`, `confirm`, `rollback` and the guard.
    ///
    /// # Errors
    /// The folder cannot be created or locked.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        make_folder(&self.0)?;
        Ok(lock_folder(&self.0)?)
    }

    /// The open journal, if any.
    ///
    /// # Errors
    /// Nothing of it can be read.
    pub fn open(&self) -> Result<Option<(PathBuf, Journal)>, JournalError> {
        let path = self.open_path();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(FileError::of("read", &path))?,
        };
        let journal = Journal::parse(&path, &bytes)?;
        Ok(Some((path, journal)))
    }

    /// Starts a journal; it appears together with its head, or not at all. A journal of another boot, or one
    /// that is fully undone, is put aside first.
    ///
    /// # Errors
    /// A journal is open or damaged, or the new one cannot be written.
    pub fn begin(&self, lock: &Lock, head: &Head) -> Result<Writer, JournalError> {
        if let Some((journal, open)) = self.open()? {
            let all_undone =
                matches!(open.records.last(), Some(Record::RolledBack { left, .. }) if left.is_empty());
            let another_boot = open.head_read != HeadRead::Lost && open.head.boot_id != head.boot_id;
            if !(all_undone && open.is_whole() || another_boot) {
                return Err(JournalError::Applied { journal });
            }
            self.close(lock)?;
        }
        let path = self.open_path();
        let text = spangap_undo::journal::head_line(head);
        let file = put(&path, "unfinished", &text)?;
        Ok(Writer::new(Appender::new(path, file, &text)))
    }

    /// Continues the open journal. An incomplete last line is cut off first.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn append(&self, _lock: &Lock) -> Result<Writer, JournalError> {
        Ok(Writer::new(Appender::open(&self.open_path())?))
    }

    /// Closes a journal that is undone, or is to be forgotten: renames it to `last.journal`, replacing the
    /// previous one. Does not read it.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn close(&self, _lock: &Lock) -> Result<(), JournalError> {
        let path = self.open_path();
        match fs::rename(&path, self.0.join("last.journal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(FileError::of("put aside", &path))?,
        }
        Ok(sync_folder(&self.0)?)
    }

    /// Renames a damaged journal so that it no longer counts as open, and returns its new path. It is kept
    /// forever, because its readable remains may be the only trace of the old values.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn set_aside(&self, _lock: &Lock) -> Result<PathBuf, JournalError> {
        Ok(set_aside(&self.open_path())?)
    }
}

impl Writer {
    fn new(appender: Appender) -> Writer {
        Writer {
            appender,
            #[cfg(test)]
            dies: None,
        }
    }

    pub fn path(&self) -> &Path {
        self.appender.path()
    }

    /// Appends records durably. After an error, none of them is in the journal.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        let text: String = records.iter().map(spangap_undo::journal::line).collect();
        #[cfg(test)]
        self.die(&text);
        Ok(self.appender.write(&text)?)
    }

    #[cfg(test)]
    fn die(&mut self, text: &str) {
        match &mut self.dies {
            None => {}
            Some(KillPoint { after: 0, bytes }) => {
                self.appender.write_some(text, *bytes).expect("a journal that can be written");
                std::panic::resume_unwind(Box::new("killed"));
            }
            Some(KillPoint { after, .. }) => *after -= 1,
        }
    }
}
