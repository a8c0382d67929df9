//! Captures as files and streams, and live: the only place of this crate that opens anything.
//!
//! A capture is a sequence of [`Packet`]s in the order of the file. Whatever can be read counts; what cannot is
//! recorded with its offset, and counted.

mod bookmarks;
pub mod filter;
mod pcap;
mod pcapng;
mod reading;
pub mod retime;
pub mod ring;
mod stored;
mod window;
pub mod write;

pub use bookmarks::Bookmarks;
pub use reading::{Damage, MAX_DAMAGE, Reading};

use crate::packet::{LinkType, Packet};
use pcap::Pcap;
use pcapng::Pcapng;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use stored::StoredBytes;
use window::Window;

/// How the name of an interface begins whose packets are SYNs from before the capture. Readers that do not know of it take
/// them for packets like any other, which they were.
pub const OPENED_BEFORE: &str = "opened before";
/// Names of such interfaces: for SYNs that were captured, and for SYNs that state the kernel's facts about a
/// socket.
const OPENED_BEFORE_NAMES: [&str; 2] = ["opened before: SYNs that passed", "opened before: told by tcp_info"];

/// A SYN, or its answer, of a connection that was opened before the capture began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// When it passed, Unix nanoseconds.
    pub time_ns: i64,
    /// How it begins.
    pub link: LinkType,
    /// Its length on the wire, bytes.
    pub wire_len: u32,
    /// It was never on the wire: it states the kernel's facts about a socket, and its sequence numbers are
    /// meaningless.
    pub told_by_kernel: bool,
    /// Its beginning, up to the end of the TCP header.
    pub data: Box<[u8]>,
}

impl Opening {
    /// As a packet without a number.
    pub fn packet(&self) -> Packet<'_> {
        let Opening { time_ns, link, wire_len, ref data, .. } = *self;
        Packet { number: 0, time_ns, interface: 0, link, wire_len: wire_len.max(data.len() as u32), data }
    }
}

/// Longest packet that is believed; with it, memory is bounded whatever a file says.
const MAX_PACKET_BYTES: usize = 16 << 20;

/// Nothing of the input could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused.
    #[error("{file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not a capture.
    #[error("{file}: not a capture: found {found}; expected pcap or pcapng, also as .gz or .zst")]
    UnknownFormat {
        /// Its name.
        file: String,
        /// What was seen.
        found: String,
    },
    /// It cannot be read a second time.
    #[error("{file}: cannot be read twice; expected a file, not a pipe")]
    NotTwice {
        /// Its name.
        file: String,
    },
}

/// Whether a file that begins like this is a capture, not compressed.
pub fn is_capture(begin: &[u8]) -> bool {
    let Some(magic) = begin.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else { return false };
    let pcap = |magic| matches!(magic, 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34);
    // A section header's type reads the same in either order of bytes.
    pcap(magic) || pcap(magic.swap_bytes()) || magic == 0x0a0d_0d0a
}

/// The two formats, each as far as it was read.
#[derive(Clone, Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// A packet just skipped in the window.
struct Found {
    /// It has a number, and nothing else of it counts.
    without_time: bool,
    time_ns: i64,
    /// See [`Packet::interface`].
    interface: u32,
    link: LinkType,
    wire_len: u32,
    /// From its first byte to the end of what was skipped.
    distance: usize,
    /// Bytes captured.
    len: usize,
}

/// A capture that is being read.
pub struct Capture {
    window: Window,
    /// Offset at which reading began.
    from: u64,
    format: Format,
    extras: pcapng::Extras,
    reading: Reading,
    stored: StoredBytes,
    /// Number of the last packet.
    number: u64,
    bookmarks: Bookmarks,
    /// After which packet to note the next bookmark.
    next_bookmark: u64,
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    /// [`SourceError`] when nothing of it can be read.
    pub fn open(path: &Path) -> Result<Capture, SourceError> {
        Capture::open_as(path.display().to_string(), path)
    }

