//! The segments of a folder, oldest first: retention, and lookup of a trace.

use super::block::Head;
use super::index::{Digester, MOST_BYTES, Runs};
use super::segment::{self, Content, Found, Sealed, SegmentError, Writing};
use super::{SpoolError, SpoolFigures, SpoolSettings};
use crate::report::Note;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fs::{DirBuilder, File};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ENDING: &str = ".spool";
const ASIDE: &str = ".damaged";
const LOCK: &str = "lock";
/// Maximum number of words per segment; they stay in memory until it is sealed.
const MAX_WORDS: usize = 4 << 20;
/// Number of segments that the retention time and the byte limit are divided into, because segments are
/// dropped as a whole.
const PARTS: u64 = 30;
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// Size of an index besides its words and their buckets.
const INDEX_BYTES: u64 = 4 << 10;

/// The segments, shared by the writing thread and by queries.
#[derive(Debug)]
pub struct Store {
    settings: SpoolSettings,
    segment_bytes: u64,
    segment_ms: u64,
    /// Digester of new segments, and of the digests in requests.
    pub digester: Digester,
    state: Mutex<State>,
    /// Held for the lifetime of the store: two meters would write into each other's files.
    _lock: File,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Entry>,
    next_number: u64,
    notes: Vec<Note>,
    damaged_segments: u64,
    forgotten_spans: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    bytes: u64,
    content: Content,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Sealed(Arc<Sealed>),
    /// Open for writing, or to be sealed as soon as the disk allows.
    Unsealed {
        path: Arc<Path>,
        digester: Digester,
        runs: Runs,
    },
    /// Damaged, waiting to be dropped.
    Aside(PathBuf),
}

impl Entry {
    fn path(&self) -> &Path {
        match &self.kind {
            Kind::Sealed(sealed) => &sealed.path,
            Kind::Unsealed { path, .. } => path,
            Kind::Aside(path) => path,
        }
    }

    /// Size on disk, including a future index.
    fn bytes(&self) -> u64 {
        match &self.kind {
            Kind::Unsealed { runs, .. } => self.bytes + index_bytes(runs.words()),
            _ => self.bytes,
        }
    }
}

/// Maximum size of an index with this many words.
fn index_bytes(words: usize) -> u64 {
    words as u64 * 9 + INDEX_BYTES
}

/// Location of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of its segment.
    pub segment: u64,
    /// File of the segment.
    pub path: PathBuf,
    /// Start offset.
    pub offset: u64,
}

/// The segment open for writing.
#[derive(Debug)]
pub struct Current {
    number: u64,
    writing: Writing,
}

impl Store {
    /// Opens the folder, creating it if necessary. Segments from a killed meter get their index.
    ///
    /// # Errors
    /// When the folder cannot be used, or another meter uses it.
    pub fn open(settings: SpoolSettings, now_unix_ms: u64) -> Result<Store, SpoolError> {
        let folder = settings.folder.clone();
        let failed = |reason| SpoolError::Folder { path: folder.clone(), reason };
        // Attributes of spans may be confidential: statements, addresses, user names.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(SpoolError::InUse { path: folder.clone() }),
            Err(std::fs::TryLockError::Error(reason)) => return Err(failed(reason)),
        }
        let mut files = Vec::new();
        for file in std::fs::read_dir(&folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            if let Some((number, is_aside)) = numbered(&file.file_name().to_string_lossy()) {
                let size = file.metadata().map_err(failed)?.len();
                files.push((number, is_aside, file.path(), size));
            }
        }
        files.sort();
        let random = RandomState::new();
        let mut store = Store {
            segment_bytes: (settings.max_bytes / PARTS).clamp(LEAST_SEGMENT_BYTES, MOST_BYTES),
            segment_ms: (settings.keep_ms / PARTS).max(1),
            settings,
            digester: Digester([random.hash_one(0), random.hash_one(1)]),
            state: Mutex::default(),
            _lock: lock,
        };
        for (number, is_aside, path, size) in files {
            let state = store.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            state.next_number = number + 1;
            let aside = |path| Entry {
                number,
                bytes: size,
                // Arrivals are unknown: assume the age of the file, which is at most now.
                content: Content { spans: 0, first_unix_ms: now_unix_ms, last_unix_ms: now_unix_ms },
                kind: Kind::Aside(path),
            };
            if is_aside {
                state.segments.push_back(aside(path));
                continue;
            }
            let found = match segment::open(&path) {
                Ok(found) => found,
                Err(error) => {
                    let path = rename_aside(&path);
                    state.damaged(&path, &error);
                    state.segments.push_back(aside(path));
                    continue;
                }
            };
            state.take_in(number, found);
        }
        store.drop_old(now_unix_ms);
        Ok(store)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maximum size of a block.
    pub fn most_block_bytes(&self) -> u64 {
        self.settings.max_bytes.min(MOST_BYTES) / 2
    }

