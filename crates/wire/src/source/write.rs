//! Writes pcapng: one section, one interface, nanoseconds; SYNs from before the capture on interfaces of their own.
//!
//! Format: draft-ietf-opsawg-pcapng, sections 4.1 (section header), 4.2 (interface description), 4.3 (enhanced
//! packet), 4.6 (interface statistics).

use super::{OPENED_BEFORE_NAMES, Opening};
use crate::packet::{LinkType, Packet};
use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Option codes of the blocks used here.
mod option {
    pub const COMMENT: u16 = 1;
    pub const SHB_USERAPPL: u16 = 4;
    pub const IF_NAME: u16 = 2;
    pub const IF_TSRESOL: u16 = 9;
    pub const ISB_IFRECV: u16 = 4;
    pub const ISB_IFDROP: u16 = 5;
}

/// What the file says of where its packets come from.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// Name of the interface.
    pub interface: &'a str,
    /// How packets begin.
    pub link: LinkType,
    /// Most bytes kept of a packet; zero for all.
    pub snap_bytes: u32,
    /// A comment on the whole file; empty for none.
    pub comment: &'a str,
}

/// A pcapng file that is being written, in the byte order of this machine.
pub struct PcapngWriter<W> {
    out: W,
    block: Vec<u8>,
    /// Interfaces after the first one.
    interfaces: Vec<(&'static str, LinkType)>,
    /// Packets written; those from before the capture do not count.
    pub packets: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes what stands before the packets.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn create(out: W, origin: &Origin<'_>) -> io::Result<Self> {
        let mut writer =
            PcapngWriter { out, block: Vec::new(), interfaces: Vec::new(), packets: 0, bytes: 0 };
        let block = &mut writer.block;
        block.extend_from_slice(&BYTE_ORDER_MAGIC.to_ne_bytes());
        block.extend_from_slice(&1_u16.to_ne_bytes());
        block.extend_from_slice(&0_u16.to_ne_bytes());
        // The section's length is not known beforehand.
        block.extend_from_slice(&(-1_i64).to_ne_bytes());
        if !origin.comment.is_empty() {
            put_option(block, option::COMMENT, origin.comment.as_bytes());
        }
        put_option(block, option::SHB_USERAPPL, concat!("spangap ", env!("CARGO_PKG_VERSION")).as_bytes());
        put_option(block, 0, &[]);
        writer.flush_block(SECTION_HEADER, &[])?;

        writer.interface(origin.interface, origin.link, origin.snap_bytes)?;
        Ok(writer)
    }

    fn interface(&mut self, name: &str, link: LinkType, snap_bytes: u32) -> io::Result<()> {
        let block = &mut self.block;
        block.extend_from_slice(&link.0.to_ne_bytes());
        block.extend_from_slice(&0_u16.to_ne_bytes());
        block.extend_from_slice(&snap_bytes.to_ne_bytes());
        put_option(block, option::IF_NAME, name.as_bytes());
        // Powers of ten: nanoseconds.
        put_option(block, option::IF_TSRESOL, &[9]);
        put_option(block, 0, &[]);
        self.flush_block(INTERFACE_DESCRIPTION, &[])
    }

    /// Writes a packet. Its number is not stored, nor its link type: the file has one for all.
    ///
    /// # Errors
    /// Those of the file.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.write(0, packet)?;
        self.packets += 1;
        Ok(())
    }

    fn write(&mut self, interface: u32, packet: &Packet<'_>) -> io::Result<()> {
        let time = packet.time_ns as u64;
        let captured = u32::try_from(packet.data.len()).map_err(io::Error::other)?;
        let block = &mut self.block;
        for number in [interface, (time >> 32) as u32, time as u32, captured, packet.wire_len] {
            block.extend_from_slice(&number.to_ne_bytes());
        }
        self.flush_block(ENHANCED_PACKET, packet.data)
    }

    /// Writes a SYN from before the capture, as a packet of an interface of its own: see [`super::OPENED_BEFORE`]. They
    /// stand before all other packets.
    ///
    /// # Errors
    /// Those of the file.
    pub fn opening(&mut self, opening: &Opening) -> io::Result<()> {
        let name = OPENED_BEFORE_NAMES[usize::from(opening.told_by_kernel)];
        let before = self.interfaces.iter().position(|known| *known == (name, opening.link));
        let interface = match before {
            Some(at) => at,
            None => {
                self.interface(name, opening.link, 0)?;
                self.interfaces.push((name, opening.link));
                self.interfaces.len() - 1
            }
        };
        self.write(interface as u32 + 1, &opening.packet())
    }

