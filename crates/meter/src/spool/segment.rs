//! A segment: one file of blocks, followed by their index once it is sealed.
//!
//! ```text
//! head   magic 8, seeds of the digests 16, checksum 4, 4 unused
//! blocks each at a multiple of 16
//! index  marker 16, sorted words, buckets                               } once sealed
//! tail   magic, words, bytes of the buckets, end of the blocks, spans, first and last arrival, checksum, 4 unused }
//! ```
//! A segment without a tail, from a meter that was killed, gets its index from its blocks when it is opened.

use super::block::{self, BlockError, HEAD_BYTES, Head};
use super::index::{Buckets, Digester, Runs, bytes_of, places};
use super::traces::trace_ids;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"SPGSPL1\n";
const END_MAGIC: &[u8; 8] = b"SPGSPLE\n";
const INDEX_MARKER: &[u8; 16] = b"spangap index 1\n";
/// Offset of the first block.
pub const FIRST_BLOCK: u64 = 32;
const TAIL_BYTES: u64 = 64;

/// Why a segment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The system fails to read or write.
    #[error("{path}: {reason}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The content is damaged.
    #[error("{path} at byte {offset}: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset.
        offset: u64,
        /// What was found there.
        reason: String,
    },
}

impl SegmentError {
    /// Whether the file exists but is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, SegmentError::Damaged { .. })
    }

    /// Whether the file has been removed.
    pub fn is_gone(&self) -> bool {
        matches!(self, SegmentError::Io { reason, .. } if reason.kind() == io::ErrorKind::NotFound)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SegmentError + '_ {
    |reason| SegmentError::Io { path: path.into(), reason }
}

fn damaged(path: &Path, offset: u64, reason: impl ToString) -> SegmentError {
    SegmentError::Damaged { path: path.into(), offset, reason: reason.to_string() }
}

/// Summary of a segment's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Spans.
    pub spans: u64,
    /// Arrival of the first span, Unix milliseconds.
    pub first_unix_ms: u64,
    /// Arrival of the last span, Unix milliseconds.
    pub last_unix_ms: u64,
}

impl Content {
    /// Adds one block.
    pub fn add(&mut self, head: &Head) {
        if self.spans == 0 {
            self.first_unix_ms = head.first_unix_ms;
        }
        self.spans += u64::from(head.spans);
        self.last_unix_ms = self.last_unix_ms.max(head.last_unix_ms());
    }
}

/// A sealed, read-only segment.
#[derive(Debug)]
pub struct Sealed {
    /// Its file.
    pub path: PathBuf,
    /// Size of the file.
    pub bytes: u64,
    /// Summary of its content.
    pub content: Content,
    /// Digester of its words.
    pub digester: Digester,
    data_end: u64,
    buckets: Buckets,
}

impl Sealed {
    /// Start offsets of the blocks that may contain spans of this trace.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn places(&self, trace: [u64; 2]) -> Result<Vec<u64>, SegmentError> {
        let file = File::open(&self.path).map_err(failed(&self.path))?;
        let digest = self.digester.digest(trace);
        let range = self.buckets.range(digest);
        let mut bytes = vec![0; range.len() * 8];
        let at = self.data_end + INDEX_MARKER.len() as u64 + u64::from(range.start) * 8;
        file.read_exact_at(&mut bytes, at).map_err(failed(&self.path))?;
        let words = self.buckets.words(digest, &bytes);
        let words = words.ok_or_else(|| damaged(&self.path, at, "the checksum of the index differs"))?;
        Ok(places(&words, digest).collect())
    }
}

/// The decompressed requests of the block at `offset`.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub fn read_block(path: &Path, offset: u64) -> Result<Vec<u8>, SegmentError> {
    let file = File::open(path).map_err(failed(path))?;
    let size = file.metadata().map_err(failed(path))?.len();
    let mut head = [0; HEAD_BYTES];
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(path, offset, BlockError::Torn),
        _ => failed(path)(error),
    };
    file.read_exact_at(&mut head, offset).map_err(cut)?;
    let (said, _) = Head::read(&head).map_err(|error| damaged(path, offset, error))?;
    if offset + HEAD_BYTES as u64 + u64::from(said.len) > size {
        return Err(damaged(path, offset, BlockError::Torn));
    }
    let mut whole = vec![0; HEAD_BYTES + said.len as usize];
    file.read_exact_at(&mut whole, offset).map_err(cut)?;
    let plain = block::split(&whole).and_then(|(head, payload)| block::plain(&head, payload));
    plain.map_err(|error| damaged(path, offset, error))
}

/// The blocks of a file, in order, as far as they are complete.
#[derive(Debug)]
pub struct Blocks {
    path: PathBuf,
    file: File,
    at: u64,
}