    /// Whether the segment must be sealed before a block of this size and number of words is added.
    pub fn is_full(&self, current: &Current, bytes: u64, words: usize, now_unix_ms: u64) -> bool {
        let state = self.state();
        let Some(entry) = state.entry(current.number) else { return true };
        let Kind::Unsealed { runs, .. } = &entry.kind else { return true };
        let has_some = current.writing.end > segment::FIRST_BLOCK;
        has_some
            && (current.writing.end + bytes > self.segment_bytes
                || runs.words() + words > MAX_WORDS
                || now_unix_ms.saturating_sub(entry.content.first_unix_ms) > self.segment_ms)
    }

    /// Drops the oldest segments until this many bytes fit below the limit. `false` if that is impossible.
    pub fn make_room(&self, bytes: u64, words: usize, but: Option<&Current>) -> bool {
        let need = bytes + words as u64 * 9 + INDEX_BYTES;
        while self.state().bytes() + need > self.settings.max_bytes {
            if !self.give_way(but) {
                return false;
            }
        }
        true
    }

    /// Drops the oldest segment to free disk space; `false` if there is no other.
    pub fn give_way(&self, but: Option<&Current>) -> bool {
        self.drop_oldest(|_, entry| but.is_none_or(|current| current.number != entry.number))
    }

