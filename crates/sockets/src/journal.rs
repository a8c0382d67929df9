//! What was changed, on disk before the first change: the way back, whatever becomes of the tool.
//!
//! One line of JSON says what the file is, one each what is known of a socket, a last one how many there are, so that
//! a file that was cut is told from a whole one.

use crate::state::State;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ending of the files' names.
const ENDING: &str = "journal";
/// Ending of those that are being written.
const UNFINISHED: &str = "unfinished";
/// What the first line calls the file.
const FORMAT: &str = "spangap sockets journal 1";

/// A change that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What holds for all of it.
    pub head: Head,
    /// The sockets.
    pub entries: Vec<Entry>,
}

/// What holds for a whole journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Names the format.
    pub format: String,
    /// Inodes and process ids mean something until the machine is started anew.
    pub boot_id: String,
    /// The option, `nodelay`.
    pub option: String,
    /// When, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// After how long a process of its own sets it back; `None`: nobody does until told.
    pub undone_after_ns: Option<u64>,
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Names the socket, together with its ends.
    pub inode: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Whether the other end made the connection.
    pub accepted: bool,
    /// Value before.
    pub old: bool,
    /// Value after.
    pub new: bool,
    /// Processes that had it open.
    pub holders: Vec<Holder>,
}

/// A process that had a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// When it was started, in ticks since boot: ids are used again.
    pub start_ticks: u64,
    /// Its name.
    pub comm: String,
    /// Its descriptors of the socket.
    pub fds: Vec<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    sockets: u64,
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
    #[error("journal {path} is damaged at line {line}: {found}, expected {expected}: nothing was touched")]
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
    /// The socket was changed before, and that can still be undone.
    #[error(
        "{local} -> {peer} has been changed before and not set back: `spangap sockets undo --journal {journal}` first"
    )]
    Open {
        /// This end.
        local: SocketAddr,
        /// The other end.
        peer: SocketAddr,
        /// Where that is written.
        journal: PathBuf,
    },
}

/// What is wrong with a text.
struct Damage {
    line: usize,
    found: String,
    expected: &'static str,
}

impl Journal {
    /// A new one of this boot.
    pub fn new(
        entries: Vec<Entry>,
        time_unix_ns: u64,
        undone_after_ns: Option<u64>,
    ) -> Result<Journal, JournalError> {
        let (format, option) = (FORMAT.to_owned(), "nodelay".to_owned());
        let head = Head { format, boot_id: boot_id()?, option, time_unix_ns, undone_after_ns };
        Ok(Journal { head, entries })
    }

    fn text(&self) -> String {
        let line = |value: serde_json::Result<String>| value.expect("plain values are JSON") + "\n";
        let mut text = line(serde_json::to_string(&self.head));
        for entry in &self.entries {
            text += &line(serde_json::to_string(entry));
        }
        text + &line(serde_json::to_string(&End { sockets: self.entries.len() as u64 }))
    }

    fn read(text: &str) -> Result<Journal, Damage> {
        let cut = |line| Damage {
            line,
            found: "the end of the file".into(),
            expected: "the last line, with the number of sockets",
        };
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let parsed = |line: usize, expected| {
            move |error: serde_json::Error| Damage { line, found: format!("{error}"), expected }
        };
        let first =
            lines.first().ok_or(Damage { line: 1, found: "nothing".into(), expected: "a journal" })?;
        let head: Head = serde_json::from_str(first).map_err(parsed(1, "the head of a journal"))?;
        if head.format != FORMAT || head.option != "nodelay" {
            let found = format!("{:?} of {:?}", head.format, head.option);
            return Err(Damage { line: 1, found, expected: "a journal of this version, of nodelay" });
        }
        let (last, rest) = match lines.split_last() {
            Some((last, rest)) if !rest.is_empty() => (last, &rest[1..]),
            _ => return Err(cut(2)),
        };
        let mut entries = Vec::with_capacity(rest.len());
        for (at, line) in rest.iter().enumerate() {
            let entry: Entry = serde_json::from_str(line).map_err(parsed(at + 2, "a socket"))?;
            if entry.old == entry.new {
                let found = "a socket that was not changed".into();
                return Err(Damage { line: at + 2, found, expected: "an old and a new value" });
            }
            entries.push(entry);
        }
        let whole = last.ends_with('\n');
        let end: End = serde_json::from_str(last).ok().filter(|_| whole).ok_or_else(|| cut(lines.len()))?;
        if end.sockets != entries.len() as u64 {
            let found = format!("{} sockets before a last line that counts {}", entries.len(), end.sockets);
            return Err(Damage { line: lines.len(), found, expected: "as many as it counts" });
        }
        Ok(Journal { head, entries })
    }
}

