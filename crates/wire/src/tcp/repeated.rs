//! Distinguishes a packet captured twice from one sent twice.

use crate::segment::Segment;

/// Packets remembered per side: duplicates come from a second interface or queue, within a few packets.
const REMEMBERED: usize = 4;
/// Maximum distance of duplicates with the same IPv4 identification: a sender numbers each packet, even with
/// identical bytes, and wraps around after 65,536. A copy that crosses a bridge or an emulated link may take a
/// while.
const SAME_ID_NS: i64 = 1_000_000_000;
/// Maximum distance of duplicates without an identification (IPv6, or zero): no retransmission is this fast,
/// since a probe takes two round trips and two timer ticks, and a fast retransmission one round trip.
const NO_ID_NS: i64 = 50_000;

/// The fields that two copies of a packet share.
#[inline]
pub fn fingerprint(segment: &Segment<'_>) -> u128 {
    let timestamp = segment.options.timestamps.map_or(0, |(value, _)| value as u16);
    let mut print = u128::from(segment.seq) << 96 | u128::from(segment.ack) << 64;
    print |= u128::from(segment.ip_id) << 48 | u128::from(segment.window) << 32;
    // Another length that is equal modulo 256, with all the rest equal, would be a strange coincidence.
    print |= u128::from(timestamp) << 16 | u128::from(segment.payload_len as u8) << 8;
    print | u128::from(segment.flags.0)
}

/// The last packets of one side.
#[derive(Debug, Default)]
pub struct Recent {
    prints: [(u128, i64); REMEMBERED],
    at: u8,
}

impl Recent {
    /// Remembers a packet.
    #[inline]
    pub fn add(&mut self, print: u128, time_ns: i64) {
        self.prints[usize::from(self.at) % REMEMBERED] = (print, time_ns);
        self.at = self.at.wrapping_add(1);
    }

    /// Whether the same packet was seen a moment ago.
    pub fn holds(&self, print: u128, segment: &Segment<'_>) -> bool {
        let limit_ns = if segment.ip_id == 0 { NO_ID_NS } else { SAME_ID_NS };
        let near = |time_ns: i64| segment.time_ns.abs_diff(time_ns) <= limit_ns.unsigned_abs();
        self.prints.iter().any(|(other, time_ns)| *other == print && near(*time_ns))
    }
}
