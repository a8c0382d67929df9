//! The receiver's TCP window: closed, or too small for the next segment, until its application reads.
//!
//! Required evidence: the receiver advertises no room for a segment although the sender has used all it had, then
//! advertises more, and the sender's next bytes, which did not fit before, leave at that moment. A window that
//! merely limits the bytes in flight to what the path holds is different: acknowledgements open it as fast as
//! they arrive.
//!
//! A receiver whose application reads a little at a time need not advertise a small window: it withholds its
//! acknowledgement until there is room. At the receiver's tap this shows as bytes that use up the window, and an
//! acknowledgement that leaves much later than receivers there are known to answer.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::segment::Flags;
use crate::tcp::{Kind, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Shorter stalls are not worth reporting.
const MIN_STALL_NS: u64 = 1_000_000;
/// Bytes that leave later after the update than this fraction of the stall were not waiting for it.
const RELEASE: u64 = 8;

/// The window left no room.
#[derive(Clone, Copy, Debug)]
struct Closed {
    time_ns: i64,
    packet: u64,
    /// Advertised bytes, at most 1 GiB.
    window: u32,
    /// For a window that was used up without being advertised as closed: how fast the receiver can answer,
    /// microseconds; otherwise zero.
    answers_us: u32,
    /// Offset of the last byte that the sender may send.
    limit: u64,
    /// The sender's probe into the closed window.
    probe: Option<(i64, u64)>,
    /// The update that opened it.
    opened: Option<(i64, u64, u64)>,
}

/// State of the rule for one connection, by the side that sends into the window. Boxed: hardly any is ever closed.
#[derive(Debug, Default)]
pub struct Memory {
    closed: [Option<Box<Closed>>; 2],
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let sender = step.from.other();
        let own = view.of(sender);
        // A window of zero is zero whatever its scale, and the update that opens it is more than zero; other
        // windows are unknown until the scale is known.
        let raw = u64::from(step.segment.window);
        let known = raw == 0 || self.closed[sender.index()].is_some();
        let window = view.of(step.from).window.or(known.then_some(raw));
        if let Some(window) = window
            && (window < u64::from(own.mss.max(1)) || self.closed[sender.index()].is_some())
        {
            self.advertised(step, view, sender, window);
        }
        if self.closed[step.from.index()].is_some() {
            self.sent(step, view, found);
        }
        let room = view.of(step.from.other()).window.map(|window| view.of(step.from).acked + window);
        if room.is_some_and(|limit| limit < step.bytes.end + u64::from(view.of(step.from).mss)) {
            self.used_up(step, view);
        }
    }
}

impl Memory {
    /// The peer of `sender` advertises a window of this size.
    #[cold]
    fn advertised(&mut self, step: &Step<'_>, view: View<'_>, sender: Side, window: u64) {
        let own = view.of(sender);
        let segment = step.segment;
        if step.kind == Kind::Handshake || segment.flags.has(Flags::RST) || own.next == 0 {
            return;
        }
        let slot = &mut self.closed[sender.index()];
        let limit = own.acked + window;
        // Without the handshake, only a closed window is certainly too small.
        let full = view.full_bytes(sender, segment.options.timestamps.is_some()).unwrap_or(1);
        let room = limit.saturating_sub(own.next);
        // The sender has used its window, and everything has arrived: the rest depends on the reader.
        let is_closed = window < full && room < full && (own.acked == own.next || window == 0);
        match slot {
            None if is_closed => {
                *slot = Some(Box::new(Closed {
                    time_ns: segment.time_ns,
                    packet: segment.packet,
                    window: window as u32,
                    answers_us: 0,
                    limit,
                    probe: None,
                    opened: None,
                }));
            }
            Some(closed) if closed.opened.is_none() && limit > closed.limit && !is_closed => {
                closed.opened = Some((segment.time_ns, segment.packet, window));
            }
            _ => {}
        }
    }

