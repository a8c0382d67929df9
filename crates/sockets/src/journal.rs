//! The journal of a change, on disk before the first socket changes: it allows an undo, whatever happens to the
//! tool.
//!
//! JSON Lines: a header written twice, one line per socket, and a last line with their number, so that a
//! truncated file is recognised. Each line has a checksum. A damaged file is used as far as it is readable, and
//! the damage is reported.

use serde::{Deserialize, Serialize};
use spangap_machine::FactError;
use spangap_machine::facts::boot_id;
use spangap_machine::facts::net_tcp::State;
use spangap_undo::file::{lock_folder, make_folder, sync_folder, wait_for};
use spangap_undo::journal::{head_line, line, parse};
use spangap_undo::{Damage, FileError, ParsedJournal};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Extension of journals.
const ENDING: &str = "journal";
/// Extension of journals still being written.
const UNFINISHED: &str = "unfinished";
/// Format identifier.
const FORMAT: &str = "spangap sockets journal 2";
/// Its value before lines had checksums.
const BEFORE: &str = "spangap sockets journal 1";

/// A change that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Facts about the whole journal; `None` if unreadable.
    pub head: Option<Head>,
    /// The sockets, as far as readable.
    pub entries: Vec<Entry>,
    /// Unreadable parts.
    pub damage: Vec<Damage>,
}

/// Facts about a whole journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Format identifier.
    pub format: String,
    /// Boot id: inodes and process ids are valid until the next reboot.
    pub boot_id: String,
    /// The option, `nodelay`.
    pub option: String,
    /// Start, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time until the keeper restores the old values; `None` if only a command does.
    pub undone_after_ns: Option<u64>,
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Inode; identifies the socket together with its addresses.
    pub inode: u64,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
    /// Whether the peer opened the connection.
    pub accepted: bool,
    pub old: bool,
    pub new: bool,
    /// Processes that had it open.
    pub holders: Vec<Holder>,
}

/// A process that had a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    pub pid: u32,
    /// Start time, in ticks since boot: ids are reused.
    pub start_ticks: u64,
    pub comm: String,
    /// Its descriptors of the socket.
    pub fds: Vec<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    sockets: u64,
}

/// A line after the first.
#[derive(Deserialize)]
#[serde(try_from = "serde_json::Value")]
enum Line {
    Entry(Entry),
    End(End),
}

impl TryFrom<serde_json::Value> for Line {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Line, String> {
        if value.get("sockets").is_some() {
            return serde_json::from_value(value).map(Line::End).map_err(|error| error.to_string());
        }
        let entry: Entry = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if entry.old == entry.new {
            Err("a socket that was not changed".into())
        } else {
            Ok(Line::Entry(entry))
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Error of a file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// The boot id is unknown.
    #[error(transparent)]
    Boot(#[from] FactError),
    /// The file is not a journal, or is damaged from the start.
    #[error(
        "journal {path} is damaged at {damage}; `spangap sockets undo --journal {path}` sets back what can be read, and with \
         --forget sets the file aside"
    )]
    Damaged {
        path: PathBuf,
        /// The first damaged place.
        damage: Box<Damage>,
    },
    /// Written by another version of this program.
    #[error(
        "journal {path} is a \"{found}\", expected a journal of this version, of nodelay: \"{FORMAT}\" or \"{BEFORE}\""
    )]
    Version {
        path: PathBuf,
        /// Its format identifier.
        found: String,
    },
    /// A socket was changed before, and the change can still be undone.
    #[error(
        "{local} -> {peer} has been changed before and not restored: `spangap sockets undo --journal {journal}` first"
    )]
    Open {
        /// Local address.
        local: SocketAddr,
        /// Peer address.
        peer: SocketAddr,
        /// Journal of that change.
        journal: PathBuf,
    },
}

