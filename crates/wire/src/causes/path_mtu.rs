//! Segments larger than the path carries, when the sender is not told (its ICMP messages are filtered): the first
//! unacknowledged segment, of full size, is retransmitted repeatedly, while small ones pass.
//!
//! Two observations prove it. The sender reduces its segment size (net.ipv4.tcp_mtu_probing), and the first
//! smaller segment that begins with the same byte is acknowledged. Or the receiver selectively acknowledges a
//! small segment behind the large one, and the large one never arrives. Ordinary loss does neither: sooner or
//! later it lets a copy of the same size pass.

use super::{Rule, View};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::tcp::{Kind, Step};
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// Lost copies of one size that are required.
const LOST: u32 = 2;
/// The same if the large ones never arrive.
const LOST_FOR_GOOD: u32 = 3;
/// Smaller segments are no reason to suspect the path's limit: IPv4 carries 576 bytes everywhere (RFC 791), IPv6
/// 1,280.
const LEAST_BYTES: u64 = 500;

/// The first unacknowledged segment of a side, retransmitted.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    start: u64,
    bytes: u64,
    first: (i64, u64),
    last: (i64, u64),
    times: u32,
    /// A smaller segment with the same first byte.
    smaller: Option<((i64, u64), u64)>,
    /// A small segment behind it arrived.
    small_through: Option<(i64, u64)>,
    /// A segment behind it that may have been as large arrived.
    large_through: bool,
}

impl Stuck {
    /// A range of bytes was selectively acknowledged.
    fn behind(&mut self, (from, to): (u32, u32), at: (i64, u64)) {
        let bytes = u64::from(to.wrapping_sub(from));
        // Earlier ones are from another time.
        if from.wrapping_sub(self.start as u32) >= 1 << 31 {
            return;
        }
        if bytes < self.bytes * 9 / 10 {
            self.small_through.get_or_insert(at);
        } else {
            self.large_through = true;
        }
    }
}

/// A block of sequence numbers, and the time and packet of its acknowledgement.
type Sacked = ((u32, u32), (i64, u64));

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    /// Boxed, because hardly any connection has one.
    stuck: [Option<Box<Stuck>>; 2],
    /// The first block of the latest selective acknowledgement of a side's data, and its packet.
    sacked: [Option<Sacked>; 2],
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        if step.kind == Kind::Resent {
            self.again(step, view);
        }
        let peer = step.from.other();
        if step.segment.options.sack_count > 0 {
            let at = (step.segment.time_ns, step.segment.packet);
            self.sacked[peer.index()] = step.segment.options.sack.first().map(|block| (*block, at));
        }
        if self.stuck[peer.index()].is_some() {
            self.answered(peer, step, found);
        }
    }

    fn finish(&mut self, _view: View<'_>, found: &mut Vec<Episode>) {
        for side in Side::ALL {
            let Some(stuck) = self.stuck[side.index()].take() else { continue };
            if stuck.times >= LOST_FOR_GOOD
                && !stuck.large_through
                && let Some(small) = stuck.small_through
            {
                let what = What::text("a small segment behind it arrived");
                found.push(episode(&stuck, side, stuck.last, (small, what)));
            }
        }
    }
}

impl Memory {
    #[cold]
    fn again(&mut self, step: &Step<'_>, view: View<'_>) {
        let own = view.of(step.from);
        let (at, bytes) = ((step.segment.time_ns, step.segment.packet), step.bytes.end - step.bytes.start);
        if step.bytes.start != own.acked {
            return;
        }
        let sacked = self.sacked[step.from.index()];
        let place = &mut self.stuck[step.from.index()];
        match place.as_mut().filter(|stuck| stuck.start == step.bytes.start) {
            Some(stuck) if bytes == stuck.bytes => (stuck.times, stuck.last) = (stuck.times + 1, at),
            Some(stuck) if bytes < stuck.bytes => {
                if stuck.times >= LOST && stuck.smaller.is_none() {
                    stuck.smaller = Some((at, bytes));
                }
            }
            // A single segment of full size; the sender's own tap may see several as one.
            _ if bytes <= u64::from(own.mss) && bytes >= LEAST_BYTES.max(u64::from(own.mss) * 9 / 10) => {
                let first = step.earlier.map_or(at, |earlier| (earlier.time_ns, earlier.packet));
                let mut stuck = Stuck {
                    start: step.bytes.start,
                    bytes,
                    first,
                    last: at,
                    times: 1,
                    smaller: None,
                    small_through: None,
                    large_through: false,
                };
                sacked.into_iter().for_each(|(block, at)| stuck.behind(block, at));
                *place = Some(Box::new(stuck));
            }
            _ => *place = None,
        }
    }

