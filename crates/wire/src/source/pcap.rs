//! The pcap format: one header, then records (draft-ietf-opsawg-pcap).

use super::window::Window;
use super::{Found, MAX_PACKET_BYTES, Reading};
use crate::packet::LinkType;

/// Bytes of the file's header.
const FILE_HEADER: usize = 24;
/// Longer packets are not believed, unless the file's header announces a larger snap length: tcpdump and
/// Wireshark assume the same maximum.
const USUAL_SNAPLEN: u32 = 262_144;
/// How far the times of two neighbouring records may be apart where a damaged file is searched for records, seconds.
const NEIGHBOURS_S: u32 = 86_400;
/// Records that have to follow each other for the search to believe the first.
const CHAIN: usize = 3;

/// What the file's header says. A clone of it is all that reading from the middle of the file takes.
#[derive(Clone, Debug)]
pub(super) struct Pcap {
    swapped: bool,
    record_header: usize,
    /// Units of the second half of a time, per second, and nanoseconds of each.
    fractions: u32,
    fraction_ns: u32,
    limit: u32,
    link: LinkType,
    /// Seconds of the last record.
    last_s: Option<u32>,
}

/// One record's header.
#[derive(Clone, Copy)]
struct Record {
    seconds: u32,
    fraction: u32,
    captured: u32,
    original: u32,
}

impl Pcap {
    /// Reads the file's header; `None` when it is not one.
    pub fn begin(window: &mut Window, reading: &mut Reading) -> Option<Pcap> {
        if !window.has(FILE_HEADER) {
            return None;
        }
        let header = window.bytes();
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (swapped, magic) = match word(0) {
            magic @ (0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34) => (false, magic),
            magic => (true, magic.swap_bytes()),
        };
        // The last one is the "modified" format of a patch to old versions of libpcap: longer records.
        let (record_header, fractions) = match magic {
            0xa1b2_c3d4 => (16, 1_000_000),
            0xa1b2_3c4d => (16, 1_000_000_000),
            0xa1b2_cd34 => (24, 1_000_000),
            _ => return None,
        };
        let word = |at: usize| if swapped { word(at).swap_bytes() } else { word(at) };
        let limit = word(16).clamp(USUAL_SNAPLEN, MAX_PACKET_BYTES as u32);
        // The upper half holds the length of a frame check sequence, which nothing here reads.
        let link = LinkType(word(20) as u16);
        window.skip(FILE_HEADER);
        reading.overhead_bytes += FILE_HEADER as u64;
        reading.resolution_ns = 1_000_000_000 / fractions;
        let fraction_ns = reading.resolution_ns;
        Some(Pcap { swapped, record_header, fractions, fraction_ns, limit, link, last_s: None })
    }

    /// The next packet.
    #[inline]
    pub fn next(&mut self, window: &mut Window, reading: &mut Reading) -> Option<Found> {
        loop {
            if window.has(self.record_header) {
                let record = self.record(window.bytes());
                if self.possible(record) && window.has(self.record_header + record.captured as usize) {
                    window.skip(self.record_header + record.captured as usize);
                    reading.overhead_bytes += self.record_header as u64;
                    self.last_s = Some(record.seconds);
                    let fraction_ns = i64::from(record.fraction) * i64::from(self.fraction_ns);
                    return Some(Found {
                        without_time: false,
                        time_ns: i64::from(record.seconds) * 1_000_000_000 + fraction_ns,
                        interface: 0,
                        link: self.link,
                        wire_len: record.original,
                        distance: record.captured as usize,
                        len: record.captured as usize,
                    });
                }
            }
            if !self.recover(window, reading) {
                return None;
            }
        }
    }

    #[inline]
    fn record(&self, bytes: &[u8]) -> Record {
        let header = bytes.first_chunk::<16>().copied().unwrap_or_default();
        let word = |at: usize| {
            let word = u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            if self.swapped { word.swap_bytes() } else { word }
        };
        Record { seconds: word(0), fraction: word(4), captured: word(8), original: word(12) }
    }

    /// Whether a record can be one where one has to be. Nobody captures packets without a byte: a run of zeros is
    /// what a file system leaves after a crash.
    #[inline]
    fn possible(&self, record: Record) -> bool {
        record.captured <= self.limit && record.fraction < self.fractions && record.original != 0
    }

    /// Whether bytes somewhere in a damaged file look like a record.
    fn plausible(&self, record: Record, neighbour_s: Option<u32>) -> bool {
        self.possible(record)
            && record.captured != 0
            && record.captured <= record.original
            && record.original <= MAX_PACKET_BYTES as u32
            && neighbour_s.is_none_or(|seconds| record.seconds.abs_diff(seconds) <= NEIGHBOURS_S)
    }

    /// Whether a chain of plausible records begins here: several, or fewer and then exactly the end of the file.
    fn chain(&self, window: &mut Window) -> bool {
        let (mut at, mut neighbour_s) = (0, self.last_s);
        for _ in 0..CHAIN {
            if !window.has(at + self.record_header) {
                return at > 0 && window.bytes().len() == at;
            }
            let record = self.record(&window.bytes()[at..]);
            if !self.plausible(record, neighbour_s) {
                return false;
            }
            neighbour_s = Some(record.seconds);
            at += self.record_header + record.captured as usize;
        }
        window.has(at)
    }

    /// There is no record here: moves on to the next plausible one. Returns whether anything is left to read.
    #[cold]
    fn recover(&mut self, window: &mut Window, reading: &mut Reading) -> bool {
        if !window.has(1) {
            return false;
        }
        let (from, found) = (window.offset(), self.words(window));
        while window.has(self.record_header) {
            window.skip(1);
            if self.chain(window) {
                let to = window.offset();
                let what = format!("{found}; the next plausible record begins at offset {to}");
                reading.damaged(from, to - from, what);
                return true;
            }
        }
        window.skip_rest();
        let bytes = window.offset() - from;
        reading.damaged(from, bytes, format!("{found}; {bytes} bytes to the end of the file were left out"));
        false
    }

    /// What is wrong here.
    fn words(&self, window: &mut Window) -> String {
        if !window.has(self.record_header) {
            let bytes = window.bytes().len();
            return format!(
                "the file ends after {bytes} bytes of a record's header; expected {}",
                self.record_header
            );
        }
        let record = self.record(window.bytes());
        if record.captured > self.limit {
            return format!("a record of {} bytes; expected at most {}", record.captured, self.limit);
        }
        if record.fraction >= self.fractions {
            return format!(
                "{} as fraction of a second; expected less than {}",
                record.fraction, self.fractions
            );
        }
        if record.original == 0 {
            return "a record of a packet without a byte".into();
        }
        let bytes = window.bytes().len() - self.record_header;
        format!("the file ends after {bytes} bytes of a packet; expected {}", record.captured)
    }
}
