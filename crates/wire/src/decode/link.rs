//! From the first byte of a packet to the IP header: Ethernet, Linux cooked, BSD loopback, raw, VLAN tags, MPLS, PPPoE.

use super::Unparsed;
use crate::packet::LinkType;

/// Protocols after a link header, by IEEE 802 numbers ("EtherTypes").
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Tags of VLANs: IEEE 802.1Q, 802.1ad, and two older numbers of the outer tag.
const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// MPLS, unicast and multicast (RFC 5332).
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// A PPP-over-Ethernet session (RFC 2516), and PPP's numbers for both IP versions (RFC 1332, 5072).
const PPPOE: u16 = 0x8864;
const PPP_IP: [u16; 2] = [0x0021, 0x0057];

/// Size of an Ethernet header without tags.
pub(super) const ETHERNET_HEADER: usize = 14;

/// Bytes of a packet from some header on: the captured ones, and the length on the wire.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub data: &'a [u8],
    pub wire_len: u32,
}

impl<'a> Bytes<'a> {
    /// The bytes after the first `count`; an error if fewer were captured.
    #[inline]
    pub fn after(self, count: usize) -> Result<Bytes<'a>, Unparsed> {
        match self.data.get(count..) {
            Some(data) => Ok(Bytes { data, wire_len: self.wire_len.saturating_sub(count as u32) }),
            None => Err(self.missing(count)),
        }
    }

    /// Why `count` bytes are missing: never there, or cut off.
    #[cold]
    pub fn missing(self, count: usize) -> Unparsed {
        if self.wire_len as usize >= count && self.wire_len as usize > self.data.len() {
            Unparsed::Cut
        } else {
            Unparsed::Malformed
        }
    }

    /// The first bytes as an array.
    #[inline]
    pub fn head<const N: usize>(self) -> Result<&'a [u8; N], Unparsed> {
        self.data.first_chunk().ok_or_else(|| self.missing(N))
    }
}

/// Strips the link header down to the IP packet.
#[inline]
pub(super) fn ip(link: LinkType, bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    if link == LinkType::ETHERNET {
        return ethernet(bytes);
    }
    match link {
        LinkType::LINUX_SLL => typed(u16_at(bytes.head::<16>()?, 14), bytes.after(16)?),
        LinkType::LINUX_SLL2 => typed(u16_at(bytes.head::<20>()?, 0), bytes.after(20)?),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::IPV4 | LinkType::IPV6 => Ok(bytes),
        LinkType::NULL | LinkType::LOOP => family(bytes),
        _ => Err(Unparsed::LinkType),
    }
}

/// The IP packet in an Ethernet frame.
#[inline]
pub(super) fn ethernet(bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    let header = bytes.head::<ETHERNET_HEADER>()?;
    typed(u16_at(header, 12), bytes.after(ETHERNET_HEADER)?)
}

/// The IP packet after a protocol number.
#[inline]
pub(super) fn typed(protocol: u16, bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    if protocol == IPV4 || protocol == IPV6 { Ok(bytes) } else { tagged(protocol, bytes) }
}

/// The IP packet after any number of VLAN tags and MPLS labels.
#[cold]
fn tagged(mut protocol: u16, mut bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    // Each iteration consumes four bytes, so this terminates.
    while VLAN.contains(&protocol) {
        protocol = u16_at(bytes.head::<4>()?, 2);
        bytes = bytes.after(4)?;
    }
    if protocol == PPPOE {
        let header = bytes.head::<8>()?;
        // Version and type are 1, and code 0 is data.
        let is_ip = header[..2] == [0x11, 0] && PPP_IP.contains(&u16_at(header, 6));
        return if is_ip { bytes.after(8) } else { Err(Unparsed::NotIp) };
    }
    if MPLS.contains(&protocol) {
        // The lowest bit of the third byte marks the last label (RFC 3032, 2.1).
        while bytes.head::<4>()?[2] & 1 == 0 {
            bytes = bytes.after(4)?;
        }
        bytes = bytes.after(4)?;
        // No field gives the protocol after the labels; IP's version shows it, and a pseudowire begins with zero
        // (RFC 4385).
        return if matches!(bytes.head::<1>()?[0] >> 4, 4 | 6) { Ok(bytes) } else { Err(Unparsed::NotIp) };
    }
    if protocol == IPV4 || protocol == IPV6 { Ok(bytes) } else { Err(Unparsed::NotIp) }
}

/// The IP packet after a BSD address family, in either byte order: AF_INET is 2 everywhere, AF_INET6 is 24, 28 or
/// 30, and 10 on Linux.
fn family(bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    let family = u32::from_be_bytes(*bytes.head::<4>()?);
    let family = if family > 0xff { family.swap_bytes() } else { family };
    if matches!(family, 2 | 10 | 24 | 28 | 30) { bytes.after(4) } else { Err(Unparsed::NotIp) }
}

/// Two bytes in network order; `at` is a constant within the array.
#[inline]
pub(super) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes in network order; `at` is a constant within the array.
#[inline]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