impl Journal {
    /// A new journal of this boot.
    pub fn new(
        entries: Vec<Entry>,
        time_unix_ns: u64,
        undone_after_ns: Option<u64>,
    ) -> Result<Journal, JournalError> {
        let (format, option) = (FORMAT.to_owned(), "nodelay".to_owned());
        let head = Head { format, boot_id: boot_id::here()?, option, time_unix_ns, undone_after_ns };
        Ok(Journal { head: Some(head), entries, damage: Vec::new() })
    }

    /// Whether everything is readable.
    pub fn is_whole(&self) -> bool {
        self.lost().next().is_none()
    }

    /// Unreadable parts that have no second copy.
    pub fn lost(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().filter(|damage| damage.lost)
    }

    /// Whether it stems from another boot: its sockets are gone. Without a readable head, it is assumed to be of this boot.
    pub(crate) fn of_another_boot(&self) -> Result<bool, JournalError> {
        let now = boot_id::here()?;
        Ok(self.head.as_ref().is_some_and(|head| head.boot_id != now))
    }

    fn text(&self) -> String {
        let head = self.head.iter().map(head_line);
        let end = line(&End { sockets: self.entries.len() as u64 });
        head.chain(self.entries.iter().map(line)).chain([end]).collect()
    }

    fn read(path: &Path, bytes: &[u8]) -> Result<Journal, JournalError> {
        let ParsedJournal { head, records, mut damage, unfinished } = parse::<Head, Line>(bytes);
        let (mut entries, mut sockets) = (Vec::new(), None);
        for record in records {
            match record {
                Line::Entry(entry) => entries.push(entry),
                Line::End(end) => sockets = Some(end.sockets),
            }
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if let Some(range) = unfinished.filter(|_| sockets.is_none()) {
            // It was written atomically, so it was truncated later.
            damage.push(Damage::at(bytes, lines + 1, range, "the end of the line is missing"));
        }
        let whole = head.is_some() && !damage.iter().any(|damage| damage.lost);
        if whole && sockets != Some(entries.len() as u64) {
            let why = match sockets {
                Some(counted) => {
                    format!("{} sockets before a last line that counts {counted}", entries.len())
                }
                None => "the last line is missing, with the number of sockets: there may have been more"
                    .to_owned(),
            };
            damage.push(Damage::at(bytes, lines + 1, bytes.len()..bytes.len(), why));
        }
        if head.is_none()
            && entries.is_empty()
            && let Some(damage) = damage.first()
        {
            return Err(JournalError::Damaged { path: path.to_owned(), damage: Box::new(damage.clone()) });
        }
        if let Some(head) = &head
            && (![FORMAT, BEFORE].contains(&&*head.format) || head.option != "nodelay")
        {
            let found = format!("{} of {}", head.format, head.option);
            return Err(JournalError::Version { path: path.to_owned(), found });
        }
        Ok(Journal { head, entries, damage })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder is created when the first journal is written.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The journals in it, the oldest first; none if the folder does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(FileError::of("read", &self.0))?,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING)).collect();
        paths.sort();
        Ok(paths)
    }

    /// Journals of sockets that can still be restored, by inode; and unreadable journals.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(&self) -> Result<(HashMap<u64, PathBuf>, Vec<JournalError>), JournalError> {
        let (mut open, mut errors) = (HashMap::new(), Vec::new());
        for path in self.journals()? {
            match read(&path) {
                Ok(Some(journal)) if !journal.of_another_boot()? => {
                    open.extend(journal.entries.iter().map(|entry| (entry.inode, path.clone())));
                    if let Some(damage) = journal.lost().next() {
                        let damage = Box::new(damage.clone());
                        errors.push(JournalError::Damaged { path: path.clone(), damage });
                    }
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Ok((open, errors))
    }

    /// Removes files that a tool was writing when it was killed: it had changed nothing yet.
    fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == UNFINISHED) {
                // A leftover file is harmless.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Writes a journal durably, and keeps it locked. Refuses if one of its sockets is in another journal.
    ///
    /// # Errors
    /// It cannot be written, or a socket has already been changed.
    pub fn write(&self, journal: &Journal) -> Result<LockedJournal, JournalError> {
        make_folder(&self.0)?;
        let folder = fs::canonicalize(&self.0).map_err(FileError::of("find", &self.0))?;
        // Of two tools that start at once, the second sees the first one's journal.
        let _one_at_a_time = lock_folder(&folder)?;
        self.remove_unfinished();
        // An unreadable journal may concern these sockets.
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
        let time_unix_ns = journal.head.as_ref().map_or(0, |head| head.time_unix_ns);
        let name = format!("nodelay-{time_unix_ns}-{}.{ENDING}", std::process::id());
        put(&folder.join(name), journal)
    }
}

/// Writes the file under a temporary name, then renames it. The folder is locked.
fn put(path: &Path, journal: &Journal) -> Result<LockedJournal, JournalError> {
    let file = spangap_undo::file::put(path, UNFINISHED, &journal.text())?;
    Ok(LockedJournal { path: path.to_owned(), journal: journal.clone(), _locked: file })
}

/// Renames a damaged journal so that it no longer counts as open, and returns its new path. It is kept forever,
/// because its readable remains may be the only trace of the old values.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, JournalError> {
    let _one_at_a_time = lock_folder(path.parent().unwrap_or(Path::new("/")))?;
    Ok(spangap_undo::file::set_aside(path)?)
}

