//! The packets of a block, as the kernel lays them out (include/uapi/linux/if_packet.h).

use crate::packet::{LinkType, Packet};

/// Fields of `struct tpacket_block_desc` and `tpacket3_hdr` (include/uapi/linux/if_packet.h), by offset.
pub(super) mod offset {
    pub const BLOCK_STATUS: usize = 8;
    pub const BLOCK_PACKETS: usize = 12;
    pub const BLOCK_FIRST: usize = 16;
    pub const BLOCK_LENGTH: usize = 20;
    pub const BLOCK_LAST_TIME: usize = 40;
    pub const NEXT: usize = 0;
    pub const TIME: usize = 4;
    pub const CAPTURED: usize = 12;
    pub const LENGTH: usize = 16;
    pub const STATUS: usize = 20;
    pub const MAC: usize = 24;
    pub const NET: usize = 26;
    pub const VLAN_TCI: usize = 32;
    pub const VLAN_TPID: usize = 36;
    /// `struct sockaddr_ll` behind the aligned header.
    pub const ADDRESS: usize = 48;
}

/// One packet as it lies in a block.
pub(super) struct Frame<'a> {
    bytes: &'a [u8],
    pub time_ns: i64,
    captured: usize,
    length: u32,
    data_at: usize,
    /// VLAN protocol and tag that the kernel removed from the packet.
    vlan: Option<(u16, u16)>,
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Seconds and nanoseconds of Unix time.
pub(super) fn time_ns(bytes: &[u8], at: usize) -> i64 {
    word(bytes, at) as i64 * 1_000_000_000 + word(bytes, at + 4) as i64
}

/// The packets of a block. Offsets come from the kernel, and are checked all the same.
pub(super) fn frames(block: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut left = word(block, offset::BLOCK_PACKETS);
    let mut at = word(block, offset::BLOCK_FIRST) as usize;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let bytes = block.get(at..)?;
        left -= 1;
        match word(bytes, offset::NEXT) {
            0 => left = 0,
            next => at += next as usize,
        }
        let status = word(bytes, offset::STATUS);
        let tag = |flag: u32, at| (status & flag != 0).then(|| half(bytes, at));
        // TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID; a tag without protocol is an ordinary one.
        let vlan =
            tag(1 << 4, offset::VLAN_TCI).map(|tci| (tag(1 << 6, offset::VLAN_TPID).unwrap_or(0x8100), tci));
        Some(Frame {
            bytes,
            time_ns: time_ns(bytes, offset::TIME),
            captured: word(bytes, offset::CAPTURED) as usize,
            length: word(bytes, offset::LENGTH),
            data_at: half(bytes, offset::MAC) as usize,
            vlan,
        })
    })
}

impl<'a> Frame<'a> {
    /// The flags of a TCP segment directly after the headers of its link and IP, read in place.
    pub(super) fn tcp_flags(&self, link: LinkType) -> Option<u8> {
        let (at, protocol) = match link {
            LinkType::LINUX_SLL2 => {
                (half(self.bytes, offset::NET) as usize, half(self.bytes, offset::ADDRESS + 2))
            }
            LinkType::ETHERNET => (self.data_at + 14, half(self.bytes, self.data_at + 12)),
            _ => return None,
        };
        let ip = self.bytes.get(at..)?;
        const TCP: u8 = 6;
        let tcp = match (u16::from_be(protocol), ip.first()? >> 4) {
            (0x0800, 4) if *ip.get(9)? == TCP => usize::from(ip[0] & 0x0f) * 4,
            (0x86dd, 6) if *ip.get(6)? == TCP => 40,
            _ => return None,
        };
        ip.get(tcp + 13).copied()
    }

    /// The packet as a file has it; if something has to be inserted, it is copied to `scratch`.
    pub(super) fn packet<'s>(&self, number: u64, link: LinkType, scratch: &'s mut Vec<u8>) -> Packet<'s>
    where
        'a: 's,
    {
        let from =
            if link == LinkType::LINUX_SLL2 { half(self.bytes, offset::NET) as usize } else { self.data_at };
        let to = (from + self.captured).min(self.bytes.len());
        let data = self.bytes.get(from..to).unwrap_or_default();
        let added = match (link, self.vlan) {
            (LinkType::LINUX_SLL2, _) => {
                scratch.clear();
                cooked_header(self.bytes, scratch);
                scratch.len()
            }
            (LinkType::ETHERNET, Some((protocol, tag))) if data.len() >= 12 => {
                scratch.clear();
                scratch.extend_from_slice(&data[..12]);
                scratch.extend_from_slice(&protocol.to_be_bytes());
                scratch.extend_from_slice(&tag.to_be_bytes());
                4
            }
            _ => {
                return Packet {
                    number,
                    time_ns: self.time_ns,
                    interface: 0,
                    link,
                    wire_len: self.length.max(data.len() as u32),
                    data,
                };
            }
        };
        let rest = if link == LinkType::ETHERNET { &data[12..] } else { data };
        scratch.extend_from_slice(rest);
        let wire_len = (self.length + added as u32).max(scratch.len() as u32);
        Packet { number, time_ns: self.time_ns, interface: 0, link, wire_len, data: scratch }
    }
}

/// LINKTYPE_LINUX_SLL2: protocol, two zeros, interface, hardware type, packet type, address length, address.
fn cooked_header(frame: &[u8], out: &mut Vec<u8>) {
    let address = frame.get(offset::ADDRESS..offset::ADDRESS + 20).unwrap_or(&[0; 20]);
    // struct sockaddr_ll: family, protocol (big-endian), index, hardware type, packet type, address length, address.
    out.extend_from_slice(&address[2..4]);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&word(address, 4).to_be_bytes());
    out.extend_from_slice(&half(address, 8).to_be_bytes());
    out.extend_from_slice(&address[10..20]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_the_kernel_took_out_is_put_back() {
        let mut bytes = vec![0; 200];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset::CAPTURED, &20u32.to_ne_bytes());
        put(offset::LENGTH, &90u32.to_ne_bytes());
        put(offset::STATUS, &(1u32 | 1 << 4).to_ne_bytes());
        put(offset::MAC, &82u16.to_ne_bytes());
        put(offset::VLAN_TCI, &7u32.to_ne_bytes());
        put(82, &(1..=20).collect::<Vec<u8>>());
        let mut block = vec![0; 48];
        block[offset::BLOCK_PACKETS] = 1;
        block[offset::BLOCK_FIRST] = 48;
        block.extend_from_slice(&bytes);
        let mut scratch = Vec::new();
        let frame = frames(&block).next().unwrap();
        let packet = frame.packet(1, LinkType::ETHERNET, &mut scratch);
        assert_eq!(packet.data[10..18], [11, 12, 0x81, 0, 0, 7, 13, 14]);
        assert_eq!((packet.data.len(), packet.wire_len), (24, 94));
    }

    #[test]
    fn damaged_blocks_are_survived() {
        let mut random = 1u64;
        for _ in 0..20_000 {
            let block: Vec<u8> = (0..256)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if random >> 60 < 8 { 0 } else { (random >> 33) as u8 }
                })
                .collect();
            let mut scratch = Vec::new();
            for (n, frame) in frames(&block).enumerate().take(1000) {
                frame.packet(n as u64, LinkType::LINUX_SLL2, &mut scratch);
                frame.packet(n as u64, LinkType::ETHERNET, &mut scratch);
            }
        }
    }
}
