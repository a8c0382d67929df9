//! What of the packets asked for fits into a slice. A slice is of use if it reaches over all of its time, from the ordinary calls
//! before a fault to the slow ones during it: so less is kept of each packet first, and then whole connections are left out,
//! before any stretch of time is.

use crate::reach::LEAST_BYTES;
use rustc_hash::{FxHashMap, FxHasher};
use spangap_wire::segment::{Endpoint, Segment};
use std::hash::{Hash, Hasher};

/// Bytes that a packet takes beside its own.
const EACH_BYTES: u64 = 40;
/// Lengths are counted to this exactness.
const STEP: usize = 64;
/// Lengths from here on are counted as one.
const LONGEST: usize = 64 << 10;
/// Connections that are told apart.
const MOST_CONNECTIONS: usize = 1 << 16;

/// A number of a connection that both of its ends compute alike.
fn rank(segment: &Segment<'_>) -> u64 {
    let (a, b): (Endpoint, Endpoint) = (segment.source, segment.destination);
    let mut hash = FxHasher::default();
    (a.min(b), a.max(b)).hash(&mut hash);
    // The low bits of this hash are weak, and the order must not follow addresses.
    hash.finish().rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Sizes of the packets asked for.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Packets by their length in steps.
    lengths: Vec<u64>,
    /// Bytes of each connection, if as little as possible is kept of each packet.
    connections: FxHashMap<u64, u64>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { lengths: vec![0; LONGEST / STEP + 1], connections: FxHashMap::default() }
    }
}

impl Sizes {
    /// Counts a packet of which this many bytes are kept.
    pub fn see(&mut self, segment: &Segment<'_>, bytes: usize) {
        self.lengths[bytes.min(LONGEST).div_ceil(STEP)] += 1;
        let rank = rank(segment);
        if self.connections.len() < MOST_CONNECTIONS || self.connections.contains_key(&rank) {
            *self.connections.entry(rank).or_default() += bytes.min(LEAST_BYTES as usize) as u64 + EACH_BYTES;
        }
    }

    /// What to keep, so that it fits into this many bytes.
    pub fn fit(self, room: u64) -> Fit {
        let takes = |cut: usize| -> u64 {
            let of =
                |(steps, packets): (usize, &u64)| packets * ((steps * STEP).min(cut) as u64 + EACH_BYTES);
            self.lengths.iter().enumerate().map(of).sum()
        };
        let connections = self.connections.len();
        let all = Fit { cut: usize::MAX, least_rank_left_out: None, left_out: 0, connections };
        if takes(usize::MAX) <= room {
            return all;
        }
        let least = LEAST_BYTES as usize;
        let mut cuts = (least / STEP..=LONGEST / STEP).rev().map(|steps| steps * STEP);
        if let Some(cut) = cuts.find(|cut| takes(*cut) <= room) {
            return Fit { cut, ..all };
        }
        // In one order everywhere, so that of two hosts the one with less room has a part of what the other one has.
        let mut ranked: Vec<(u64, u64)> = self.connections.into_iter().collect();
        ranked.sort_unstable();
        let mut sum = 0;
        let fitting = ranked.iter().take_while(|(_, bytes)| {
            sum += bytes;
            sum <= room
        });
        // One at least; what does not fit of it is its end.
        let kept = fitting.count().max(1);
        let least_rank_left_out = ranked.get(kept).map(|(rank, _)| *rank);
        Fit { cut: least, least_rank_left_out, left_out: connections - kept.min(connections), connections }
    }
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Bytes of each packet.
    pub cut: usize,
    /// Connections from this rank on are left out.
    least_rank_left_out: Option<u64>,
    /// How many connections are left out, of how many.
    pub left_out: usize,
    pub connections: usize,
}

impl Fit {
    /// Whether the packet's connection is kept.
    pub fn keeps(&self, segment: &Segment<'_>) -> bool {
        self.least_rank_left_out.is_none_or(|least| rank(segment) < least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_wire::decode::Decoder;
    use spangap_wire::packet::{LinkType, Packet};

    /// An ACK of this port to a server, or back, with some bytes of payload.
    fn packet(port: u16, back: bool, payload: usize) -> Vec<u8> {
        let mut data = vec![0x45, 0];
        data.extend_from_slice(&(40 + payload as u16).to_be_bytes());
        data.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (from, to) = if back { (server, client) } else { (client, server) };
        data.extend_from_slice(&[from, to].concat());
        let (from, to) = if back { (80, port) } else { (port, 80) };
        data.extend_from_slice(&[u16::to_be_bytes(from), u16::to_be_bytes(to)].concat());
        data.extend_from_slice(&[0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        data.resize(data.len() + payload, 0);
        data
    }

    fn each(data: &[Vec<u8>], mut look: impl FnMut(&Segment<'_>, usize)) {
        let mut decoder = Decoder::default();
        for data in data {
            let wire_len = data.len() as u32;
            let packet = Packet { number: 1, time_ns: 0, interface: 0, link: LinkType::RAW, wire_len, data };
            look(&decoder.decode(&packet).expect("a segment"), data.len());
        }
    }

    fn fit(data: &[Vec<u8>], room: u64) -> (Fit, u64, Vec<u16>) {
        let mut sizes = Sizes::default();
        each(data, |segment, bytes| sizes.see(segment, bytes));
        let fit = sizes.fit(room);
        let (mut taken, mut ports) = (0, Vec::new());
        each(data, |segment, bytes| {
            if fit.keeps(segment) {
                taken += bytes.min(fit.cut) as u64 + EACH_BYTES;
                ports.push(segment.source.port.max(segment.destination.port));
            }
        });
        ports.sort_unstable();
        ports.dedup();
        (fit, taken, ports)
    }

    #[test]
    fn less_of_each_packet_is_kept_before_any_is_left_out() {
        let data: Vec<Vec<u8>> = (0..1_000)
            .map(|n| packet(5_000 + n % 10, n % 2 == 1, if n % 2 == 1 { 14_000 } else { 20 }))
            .collect();
        assert_eq!(fit(&data, 10 << 20).0.cut, usize::MAX);
        let (cut, taken, ports) = fit(&data, 1 << 20);
        assert!((1_900..2_100).contains(&cut.cut), "{cut:?}");
        assert!((900 << 10..=1 << 20).contains(&taken), "{taken} bytes");
        assert_eq!((cut.left_out, ports.len()), (0, 10));
    }

    #[test]
    fn then_connections_are_left_out_and_alike_at_both_ends() {
        let data: Vec<Vec<u8>> = (0..10_000)
            .map(|n| packet(5_000 + n % 100, n % 3 == 1, if n % 3 == 1 { 9_000 } else { 20 }))
            .collect();
        let (more, taken, ports) = fit(&data, 1 << 20);
        assert_eq!(more.cut, LEAST_BYTES as usize);
        assert!(taken <= 1 << 20 && taken > 900 << 10, "{taken} bytes");
        assert_eq!((more.left_out, more.connections), (100 - ports.len(), 100));
        let (_, _, fewer) = fit(&data, 500 << 10);
        assert!(
            fewer.len() < ports.len() && fewer.iter().all(|port| ports.contains(port)),
            "{fewer:?} of {ports:?}"
        );
        // One that does not fit alone is kept, and its end is left out by whoever writes it.
        let (one, _, ports) = fit(&data, 100);
        assert_eq!((one.left_out, ports.len()), (99, 1));
    }

    #[test]
    fn nothing_fits_anywhere() {
        let (fit, taken, _) = fit(&[], 0);
        assert_eq!((fit.left_out, fit.cut, taken), (0, usize::MAX, 0));
    }
}