fn read(path: &Path) -> Result<Option<Journal>, JournalError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(FileError::of("read", path))?,
    };
    Journal::read(path, &bytes).map(Some)
}

/// A locked journal: no other process changes it, or sockets by it, until this is dropped.
#[derive(Debug)]
pub struct LockedJournal {
    path: PathBuf,
    journal: Journal,
    /// Closing it unlocks.
    _locked: File,
}

impl LockedJournal {
    /// Waits until no other process has it locked; `None` if it does not exist, because it was undone.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn take(path: &Path) -> Result<Option<LockedJournal>, JournalError> {
        let Some(file) = wait_for(path)? else { return Ok(None) };
        let Some(journal) = read(path)? else { return Ok(None) };
        Ok(Some(LockedJournal { path: path.to_owned(), journal, _locked: file }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Content.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Removes the sockets that were not changed after all.
    ///
    /// # Errors
    /// It cannot be rewritten, or removed.
    pub fn keep(self, keep: impl Fn(&Entry) -> bool) -> Result<Option<LockedJournal>, JournalError> {
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

    /// Removes a fully undone journal.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(FileError::of("remove", &self.path))?;
        Ok(sync_folder(self.path.parent().unwrap_or(Path::new("/")))?)
    }
}

/// Whether the option has an effect on a connection in this state.
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
        fn written_journal_is_read_back(entries in prop::collection::vec(entry(), 0..10)) {
            let folder = tempfile::tempdir().unwrap();
            let written = journal(entries);
            let held = Folder::new(folder.path().join("a/b")).write(&written).unwrap();
            let path = held.path().to_owned();
            drop(held);
            prop_assert_eq!(read(&path).unwrap().unwrap(), written);
        }

        #[test]
        fn previous_journal_version_is_read(entries in prop::collection::vec(entry(), 0..5)) {
            let whole = journal(entries.clone());
            let head = Head { format: BEFORE.into(), ..whole.head.clone().unwrap() };
            let mut lines = vec![serde_json::to_string(&head).unwrap()];
            lines.extend(entries.iter().map(|entry| serde_json::to_string(entry).unwrap()));
            lines.push(serde_json::to_string(&End { sockets: entries.len() as u64 }).unwrap());
            let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
            let read = Journal::read(Path::new("x"), text.as_bytes()).unwrap();
            prop_assert!(read.is_whole());
            prop_assert_eq!(&read.entries, &entries);
            // With each line damaged in turn, the others are readable.
            for damaged in 0..lines.len() {
                let odd = |at: usize, line: &str| if at == damaged { format!("?{line}\n") } else { format!("{line}\n") };
                let text: String = lines.iter().enumerate().map(|(at, line)| odd(at, line)).collect();
                let Ok(read) = Journal::read(Path::new("x"), text.as_bytes()) else {
                    prop_assert!(damaged == 0 && entries.is_empty());
                    continue;
                };
                let of_entries = damaged > 0 && damaged <= entries.len();
                prop_assert_eq!(read.entries.len(), entries.len() - usize::from(of_entries));
                prop_assert!(!read.is_whole());
            }
        }

        #[test]
        fn a_changed_byte_never_panics(entries in prop::collection::vec(entry(), 0..5), at: prop::sample::Index, byte: u8) {
            let mut bytes = journal(entries).text().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Journal::read(Path::new("x"), &bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4))]

