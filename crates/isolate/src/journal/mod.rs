//! The journal: what was there before, on disk before anything is changed, and all that happened since.
//!
//! JSON Lines, each with a checksum, only ever appended to. The first line is the [`Head`], twice, with the whole plan; each
//! further one a [`Record`]. A value is written to the machine only after its [`Record::Change`] is on disk, so that a
//! line that was cut short at the end of the file stands for a change that was not begun. Of a journal that was damaged
//! later, whatever can be read is used, and the rest is named.

use crate::place::Place;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use spangap_machine::facts::boot_id;
use spangap_machine::{Host, Known};
use spangap_undo::file::{lock_folder, make_folder, put, set_aside, sync_folder};
use spangap_undo::guard::Process;
use spangap_undo::{Appender, FileError, Parsed};
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
    /// Cgroups that were there before and have just the CPUs that the group above them gets: they stay as they are,
    /// now and when that is undone. Others with these CPUs were made meanwhile, and have them from the group above.
    Unchanged {
        /// Their folders.
        groups: Vec<String>,
    },
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
    /// Undoing begins. Without this a number of queues that is as before would not tell whether it was ever changed.
    Undoing,
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
    /// What is written; the same as before where a value is only to be held, since another change may lose it.
    pub new: String,
    /// Of an interrupt: which one the number stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<IrqName>,
}

/// Which interrupt a number stands for: after the number of queues has changed it may be another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IrqName {
    /// As in `/proc/interrupts`.
    pub name: String,
    /// The interface it is of.
    pub interface: Option<String>,
}

/// Why a journal cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not a journal, or no longer.
    #[error(
        "journal {path} is damaged at {damage}: nothing of it can be used, and nothing was touched; `spangap isolate \
         rollback --forget` sets it aside"
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// The first place that is.
        damage: Box<Damage>,
    },
    /// Of another version of this program.
    #[error(
        "journal {path} is a \"{found}\", expected a journal of this version: \"{}\" or \"{}\"",
        Head::FORMAT,
        Head::BEFORE
    )]
    Version {
        /// Which.
        path: PathBuf,
        /// What it calls itself.
        found: String,
    },
    /// Something is applied already.
    #[error("a plan is already applied (journal {journal}): `spangap isolate rollback` first")]
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
    /// What happened, in order; as far as it can be read.
    pub records: Vec<Record>,
    /// What of it cannot be read.
    pub damage: Vec<Damage>,
    /// How much of the head can be.
    pub head_read: HeadRead,
}

impl Head {
    /// What [`Head::format`] is.
    pub const FORMAT: &str = "spangap isolate journal 2";
    /// What it was when lines had no checksums.
    pub const BEFORE: &str = "spangap isolate journal 1";
}

impl Journal {
    /// One that is whole.
    pub fn new(head: Head, records: Vec<Record>) -> Journal {
        Journal { head, records, damage: Vec::new(), head_read: HeadRead::Whole }
    }

    /// Reads the bytes of a journal; `path` is for the error. What comes after the last end of a line is not read: it
    /// was not on disk as a whole, so nothing was begun that it tells of.
    ///
    /// # Errors
    /// When nothing of it can be read, or it is of another version.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Journal, JournalError> {
        let Parsed { head, records, mut damage, unfinished } = spangap_undo::journal::parse(bytes);
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

    /// Whether everything that was written can be read.
    pub fn is_whole(&self) -> bool {
        self.head_read == HeadRead::Whole && !self.damage.iter().any(|damage| damage.lost)
    }

    /// What cannot be read and is not there a second time.
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