/// Identity of this run of the machine.
pub(crate) fn boot_id() -> Result<String, JournalError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let read = fs::read_to_string(path).map_err(io_error("read", path))?;
    Ok(read.trim().to_owned())
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { what, path, source }
}

/// Where journals are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Made when the first journal is written.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The journals in it, the oldest first; none when there is no such folder.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_error("read", &self.0))?,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING)).collect();
        paths.sort();
        Ok(paths)
    }

    /// Journals of sockets that can still be set back, by inode; and those that cannot be read.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn open(&self) -> Result<(HashMap<u64, PathBuf>, Vec<JournalError>), JournalError> {
        let boot_id = boot_id()?;
        let (mut open, mut errors) = (HashMap::new(), Vec::new());
        for path in self.journals()? {
            match read(&path) {
                Ok(Some(journal)) if journal.head.boot_id == boot_id => {
                    open.extend(journal.entries.iter().map(|entry| (entry.inode, path.clone())));
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Ok((open, errors))
    }

    /// What a tool was writing when it was killed: it had changed nothing.
    fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == UNFINISHED) {
                // One that stays is in nobody's way.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Writes a journal, so that it outlives this process and the power, and holds it. Refused when one of its
    /// sockets is in another journal.
    ///
    /// # Errors
    /// When it cannot be written, or a socket was changed before.
    pub fn write(&self, journal: &Journal) -> Result<Held, JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(io_error("make", &self.0))?;
        let folder = fs::canonicalize(&self.0).map_err(io_error("find", &self.0))?;
        // Two tools that start at once: the second sees the first one's journal.
        let _one_at_a_time = lock_folder(&folder)?;
        self.remove_unfinished();
        // A journal that cannot be read may be of these sockets.
        let (open, errors) = self.open()?;
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        for entry in &journal.entries {
            if let Some(path) = open.get(&entry.inode) {
                let (local, peer, journal) = (entry.local, entry.peer, path.clone());
                return Err(JournalError::Open { local, peer, journal });
            }
        }
        let name = format!("nodelay-{}-{}.{ENDING}", journal.head.time_unix_ns, std::process::id());
        put(&folder.join(name), journal)
    }
}

/// Whoever puts a journal into a folder does so alone.
fn lock_folder(folder: &Path) -> Result<File, JournalError> {
    let file = File::open(folder).map_err(io_error("open", folder))?;
    file.lock().map_err(io_error("lock", folder))?;
    Ok(file)
}

/// Writes it beside its place, then puts it there as a whole. The folder is locked.
fn put(path: &Path, journal: &Journal) -> Result<Held, JournalError> {
    let beside = path.with_extension(UNFINISHED);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(io_error("make", &beside))?;
    file.lock().map_err(io_error("lock", &beside))?;
    let written = file.write_all(journal.text().as_bytes()).and_then(|()| file.sync_all());
    written.map_err(io_error("write", &beside))?;
    fs::rename(&beside, path).map_err(io_error("make", path))?;
    sync_folder(path)?;
    Ok(Held { path: path.to_owned(), journal: journal.clone(), _locked: file })
}

fn sync_folder(path: &Path) -> Result<(), JournalError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("write", folder))
}

fn read(path: &Path) -> Result<Option<Journal>, JournalError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(io_error("read", path))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let damaged = |Damage { line, found, expected }| JournalError::Damaged {
        path: path.to_owned(),
        line,
        found,
        expected,
    };
    Journal::read(&text).map(Some).map_err(damaged)
}

/// A journal that no other process changes, or changes sockets by, until this is dropped.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    journal: Journal,
    /// Closing it unlocks.
    _locked: File,
}

impl Held {
    /// Waits until nobody else holds it; `None` when it is not there, because it is undone.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn take(path: &Path) -> Result<Option<Held>, JournalError> {
        loop {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file.map_err(io_error("open", path))?,
            };
            file.lock().map_err(io_error("lock", path))?;
            // While this waited, the file may have been removed, or another put into its place.
            let number =
                |metadata: io::Result<fs::Metadata>| metadata.ok().map(|file| (file.dev(), file.ino()));
            if number(file.metadata()) != number(fs::metadata(path)) {
                continue;
            }
            let Some(journal) = read(path)? else { return Ok(None) };
            return Ok(Some(Held { path: path.to_owned(), journal, _locked: file }));
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Forgets the sockets that were not changed after all.
    ///
    /// # Errors
    /// When it cannot be written anew, or removed.
    pub fn keep(self, keep: impl Fn(&Entry) -> bool) -> Result<Option<Held>, JournalError> {
        let mut journal = self.journal.clone();
        journal.entries.retain(keep);
        match journal.entries.len() {
            0 => self.remove().map(|()| None),
            count if count == self.journal.entries.len() => Ok(Some(self)),
            _ => {
                let _one_at_a_time = lock_folder(self.path.parent().unwrap_or(Path::new("/")))?;
                put(&self.path, &journal).map(Some)
            }
        }
    }