impl Blocks {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Blocks, SegmentError> {
        let file = File::open(path).map_err(failed(path))?;
        Ok(Blocks { path: path.into(), file, at: FIRST_BLOCK })
    }

    /// The decompressed requests of the next wanted block; `None` after the last one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn next(&mut self, wanted: impl Fn(&Head) -> bool) -> Result<Option<Vec<u8>>, SegmentError> {
        let path = &self.path;
        loop {
            let at = self.at;
            let wrong = |error: BlockError| damaged(path, at, error);
            let mut first = [0; HEAD_BYTES];
            // The last block of a file that is being written may be incomplete.
            let read = |bytes: &mut [u8], at| match self.file.read_exact_at(bytes, at) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                read => read.map(|()| true).map_err(failed(path)),
            };
            if !read(&mut first, at)? || first.starts_with(INDEX_MARKER) {
                return Ok(None);
            }
            let (said, _) = Head::read(&first).map_err(wrong)?;
            self.at += said.whole_len() as u64;
            if !wanted(&said) {
                continue;
            }
            let size = self.file.metadata().map_err(failed(path))?.len();
            if self.at > size {
                return Ok(None);
            }
            let mut whole = vec![0; said.whole_len()];
            if !read(&mut whole, at)? {
                return Ok(None);
            }
            let (head, payload) = block::split(&whole).map_err(wrong)?;
            return block::plain(&head, payload).map(Some).map_err(wrong);
        }
    }
}

/// A segment open for writing.
#[derive(Debug)]
pub struct Writing {
    /// Its file.
    pub path: PathBuf,
    file: File,
    /// End of the blocks.
    pub end: u64,
}

impl Writing {
    /// Creates a file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(path: PathBuf, digester: Digester) -> Result<Writing, SegmentError> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed(&path))?;
        let mut head = MAGIC.to_vec();
        digester.0.iter().for_each(|seed| head.extend_from_slice(&seed.to_le_bytes()));
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        head.resize(FIRST_BLOCK as usize, 0);
        if let Err(error) = file.write_all(&head) {
            // Removes the file without a complete head.
            let _ = std::fs::remove_file(&path);
            return Err(failed(&path)(error));
        }
        Ok(Writing { path, file, end: FIRST_BLOCK })
    }

    /// Appends blocks, all or none.
    ///
    /// # Errors
    /// When the system refuses. The written part is truncated; if even that fails, the file must not be
    /// written to any more.
    pub fn append(&mut self, blocks: &[u8]) -> Result<(), (SegmentError, bool)> {
        let Err(error) = self.file.write_all(blocks) else {
            self.end += blocks.len() as u64;
            return Ok(());
        };
        let error = failed(&self.path)(error);
        let cut = self.cut();
        Err((error, cut.is_ok()))
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end)).map(|_| ())
    }

    /// Appends the index after the blocks.
    ///
    /// # Errors
    /// When the system refuses; the blocks are unchanged.
    pub fn seal(
        mut self,
        digester: Digester,
        sorted: &[u64],
        content: Content,
    ) -> Result<Sealed, (SegmentError, Writing)> {
        let buckets = Buckets::of(sorted);
        let of_buckets = buckets.bytes();
        let mut out = Vec::with_capacity(sorted.len() * 8 + of_buckets.len() + 128);
        out.extend_from_slice(INDEX_MARKER);
        out.extend_from_slice(&bytes_of(sorted));
        let mut tail = END_MAGIC.to_vec();
        let Content { spans, first_unix_ms, last_unix_ms } = content;
        let numbers =
            [sorted.len() as u64, of_buckets.len() as u64, self.end, spans, first_unix_ms, last_unix_ms];
        numbers.iter().for_each(|number| tail.extend_from_slice(&number.to_le_bytes()));
        tail.extend_from_slice(&checksum(&of_buckets, &tail).to_le_bytes());
        tail.resize(TAIL_BYTES as usize, 0);
        out.extend_from_slice(&of_buckets);
        out.extend_from_slice(&tail);
        if let Err(error) = self.file.write_all(&out) {
            let error = failed(&self.path)(error);
            let _ = self.cut();
            return Err((error, self));
        }
        let Writing { path, end: data_end, .. } = self;
        Ok(Sealed { path, bytes: data_end + out.len() as u64, content, digester, data_end, buckets })
    }
}

fn checksum(buckets: &[u8], tail: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(buckets);
    sum.update(tail);
    sum.finalize()
}

/// A segment found on disk.
#[derive(Debug)]
pub enum Found {
    /// Sealed, with its index.
    Sealed(Sealed),
    /// From a meter that was killed: its complete blocks and their words.
    Unsealed {
        /// The segment, to be sealed or continued.
        writing: Writing,
        /// Words of its blocks.
        runs: Runs,
        /// Summary of its content.
        content: Content,
        /// Digester of its words.
        digester: Digester,
        /// Bytes truncated at the end, from an incomplete block.
        torn_bytes: u64,
    },
}