    /// When everything was done, nanoseconds since 1970; `None`: not yet, or it never was.
    pub fn applied(&self) -> Option<u64> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Applied { time_unix_ns } => Some(*time_unix_ns),
            _ => None,
        })
    }

    /// When it was told to stay, nanoseconds since 1970.
    pub fn confirmed(&self) -> Option<u64> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Confirmed { time_unix_ns } => Some(*time_unix_ns),
            _ => None,
        })
    }

    /// When it was undone the last time (nanoseconds since 1970), by whom, and what was left.
    pub fn rolled_back(&self) -> Option<(u64, &str, &[Place])> {
        self.records.iter().rev().find_map(|record| match record {
            Record::RolledBack { time_unix_ns, by, left } => Some((*time_unix_ns, &**by, &**left)),
            _ => None,
        })
    }

    /// Whether undoing was begun, and cut short.
    pub fn undoing(&self) -> bool {
        let last = |is: fn(&Record) -> bool| self.records.iter().rposition(is);
        last(|record| *record == Record::Undoing) > last(|record| matches!(record, Record::RolledBack { .. }))
    }

    /// The process that rolls back unless told otherwise.
    pub fn guard(&self) -> Option<Process> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Guard { pid, start_ticks } => Some(Process { pid: *pid, start_ticks: *start_ticks }),
            _ => None,
        })
    }

    /// Whether this is another run of the machine than the one it was applied to: then there is nothing to undo.
    /// Where the machine or the head does not tell, it is taken for the same.
    pub fn of_another_boot(&self, files: &Host) -> bool {
        self.head_read != HeadRead::Lost && boot_id(files).is_ok_and(|now| now != self.head.boot_id)
    }
}

/// Identity of this run of the machine.
///
/// # Errors
/// When the machine does not tell.
pub fn boot_id(files: &Host) -> Known<String> {
    files.parsed(boot_id::PATH, boot_id::parse)
}

/// Where the journal is. There is one open journal at most: what is applied is undone before anything else is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// A journal that is being written.
#[derive(Debug)]
pub struct Writer {
    appender: Appender,
    #[cfg(test)]
    pub(crate) dies: Option<Dies>,
}

/// For tests: the process ends in the middle of a write.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dies {
    /// Writes that are done before.
    pub after: u32,
    /// Bytes of the next one that still get to the disk.
    pub bytes: usize,
}

impl Folder {
    /// Made when it is locked first.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn open_path(&self) -> PathBuf {
        self.0.join("open.journal")
    }

    /// Waits until nobody else changes anything: `apply`, `confirm`, `rollback`, the guard.
    ///
    /// # Errors
    /// When the folder cannot be made or locked.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        make_folder(&self.0)?;
        Ok(lock_folder(&self.0)?)
    }

    /// The open journal, if there is one.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn open(&self) -> Result<Option<(PathBuf, Journal)>, JournalError> {
        let path = self.open_path();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(FileError::of("read", &path))?,
        };
        let journal = Journal::parse(&path, &bytes)?;
        Ok(Some((path, journal)))
    }

    /// Begins one: it is there with its head, or not at all. One that is of another run of the machine, or whose
    /// changes are all undone, is put aside first.
    ///
    /// # Errors
    /// When there is an open one, it is damaged, or the new one cannot be written.
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

    /// Goes on writing the open one. A line without an end is cut off first: it tells of nothing.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    pub fn append(&self, _lock: &Lock) -> Result<Writer, JournalError> {
        Ok(Writer::new(Appender::open(&self.open_path())?))
    }

    /// Everything is undone, or is to be forgotten: the journal is put aside as `last.journal`, in place of the one
    /// before. It is not read for that.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn close(&self, _lock: &Lock) -> Result<(), JournalError> {
        let path = self.open_path();
        match fs::rename(&path, self.0.join("last.journal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(FileError::of("put aside", &path))?,
        }
        Ok(sync_folder(&self.0)?)
    }

    /// Puts a damaged journal where nobody takes it for an open one, and says where. It is kept for good: what is still
    /// legible in it may be the only trace of what was there before.
    ///
    /// # Errors
    /// When it cannot be renamed.
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

    /// Its path.
    pub fn path(&self) -> &Path {
        self.appender.path()
    }

    /// Writes records, so that they outlive this process and the power. After an error none of them is in the journal.
    ///
    /// # Errors
    /// When they cannot be written.
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
            Some(Dies { after: 0, bytes }) => {
                self.appender.write_some(text, *bytes).expect("a journal that can be written");
                std::panic::resume_unwind(Box::new("killed"));
            }
            Some(Dies { after, .. }) => *after -= 1,
        }
    }
}
