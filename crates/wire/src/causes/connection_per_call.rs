//! A connection opened for a single call: its SYN, and TLS if any, are part of the call's time.
//!
//! The first call of every connection pays for opening it. It is a pattern of the client only if the connection
//! then ends without a second call. The totals per pair of hosts show how many connections are like this.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::{Ended, Exchange, Mark};
use crate::segment::Flags;
use crate::tcp::Step;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// A connection that stays open longer than this after its call was waiting for another call.
const CLOSED_SOON_NS: u64 = 1_000_000_000;
/// A connection that was open for this long before the call, and for more than ten times its handshake, was
/// opened in advance.
const IN_ADVANCE_NS: u64 = 50_000_000;

/// The only call.
#[derive(Clone, Copy, Debug)]
struct Only {
    first: Mark,
    last_ns: i64,
    start: u64,
    end: u64,
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    only: Option<Only>,
    exchanges: u32,
    /// First FIN or RST.
    closing: Option<(i64, u64)>,
    said: bool,
    /// Other calls were in flight when the connection closed.
    others: bool,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        if step.segment.flags.0 & (Flags::FIN | Flags::RST) != 0 && self.closing.is_none() {
            self.closing = Some((step.segment.time_ns, step.segment.packet));
            // The single call may itself be the one in flight when the connection closes.
            self.others = view.under_way > usize::from(self.exchanges == 0);
            self.conclude(view, found);
        }
    }

    #[inline]
    fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        self.exchanges = self.exchanges.saturating_add(1);
        if self.exchanges > 1 {
            self.only = None;
            return;
        }
        // A client that gives up closes the connection for that reason.
        if matches!(exchange.ended, Ended::CaptureEnded) || exchange.ending.is_some() {
            return;
        }
        let request = &exchange.request;
        self.only = Some(Only {
            first: request.first,
            last_ns: exchange.response.map_or(request.last.seen_ns, |response| response.last.seen_ns),
            start: request.start,
            end: request.end,
        });
        self.conclude(view, found);
    }

    fn finish(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
        self.conclude(view, found);
    }
}

impl Memory {
    fn conclude(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
        let (Some(only), Some(closing)) = (self.only, self.closing) else { return };
        let handshake = view.handshake;
        let (Some(syn), Some(ack)) = (handshake.syn, handshake.ack) else { return };
        // Further bytes of the client after the request would be another request (its FIN counts as one).
        let more = view.of(Side::Client).next > only.end + 1
            && view.of(Side::Client).next - only.end > CONTROL_BYTES;
        if self.said || more || self.others {
            return;
        }
        self.said = true;
        let opening_ns = nanos(syn.0, ack.0);
        let in_advance = nanos(ack.0, only.first.seen_ns) > IN_ADVANCE_NS.max(10 * opening_ns);
        let stayed = nanos(only.last_ns, closing.0) > CLOSED_SOON_NS;
        if in_advance && stayed {
            return;
        }
        let certainty = match in_advance || stayed {
            true => Certainty::Possible(Missing::OpenedForCall),
            false => Certainty::Shown,
        };
        let evidence = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
        let (from_ns, to_ns) = (syn.0, only.first.seen_ns);
        let ready_us = nanos(from_ns, to_ns) / 1000;
        let closes_us = nanos(only.last_ns, closing.0) / 1000;
        found.push(Episode {
            cause: Cause::ConnectionPerCall,
            certainty,
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns,
            to_ns,
            start: only.start,
            end: only.end,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                evidence(syn, What::text("the connection is opened")),
                evidence(
                    (to_ns, only.first.packet),
                    What::with("its only request begins {us} later", ready_us, 0),
                ),
                evidence(
                    closing,
                    What::with("the connection is closed {us} after the response", closes_us, 0),
                ),
            ]),
        });
    }
}

/// Maximum bytes that a client sends after its last request: SETTINGS acknowledgements, window updates, GOAWAY.
const CONTROL_BYTES: u64 = 128;

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene, part};
    use super::*;

    /// Calls of 5 ms each, the first after a delay; the connection closes some time after the last.
    fn scene(calls: u32, first_us: i64, closed_us: i64) -> Scene {
        let mut scene = Scene::at_client();
        let mut now = first_us;
        for _ in 0..calls {
            scene.at(now);
            let request = scene.data_and_ack(CLIENT, 100);
            let asked = scene.mark();
            scene.at(now + 5000);
            let response = scene.data_and_ack(SERVER, 200);
            let answered = scene.mark();
            scene.exchange(&Exchange {
                request: part(request, asked, asked),
                response: Some(part(response, answered, answered)),
                ..Exchange::default()
            });
            now += 10_000;
        }
        if closed_us > 0 {
            scene.at(now - 5000 + closed_us).fin(CLIENT);
        }
        scene.finish();
        scene
    }

    #[test]
    fn one_call_and_the_connection_is_gone() {
        let scene = scene(1, 10, 1000);
        assert_eq!(scene.shown(), [Cause::ConnectionPerCall]);
        // From the SYN, 1,020 us before the handshake completed.
        assert_eq!(scene.found[0].to_ns - scene.found[0].from_ns, 1_030_000);
    }

    #[test]
    fn a_second_call_in_flight_at_the_end_counts() {
        for (under_way, found) in [(0, 1), (1, 0)] {
            let mut scene = Scene::at_client();
            let request = scene.data_and_ack(CLIENT, 100);
            let asked = scene.mark();
            scene.exchange(&Exchange { request: part(request, asked, asked), ..Exchange::default() });
            scene.data_and_ack(CLIENT, 50);
            scene.under_way = under_way;
            scene.at(1000).fin(CLIENT);
            scene.finish();
            assert_eq!(scene.found.len(), found, "{:?}", scene.found);
        }
    }

    #[test]
    fn the_end_of_the_capture_is_not_the_end_of_the_connection() {
        assert_eq!(scene(1, 10, 0).found, []);
    }

    #[test]
    fn a_second_call_makes_it_an_ordinary_connection() {
        assert_eq!(scene(2, 10, 1000).found, []);
    }

    #[test]
    fn a_connection_opened_in_advance_or_kept_open_is_only_possibly_one_for_this_call() {
        assert_eq!(scene(1, 500_000, 1000).possible(), [Cause::ConnectionPerCall]);
        assert_eq!(scene(1, 10, 30_000_000).possible(), [Cause::ConnectionPerCall]);
        assert_eq!(scene(1, 500_000, 30_000_000).found, []);
    }

    #[test]
    fn a_connection_joined_later_may_have_had_calls_before() {
        let mut scene = Scene::joined();
        let request = scene.data(CLIENT, 100);
        let asked = scene.mark();
        scene.exchange(&Exchange { request: part(request, asked, asked), ..Exchange::default() });
        scene.at(1000).fin(SERVER);
        scene.finish();
        assert_eq!(scene.found, []);
    }
}
