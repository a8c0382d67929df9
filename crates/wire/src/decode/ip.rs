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
/// Option of a hop-by-hop header with the length of a packet above 64 KiB (RFC 2675, 2).
const JUMBO: u8 = 0xc2;

/// An IP packet without its headers.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    /// IPv4 addresses as IPv4-mapped.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    /// Protocol of the payload.
    pub protocol: u8,
    /// Identification of the IPv4 header.
    pub id: u16,
    pub fragment: Option<Piece>,
    pub payload: Bytes<'a>,
}

/// Position of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Identification that all fragments of a datagram share.
    pub id: u32,
    /// Number of the datagram's bytes before it.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
}

/// Parses an IP header of either version.
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
    // Zero means that the length does not fit: a packet that segmentation offload has yet to split (Linux writes
    // zero above 64 KiB, other systems always).
    let len = match u16_at(header, 2) {
        0 => bytes.wire_len,
        len => u32::from(len),
    };
    if header_len < 20 || (len as usize) < header_len {
        return Err(Unparsed::Malformed);
    }
    let payload = inside(bytes, len).after(header_len)?;
    // The more-fragments flag, and the offset in units of eight bytes.
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

/// The IPv4-mapped address of the four bytes at an offset of the header.
#[inline]
fn mapped(header: &[u8; 20], at: usize) -> [u8; 16] {
    let [a, b, c, d] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// The bytes of a packet with the length `len` in its header, without trailing padding. If the frame is shorter
/// than the packet, the header counts, since some tools forget the original length of a frame that they cut.
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
    // Zero: a jumbogram with its length in an option, or a super-frame without a length.
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

/// The length in a jumbo option at the first position, as Linux writes it.
fn jumbo_len(bytes: Bytes<'_>) -> Option<u32> {
    match bytes.data.first_chunk::<8>()? {
        [_, _, JUMBO, 4, a, b, c, d] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// Skips extension headers up to the payload, or to a fragment.
fn extensions(ip: &mut Ip<'_>) -> Result<(), Unparsed> {
    // Each header has at least eight bytes, so this terminates.
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
            // A fragment header on a complete datagram does not make it a fragment (RFC 6946).
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
