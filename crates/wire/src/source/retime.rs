//! A pcapng capture by another clock: every time in it is what that clock showed, and nothing else changes.

use super::pcapng::{
    INTERFACE, MAX_BLOCK_BYTES, OLD_PACKET, PACKET, SECTION, STATISTICS, Scale, section_order,
};
use spangap_model::Clock;
use std::io::{self, Read, Write};

/// It cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RetimeError {
    /// Reading failed.
    #[error("{file}: {error}")]
    Read {
        /// The capture.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// Writing failed.
    #[error("cannot write the capture by another clock: {0}")]
    Write(io::Error),
    /// It is not a pcapng file, or not a complete one.
    #[error("{file}: at offset {offset}: found {found}, expected {expected}")]
    Damaged {
        /// The capture.
        file: String,
        /// Where the block begins.
        offset: u64,
        /// What was found.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
}

/// Copies a pcapng, block by block; `file` is its name in errors. The times of packets and of the statistics
/// of interfaces
/// become those of `clock`, to the nearest unit of their interface. Returns the number of packets.
///
/// # Errors
/// [`RetimeError`], also where a reader would go on: a capture that is changed is one that is whole.
pub fn retime(
    file: &str,
    mut from: impl Read,
    mut to: impl Write,
    clock: &Clock,
) -> Result<u64, RetimeError> {
    let mut section = Section { big_endian: false, scales: Vec::new(), clock: *clock };
    let (mut block, mut offset, mut packets) = (Vec::new(), 0, 0);
    loop {
        let damaged = |(found, expected)| RetimeError::Damaged { file: file.into(), offset, found, expected };
        let unread = |error| RetimeError::Read { file: file.into(), error };
        block.clear();
        let begun = (&mut from).take(12).read_to_end(&mut block).map_err(unread)?;
        if begun == 0 && offset > 0 {
            to.flush().map_err(RetimeError::Write)?;
            return Ok(packets);
        }
        let len = section.block_bytes(&block, offset == 0).map_err(damaged)?;
        let rest = u64::from(len) - 12;
        let read = (&mut from).take(rest).read_to_end(&mut block).map_err(unread)? as u64;
        if read < rest {
            return Err(damaged((format!("the end after {read} bytes"), "a whole block")));
        }
        let again = section.word(&block, len as usize - 4);
        if again != len {
            return Err(damaged((format!("a length of {again} at its end"), "the one at its beginning")));
        }
        packets += u64::from(section.change(&mut block).map_err(damaged)?);
        to.write_all(&block).map_err(RetimeError::Write)?;
        offset += u64::from(len);
    }
}

/// What was found, and what was expected.
type Wrong = (String, &'static str);

struct Section {
    big_endian: bool,
    /// Units of the interfaces' clocks, and what these are off by, nanoseconds.
    scales: Vec<(Scale, i64)>,
    clock: Clock,
}

impl Section {
    fn word(&self, block: &[u8], at: usize) -> u32 {
        let bytes = [block[at], block[at + 1], block[at + 2], block[at + 3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(&self, block: &[u8], at: usize) -> u16 {
        let bytes = [block[at], block[at + 1]];
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn set_word(&self, block: &mut [u8], at: usize, word: u32) {
        let bytes = if self.big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        block[at..at + 4].copy_from_slice(&bytes);
    }

    /// Length of the block that begins with these bytes.
    fn block_bytes(&mut self, begin: &[u8], first: bool) -> Result<u32, Wrong> {
        if begin.len() < 12 {
            return Err((format!("the end after {} bytes", begin.len()), "a block"));
        }
        if self.word(begin, 0) == SECTION {
            let order = section_order(begin).ok_or(("a section without a byte order".into(), "one with it"));
            self.big_endian = order?;
        } else if first {
            return Err((format!("a block of type {}", self.word(begin, 0)), "a section of pcapng"));
        }
        let len = self.word(begin, 4);
        if !(12..=MAX_BLOCK_BYTES).contains(&len) || !len.is_multiple_of(4) {
            return Err((format!("a block of {len} bytes"), "12 bytes to 16 MiB in steps of 4"));
        }
        Ok(len)
    }

    /// Changes the times of a block. Whether it is a packet.
    fn change(&mut self, block: &mut [u8]) -> Result<bool, Wrong> {
        let kind = self.word(block, 0);
        let least = match kind {
            INTERFACE => 20,
            OLD_PACKET | PACKET => 32,
            STATISTICS => 24,
            _ => 12,
        };
        if block.len() < least {
            let found = format!("a block of type {kind} and {} bytes", block.len());
            return Err((found, "one as long as its type has to be"));
        }
        match kind {
            SECTION => self.scales.clear(),
            INTERFACE => self.interface(block)?,
            OLD_PACKET => self.move_time(block, usize::from(self.half(block, 8)), 12)?,
            PACKET => self.move_time(block, self.word(block, 8) as usize, 12)?,
            STATISTICS => {
                let interface = self.word(block, 8) as usize;
                self.move_time(block, interface, 12)?;
                for (code, at, len) in self.options(block, 20) {
                    // isb_starttime and isb_endtime
                    if matches!((code, len), (2 | 3, 8)) {
                        self.move_time(block, interface, at)?;
                    }
                }
            }
            _ => {}
        }
        Ok(matches!(kind, OLD_PACKET | PACKET))
    }

    fn interface(&mut self, block: &[u8]) -> Result<(), Wrong> {
        let (mut scale, mut offset_s) = (Scale::of(6), 0_i64);
        for (code, at, len) in self.options(block, 16) {
            match (code, len) {
                (9, 1..) => scale = Scale::of(block[at]),
                (14, 8..) => {
                    let (first, second) =
                        (u64::from(self.word(block, at)), u64::from(self.word(block, at + 4)));
                    let seconds = if self.big_endian { first << 32 | second } else { second << 32 | first };
                    offset_s = seconds.cast_signed();
                }
                _ => {}
            }
        }
        let far = || (format!("an interface whose times are {offset_s} s off"), "one of less than 292 years");
        self.scales.push((scale, offset_s.checked_mul(1_000_000_000).ok_or_else(far)?));
        Ok(())
    }

    /// Code, place and length of every option from `at` to the end of a block.
    fn options(&self, block: &[u8], mut at: usize) -> Vec<(u16, usize, usize)> {
        let (mut options, end) = (Vec::new(), block.len() - 4);
        while at + 4 <= end {
            let (code, len) = (self.half(block, at), usize::from(self.half(block, at + 2)));
            if code == 0 || at + 4 + len > end {
                break;
            }
            options.push((code, at + 4, len));
            at += 4 + len.next_multiple_of(4);
        }
        options
    }

    /// Moves a time in two words, the higher one first.
    fn move_time(&self, block: &mut [u8], interface: usize, at: usize) -> Result<(), Wrong> {
        let Some((scale, offset_ns)) = self.scales.get(interface) else {
            let found = format!("a time of interface {interface}");
            return Err((found, "one of an interface that the section describes"));
        };
        let units = u64::from(self.word(block, at)) << 32 | u64::from(self.word(block, at + 4));
        let far = || (format!("{units} units"), "a time before the year 2262 by both clocks");
        let ns = scale.ns(units).and_then(|ns| ns.checked_add(*offset_ns)).ok_or_else(far)?;
        let by = self.clock.at(ns).and_then(|moved| moved.checked_sub(ns)).ok_or_else(far)?;
        let moved = i128::from(units) + scale.units(by).ok_or_else(far)?;
        let moved = u64::try_from(moved).map_err(|_| far())?;
        self.set_word(block, at, (moved >> 32) as u32);
        self.set_word(block, at + 4, moved as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{LinkType, Packet};
    use crate::source::Capture;
    use crate::source::write::{Origin, PcapngWriter};
    use proptest::prelude::*;

    const CLOCK: Clock =
        Clock { offset_ns: 30_000_000, skew_ppm: 50.0, since_unix_ns: 1_700_000_000_000_000_000 };

    /// A block of either byte order.
    fn block(big: bool, kind: u32, words: &[u32], rest: &[u8]) -> Vec<u8> {
        let bytes = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        let body: Vec<u8> = words.iter().flat_map(|word| bytes(*word)).chain(rest.iter().copied()).collect();
        let body_len = body.len().next_multiple_of(4);
        let len = bytes(body_len as u32 + 12);
        let padding = vec![0; body_len - body.len()];
        [&bytes(kind)[..], &len, &body, &padding, &len].concat()
    }

    fn option(big: bool, code: u16, value: &[u8]) -> Vec<u8> {
        let bytes = |half: u16| if big { half.to_be_bytes() } else { half.to_le_bytes() };
        let mut option = [&bytes(code)[..], &bytes(value.len() as u16), value].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn section(big: bool) -> Vec<u8> {
        block(big, SECTION, &[0x1a2b_3c4d, if big { 0x0001_0000 } else { 1 }, u32::MAX, u32::MAX], &[])
    }

    fn interface(big: bool, options: &[u8]) -> Vec<u8> {
        block(big, INTERFACE, &[if big { 0x0001_0000 } else { 1 }, 0], options)
    }

    fn retimed(bytes: &[u8], clock: &Clock) -> Result<Vec<u8>, String> {
        let mut to = Vec::new();
        retime("it", bytes, &mut to, clock).map(|_| to).map_err(|error| error.to_string())
    }

    fn packets(bytes: Vec<u8>) -> Vec<(i64, Vec<u8>)> {
        let mut capture = Capture::from_bytes("it".into(), bytes).expect("a capture");
        let mut packets = Vec::new();
        while let Some(packet) = capture.next() {
            packets.push((packet.time_ns, packet.data.to_vec()));
        }
        assert_eq!(capture.reading().damaged_places, 0);
        packets
    }

    #[test]
    fn every_kind_of_time_in_every_unit() {
        for big in [false, true] {
            // Units of 2^-20 s, and of microseconds that are ten seconds off.
            let ten = if big { 10_u64.to_be_bytes() } else { 10_u64.to_le_bytes() };
            let old = if big { 0x0001_0000 } else { 1 };
            let span = [option(big, 2, &[0; 8]), option(big, 3, &[0; 8]), option(big, 4, &[7; 8])].concat();
            let file = [
                section(big),
                interface(big, &option(big, 9, &[0x80 | 20])),
                interface(big, &option(big, 14, &ten)),
                block(big, PACKET, &[0, 0, 1 << 20, 4, 4], b"fine"),
                block(big, OLD_PACKET, &[old, 0, 1_000_000, 3, 3], b"old"),
                block(big, STATISTICS, &[1, 0, 5_000_000], &span),
                block(big, 0x0bad, &[1, 2, 3], b"left as it is"),
            ]
            .concat();
            let clock = Clock { offset_ns: 500_000_000, skew_ppm: 0.0, since_unix_ns: 0 };
            let moved = retimed(&file, &clock).expect("it is whole");
            let times: Vec<i64> = packets(moved.clone()).iter().map(|(time_ns, _)| *time_ns).collect();
            assert_eq!(times, [1_500_000_000, 11_500_000_000]);
            let half = [option(big, 2, &[0, 0, 0, 0, 0, 7, 0xa1, 0x20]), Vec::new()].concat();
            let half = if big { half } else { option(big, 2, &[0, 0, 0, 0, 0x20, 0xa1, 7, 0]) };
            assert!(moved.windows(half.len()).any(|bytes| bytes == half), "isb_starttime, half a second");
            assert_eq!(moved.len(), file.len());
            let back = Clock { offset_ns: -500_000_000, ..clock };
            assert_eq!(retimed(&moved, &back).as_ref(), Ok(&file), "nothing else has changed");
        }
    }

    #[test]
    fn errors_name_the_place_and_what_was_expected() {
        let whole = [section(false), interface(false, &option(false, 9, &[9]))].concat();
        let packet = block(false, PACKET, &[0, 0, 7, 4, 4], b"data");
        let error = |more: &[u8]| retimed(&[&whole, more].concat(), &CLOCK).expect_err("it is damaged");
        let at = whole.len();
        assert_eq!(
            error(&packet[..9]),
            format!("it: at offset {at}: found the end after 9 bytes, expected a block")
        );
        let cut = error(&packet[..20]);
        assert_eq!(cut, format!("it: at offset {at}: found the end after 8 bytes, expected a whole block"));
        let other = block(false, PACKET, &[4, 0, 7, 4, 4], b"data");
        assert!(error(&other).contains("found a time of interface 4, expected one of an interface"));
        let mut ends = packet.clone();
        let last = ends.len() - 1;
        ends[last] = 1;
        assert!(error(&ends).contains("expected the one at its beginning"));
        let before = Clock { offset_ns: -8, skew_ppm: 0.0, since_unix_ns: 0 };
        let error = retimed(&[whole, packet].concat(), &before).expect_err("before 1970");
        assert!(error.contains("found 7 units"), "{error}");
        assert!(retimed(b"", &CLOCK).expect_err("nothing").contains("found the end after 0 bytes"));
        assert!(
            retimed(b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0", &CLOCK)
                .expect_err("pcap")
                .contains("a section of pcapng")
        );
    }

    proptest! {
        /// What a reader finds is the same packets by the other clock.
        #[test]
        fn the_same_packets_by_the_other_clock(
            packets_made in prop::collection::vec((0..1_i64 << 40, prop::collection::vec(any::<u8>(), 0..99)), 0..20),
            offset_ns in -(1_i64 << 50)..1 << 50,
            skew_ppm in -900.0..900.0,
        ) {
            let origin = Origin { interface: "eth0", link: LinkType::ETHERNET, snap_bytes: 0, comment: "why" };
            let mut writer = PcapngWriter::create(Vec::new(), &origin).unwrap();
            for (after_ns, data) in &packets_made {
                let time_ns = CLOCK.since_unix_ns + after_ns;
                writer.packet(&Packet { number: 0, time_ns, interface: 0, link: LinkType::ETHERNET, wire_len: 200, data }).unwrap();
            }
            let bytes = writer.finish(CLOCK.since_unix_ns, 3, 1).unwrap();
            let clock = Clock { offset_ns, skew_ppm, ..CLOCK };
            let moved = retimed(&bytes, &clock).unwrap();
            let expected: Vec<_> =
                packets(bytes).into_iter().map(|(time_ns, data)| (clock.at(time_ns).unwrap(), data)).collect();
            prop_assert_eq!(packets(moved), expected);
        }

        /// Damaged or not, it ends, and what it accepts it keeps the length of.
        #[test]
        fn any_bytes(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            big in any::<bool>(),
        ) {
            let mut bytes = [
                section(big),
                interface(big, &option(big, 9, &[6])),
                block(big, PACKET, &[0, 400_000, 9, 4, 4], b"data"),
                block(big, STATISTICS, &[0, 400_000, 9], &option(big, 2, &[1; 8])),
            ].concat();
            for (at, value) in edits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Ok(moved) = retimed(&bytes, &CLOCK) {
                prop_assert_eq!(moved.len(), bytes.len());
            }
        }
    }
}
