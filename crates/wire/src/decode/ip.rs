//! IPv4 (RFC 791) and IPv6 (RFC 8200), with options, extension headers and super-frames.

use super::Unparsed;
use super::link::{Bytes, u16_at};

/// Protocol numbers (IANA).
pub(super) const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
/// Option of a hop-by-hop header with the length of a packet beyond 64 KiB (RFC 2675, 2).
const JUMBO: u8 = 0xc2;

/// An IP packet without its headers.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    /// IPv4 addresses as IPv4-mapped.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    /// What the payload is.
    pub protocol: u8,
    /// Identification of the IPv4 header.
    pub id: u16,
    pub fragment: Option<Piece>,
    pub payload: Bytes<'a>,
}

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// What all fragments of a datagram have in common.
    pub id: u32,
    /// Bytes of the datagram before it.
    pub offset: u32,
    /// Whether there are fragments after it.
    pub more: bool,
}

/// Reads an IP header of either version.
#[inline]
pub(super) fn ip(bytes: Bytes<'_>) -> Result<Ip<'_>, Unparsed> {
    match bytes.head::<1>()?[0] >> 4 {
        4 => v4(bytes),
        6 => v6(bytes),
        _ => Err(Unparsed::Malformed),
    }
}

#[inline]
fn v4(bytes: Bytes<'_>) -> Result<Ip<'_>, Unparsed> {
    let header = bytes.head::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    // Zero stands for what does not fit: a packet that segmentation offload has yet to cut (Linux leaves zero beyond
    // 64 KiB, other systems always).
    let len = match u16_at(header, 2) {
        0 => bytes.wire_len,
        len => u32::from(len),
    };
    if header_len < 20 || (len as usize) < header_len {
        return Err(Unparsed::Malformed);
    }
    let payload = inside(bytes, len).after(header_len)?;
    // More fragments, and the offset in units of eight bytes.
    let place = u16_at(header, 6);
    let id = u16_at(header, 4);
    let fragment = (place & 0x3fff != 0).then_some(Piece {
        id: u32::from(id),
        offset: u32::from(place & 0x1fff) * 8,
        more: place & 0x2000 != 0,
    });
    let [source, destination] = [mapped(header, 12), mapped(header, 16)];
    Ok(Ip { source, destination, protocol: header[9], id, fragment, payload })
}

/// The IPv4-mapped address of the four bytes at a place in the header.
#[inline]
fn mapped(header: &[u8; 20], at: usize) -> [u8; 16] {
    let [a, b, c, d] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// The bytes of a packet that says that it is `len` long: padding after it is cut off. Where the frame is shorter
/// than the packet, the packet's word counts, since some tools forget how long a frame was before they cut it.
#[inline]
fn inside(bytes: Bytes<'_>, len: u32) -> Bytes<'_> {
    Bytes { data: bytes.data.get(..len as usize).unwrap_or(bytes.data), wire_len: len }
}

fn v6(bytes: Bytes<'_>) -> Result<Ip<'_>, Unparsed> {
    let header = bytes.head::<40>()?;
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..40]);
    let payload_len = u32::from(u16_at(header, 4));
    let rest = bytes.after(40)?;
    // Zero: a jumbogram, which says its length in an option, or a super-frame that does not say it.
    let rest = match payload_len {
        0 if header[6] == HOP_BY_HOP => inside(rest, jumbo_len(rest).unwrap_or(rest.wire_len)),
        0 => rest,
        len => inside(rest, len),
    };
    let mut ip = Ip { source, destination, protocol: header[6], id: 0, fragment: None, payload: rest };
    if ip.protocol != TCP {
        extensions(&mut ip)?;
    }
    Ok(ip)
}

/// The length in a jumbo option that stands first, as Linux writes it.
fn jumbo_len(bytes: Bytes<'_>) -> Option<u32> {
    match bytes.data.first_chunk::<8>()? {
        [_, _, JUMBO, 4, a, b, c, d] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// Skips extension headers up to what they lead to, or to a fragment.
fn extensions(ip: &mut Ip<'_>) -> Result<(), Unparsed> {
    // Each header is eight bytes at least, so this ends.
    loop {
        let len = match ip.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY => usize::from(ip.payload.head::<2>()?[1]) * 8 + 8,
            // Its length is in units of four bytes (RFC 4302, 2.2).
            AUTHENTICATION => usize::from(ip.payload.head::<2>()?[1]) * 4 + 8,
            FRAGMENT => 8,
            _ => return Ok(()),
        };
        let next = ip.payload.head::<1>()?[0];
        if ip.protocol == FRAGMENT {
            let [_, _, place @ .., a, b, c, d] = *ip.payload.head::<8>()?;
            let place = u16::from_be_bytes(place);
            // One that is the whole datagram is no fragment (RFC 6946).
            if place & 0xfff9 != 0 {
                ip.fragment = Some(Piece {
                    id: u32::from_be_bytes([a, b, c, d]),
                    offset: u32::from(place & 0xfff8),
                    more: place & 1 != 0,
                });
            }
        }
        ip.payload = ip.payload.after(len)?;
        ip.protocol = next;
        if ip.fragment.is_some() {
            return Ok(());
        }
    }
}