/// Opens a file.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub fn open(path: &Path) -> Result<Found, SegmentError> {
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(path))?;
    let size = file.metadata().map_err(failed(path))?.len();
    let digester = read_head(&file).map_err(failed(path))?;
    let digester = digester.ok_or_else(|| damaged(path, 0, "not a segment of spans"))?;
    if let Some(sealed) = read_tail(&file, size, path, digester).map_err(failed(path))? {
        return Ok(Found::Sealed(sealed));
    }
    let scanned = scan(&mut file, size, path, &digester)?;
    let Scanned { runs, content, end } = scanned;
    let mut writing = Writing { path: path.into(), file, end };
    writing.cut().map_err(failed(path))?;
    Ok(Found::Unsealed { writing, runs, content, digester, torn_bytes: size - end })
}

fn read_head(file: &File) -> io::Result<Option<Digester>> {
    let mut head = [0; FIRST_BLOCK as usize];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (said, sum) = (&head[..24], &head[24..28]);
    if !said.starts_with(MAGIC) || crc32fast::hash(said).to_le_bytes() != sum {
        return Ok(None);
    }
    let seeds = said[8..].as_chunks::<8>().0;
    Ok(Some(Digester([u64::from_le_bytes(seeds[0]), u64::from_le_bytes(seeds[1])])))
}

/// `None` if there is no valid tail.
fn read_tail(file: &File, size: u64, path: &Path, digester: Digester) -> io::Result<Option<Sealed>> {
    if size < FIRST_BLOCK + TAIL_BYTES {
        return Ok(None);
    }
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, size - TAIL_BYTES)?;
    let (said, sum) = (&tail[..56], &tail[56..60]);
    if !said.starts_with(END_MAGIC) {
        return Ok(None);
    }
    let number = |at: usize| u64::from_le_bytes(said[8..].as_chunks::<8>().0[at]);
    let (words, of_buckets, data_end) = (number(0), number(1), number(2));
    let marker = INDEX_MARKER.len() as u64;
    let adds_up = words.checked_mul(8).and_then(|bytes| {
        bytes.checked_add(of_buckets)?.checked_add(data_end)?.checked_add(marker + TAIL_BYTES)
    }) == Some(size);
    if !adds_up {
        return Ok(None);
    }
    let mut buckets = vec![0; of_buckets as usize];
    file.read_exact_at(&mut buckets, size - TAIL_BYTES - of_buckets)?;
    if checksum(&buckets, said).to_le_bytes() != sum {
        return Ok(None);
    }
    let buckets = u32::try_from(words).ok().and_then(|words| Buckets::read(&buckets, words));
    let content = Content { spans: number(3), first_unix_ms: number(4), last_unix_ms: number(5) };
    Ok(buckets.map(|buckets| Sealed { path: path.into(), bytes: size, content, digester, data_end, buckets }))
}

struct Scanned {
    runs: Runs,
    content: Content,
    end: u64,
}

/// Reads all blocks.
fn scan(file: &mut File, size: u64, path: &Path, digester: &Digester) -> Result<Scanned, SegmentError> {
    let mut scanned = Scanned { runs: Runs::default(), content: Content::default(), end: FIRST_BLOCK };
    let mut digests = Vec::new();
    file.seek(SeekFrom::Start(FIRST_BLOCK)).map_err(failed(path))?;
    let mut file = io::BufReader::with_capacity(1 << 20, file);
    while size - scanned.end >= HEAD_BYTES as u64 {
        let mut first = [0; HEAD_BYTES];
        file.read_exact(&mut first).map_err(failed(path))?;
        if first.starts_with(INDEX_MARKER) {
            break;
        }
        let at = scanned.end;
        let wrong = |error: BlockError| damaged(path, at, error);
        let (said, _) = Head::read(&first).map_err(wrong)?;
        let len = said.whole_len();
        if size - scanned.end < len as u64 {
            break;
        }
        let mut whole = first.to_vec();
        whole.resize(len, 0);
        file.read_exact(&mut whole[HEAD_BYTES..]).map_err(failed(path))?;
        let (head, payload) = block::split(&whole).map_err(wrong)?;
        let plain = block::plain(&head, payload).map_err(wrong)?;
        digests.clear();
        let ids = trace_ids(&plain, |trace| digests.push(digester.digest(trace)));
        ids.map_err(|error| wrong(error.into()))?;
        scanned.runs.add(&digests, scanned.end);
        scanned.content.add(&head);
        scanned.end += len as u64;
    }
    Ok(scanned)
}
