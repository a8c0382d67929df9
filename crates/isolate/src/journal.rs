//! The journal: what was there before, on disk before anything is changed, and all that happened since.
//!
//! JSON Lines, only ever appended to. The first line is the [`Head`], with the whole plan; each further one a
//! [`Record`]. A value is written to the machine only after its [`Record::Change`] is on disk, so that a line that was
//! cut short at the end of the file stands for a change that was not begun.

use crate::place::Place;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use spangap_machine::{Host, Known};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;
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

impl Head {
    /// What [`Head::format`] is.
    pub const FORMAT: &str = "spangap isolate journal 1";
}

impl Journal {
    /// Reads the bytes of a journal; `path` is for the error. What comes after the last end of a line is not read: it
    /// was not on disk as a whole, so nothing was begun that it tells of.
    ///
    /// # Errors
    /// The first line that is of another form.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Journal, JournalError> {
        let damaged = |line: usize, found: String, expected| JournalError::Damaged {
            path: path.to_owned(),
            line,
            found,
            expected,
        };
        let mut lines = bytes[..whole(bytes)].split_inclusive(|byte| *byte == b'\n').enumerate();
        let expected = "the head of a journal, with the plan";
        let Some((_, first)) = lines.next() else {
            let found = if bytes.is_empty() { "nothing" } else { "a line without an end" };
            return Err(damaged(1, found.into(), expected));
        };
        let head: Head = serde_json::from_slice(first).map_err(|error| damaged(1, said(&error), expected))?;
        if head.format != Head::FORMAT {
            return Err(damaged(1, format!("{:?}", head.format), "a journal of this version"));
        }
        let records = lines.map(|(at, line)| {
            serde_json::from_slice(line)
                .map_err(|error| damaged(at + 1, said(&error), "a record of what happened"))
        });
        Ok(Journal { head, records: records.collect::<Result<_, _>>()? })
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

    /// The process that rolls back unless told otherwise: its id, and when it was started in ticks since boot.
    pub fn guard(&self) -> Option<(u32, u64)> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Guard { pid, start_ticks } => Some((*pid, *start_ticks)),
            _ => None,
        })
    }

    /// Whether this is another run of the machine than the one it was applied to: then there is nothing to undo.
    /// Where the machine does not tell, it is taken for the same.
    pub fn of_another_boot(&self, files: &Host) -> bool {
        boot_id(files).is_ok_and(|now| now != self.head.boot_id)
    }
}

/// Identity of this run of the machine.
///
/// # Errors
/// When the machine does not tell.
pub fn boot_id(files: &Host) -> Known<String> {
    files.read("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// How many of these bytes are whole lines.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Every line is a document of its own: the place in it that the parser tells says nothing of the file.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
}

/// Where the journal is. There is one open journal at most: what is applied is undone before anything else is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// Held by whoever changes something: `apply`, `confirm`, `rollback`, the guard. Dropping it lets the next one in.
#[derive(Debug)]
pub struct Lock {
    _folder: File,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    /// Bytes that are on disk as whole lines.
    len: u64,
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

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { what, path, source }
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

    /// Waits until nobody else changes anything.
    ///
    /// # Errors
    /// When the folder cannot be made or locked.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(io_error("make", &self.0))?;
        let folder = File::open(&self.0).map_err(io_error("open", &self.0))?;
        folder.lock().map_err(io_error("lock", &self.0))?;
        Ok(Lock { _folder: folder })
    }

    /// The open journal, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn open(&self) -> Result<Option<(PathBuf, Journal)>, JournalError> {
        let path = self.open_path();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(io_error("read", &path))?,
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
            let undone =
                matches!(open.records.last(), Some(Record::RolledBack { left, .. }) if left.is_empty());
            if !undone && open.head.boot_id == head.boot_id {
                return Err(JournalError::Applied { journal });
            }
            self.close(lock)?;
        }
        let path = self.open_path();
        let beside = path.with_extension("unfinished");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(io_error("make", &beside))?;
        let text = serde_json::to_string(head).expect("plain values are JSON") + "\n";
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(io_error("write", &beside))?;
        fs::rename(&beside, &path).map_err(io_error("make", &path))?;
        self.sync()?;
        Ok(Writer::new(path, file, text.len() as u64))
    }

    /// Goes on writing the open one. A line without an end is cut off first: it tells of nothing.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    pub fn append(&self, _lock: &Lock) -> Result<Writer, JournalError> {
        let path = self.open_path();
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let mut file = opened.map_err(io_error("open", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("read", &path))?;
        let len = whole(&bytes) as u64;
        let cut = file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len)));
        cut.map_err(io_error("write", &path))?;
        Ok(Writer::new(path, file, len))
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
            renamed => renamed.map_err(io_error("put aside", &path))?,
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), JournalError> {
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(io_error("write", &self.0))
    }
}

impl Writer {
    fn new(path: PathBuf, file: File, len: u64) -> Writer {
        Writer {
            path,
            file,
            len,
            #[cfg(test)]
            dies: None,
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes records, so that they outlive this process and the power. After an error none of them is in the journal.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for record in records {
            text += &serde_json::to_string(record).expect("plain values are JSON");
            text.push('\n');
        }
        #[cfg(test)]
        self.die(&text);
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Half a line in the middle would be damage. Where this fails too, the error is the same one.
            let _ = self.file.set_len(self.len).and_then(|()| self.file.seek(SeekFrom::Start(self.len)));
            return Err(io_error("write", &self.path)(source));
        }
        self.len += text.len() as u64;
        Ok(())
    }

    #[cfg(test)]
    fn die(&mut self, text: &str) {
        match &mut self.dies {
            None => {}
            Some(Dies { after: 0, bytes }) => {
                let some = &text.as_bytes()[..text.len().min(*bytes)];
                self.file.write_all(some).expect("a journal that can be written");
                std::panic::resume_unwind(Box::new("killed"));
            }
            Some(Dies { after, .. }) => *after -= 1,
        }
    }
}