    /// Bytes arrived that leave no room for a full segment.
    #[cold]
    fn used_up(&mut self, step: &Step<'_>, view: View<'_>) {
        let (receiver, own) = (step.from.other(), view.of(step.from));
        let slot = &mut self.closed[step.from.index()];
        if slot.is_some() || step.bytes.is_empty() || step.kind != Kind::New {
            return;
        }
        let Some(full) = view.full_bytes(step.from, step.segment.options.timestamps.is_some()) else {
            return;
        };
        // A single segment may be acknowledged late; two are acknowledged immediately, if there is room.
        let unacknowledged = step.bytes.end.saturating_sub(own.acked);
        let is_here = view
            .reach_ns(receiver)
            .zip(view.reach_ns(step.from))
            .is_some_and(|(to_receiver, to_sender)| to_receiver <= to_sender);
        let Some(window) = view.of(receiver).window.filter(|_| is_here && unacknowledged >= 2 * full) else {
            return;
        };
        *slot = Some(Box::new(Closed {
            time_ns: step.segment.time_ns,
            packet: step.segment.packet,
            window: (own.acked + window).saturating_sub(step.bytes.end) as u32,
            answers_us: view.reach_ns(receiver).map_or(0, |ns| ns.div_ceil(1000) as u32),
            limit: own.acked + window,
            probe: None,
            opened: None,
        }));
    }

