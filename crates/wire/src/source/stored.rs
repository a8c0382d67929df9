//! From a file's stored bytes to those of the capture in it: detects compression by content, and tracks progress.

use flate2::bufread::MultiGzDecoder;
use std::io::{BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Read size of a decompressor.
const STORED_READ_BYTES: usize = 1 << 18;

/// Stored bytes read so far, available even while a decompressor owns the reader.
#[derive(Clone, Default)]
pub(super) struct StoredBytes(Arc<AtomicU64>);

impl StoredBytes {
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct CountingReader {
    reader: Box<dyn Read + Send>,
    bytes: StoredBytes,
}

impl Read for CountingReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(into)?;
        self.bytes.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Detected by the first bytes: RFC 1952, 2.3.1; RFC 8878, 3.1.1 and 3.1.2 (a skippable frame may come
    /// first).
    fn of(head: &[u8]) -> Compression {
        match head {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// Suffix in [`super::Reading::format`].
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ", gzip",
            Compression::Zstd => ", zstd",
        }
    }
}

/// Detects the compression of `reader`, and decompresses it if necessary. Concatenated gzip members and zstd
/// frames are all read.
pub(super) fn decompressed(
    reader: Box<dyn Read + Send>,
    stored: &StoredBytes,
) -> std::io::Result<(Box<dyn Read + Send>, Compression)> {
    let mut reader = CountingReader { reader, bytes: stored.clone() };
    let mut head = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut head)?;
    let compression = Compression::of(&head);
    let reader = Cursor::new(head).chain(reader);
    let reader: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(reader),
        Compression::Gzip => {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(STORED_READ_BYTES, reader)))
        }
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(
            STORED_READ_BYTES,
            reader,
        ))?),
    };
    Ok((reader, compression))
}
