//! The pcapng format: sections of blocks, each with its length at both ends (draft-ietf-opsawg-pcapng).

use super::window::Window;
use super::{Found, MAX_PACKET_BYTES, OPENED_BEFORE, OPENED_BEFORE_NAMES, Reading};
use crate::packet::LinkType;
use std::sync::Arc;

/// Type of a section header; the same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
pub(super) const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;
const SECRETS: u32 = 10;
/// Other types that occur; a search in a damaged file believes these and those above.
const OTHERS: [u32; 5] = [7, 8, 9, 0x0bad, 0x4000_0bad];

/// Interfaces of one section; more are not believed.
const MAX_INTERFACES: usize = 4096;
/// Longest block, with room for a packet's options.
pub(super) const MAX_BLOCK_BYTES: u32 = MAX_PACKET_BYTES as u32 + (1 << 16);
/// TLS keys kept.
const MAX_KEY_LOG_BYTES: usize = 64 << 20;
/// Bytes of SYNs kept of connections that were opened before the capture.
const MAX_OPENING_BYTES: usize = 64 << 20;
/// A secrets block with lines of a TLS key log.
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// From the units of a clock to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    Times(u64),
    Over(u64),
    /// Units of two to the power of minus this, seconds.
    Shift(u8),
}

impl Scale {
    /// From if_tsresol: a negative power of ten, or of two where the highest bit is set.
    pub fn of(resolution: u8) -> Scale {
        match (resolution & 0x7f, resolution & 0x80 != 0) {
            (bits, true) => Scale::Shift(bits),
            (digits @ 0..=9, false) => Scale::Times(10_u64.pow(9 - u32::from(digits))),
            // Beyond the range of 64 bits there is nothing but zero.
            (digits, false) => Scale::Over(10_u64.checked_pow(u32::from(digits) - 9).unwrap_or(u64::MAX)),
        }
    }

    #[inline]
    pub fn ns(self, units: u64) -> Option<i64> {
        let ns = match self {
            Scale::Times(factor) => units.checked_mul(factor)?,
            Scale::Over(divisor) => units / divisor,
            Scale::Shift(bits) => {
                let ns = (u128::from(units) * 1_000_000_000).checked_shr(u32::from(bits));
                u64::try_from(ns.unwrap_or(0)).ok()?
            }
        };
        i64::try_from(ns).ok()
    }

    /// Nanoseconds in units, the nearest; `None` where all times are one.
    pub fn units(self, ns: i64) -> Option<i128> {
        let ns = i128::from(ns);
        let nearest = |ns: i128, divisor: i128| (ns + ns.signum() * (divisor / 2)) / divisor;
        match self {
            Scale::Times(factor) => Some(nearest(ns, i128::from(factor))),
            Scale::Over(divisor) => Some(ns * i128::from(divisor)),
            Scale::Shift(bits) if bits < 64 => Some(nearest(ns << bits, 1_000_000_000)),
            Scale::Shift(_) => None,
        }
    }

    /// One unit, nanoseconds, rounded up.
    fn resolution_ns(self) -> u32 {
        match self {
            Scale::Times(factor) => u32::try_from(factor).unwrap_or(u32::MAX),
            Scale::Over(_) => 1,
            Scale::Shift(bits) => 1_000_000_000_u64.div_ceil(1 << bits.min(30)) as u32,
        }
    }
}

/// One interface of a section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    scale: Scale,
    offset_ns: i64,
    /// Its packets opened connections before the capture began: see [`OPENED_BEFORE`].
    opened_before: bool,
    told_by_kernel: bool,
}

/// When capturing on an interface ended. dumpcap writes microseconds here, whatever unit its packets have: the first of
/// both that is not before the last packet, and within a year of it.
fn stopped_ns(units: u64, interface: Interface, last_ns: Option<i64>) -> Option<i64> {
    const YEAR_NS: i64 = 366 * 86_400 * 1_000_000_000;
    let last_ns = last_ns?;
    let scales = [interface.scale, Scale::Times(1_000)];
    let mut times = scales.iter().filter_map(|scale| scale.ns(units)?.checked_add(interface.offset_ns));
    // Microseconds are cut off, so the last packet may be later by less than one.
    times.find(|at_ns| (-1_000..YEAR_NS).contains(&at_ns.saturating_sub(last_ns)))
}

/// A section as far as it was read. A clone of it is all that reading from the middle of the file takes.
#[derive(Clone, Debug)]
pub(super) struct Pcapng {
    big_endian: bool,
    interfaces: Arc<Vec<Interface>>,
}