    /// Opens a file that reports call `name`.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn open_as(name: String, path: &Path) -> Result<Capture, SourceError> {
        let io = |error| SourceError::Io { file: name.clone(), error };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        // A pipe with a name has neither a size nor a second time.
        let (total, path) =
            if metadata.is_file() { (Some(metadata.len()), Some(path.to_path_buf())) } else { (None, None) };
        Capture::begin(name.clone(), path, Box::new(file), total)
    }

    /// Reads from anything; `file` is its name in reports.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_reader(file: String, reader: Box<dyn Read + Send>) -> Result<Capture, SourceError> {
        Capture::begin(file, None, reader, None)
    }

    /// Reads from memory.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(file: String, bytes: Vec<u8>) -> Result<Capture, SourceError> {
        let total = bytes.len() as u64;
        Capture::begin(file, None, Box::new(Cursor::new(bytes)), Some(total))
    }

    fn begin(
        file: String,
        path: Option<PathBuf>,
        reader: Box<dyn Read + Send>,
        stored_total_bytes: Option<u64>,
    ) -> Result<Capture, SourceError> {
        let stored = StoredBytes::default();
        let io = |error| SourceError::Io { file: file.clone(), error };
        let (reader, compression) = stored::decompressed(reader, &stored).map_err(io)?;
        let mut window = Window::new(reader, 0);
        let mut reading = Reading { file: file.clone(), stored_total_bytes, ..Reading::default() };
        let (format, name) = if let Some(format) = Pcap::begin(&mut window, &mut reading) {
            (Format::Pcap(format), "pcap")
        } else if let Some(format) = Pcapng::begin(&mut window) {
            (Format::Pcapng(format), "pcapng")
        } else {
            return Err(match window.take_error() {
                Some(error) => SourceError::Io { file, error },
                None => {
                    SourceError::UnknownFormat { file, found: words(window.bytes(), compression.suffix()) }
                }
            });
        };
        reading.format = format!("{name}{}", compression.suffix());
        reading.bytes = window.offset();
        // Of what is compressed only the beginning can be found again.
        let next_bookmark =
            if compression == stored::Compression::None && path.is_some() { 0 } else { u64::MAX };
        let bookmarks = Bookmarks::new(file, path);
        let extras = pcapng::Extras::default();
        Ok(Capture { window, from: 0, format, extras, reading, stored, number: 0, bookmarks, next_bookmark })
    }

    /// Goes on in the middle of a file, at the packet after `number`.
    fn in_the_middle(
        file: String,
        path: &Path,
        reader: Box<dyn Read + Send>,
        total: u64,
        offset: u64,
        format: Format,
        number: u64,
    ) -> Capture {
        let name = if matches!(format, Format::Pcap(_)) { "pcap" } else { "pcapng" };
        let reading = Reading {
            file: file.clone(),
            format: name.into(),
            stored_total_bytes: Some(total),
            ..Reading::default()
        };
        let bookmarks = Bookmarks::new(file, Some(path.to_path_buf()));
        let (window, stored) = (Window::new(reader, offset), StoredBytes::default());
        let extras = pcapng::Extras::default();
        let next_bookmark = u64::MAX;
        Capture { window, from: offset, format, extras, reading, stored, number, bookmarks, next_bookmark }
    }

    /// The next packet; `None` at the end, or where nothing more can be read.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Option<Packet<'_>> {
        loop {
            let found = self.step()?;
            if found.without_time {
                continue;
            }
            let data = self.window.behind(found.distance, found.len);
            let Found { time_ns, interface, link, wire_len, .. } = found;
            return Some(Packet { number: self.number, time_ns, interface, link, wire_len, data });
        }
    }

    /// Goes on by one packet.
    #[inline]
    fn step(&mut self) -> Option<Found> {
        if self.number >= self.next_bookmark {
            self.next_bookmark = self.bookmarks.note(self.number, self.window.offset(), &self.format);
        }
        let Capture { window, format, extras, reading, .. } = self;
        let found = match format {
            Format::Pcap(pcap) => pcap.next(window, reading),
            Format::Pcapng(pcapng) => pcapng.next(window, reading, extras),
        };
        reading.bytes = window.offset() - self.from;
        reading.stored_bytes = self.stored.get();
        let Some(mut found) = found else {
            if let Some(error) = window.take_error() {
                let what = format!("reading failed: {error}; nothing after this could be read");
                reading.damaged(window.offset(), 0, what);
            }
            return None;
        };
        self.number += 1;
        if !found.without_time {
            found.wire_len = found.wire_len.max(found.len as u32);
            reading.packets += 1;
            reading.packet_bytes += found.len as u64;
            reading.cut += u64::from(found.len < found.wire_len as usize);
            reading.cut_bytes += u64::from(found.wire_len) - found.len as u64;
            reading.times(found.time_ns);
        }
        Some(found)
    }

    /// Goes on until the next packet is number `packet`, or one after it.
    fn skip_to(&mut self, packet: u64) {
        while self.number + 1 < packet && self.step().is_some() {}
    }

    /// What was read so far.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// TLS keys that the capture carries (pcapng's decryption secrets blocks), as lines of a key-log file, so far.
    pub fn key_log(&self) -> &[u8] {
        &self.extras.key_log
    }

    /// Reads what stands before the first packet: with it, [`Capture::openings`] are known before any packet is.
    pub fn read_openings(&mut self) {
        // A reader that starts again from the beginning needs them again.
        if self.number >= self.next_bookmark {
            self.next_bookmark = self.bookmarks.note(self.number, self.window.offset(), &self.format);
        }
        let Capture { window, format: Format::Pcapng(pcapng), extras, reading, number, .. } = self else {
            return;
        };
        while let Some(has_number) = pcapng.lead(window, reading, extras) {
            *number += u64::from(has_number);
        }
    }

    /// SYNs of connections that were opened before the capture, as far as it carries them and was read.
    pub fn openings(&self) -> &[Opening] {
        &self.extras.openings
    }

    /// Places from which to read it again, as far as it was read: see [`Bookmarks::reopen_at`].
    pub fn bookmarks(&self) -> &Bookmarks {
        &self.bookmarks
    }
}

