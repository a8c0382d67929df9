//! Packets within packets: VXLAN (RFC 7348), Geneve (RFC 8926), GRE (RFC 2784, 2890) and mirrored traffic of
//! switches in it (ERSPAN), IP in IP (RFC 2003, 4213).

use super::Unparsed;
use super::ip::Ip;
use super::link::{self, Bytes, u16_at};

/// Protocol numbers (IANA).
const IPV4_INSIDE: u8 = 4;
pub(super) const UDP: u8 = 17;
const IPV6_INSIDE: u8 = 41;
const GRE: u8 = 47;

/// UDP ports: VXLAN's, the one that Linux used before it was assigned (and flannel still uses), and Geneve's.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
/// Protocol number of an Ethernet frame.
const BRIDGED: u16 = 0x6558;
/// Mirrored Ethernet frames: ERSPAN of types I and II, and of type III (draft-foschiano-erspan-03, 4).
const MIRRORED: u16 = 0x88be;
const MIRRORED_III: u16 = 0x22eb;

/// The IP packet inside a packet that is not TCP, and its network (see [`crate::segment::Segment::network`]).
#[cold]
pub(super) fn inner<'a>(ip: &Ip<'a>, network: u32) -> Result<(Bytes<'a>, u32), Unparsed> {
    match ip.protocol {
        UDP => udp(ip.payload),
        IPV4_INSIDE | IPV6_INSIDE => Ok((ip.payload, network)),
        GRE => gre(ip.payload, network),
        _ => Err(Unparsed::NotTcp),
    }
}

fn udp(bytes: Bytes<'_>) -> Result<(Bytes<'_>, u32), Unparsed> {
    let port = u16_at(bytes.head::<8>()?, 2);
    let bytes = bytes.after(8)?;
    if VXLAN_PORTS.contains(&port) {
        let [flags, _, _, _, a, b, c, _] = *bytes.head::<8>()?;
        // The flag for a valid network identifier; without it, this is something else on the same port.
        if flags & 0x08 == 0 {
            return Err(Unparsed::NotTcp);
        }
        return Ok((link::ethernet(bytes.after(8)?)?, number(a, b, c)));
    }
    if port == GENEVE_PORT {
        let [first, _, kind @ .., a, b, c, _] = *bytes.head::<8>()?;
        // Version zero, and the length of the options in units of four bytes.
        if first >> 6 != 0 {
            return Err(Unparsed::NotTcp);
        }
        let bytes = bytes.after(8 + usize::from(first & 0x3f) * 4)?;
        return Ok((typed(u16::from_be_bytes(kind), bytes)?, number(a, b, c)));
    }
    Err(Unparsed::NotTcp)
}

fn gre(bytes: Bytes<'_>, network: u32) -> Result<(Bytes<'_>, u32), Unparsed> {
    let [flags, version, kind @ ..] = *bytes.head::<4>()?;
    if version & 7 != 0 {
        return Err(Unparsed::NotTcp);
    }
    let (checksum, key, sequence) = (flags & 0x80 != 0, flags & 0x20 != 0, flags & 0x10 != 0);
    let mut bytes = bytes.after(if checksum { 8 } else { 4 })?;
    let mut inner_network = network;
    if key {
        inner_network = u32::from_be_bytes(*bytes.head::<4>()?).saturating_add(1);
        bytes = bytes.after(4)?;
    }
    if sequence {
        bytes = bytes.after(4)?;
    }
    match u16::from_be_bytes(kind) {
        // Type I has no header of its own, and no sequence numbers.
        MIRRORED => bytes = bytes.after(if sequence { 8 } else { 0 })?,
        MIRRORED_III => {
            // The last bit says whether eight more bytes of the switch follow.
            let [.., last] = *bytes.head::<12>()?;
            bytes = bytes.after(if last & 1 == 1 { 20 } else { 12 })?;
        }
        kind => return Ok((typed(kind, bytes)?, inner_network)),
    }
    Ok((link::ethernet(bytes)?, inner_network))
}

fn typed(protocol: u16, bytes: Bytes<'_>) -> Result<Bytes<'_>, Unparsed> {
    if protocol == BRIDGED { link::ethernet(bytes) } else { link::typed(protocol, bytes) }
}

/// A network identifier, plus one.
fn number(a: u8, b: u8, c: u8) -> u32 {
    u32::from_be_bytes([0, a, b, c]) + 1
}