/// Facts from blocks other than packets.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// Lines of a TLS key log.
    pub key_log: Vec<u8>,
    /// SYNs of connections that were opened before the capture.
    pub openings: Vec<super::Opening>,
    opening_bytes: usize,
    /// Drops of each interface of the section: according to its statistics (totals), and according to its
    /// packets (each since the previous one).
    drops: Vec<(u64, u64)>,
}

impl Extras {
    /// The larger one counts, since both count the same packets.
    fn dropped(&mut self, interface: usize, reading: &mut Reading, change: impl FnOnce(&mut (u64, u64))) {
        if let Some(drops) = self.drops.get_mut(interface) {
            let before = drops.0.max(drops.1);
            change(drops);
            let after = drops.0.max(drops.1);
            reading.dropped = Some(reading.dropped.unwrap_or(0).saturating_sub(before).saturating_add(after));
        }
    }
}

/// What a block yields.
enum Block {
    Packet(Found),
    Nothing,
    /// What is wrong with it, in words.
    Bad(String),
}

impl Pcapng {
    /// At the beginning of a file; `None` when no section begins there.
    pub fn begin(window: &mut Window) -> Option<Pcapng> {
        (window.has(12) && section_order(window.bytes()).is_some())
            .then(|| Pcapng { big_endian: false, interfaces: Arc::default() })
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    #[inline]
    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = bytes.get(at..at + 2).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) }
    }

    /// The next packet.
    #[inline]
    pub fn next(&mut self, window: &mut Window, reading: &mut Reading, extras: &mut Extras) -> Option<Found> {
        loop {
            if let Some(found) = self.plain_packet(window, reading) {
                return Some(found);
            }
            let Some(len) = self.block(window) else {
                if self.recover(window, reading) {
                    continue;
                }
                return None;
            };
            let at = window.offset();
            let block = self.read(&window.bytes()[..len], at, reading, extras);
            window.skip(len);
            match block {
                Block::Packet(found) => {
                    reading.overhead_bytes += (len - found.len) as u64;
                    return Some(found);
                }
                Block::Nothing => reading.overhead_bytes += len as u64,
                Block::Bad(what) => reading.damaged(at, len as u64, what),
            }
        }
    }

    /// Goes on over blocks that are before the first packet of the capture: whether there was one, and whether it had a number.
    pub fn lead(&mut self, window: &mut Window, reading: &mut Reading, extras: &mut Extras) -> Option<bool> {
        let len = window.has(12).then(|| self.block(window))??;
        let block = &window.bytes()[..len];
        let is_before = match self.word(block, 0) {
            SECTION | INTERFACE | SECRETS => true,
            PACKET => {
                let interface = self.interfaces.get(self.word(block, 8) as usize);
                len >= 32 && interface.is_some_and(|described| described.opened_before)
            }
            _ => false,
        };
        if !is_before {
            return None;
        }
        let at = window.offset();
        let block = self.read(block, at, reading, extras);
        window.skip(len);
        reading.overhead_bytes += len as u64;
        match block {
            Block::Packet(_) => Some(true),
            Block::Nothing => Some(false),
            Block::Bad(what) => {
                reading.damaged(at, 0, what);
                Some(false)
            }
        }
    }

    /// The packet of a block without options, as nearly all are; `None` for whatever else is here.
    #[inline]
    fn plain_packet(&self, window: &mut Window, reading: &mut Reading) -> Option<Found> {
        if !window.has(32) {
            return None;
        }
        let head = window.bytes().first_chunk::<32>()?;
        let word = |at: usize| {
            let word = u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            if self.big_endian { word.swap_bytes() } else { word }
        };
        let (len, captured, wire_len) = (word(4) as usize, word(20) as usize, word(24));
        if word(0) != PACKET || captured > MAX_PACKET_BYTES || len != 32 + captured.next_multiple_of(4) {
            return None;
        }
        let interface = word(8);
        let described =
            self.interfaces.get(interface as usize).filter(|described| !described.opened_before)?;
        let units = u64::from(word(12)) << 32 | u64::from(word(16));
        let time_ns = described.scale.ns(units)?.checked_add(described.offset_ns)?;
        if !window.has(len) || self.word(window.bytes(), len - 4) as usize != len {
            return None;
        }
        window.skip(len);
        reading.overhead_bytes += (len - captured) as u64;
        let (link, distance) = (described.link, len - 28);
        Some(Found { without_time: false, time_ns, interface, link, wire_len, distance, len: captured })
    }

    /// Length of the block here, which is then entirely in the window; `None` if there is none, or not a
    /// complete one.
    #[inline]
    fn block(&mut self, window: &mut Window) -> Option<usize> {
        if !window.has(12) {
            return None;
        }
        if self.word(window.bytes(), 0) == SECTION {
            // Only here, because the length already has the new section's byte order. The old section's facts
            // about its interfaces hold until the block is known to be complete.
            let big_endian = section_order(window.bytes())?;
            return Pcapng { big_endian, interfaces: Arc::clone(&self.interfaces) }.whole(window);
        }
        self.whole(window)
    }

    #[inline]
    fn whole(&self, window: &mut Window) -> Option<usize> {
        let len = self.word(window.bytes(), 4);
        let possible = (12..=MAX_BLOCK_BYTES).contains(&len) && len.is_multiple_of(4);
        let len = len as usize;
        (possible && window.has(len) && self.word(window.bytes(), len - 4) as usize == len).then_some(len)
    }

    /// Reads one block, `at` its offset.
    #[inline]
    fn read(&mut self, block: &[u8], at: u64, reading: &mut Reading, extras: &mut Extras) -> Block {
        match self.word(block, 0) {
            PACKET => self.packet(block, reading, extras),
            _ => self.other(block, at, reading, extras),
        }
    }

    /// Enhanced packet block.
    #[inline]
    fn packet(&mut self, block: &[u8], reading: &mut Reading, extras: &mut Extras) -> Block {
        let interface = self.word(block, 8) as usize;
        let units = u64::from(self.word(block, 12)) << 32 | u64::from(self.word(block, 16));
        let (captured, original) = (self.word(block, 20) as usize, self.word(block, 24));
        let found = self.found(block, interface, units, captured, original);
        if let Block::Packet(found) = &found
            && self.interfaces.get(interface).is_some_and(|described| described.opened_before)
        {
            return self.opening(block, found, extras);
        }
        let options = 28 + captured.next_multiple_of(4);
        // An option and the end of options take eight bytes at least.
        if matches!(found, Block::Packet(_)) && block.len() >= options + 4 + 8 {
            self.options(block, options, |code, value| {
                if let (4, Some(count)) = (code, value.get(..8)) {
                    let count = self.long(count);
                    extras.dropped(interface, reading, |drops| drops.1 = drops.1.saturating_add(count));
                }
            });
        }
        found
    }

    /// A packet from before the capture: it has a number, as in Wireshark, but is not one of the packets that
    /// passed.
    #[cold]
    fn opening(&self, block: &[u8], found: &Found, extras: &mut Extras) -> Block {
        let data = block.get(28..28 + found.len).unwrap_or_default();
        if extras.opening_bytes + data.len() > MAX_OPENING_BYTES {
            return Block::Bad(format!(
                "more than {MAX_OPENING_BYTES} bytes of SYNs from before the capture"
            ));
        }
        extras.opening_bytes += data.len();
        let Found { time_ns, link, wire_len, .. } = *found;
        let told_by_kernel =
            self.interfaces.get(self.word(block, 8) as usize).is_some_and(|one| one.told_by_kernel);
        extras.openings.push(super::Opening { time_ns, link, wire_len, told_by_kernel, data: data.into() });
        Block::Packet(Found {
            without_time: true,
            time_ns: 0,
            interface: 0,
            link,
            wire_len: 0,
            distance: 0,
            len: 0,
        })
    }

    /// A packet whose bytes begin 28 bytes after the block.
    #[inline]
    fn found(&self, block: &[u8], interface: usize, units: u64, captured: usize, original: u32) -> Block {
        let Some(described) = self.interfaces.get(interface) else {
            let known = self.interfaces.len();
            return Block::Bad(format!("a packet of interface {interface}; the section describes {known}"));
        };
        if block.len() < 32 || captured > block.len() - 32 {
            return Block::Bad(format!("a packet of {captured} bytes in a block of {}", block.len()));
        }
        let time_ns = described.scale.ns(units).and_then(|ns| ns.checked_add(described.offset_ns));
        let Some(time_ns) = time_ns else {
            return Block::Bad(format!("a time beyond the year 2262: {units} units"));
        };
        let (link, distance) = (described.link, block.len() - 28);
        Block::Packet(Found {
            without_time: false,
            time_ns,
            interface: interface as u32,
            link,
            wire_len: original,
            distance,
            len: captured,
        })
    }

    fn long(&self, bytes: &[u8]) -> u64 {
        let (first, second) = (u64::from(self.word(bytes, 0)), u64::from(self.word(bytes, 4)));
        if self.big_endian { first << 32 | second } else { second << 32 | first }
    }

    /// Calls `each` with the code and the value of every option from `at` to the end of the block.
    fn options(&self, block: &[u8], at: usize, mut each: impl FnMut(u16, &[u8])) {
        let mut left = block.get(at..block.len() - 4).unwrap_or_default();
        while left.len() >= 4 {
            let (code, len) = (self.half(left, 0), usize::from(self.half(left, 2)));
            let Some(value) = left.get(4..4 + len).filter(|_| code != 0) else { return };
            each(code, value);
            left = left.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    #[cold]
    fn other(&mut self, block: &[u8], at: u64, reading: &mut Reading, extras: &mut Extras) -> Block {
        match self.word(block, 0) {
            SECTION => {
                self.big_endian = section_order(block).unwrap_or(self.big_endian);
                self.interfaces = Arc::default();
                extras.drops.clear();
                Block::Nothing
            }
            INTERFACE => self.interface(block, reading, extras),
            OLD_PACKET if block.len() >= 32 => {
                let (interface, drops) = (usize::from(self.half(block, 8)), self.half(block, 10));
                let units = u64::from(self.word(block, 12)) << 32 | u64::from(self.word(block, 16));
                let captured = self.word(block, 20) as usize;
                // The highest number stands for an unknown one.
                if drops != u16::MAX && drops != 0 {
                    let count = u64::from(drops);
                    extras.dropped(interface, reading, |drops| drops.1 = drops.1.saturating_add(count));
                }
                self.found(block, interface, units, captured, self.word(block, 24))
            }
            SIMPLE_PACKET if block.len() >= 16 => {
                reading.without_time += 1;
                let original = self.word(block, 8);
                let snaplen = self.interfaces.first().map_or(0, |interface| interface.snaplen);
                if snaplen != 0 && original > snaplen {
                    reading.cut += 1;
                    reading.cut_bytes += u64::from(original - snaplen);
                }
                let (time_ns, link) = (0, LinkType::NULL);
                Block::Packet(Found {
                    without_time: true,
                    time_ns,
                    interface: 0,
                    link,
                    wire_len: 0,
                    distance: 0,
                    len: 0,
                })
            }
            STATISTICS if block.len() >= 24 => {
                let interface = self.word(block, 8) as usize;
                let mut total: Option<u64> = None;
                let mut stopped: Option<u64> = None;
                self.options(block, 20, |code, value| {
                    // isb_endtime
                    if let (3, Some(units)) = (code, value.get(..8)) {
                        stopped = Some(u64::from(self.word(units, 0)) << 32 | u64::from(self.word(units, 4)));
                    }
                    // isb_ifdrop and isb_osdrop
                    if let (5 | 7, Some(count)) = (code, value.get(..8)) {
                        total = Some(total.unwrap_or(0).saturating_add(self.long(count)));
                    }
                });
                if let Some(total) = total {
                    extras.dropped(interface, reading, |drops| drops.0 = total);
                }
                if let Some(interface) = self.interfaces.get(interface) {
                    let stopped_ns = stopped.and_then(|units| stopped_ns(units, *interface, reading.last_ns));
                    reading.stopped_ns = reading.stopped_ns.max(stopped_ns);
                }
                Block::Nothing
            }
            SECRETS if block.len() >= 20 => self.secrets(block, at, reading, extras),
            OLD_PACKET | SIMPLE_PACKET | STATISTICS | SECRETS => {
                Block::Bad(format!("a block of {} bytes, too short for what it is", block.len()))
            }
            _ => Block::Nothing,
        }
    }

    fn interface(&mut self, block: &[u8], reading: &mut Reading, extras: &mut Extras) -> Block {
        if block.len() < 20 {
            return Block::Bad(format!(
                "an interface in a block of {} bytes; expected 20 or more",
                block.len()
            ));
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return Block::Bad(format!("one more interface; expected at most {MAX_INTERFACES}"));
        }
        let (mut resolution, mut offset_s, mut opened_before, mut told_by_kernel) = (6, 0_u64, false, false);
        self.options(block, 16, |code, value| match (code, value) {
            (2, name) => {
                opened_before = name.starts_with(OPENED_BEFORE.as_bytes());
                told_by_kernel = name == OPENED_BEFORE_NAMES[1].as_bytes();
            }
            (9, [value, ..]) => resolution = *value,
            (14, value) if value.len() >= 8 => offset_s = self.long(value),
            _ => {}
        });
        let Some(offset_ns) = offset_s.cast_signed().checked_mul(1_000_000_000) else {
            return Block::Bad(format!("an interface whose times are {} s off", offset_s.cast_signed()));
        };
        let (link, snaplen) = (LinkType(self.half(block, 8)), self.word(block, 12));
        let scale = Scale::of(resolution);
        reading.resolution_ns = reading.resolution_ns.max(scale.resolution_ns());
        Arc::make_mut(&mut self.interfaces).push(Interface {
            link,
            snaplen,
            scale,
            offset_ns,
            opened_before,
            told_by_kernel,
        });
        extras.drops.push((0, 0));
        Block::Nothing
    }

    fn secrets(&mut self, block: &[u8], at: u64, reading: &mut Reading, extras: &mut Extras) -> Block {
        if self.word(block, 8) != TLS_KEY_LOG {
            return Block::Nothing;
        }
        let len = self.word(block, 12) as usize;
        let Some(lines) = block[..block.len() - 4].get(16..).and_then(|rest| rest.get(..len)) else {
            return Block::Bad(format!("TLS keys of {len} bytes in a block of {}", block.len()));
        };
        if extras.key_log.len() + lines.len() > MAX_KEY_LOG_BYTES {
            reading.damaged(
                at,
                0,
                format!("more than {MAX_KEY_LOG_BYTES} bytes of TLS keys; these were left out"),
            );
            return Block::Nothing;
        }
        extras.key_log.extend_from_slice(lines);
        if lines.last().is_some_and(|last| *last != b'\n') {
            extras.key_log.push(b'\n');
        }
        Block::Nothing
    }

    /// There is no complete block here: moves on to the next one. Returns whether anything is left to read.
    #[cold]
    fn recover(&mut self, window: &mut Window, reading: &mut Reading) -> bool {
        if !window.has(1) {
            return false;
        }
        let (from, found) = (window.offset(), self.words(window));
        while window.has(12) {
            window.skip(1);
            if window.has(12) && self.plausible(window.bytes()) && self.block(window).is_some() {
                let to = window.offset();
                reading.damaged(from, to - from, format!("{found}; the next block begins at offset {to}"));
                return true;
            }
        }
        window.skip_rest();
        let bytes = window.offset() - from;
        reading.damaged(from, bytes, format!("{found}; {bytes} bytes to the end of the file were left out"));
        false
    }

    /// Whether a search may believe that a block of this type begins here, as long as its two lengths agree.
    fn plausible(&self, bytes: &[u8]) -> bool {
        match self.word(bytes, 0) {
            SECTION | INTERFACE..=PACKET | SECRETS => true,
            kind => OTHERS.contains(&kind),
        }
    }

    /// What is wrong here.
    fn words(&self, window: &mut Window) -> String {
        if !window.has(12) {
            return format!("the file ends after {} bytes of a block's header", window.bytes().len());
        }
        if self.word(window.bytes(), 0) == SECTION && section_order(window.bytes()).is_none() {
            return "a section without a byte order".into();
        }
        let (kind, len) = (self.word(window.bytes(), 0), self.word(window.bytes(), 4));
        if !(12..=MAX_BLOCK_BYTES).contains(&len) || !len.is_multiple_of(4) {
            return format!("a block of {len} bytes; expected 12 to {MAX_BLOCK_BYTES} in steps of 4");
        }
        if !window.has(len as usize) {
            let bytes = window.bytes().len();
            return format!("the file ends after {bytes} bytes of a block (type {kind}); expected {len}");
        }
        let end = self.word(window.bytes(), len as usize - 4);
        format!("a block whose length is {len} at its beginning and {end} at its end")
    }
}

/// Whether a section's numbers are big-endian; `None` if its byte-order magic is invalid.
#[inline]
pub(super) fn section_order(bytes: &[u8]) -> Option<bool> {
    let magic = bytes.get(8..12)?;
    match (bytes.get(..4)?, magic) {
        ([0x0a, 0x0d, 0x0d, 0x0a], [0x1a, 0x2b, 0x3c, 0x4d]) => Some(true),
        ([0x0a, 0x0d, 0x0d, 0x0a], [0x4d, 0x3c, 0x2b, 0x1a]) => Some(false),
        _ => None,
    }
}