        #[test]
        fn truncation_is_detected_and_the_rest_is_read(entries in prop::collection::vec(entry(), 0..5)) {
            let whole = journal(entries.clone());
            let text = whole.text();
            let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
            // The last byte is the final newline, without which the line is complete by its checksum.
            for cut in 0..text.len() - 1 {
                let read = match Journal::read(Path::new("x"), &text.as_bytes()[..cut]) {
                    Ok(read) => read,
                    Err(error) => {
                        prop_assert!(cut < ends[0], "{}: {}", cut, error);
                        continue;
                    }
                };
                let lines = ends[1..ends.len() - 1].iter().filter(|end| **end <= cut).count();
                prop_assert_eq!(&read.entries[..], &entries[..lines], "{}", cut);
                prop_assert!(!read.is_whole(), "{}", cut);
            }
        }

        #[test]
        fn a_changed_byte_costs_one_socket_at_most(entries in prop::collection::vec(entry(), 0..5), bit in 0..8_u32) {
            let whole = journal(entries.clone());
            for at in 0..whole.text().len() {
                let mut bytes = whole.text().into_bytes();
                bytes[at] ^= 1 << bit;
                let read = Journal::read(Path::new("x"), &bytes).expect("of its head there are two copies");
                prop_assert_eq!(read.head.as_ref(), whole.head.as_ref());
                let kept: Vec<&Entry> = entries.iter().filter(|entry| read.entries.contains(entry)).collect();
                prop_assert!(kept.len() + 1 >= entries.len() && read.entries.iter().eq(kept.iter().copied()));
                prop_assert!(kept.len() == entries.len() || !read.is_whole(), "byte {}", at);
            }
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
    fn waiter_sees_an_undone_journal() {
        let folder = tempfile::tempdir().unwrap();
        let more = Entry { inode: 10, ..one() };
        let held = Folder::new(folder.path()).write(&journal(vec![one(), more.clone()])).unwrap();
        let path = held.path().to_owned();
        let waits = std::thread::spawn({
            let path = path.clone();
            move || LockedJournal::take(&path).unwrap().map(|held| held.journal().entries.clone())
        });
        let kept = held.keep(|entry| entry.inode == 10).unwrap().unwrap();
        assert_eq!(kept.path(), path);
        drop(kept);
        assert_eq!(waits.join().unwrap(), Some(vec![more]));
        LockedJournal::take(&path).unwrap().unwrap().remove().unwrap();
        assert!(LockedJournal::take(&path).unwrap().is_none());
    }

    #[test]
    fn a_damaged_journal_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let held = Folder::new(folder.path()).write(&journal(vec![one()])).unwrap();
        let path = held.path().to_owned();
        let text = fs::read_to_string(&path).unwrap().replace("\"fds\":[3]", "\"fds\":[three]");
        fs::write(&path, text).unwrap();
        drop(held);
        let held = LockedJournal::take(&path).unwrap().expect("its head can be read");
        let said = held.journal().damage[0].to_string();
        assert!(said.starts_with("line 2, bytes ") && said.contains("127.0.0.1:2"), "{said}");
        assert!(!held.journal().is_whole() && held.journal().entries.is_empty());
        // No new change starts next to it, either.
        assert!(Folder::new(folder.path()).write(&journal(vec![])).is_err());
    }
}