/// Describes the beginning of something that is not a capture.
fn words(bytes: &[u8], compression: &str) -> String {
    if bytes.is_empty() {
        return format!("nothing{compression}: it is empty");
    }
    if bytes.trim_ascii_start().starts_with(b"{") || bytes.trim_ascii_start().starts_with(b"[") {
        return format!("JSON{compression}: spans are for `--spans`, and for `spangap gaps`");
    }
    if let Ok(text) = std::str::from_utf8(&bytes[..bytes.len().min(12)])
        && !text.contains(|c: char| c.is_control() && !c.is_whitespace())
    {
        return format!("text that starts with {text:?}{compression}");
    }
    let hex: Vec<String> = bytes.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("bytes {}{compression}", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcap(records: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = Vec::from(*b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0");
        for (micros, data) in records {
            for word in [1_700_000_000, *micros, data.len() as u32, data.len() as u32] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            file.extend_from_slice(data);
        }
        file
    }

    #[test]
    fn packets_come_in_the_order_of_the_file() {
        let file = pcap(&[(1, b"one"), (2, b"three"), (999_999, b"five")]);
        let mut capture = Capture::from_bytes("three.pcap".into(), file.clone()).expect("a capture");
        let mut seen = Vec::new();
        while let Some(packet) = capture.next() {
            assert_eq!((packet.link, packet.wire_len as usize), (LinkType::ETHERNET, packet.data.len()));
            seen.push((packet.number, packet.time_ns % 1_000_000_000, packet.data.to_vec()));
        }
        let expected =
            [(1, 1000, b"one".to_vec()), (2, 2000, b"three".to_vec()), (3, 999_999_000, b"five".to_vec())];
        assert_eq!(seen, expected);
        let reading = capture.reading();
        assert_eq!((reading.packets, reading.packet_bytes, reading.damaged_places), (3, 12, 0));
        assert_eq!((reading.bytes, reading.overhead_bytes), (file.len() as u64, 24 + 3 * 16));
        assert_eq!((reading.format.as_str(), reading.resolution_ns), ("pcap", 1000));
    }

    #[test]
    fn what_is_no_capture_is_said_so() {
        let error = Capture::from_bytes("x".into(), b"\x7fELF".to_vec()).err().expect("an error").to_string();
        assert!(error.contains("x: not a capture: found bytes 7f 45 4c 46"), "{error}");
        let error = Capture::from_bytes("x".into(), Vec::new()).err().expect("an error").to_string();
        assert!(error.contains("found nothing"), "{error}");
        let missing = Capture::open(Path::new("/nonexistent/capture.pcap")).err().expect("an error");
        assert!(matches!(missing, SourceError::Io { .. }));
    }

    #[test]
    fn a_reader_cannot_be_read_twice() {
        let file = pcap(&[(1, b"one")]);
        let capture = Capture::from_reader("-".into(), Box::new(Cursor::new(file))).expect("a capture");
        assert!(matches!(capture.bookmarks().reopen_at(1), Err(SourceError::NotTwice { .. })));
    }
}