    /// The sender with the closed or just opened window sent something.
    #[cold]
    fn sent(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let segment = step.segment;
        let slot = &mut self.closed[step.from.index()];
        let Some(closed) = slot else { return };
        let now = (segment.time_ns, segment.packet);
        if matches!(step.kind, Kind::WindowProbe) {
            closed.probe.get_or_insert(now);
            return;
        }
        if step.bytes.is_empty() || !matches!(step.kind, Kind::New | Kind::Ahead) {
            return;
        }
        let closed = **closed;
        if step.bytes.end <= closed.limit {
            // It fitted after all; the window is as closed as before.
            return;
        }
        *slot = None;
        let Some((opened_ns, opened_packet, window)) = closed.opened else { return };
        let stall_ns = nanos(closed.time_ns, opened_ns);
        let is_usual = u64::from(closed.answers_us) * 1000 > stall_ns / RELEASE;
        if stall_ns < MIN_STALL_NS || is_usual {
            return;
        }
        let way_ns = view.reach_ns(step.from).unwrap_or(0);
        let after_ns = nanos(opened_ns, now.0);
        let prompt = after_ns.saturating_sub(way_ns) <= stall_ns / RELEASE;
        let certainty = match closed.probe {
            Some(_) => Certainty::Shown,
            None if prompt => Certainty::Shown,
            None if after_ns <= stall_ns => Certainty::Possible(Missing::SentLate),
            None => return,
        };
        let evidence = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
        let closing =
            What::with("the receiver's window has room for {} bytes only", u64::from(closed.window), 0);
        let opening = What::with("opened again to {} bytes after {us}", window, stall_ns / 1000);
        let len = step.bytes.end - step.bytes.start;
        let mut items = vec![evidence((closed.time_ns, closed.packet), closing)];
        items.extend(
            closed.probe.map(|probe| evidence(probe, What::text("the sender probes the closed window"))),
        );
        items.push(evidence((opened_ns, opened_packet), opening));
        items.push(evidence(now, What::with("{} bytes leave {us} after that", len, after_ns / 1000)));
        found.push(Episode {
            cause: Cause::ReceiveWindow,
            certainty,
            side: Some(step.from.other()),
            sender: step.from,
            from_ns: closed.time_ns,
            to_ns: if certainty == Certainty::Shown { now.0 } else { opened_ns },
            start: step.bytes.start,
            end: step.bytes.end,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&items),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, FIRST, SERVER, Scene};
    use super::*;

    /// The client sends until the server's window has this size; the server opens it at 50 ms.
    fn filled(scene: &mut Scene, window: u64) {
        scene.data(CLIENT, 1460 * 4);
        scene.at(1000).window(SERVER, window);
    }

    #[test]
    fn a_window_that_closes_and_opens_delays_the_sender() {
        for (window, mut scene) in [
            (0, Scene::at_client()),
            (700, Scene::at_client()),
            (0, Scene::at_server()),
            // A closed window is closed whatever its scale.
            (0, Scene::joined()),
        ] {
            filled(&mut scene, window);
            scene.at(50_000).window(SERVER, 30_000);
            scene.at(51_100).data(CLIENT, 1460);
            assert_eq!(scene.shown(), [Cause::ReceiveWindow], "{window}");
            assert_eq!(scene.found[0].side, Some(Side::Server));
            assert_eq!(scene.found[0].to_ns - scene.found[0].from_ns, 50_100_000);
        }
    }

    #[test]
    fn a_probe_shows_that_there_was_more_to_send() {
        let mut scene = Scene::at_client();
        filled(&mut scene, 0);
        scene.at(201_000).bytes(Kind::WindowProbe, CLIENT, FIRST..FIRST);
        scene.at(300_000).window(SERVER, 30_000);
        // Its application was slow, too.
        scene.at(390_000).data(CLIENT, 1460);
        assert_eq!(scene.shown(), [Cause::ReceiveWindow]);
        assert_eq!(scene.found[0].evidence.iter().count(), 4);
    }

    #[test]
    fn a_sender_without_data_was_not_delayed() {
        let mut scene = Scene::at_client();
        filled(&mut scene, 0);
        scene.at(50_000).window(SERVER, 30_000);
        scene.at(80_000).data(CLIENT, 1460);
        assert_eq!(scene.shown(), []);
        assert_eq!(scene.possible(), [Cause::ReceiveWindow]);
        let mut scene = Scene::at_client();
        filled(&mut scene, 0);
        scene.at(50_000).window(SERVER, 30_000);
        scene.at(180_000).data(CLIENT, 1460);
        assert_eq!(scene.found, []);
    }

    #[test]
    fn a_large_enough_window_delays_nobody() {
        // Room for the next bytes, although less than for a full segment.
        let mut scene = Scene::at_client();
        filled(&mut scene, 700);
        scene.at(50_000).data(CLIENT, 500);
        assert_eq!(scene.found, []);
        // A window that is small in the header, with an unknown scale.
        let mut scene = Scene::joined();
        scene.windows = [501; 2];
        filled(&mut scene, 501);
        scene.at(50_000).window(SERVER, 30_000);
        scene.at(50_010).data(CLIENT, 1460);
        assert_eq!(scene.found, []);
    }

    #[test]
    fn a_window_that_only_limits_the_flight_is_ordinary() {
        let mut scene = Scene::at_client();
        scene.windows = [14_600; 2];
        for round in 0..20 {
            scene.at(round * 10_000).data(CLIENT, 14_600);
            scene.at(round * 10_000 + 9_990).ack(SERVER);
        }
        assert_eq!(scene.found, []);
    }

    /// Full windows that the server acknowledges this late, as seen by this tap.
    fn windowfuls(mut scene: Scene, late_us: i64) -> Scene {
        scene.windows = [14_600; 2];
        scene.data(CLIENT, 100);
        scene.at(2_000).ack(SERVER);
        for round in 1..20 {
            scene.at(round * 10_000).data(CLIENT, 14_600);
            scene.at(round * 10_000 + late_us).ack(SERVER);
        }
        scene
    }

    #[test]
    fn a_slow_reader_withholds_its_acknowledgements() {
        let late = windowfuls(Scene::at_server(), 8_900);
        assert_eq!(late.shown().first(), Some(&Cause::ReceiveWindow), "{:?}", late.found);
        assert_eq!(late.found[0].side, Some(Side::Server));
        // Acknowledged immediately, or seen from the other end, where the path may have taken as long.
        for scene in [windowfuls(Scene::at_server(), 20), windowfuls(Scene::at_client(), 8_900)] {
            assert_eq!(scene.found, []);
        }
    }

    #[test]
    fn a_reset_carries_no_window() {
        let mut scene = Scene::at_client();
        scene.data(CLIENT, 1460);
        scene.windows = [0; 2];
        scene.at(1000).flagged(Kind::Reset, SERVER, FIRST..FIRST, FIRST, &[], Flags::RST);
        scene.at(50_000).window(SERVER, 30_000);
        scene.at(50_010).data(CLIENT, 1460);
        assert_eq!(scene.found, []);
    }
}