    /// All is set back.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(io_error("remove", &self.path))?;
        sync_folder(&self.path)
    }
}

/// Whether a connection in this state takes options that matter.
pub(crate) fn can_be_changed(state: State) -> bool {
    matches!(state, State::Established | State::CloseWait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let holder = any::<(u32, u64, String, Vec<i32>)>().prop_map(|(pid, start_ticks, comm, fds)| Holder {
            pid,
            start_ticks,
            comm,
            fds,
        });
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        (any::<(u64, SocketAddr, SocketAddr, bool, bool)>(), prop::collection::vec(holder, 0..3)).prop_map(
            move |((inode, local, peer, accepted, old), holders)| {
                let (local, peer) = (canonical(local), canonical(peer));
                Entry { inode, local, peer, accepted, old, new: !old, holders }
            },
        )
    }

    fn journal(entries: Vec<Entry>) -> Journal {
        Journal::new(entries, 7, Some(30)).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_written_is_read(entries in prop::collection::vec(entry(), 0..10)) {
            let folder = tempfile::tempdir().unwrap();
            let written = journal(entries);
            let held = Folder::new(folder.path().join("a/b")).write(&written).unwrap();
            let path = held.path().to_owned();
            drop(held);
            prop_assert_eq!(read(&path).unwrap().unwrap(), written);
        }

        #[test]
        fn a_cut_is_always_seen_and_says_where(entries in prop::collection::vec(entry(), 0..5), at: prop::sample::Index) {
            let text = journal(entries).text();
            let mut cut = at.index(text.len());
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let damage = Journal::read(&text[..cut]).expect_err("it is cut");
            prop_assert!(damage.line >= 1 && damage.line <= text[..cut].lines().count() + 1, "{}", damage.line);
        }

        #[test]
        fn a_changed_byte_never_panics(entries in prop::collection::vec(entry(), 0..5), at: prop::sample::Index, byte: u8) {
            let mut bytes = journal(entries).text().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Journal::read(&String::from_utf8_lossy(&bytes));
        }
    }

    fn one() -> Entry {
        let end = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let holders = vec![Holder { pid: 1, start_ticks: 2, comm: "x".into(), fds: vec![3] }];
        Entry { inode: 9, local: end(1), peer: end(2), accepted: false, old: false, new: true, holders }
    }

    #[test]
    fn a_socket_is_in_one_journal_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path());
        let first = folder.write(&journal(vec![one()])).unwrap();
        let other = Journal::new(vec![one()], 8, None).unwrap();
        fs::write(folder.path().join("nodelay-1-2.unfinished"), "{").unwrap();
        let error = folder.write(&other).unwrap_err();
        assert!(matches!(&error, JournalError::Open { journal, .. } if journal == first.path()), "{error}");
        first.remove().unwrap();
        folder.write(&other).unwrap().remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn whoever_waited_for_a_journal_sees_what_became_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let more = Entry { inode: 10, ..one() };
        let held = Folder::new(folder.path()).write(&journal(vec![one(), more.clone()])).unwrap();
        let path = held.path().to_owned();
        let waits = std::thread::spawn({
            let path = path.clone();
            move || Held::take(&path).unwrap().map(|held| held.journal().entries.clone())
        });
        let kept = held.keep(|entry| entry.inode == 10).unwrap().unwrap();
        assert_eq!(kept.path(), path);
        drop(kept);
        assert_eq!(waits.join().unwrap(), Some(vec![more]));
        Held::take(&path).unwrap().unwrap().remove().unwrap();
        assert!(Held::take(&path).unwrap().is_none());
    }

    #[test]
    fn a_damaged_journal_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let held = Folder::new(folder.path()).write(&journal(vec![one()])).unwrap();
        let path = held.path().to_owned();
        let text = fs::read_to_string(&path).unwrap().replace("\"fds\":[3]", "\"fds\":[three]");
        fs::write(&path, text).unwrap();
        drop(held);
        let error = Held::take(&path).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("line 2"), "{error}");
        // Nor is anything new begun beside it.
        assert!(Folder::new(folder.path()).write(&journal(vec![])).is_err());
    }
}