    #[cold]
    fn answered(&mut self, side: Side, step: &Step<'_>, found: &mut Vec<Episode>) {
        let at = (step.segment.time_ns, step.segment.packet);
        let place = &mut self.stuck[side.index()];
        let Some(stuck) = place else { return };
        if step.newly_acked.contains(&stuck.start) {
            if let Some((again, bytes)) = stuck.smaller {
                let what = What::with("sent again with {} bytes, and acknowledged", bytes, 0);
                found.push(episode(stuck, side, at, (again, what)));
            }
            *place = None;
            return;
        }
        let options = &step.segment.options;
        for block in options.sack.iter().take(usize::from(options.sack_count)) {
            stuck.behind(*block, at);
        }
    }
}

fn episode(stuck: &Stuck, side: Side, to: (i64, u64), last: ((i64, u64), What)) -> Episode {
    let shown = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
    Episode {
        cause: Cause::PathMtu,
        certainty: Certainty::Shown,
        side: None,
        sender: side,
        from_ns: stuck.first.0,
        to_ns: to.0,
        start: stuck.start,
        end: stuck.start + stuck.bytes,
        stream_id: None,
        copies: Copies::One,
        evidence: PacketProofs::of(&[
            shown(stuck.first, What::with("{} bytes", stuck.bytes, 0)),
            shown(stuck.last, What::with("the same, sent again {} times", u64::from(stuck.times), 0)),
            shown(last.0, last.1),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene};
    use super::*;

    fn found(scene: &mut Scene) -> Vec<(i64, i64)> {
        scene.finish();
        let of_it = scene.found.iter().filter(|episode| episode.cause == Cause::PathMtu);
        of_it.map(|episode| (episode.from_ns / 1_000_000, episode.to_ns / 1_000_000)).collect()
    }

    /// A full segment, followed by a small one if `small`; the full one is retransmitted at these milliseconds.
    fn lost(small: bool, again_ms: &[i64]) -> (Scene, u64) {
        let mut scene = Scene::at_client();
        scene.at(1000);
        let large = scene.data(CLIENT, 1460);
        if small {
            let behind = scene.data(CLIENT, 40);
            scene.at(3000).ack_to(SERVER, large.start, &[(behind.start, behind.end)]);
        }
        for at_ms in again_ms {
            scene.at(at_ms * 1000).bytes(Kind::Resent, CLIENT, large.clone());
        }
        (scene, large.start)
    }

    #[test]
    fn a_segment_that_passes_when_smaller_was_too_large() {
        let (mut scene, start) = lost(false, &[201, 601]);
        scene.at(1_401_000).bytes(Kind::Resent, CLIENT, start..start + 1024);
        scene.at(1_403_000).ack_to(SERVER, start + 1024, &[]);
        assert_eq!(found(&mut scene), [(1, 1403)]);
    }

    #[test]
    fn a_segment_that_never_arrives_unlike_a_small_one_behind_it_is_too_large() {
        assert_eq!(found(&mut lost(true, &[201, 601, 1401]).0), [(1, 1401)]);
    }

    #[test]
    fn ordinary_loss_is_not_reported() {
        // It finally arrives; or nothing does; or another large one did.
        let (mut scene, start) = lost(true, &[201, 601, 1401]);
        scene.at(1_403_000).ack_to(SERVER, start + 1500, &[]);
        assert_eq!(found(&mut scene), []);
        assert_eq!(found(&mut lost(false, &[201, 601, 1401]).0), []);
        let (mut scene, start) = lost(true, &[201, 601, 1401]);
        scene.at(1_403_000).ack_to(SERVER, start, &[(start + 1460, start + 4380)]);
        assert_eq!(found(&mut scene), []);
        // Retransmitted in pieces of other sizes from the start.
        let (mut scene, start) = lost(false, &[201]);
        scene.at(601_000).bytes(Kind::Resent, CLIENT, start..start + 700);
        scene.at(603_000).ack_to(SERVER, start + 700, &[]);
        assert_eq!(found(&mut scene), []);
    }
}