    /// Drops the oldest segment if permitted. `false` if it stays: its bytes then still count.
    ///
    /// Queries do not wait for the removal of the file, which takes a while for a large one.
    fn drop_oldest(&self, may_go: impl Fn(&State, &Entry) -> bool) -> bool {
        let entry = {
            let mut state = self.state();
            if !state.segments.front().is_some_and(|entry| may_go(&state, entry)) {
                return false;
            }
            let Some(entry) = state.segments.pop_front() else { return false };
            state.forgotten_spans += entry.content.spans;
            entry
        };
        match std::fs::remove_file(entry.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let mut state = self.state();
                state.note(Note::caveat(format!("{} cannot be removed: {error}", entry.path().display())));
                state.forgotten_spans -= entry.content.spans;
                state.segments.push_front(entry);
                false
            }
            _ => true,
        }
    }

    /// Starts a segment.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(&self) -> Result<Current, SegmentError> {
        let number = self.state().next_number;
        let path = self.settings.folder.join(format!("{number:012}{ENDING}"));
        let writing = Writing::create(path, self.digester)?;
        let mut state = self.state();
        state.next_number += 1;
        let kind = Kind::Unsealed {
            path: writing.path.clone().into(),
            digester: self.digester,
            runs: Runs::default(),
        };
        state.segments.push_back(Entry { number, bytes: writing.end, content: Content::default(), kind });
        Ok(Current { number, writing })
    }

    /// Appends a block, which queries can find from then on.
    ///
    /// # Errors
    /// When the disk refuses, with a flag whether the segment is still writable.
    pub fn append(
        &self,
        current: &mut Current,
        head: &Head,
        block: &[u8],
        digests: &[u64],
    ) -> Result<(), (SegmentError, bool)> {
        let offset = current.writing.end;
        current.writing.append(block)?;
        if let Some(entry) = self.state().entry_mut(current.number)
            && let Kind::Unsealed { runs, .. } = &mut entry.kind
        {
            entry.bytes = current.writing.end;
            entry.content.add(head);
            runs.add(digests, offset);
        }
        Ok(())
    }

    /// Seals a segment: its index moves from memory to disk.
    ///
    /// # Errors
    /// When the disk refuses; the segment is unchanged.
    pub fn seal(&self, current: Current) -> Result<(), (SegmentError, Current)> {
        let (runs, content, digester) = match self.state().entry(current.number) {
            Some(Entry { kind: Kind::Unsealed { runs, digester, .. }, content, .. }) => {
                (runs.clone(), *content, *digester)
            }
            _ => return Ok(()),
        };
        let number = current.number;
        let sealed = current.writing.seal(digester, &runs.sorted(), content);
        let sealed = sealed.map_err(|(error, writing)| (error, Current { number, writing }))?;
        if let Some(entry) = self.state().entry_mut(number) {
            entry.bytes = sealed.bytes;
            entry.kind = Kind::Sealed(Arc::new(sealed));
        }
        Ok(())
    }

    /// Drops a segment that cannot be sealed even though it is the only one left.
    pub fn discard(&self, current: Current) {
        self.drop_oldest(|_, entry| entry.number == current.number);
    }

    /// Drops segments beyond the retention time.
    pub fn drop_old(&self, now_unix_ms: u64) {
        let keep_ms = self.settings.keep_ms;
        let too_old = |state: &State, entry: &Entry| match entry.content.last_unix_ms {
            // The disk rejected all of its blocks; only the last segment may still be written to.
            0 => entry.number + 1 < state.next_number,
            last_unix_ms => now_unix_ms.saturating_sub(last_unix_ms) > keep_ms,
        };
        while self.drop_oldest(too_old) {}
    }

    /// Locations of blocks that may contain spans of this trace, oldest first, and segments that could not be
    /// searched.
    pub fn places(&self, trace: [u64; 2]) -> (Vec<Place>, Vec<(u64, SegmentError)>) {
        let (mut places, mut sealed) = (Vec::new(), Vec::new());
        {
            let state = self.state();
            for entry in &state.segments {
                match &entry.kind {
                    Kind::Sealed(one) => sealed.push((entry.number, one.clone())),
                    Kind::Unsealed { path, digester, runs } => {
                        let offsets = runs.places(digester.digest(trace)).into_iter();
                        let place =
                            |offset| Place { segment: entry.number, path: path.to_path_buf(), offset };
                        places.extend(offsets.map(place));
                    }
                    Kind::Aside(_) => {}
                }
            }
        }
        let mut problems = Vec::new();
        for (segment, sealed) in sealed {
            match sealed.places(trace) {
                Ok(offsets) => places.extend(offsets.into_iter().map(|offset| Place {
                    segment,
                    path: sealed.path.clone(),
                    offset,
                })),
                Err(error) => problems.push((segment, error)),
            }
        }
        places.sort_by_key(|place| (place.segment, place.offset));
        (places, problems)
    }

    /// Segments with spans that arrived in this time, oldest first, each with its file.
    pub fn between(&self, from_unix_ms: u64, to_unix_ms: u64) -> Vec<(u64, PathBuf)> {
        let state = self.state();
        let within = state.segments.iter().filter(|entry| {
            let Content { spans, first_unix_ms, last_unix_ms } = entry.content;
            spans > 0 && first_unix_ms <= to_unix_ms && last_unix_ms >= from_unix_ms
        });
        within.map(|entry| (entry.number, entry.path().to_path_buf())).collect()
    }

    /// Moves a damaged segment aside: it is no longer read, and is dropped at the end of its retention.
    pub fn set_aside(&self, number: u64, error: &SegmentError) {
        let path = {
            let mut state = self.state();
            let Some(entry) = state.entry_mut(number) else { return };
            // A segment open for writing is judged once it is complete.
            let Kind::Sealed(sealed) = &entry.kind else { return };
            let path = sealed.path.clone();
            entry.kind = Kind::Aside(path.clone());
            entry.content.spans = 0;
            path
        };
        let name = rename_aside(&path);
        let mut state = self.state();
        state.damaged(&name, error);
        match state.entry_mut(number) {
            Some(entry) => entry.kind = Kind::Aside(name),
            // It was dropped meanwhile, and nothing else removes the file under this name.
            None => {
                drop(state);
                let _ = std::fs::remove_file(name);
            }
        }
    }

    /// Adds the store's figures.
    pub fn fill(&self, figures: &mut SpoolFigures) {
        let state = self.state();
        figures.bytes = state.bytes();
        figures.bytes_limit = self.settings.max_bytes;
        figures.segments = state.segments.len() as u64;
        figures.spans = state.segments.iter().map(|entry| entry.content.spans).sum();
        figures.from_unix_ms = state
            .segments
            .iter()
            .find(|entry| entry.content.spans > 0)
            .map(|entry| entry.content.first_unix_ms);
        figures.damaged_segments = state.damaged_segments;
        figures.forgotten_spans = state.forgotten_spans;
        figures.notes.extend(state.notes.iter().cloned());
    }
}

