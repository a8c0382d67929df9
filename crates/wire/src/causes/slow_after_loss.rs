//! The cost of a loss after its repair: the sender's congestion window is smaller, and a message takes more round
//! trips.
//!
//! TCP does not reveal its congestion window, but its flights do. Required evidence, between the sender and the
//! loss: bytes sent twice (see `retransmission`), then a flight of full segments that ends below the largest one
//! before the loss, with room in the receiver's window, and continues with the next byte as soon as an
//! acknowledgement returns. An application with no more to send ends its flight with a short segment, or
//! continues at its own time. Once a flight is as large as before, or after a pause (slow start after idle, RFC
//! 5681, 4.1), the loss no longer delays anything.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::tcp::Step;
use spangap_model::Cause;
use spangap_model::evidence::Certainty;

/// A sender that paused this long starts afresh: the minimum retransmission timeout.
const IDLE_NS: u64 = 190_000_000;
/// Bytes that leave later after the acknowledgement than this fraction of the wait were not waiting for it.
const RELEASE: u64 = 8;
/// Shorter waits are those of segments on their way through the sender.
const MIN_WAIT_NS: u64 = 200_000;

/// A sender after a loss.
#[derive(Clone, Copy, Debug)]
struct Reduced {
    cause: Cause,
    /// The last retransmitted segment.
    resent: (i64, u64),
    /// Maximum bytes in flight before it.
    before: u64,
    /// The last data segment: time, packet number, end, bytes in flight including it, and whether it was full.
    last: Option<(i64, u64, u64, u64, bool)>,
    /// The last acknowledgement that made room.
    room_ns: i64,
}

/// State of a side as a sender.
#[derive(Debug, Default)]
struct Sender {
    /// Maximum bytes in flight since its start or last pause.
    peak: u64,
    /// Time of its last data.
    last_ns: i64,
    reduced: Option<Box<Reduced>>,
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    senders: [Sender; 2],
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        if !found.is_empty() {
            self.lost(found);
        }
        if step.bytes.is_empty() {
            let peer = &mut self.senders[step.from.other().index()];
            if let Some(reduced) = &mut peer.reduced
                && !step.newly_acked.is_empty()
            {
                reduced.room_ns = step.segment.time_ns;
            }
            return;
        }
        let own = &mut self.senders[step.from.index()];
        let flight = step.in_flight_before + (step.bytes.end - step.bytes.start);
        if own.reduced.is_some() {
            own.sent(step, view, flight, found);
        } else if step.in_flight_before == 0 && nanos(own.last_ns, step.segment.time_ns) >= IDLE_NS {
            own.peak = 0;
        }
        own.peak = own.peak.max(flight);
        own.last_ns = step.segment.time_ns;
    }
}

impl Memory {
    /// Picks the losses among this segment's episodes that were seen at the sender.
    #[cold]
    fn lost(&mut self, found: &[Episode]) {
        let is_loss = |episode: &&Episode| {
            matches!(episode.cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit)
                && episode.certainty == Certainty::Shown
                && episode.copies.are_both()
        };
        for loss in found.iter().filter(is_loss) {
            let sender = &mut self.senders[loss.sender.index()];
            let again = loss.evidence.iter().filter(|proof| proof.time_ns <= loss.to_ns).last();
            let resent = again.map_or((loss.to_ns, 0), |proof| (proof.time_ns, proof.packet));
            let before = sender.reduced.as_ref().map_or(sender.peak, |reduced| reduced.before);
            let last = sender.reduced.as_ref().and_then(|reduced| reduced.last);
            let reduced = Reduced { cause: loss.cause, resent, before, last, room_ns: i64::MIN };
            sender.reduced = Some(Box::new(reduced));
        }
    }
}