    /// What was written so far, without an end.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Writes what the interface counted, and ends the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self, at_ns: i64, received: u64, dropped: u64) -> io::Result<W> {
        let block = &mut self.block;
        for number in [0, (at_ns as u64 >> 32) as u32, at_ns as u32] {
            block.extend_from_slice(&number.to_ne_bytes());
        }
        put_option(block, option::ISB_IFRECV, &received.to_ne_bytes());
        put_option(block, option::ISB_IFDROP, &dropped.to_ne_bytes());
        put_option(block, 0, &[]);
        self.flush_block(INTERFACE_STATISTICS, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a block: type, length, what was collected, `data` padded, length again.
    fn flush_block(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        let padding = data.len().wrapping_neg() % 4;
        let length = 12 + self.block.len() + data.len() + padding;
        let length = u32::try_from(length).map_err(io::Error::other)?;
        self.out.write_all(&kind.to_ne_bytes())?;
        self.out.write_all(&length.to_ne_bytes())?;
        self.out.write_all(&self.block)?;
        self.out.write_all(data)?;
        self.out.write_all(&[0; 3][..padding])?;
        self.out.write_all(&length.to_ne_bytes())?;
        self.bytes += length as u64;
        self.block.clear();
        Ok(())
    }
}

/// An option, padded to four bytes; code zero ends the list.
fn put_option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX as usize)];
    block.extend_from_slice(&code.to_ne_bytes());
    block.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    block.extend_from_slice(value);
    block.resize(block.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_whole_and_aligned() {
        let origin =
            Origin { interface: "eth0", link: LinkType::ETHERNET, snap_bytes: 512, comment: "why\n" };
        let mut writer = PcapngWriter::create(Vec::new(), &origin).unwrap();
        for len in 0..9 {
            let data = vec![7; len];
            let packet = Packet {
                number: 1,
                time_ns: 5,
                interface: 0,
                link: LinkType::ETHERNET,
                wire_len: 9,
                data: &data,
            };
            writer.packet(&packet).unwrap();
        }
        let bytes = writer.finish(9, 10, 1).unwrap();
        let mut at = 0;
        let mut kinds = Vec::new();
        while at < bytes.len() {
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let length = word(at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(at, bytes.len());
        assert_eq!(kinds[..2], [SECTION_HEADER, INTERFACE_DESCRIPTION]);
        assert_eq!(kinds[2..11], [ENHANCED_PACKET; 9]);
        assert_eq!(kinds[11..], [INTERFACE_STATISTICS]);
    }

    proptest! {
        /// What is written is what the reader finds.
        #[test]
        fn the_reader_finds_what_was_written(packets in prop::collection::vec((0i64..i64::MAX / 2, prop::collection::vec(any::<u8>(), 0..200), 0u32..50), 1..20), dropped in 0u64..9) {
            let origin = Origin { interface: "veth0", link: LinkType::RAW, snap_bytes: 0, comment: "" };
            let mut writer = PcapngWriter::create(Vec::new(), &origin).unwrap();
            for (time_ns, data, cut) in &packets {
                let wire_len = data.len() as u32 + cut;
                writer.packet(&Packet { number: 0, time_ns: *time_ns, interface: 0, link: LinkType::RAW, wire_len, data }).unwrap();
            }
            let bytes = writer.finish(1, packets.len() as u64, dropped).unwrap();
            let mut capture = crate::source::Capture::from_reader("made".into(), Box::new(io::Cursor::new(bytes))).unwrap();
            for (n, (time_ns, data, cut)) in packets.iter().enumerate() {
                let packet = capture.next().unwrap();
                prop_assert_eq!(packet.number, n as u64 + 1);
                prop_assert_eq!((packet.time_ns, packet.link, packet.data), (*time_ns, LinkType::RAW, &data[..]));
                prop_assert_eq!(packet.wire_len, data.len() as u32 + cut);
            }
            prop_assert!(capture.next().is_none());
            prop_assert_eq!(capture.reading().dropped, Some(dropped));
        }
    }
}