impl State {
    fn entry(&self, number: u64) -> Option<&Entry> {
        self.segments.iter().rev().find(|entry| entry.number == number)
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.segments.iter_mut().rev().find(|entry| entry.number == number)
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(Entry::bytes).sum()
    }

    fn take_in(&mut self, number: u64, found: Found) {
        match found {
            Found::Sealed(sealed) => {
                let (bytes, content) = (sealed.bytes, sealed.content);
                let kind = Kind::Sealed(Arc::new(sealed));
                self.segments.push_back(Entry { number, bytes, content, kind });
            }
            Found::Unsealed { writing, runs, content, digester, torn_bytes } => {
                let path: Arc<Path> = writing.path.clone().into();
                if torn_bytes > 0 {
                    let torn = "bytes at the end, of a block or an index that was not written to its end, were cut off";
                    self.note(Note::caveat(format!("{}: {torn_bytes} {torn}", path.display())));
                }
                if content.spans == 0 {
                    // A file that cannot be removed does no harm.
                    let _ = std::fs::remove_file(&path);
                    return;
                }
                let (bytes, kind) = match writing.seal(digester, &runs.sorted(), content) {
                    Ok(sealed) => (sealed.bytes, Kind::Sealed(Arc::new(sealed))),
                    Err((_, writing)) => (writing.end, Kind::Unsealed { path, digester, runs }),
                };
                self.segments.push_back(Entry { number, bytes, content, kind });
            }
        }
    }

    fn damaged(&mut self, aside: &Path, error: &SegmentError) {
        self.damaged_segments += 1;
        self.note(Note::wrong(format!("damaged, and set aside as {}: {error}", aside.display())));
    }

    /// Retains the most recent few.
    fn note(&mut self, note: Note) {
        const MAX_NOTES: usize = 4;
        if self.notes.len() >= MAX_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(note);
    }
}

/// Renames a damaged file so that it is no longer read; returns its name.
fn rename_aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    match std::fs::rename(path, &name) {
        Ok(()) => name.into(),
        // The next start finds it damaged again.
        Err(_) => path.into(),
    }
}

/// The number in a file name, and whether the file was moved aside.
fn numbered(name: &str) -> Option<(u64, bool)> {
    let (name, is_aside) = name.strip_suffix(ASIDE).map_or((name, false), |name| (name, true));
    Some((name.strip_suffix(ENDING)?.parse().ok()?, is_aside))
}