impl Sender {
    /// A sender that had a loss sends data.
    #[cold]
    fn sent(&mut self, step: &Step<'_>, view: View<'_>, flight: u64, found: &mut Vec<Episode>) {
        let Some(reduced) = &mut self.reduced else { return };
        let segment = step.segment;
        let now = (segment.time_ns, segment.packet);
        let paused = step.in_flight_before == 0 && nanos(self.last_ns, now.0) >= IDLE_NS;
        if paused || flight >= reduced.before {
            self.reduced = None;
            self.peak = 0;
            return;
        }
        let len = step.bytes.end - step.bytes.start;
        let full = view.full_bytes(step.from, segment.options.timestamps.is_some());
        let is_full = full.is_some_and(|full| len.is_multiple_of(full));
        let last = reduced.last.replace((now.0, now.1, step.bytes.end, flight, is_full));
        let (Some(full), Some((last_ns, packet, end, held_at, true))) = (full, last) else { return };
        let wait_ns = nanos(last_ns, now.0);
        let way_ns = view.reach_ns(step.from).unwrap_or(0);
        let late_ns = nanos(reduced.room_ns, now.0).saturating_sub(way_ns);
        let released = reduced.room_ns > last_ns && late_ns <= wait_ns / RELEASE;
        let has_room = view.of(step.from.other()).window.is_some_and(|window| window >= held_at + full);
        let is_held = end == step.bytes.start && held_at + full <= reduced.before && has_room;
        if wait_ns < MIN_WAIT_NS || !released || !is_held {
            return;
        }
        let evidence = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
        found.push(Episode {
            cause: reduced.cause,
            certainty: Certainty::Shown,
            side: None,
            sender: step.from,
            from_ns: last_ns,
            to_ns: now.0,
            start: step.bytes.start,
            end: step.bytes.end,
            stream_id: None,
            copies: Copies::Earlier,
            evidence: PacketProofs::of(&[
                evidence(reduced.resent, What::text("bytes sent again: the congestion window shrinks")),
                evidence(
                    (last_ns, packet),
                    What::with(
                        "{} bytes in flight, and no more; before the loss there were {}",
                        held_at,
                        reduced.before,
                    ),
                ),
                evidence(
                    now,
                    What::with("{} bytes leave {us} later, with an acknowledgement", len, wait_ns / 1000),
                ),
            ]),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene};
    use super::*;
    use crate::tcp::Kind;

    const MILLI: i64 = 1000;
    const FULL: u64 = 1460;

    /// At the server's end, 10 ms round trip to the client: a flight of eight segments, the first of which is
    /// lost and retransmitted.
    fn lossy() -> Scene {
        let mut scene = Scene::connected(10 * MILLI, 20);
        let lost = scene.data(SERVER, FULL);
        let rest = scene.data(SERVER, 7 * FULL);
        scene.at(10 * MILLI).ack_to(CLIENT, lost.start, &[(rest.start, rest.end)]);
        scene.at(10 * MILLI + 10).bytes(Kind::Resent, SERVER, lost);
        scene.at(20 * MILLI + 20).ack(CLIENT);
        assert_eq!(scene.shown(), [Cause::FastRetransmit]);
        scene
    }

    fn held(scene: &Scene) -> Vec<(i64, i64)> {
        scene.found[1..]
            .iter()
            .map(|episode| (episode.from_ns / 1_000_000, episode.to_ns / 1_000_000))
            .collect()
    }

    #[test]
    fn a_message_after_a_loss_takes_more_round_trips() {
        let mut scene = lossy();
        scene.at(30 * MILLI).data(SERVER, 4 * FULL);
        scene.at(40 * MILLI).ack(CLIENT);
        scene.at(40 * MILLI + 30).data(SERVER, 2 * FULL);
        assert_eq!(held(&scene), [(30, 40)]);
        assert_eq!(scene.found[1].cause, Cause::FastRetransmit);
        // As many bytes in flight as before end the state.
        scene.at(50 * MILLI).ack(CLIENT);
        scene.at(50 * MILLI + 30).data(SERVER, 9 * FULL);
        scene.at(60 * MILLI).ack(CLIENT);
        scene.at(60 * MILLI + 30).data(SERVER, FULL);
        assert_eq!(held(&scene), [(30, 40)]);
    }

    #[test]
    fn an_application_that_sends_late_is_not_delayed() {
        // It ends with a short segment; it continues at its own time; the receiver's window has no room.
        let mut scene = lossy();
        scene.at(30 * MILLI).data(SERVER, 4 * FULL + 5);
        scene.at(40 * MILLI).ack(CLIENT);
        scene.at(40 * MILLI + 30).data(SERVER, FULL);
        assert_eq!(held(&scene), []);
        let mut scene = lossy();
        scene.at(30 * MILLI).data(SERVER, 4 * FULL);
        scene.at(40 * MILLI).ack(CLIENT);
        scene.at(45 * MILLI).data(SERVER, FULL);
        assert_eq!(held(&scene), []);
        let mut scene = lossy();
        scene.at(25 * MILLI).window(CLIENT, 4 * FULL + 100);
        scene.at(30 * MILLI).data(SERVER, 4 * FULL);
        scene.at(40 * MILLI).ack(CLIENT);
        scene.at(40 * MILLI + 30).data(SERVER, FULL);
        assert_eq!(held(&scene), []);
    }

    #[test]
    fn a_pause_or_a_start_without_loss_is_not_blamed_on_loss() {
        let mut scene = lossy();
        scene.at(400 * MILLI).data(SERVER, 4 * FULL);
        scene.at(410 * MILLI).ack(CLIENT);
        scene.at(410 * MILLI + 30).data(SERVER, FULL);
        assert_eq!(held(&scene), []);
        let mut scene = Scene::connected(10 * MILLI, 20);
        for round in 0..3 {
            scene.at(10 * round * MILLI + 30).data(SERVER, 4 * FULL);
            scene.at(10 * (round + 1) * MILLI).ack(CLIENT);
        }
        assert_eq!(scene.found, []);
    }
}
