//! The TCP header and its options (RFC 9293, 7323, 2018).

use super::Unparsed;
use super::ip::Ip;
use super::link::{u16_at, u32_at};
use crate::packet::Packet;
use crate::segment::{Endpoint, Flags, Multipath, Options, Segment};
use sha2::{Digest, Sha256};

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MULTIPATH: u8 = 30;

/// The segment in an IP packet with protocol TCP.
#[inline]
pub(super) fn segment<'a>(packet: &Packet<'_>, ip: &Ip<'a>, network: u32) -> Result<Segment<'a>, Unparsed> {
    let header = ip.payload.head::<20>()?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 || header_len > ip.payload.wire_len as usize {
        return Err(Unparsed::Malformed);
    }
    let payload = ip.payload.after(header_len)?;
    let options = ip.payload.data.get(20..header_len).unwrap_or_default();
    Ok(Segment {
        packet: packet.number,
        time_ns: packet.time_ns,
        source: Endpoint { address: ip.source, port: u16_at(header, 0) },
        destination: Endpoint { address: ip.destination, port: u16_at(header, 2) },
        network,
        seq: u32_at(header, 4),
        ack: u32_at(header, 8),
        flags: Flags(header[13]),
        window: u16_at(header, 14),
        ip_id: ip.id,
        options: read(options),
        payload_len: payload.wire_len,
        payload: payload.data,
    })
}

/// Parses the options, up to the first malformed one.
#[inline]
fn read(bytes: &[u8]) -> Options {
    let mut options = Options::default();
    let mut left = bytes;
    // The usual layout of every segment on a connection with timestamps.
    if let Some([NOTHING, NOTHING, TIMESTAMPS, 10, a, b, c, d, e, f, g, h]) = bytes.first_chunk::<12>() {
        options.timestamps =
            Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
        left = bytes.get(12..).unwrap_or_default();
    }
    if !left.is_empty() {
        slow(left, &mut options);
    }
    options
}

fn slow(mut left: &[u8], options: &mut Options) {
    while let [kind, after @ ..] = left {
        if *kind == END {
            return;
        }
        if *kind == NOTHING {
            left = after;
            continue;
        }
        let [len, ..] = after else { return };
        // The length includes kind and length; a smaller value would loop forever.
        let Some((value, rest)) =
            usize::from(*len).checked_sub(2).and_then(|len| after[1..].split_at_checked(len))
        else {
            return;
        };
        left = rest;
        match (*kind, value) {
            (MSS, [a, b]) => options.mss = Some(u16::from_be_bytes([*a, *b])),
            (WINDOW_SCALE, [shift]) => options.window_scale = Some(*shift),
            (SACK_PERMITTED, []) => options.sack_permitted = true,
            (TIMESTAMPS, [a, b, c, d, e, f, g, h]) => {
                options.timestamps =
                    Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
            }
            (SACK, blocks) if blocks.len().is_multiple_of(8) => {
                options.sack_count = 0;
                for (slot, block) in options.sack.iter_mut().zip(blocks.as_chunks::<8>().0) {
                    *slot = (u32_at(block, 0), u32_at(block, 4));
                    options.sack_count += 1;
                }
            }
            (MULTIPATH, value) => options.multipath = multipath(value),
            _ => {}
        }
    }
}

/// Of a SYN/ACK with its sender's key, the token (RFC 8684, 3.1 and 3.2); of a SYN that joins, the token it names.
fn multipath(value: &[u8]) -> Multipath {
    const CAPABLE: u8 = 0;
    const JOIN: u8 = 1;
    match value {
        [first, _, key @ ..] if first >> 4 == CAPABLE && key.len() == 8 => {
            let digest: [u8; 32] = Sha256::digest(key).into();
            let [a, b, c, d, ..] = digest;
            Multipath::Token(u32::from_be_bytes([a, b, c, d]))
        }
        [first, _, a, b, c, d, _, _, _, _] if first >> 4 == JOIN => {
            Multipath::Joins(u32::from_be_bytes([*a, *b, *c, *d]))
        }
        _ => Multipath::None,
    }
}
