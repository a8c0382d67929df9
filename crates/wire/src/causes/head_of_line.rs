//! Head-of-line blocking on one connection: bytes of one call had to wait for those of another.
//!
//! At the receiver, bytes that have arrived cannot be read while earlier bytes are missing; if the missing ones
//! belong to another call, that call's loss delays this one. At any tap, a response right behind a larger one of
//! another call may have been ready earlier; only the server knows.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::{Exchange, Mark, Part};
use crate::tcp::{Kind, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};
use std::collections::VecDeque;

/// Shorter waits are not worth reporting.
const MIN_WAIT_NS: u64 = 1_000_000;
/// A response of at least this size can delay those behind it: a socket buffer's worth.
const LARGE_BYTES: u64 = 65_536;
/// Maximum size of control frames between two responses.
const BETWEEN_BYTES: u64 = 256;
/// Fills remembered; a wait that ended earlier is not reported.
const FILLS: usize = 4;

/// Missing bytes that arrived.
#[derive(Clone, Copy, Debug)]
struct Fill {
    packet: u64,
    from: Side,
    start: u64,
    end: u64,
}

/// The last large response that completed.
#[derive(Clone, Copy, Debug)]
struct Large {
    first: Mark,
    last: Mark,
    start: u64,
    end: u64,
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    /// The next one takes the place of the oldest.
    fills: VecDeque<Fill>,
    large: Option<Box<Large>>,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, _view: View<'_>, _found: &mut Vec<Episode>) {
        if step.kind == Kind::Fill {
            let (packet, from) = (step.segment.packet, step.from);
            if self.fills.len() == FILLS {
                self.fills.pop_front();
            }
            self.fills.push_back(Fill { packet, from, start: step.bytes.start, end: step.bytes.end });
        }
    }

    #[inline]
    fn exchange(&mut self, exchange: &Exchange, _view: View<'_>, found: &mut Vec<Episode>) {
        self.waited(exchange, Side::Client, &exchange.request, found);
        if let Some(response) = &exchange.response {
            self.waited(exchange, Side::Server, response, found);
            if let Some(large) = &self.large {
                behind(exchange, response, large, found);
            }
            if response.end - response.start.min(response.end) >= LARGE_BYTES {
                let Part { first, last, start, end, .. } = *response;
                self.large = Some(Box::new(Large { first, last, start, end }));
            }
        }
    }
}

impl Memory {
    /// Checks whether the last byte of a part arrived before it could be read.
    #[inline]
    fn waited(&self, exchange: &Exchange, sender: Side, part: &Part, found: &mut Vec<Episode>) {
        let Mark { seen_ns, ready_ns, packet, ready_packet } = part.last;
        if nanos(seen_ns, ready_ns) < MIN_WAIT_NS || packet == ready_packet {
            return;
        }
        let filled = |fill: &&Fill| fill.packet == ready_packet && fill.from == sender;
        let Some(fill) = self.fills.iter().find(filled) else { return };
        if fill.start < part.end && part.start < fill.end {
            // Its own bytes were missing.
            return;
        }
        let waited_us = nanos(seen_ns, ready_ns) / 1000;
        let bytes = What::with(
            "{} bytes of another message, missing before it, come {us} later",
            fill.end - fill.start,
            waited_us,
        );
        found.push(Episode {
            cause: Cause::HeadOfLine,
            certainty: Certainty::Shown,
            side: None,
            sender,
            from_ns: seen_ns,
            to_ns: ready_ns,
            start: part.start,
            end: part.end,
            stream_id: Some(exchange.stream_id),
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                PacketProof {
                    packet,
                    time_ns: seen_ns,
                    what: What::text("its last byte arrives and cannot be read yet"),
                },
                PacketProof { packet: ready_packet, time_ns: ready_ns, what: bytes },
            ]),
        });
    }
}

/// Checks for a response right behind a large one of another call, to a request that arrived before that one had
/// left.
#[inline]
fn behind(exchange: &Exchange, response: &Part, large: &Large, found: &mut Vec<Episode>) {
    if response.start < large.end || response.start - large.end > BETWEEN_BYTES {
        return;
    }
    let from_ns = exchange.request.last.ready_ns.max(large.first.seen_ns);
    let wait_ns = nanos(from_ns, large.last.seen_ns);
    let after_ns = nanos(large.last.seen_ns, response.first.seen_ns);
    if wait_ns < MIN_WAIT_NS || after_ns > wait_ns / 8 {
        return;
    }
    let size = What::with(
        "{} bytes of another response end here, {us} after both could leave",
        large.end - large.start,
        wait_ns / 1000,
    );
    let next = What::with("this response follows {us} later", after_ns / 1000, 0);
    found.push(Episode {
        cause: Cause::HeadOfLine,
        certainty: Certainty::Possible(Missing::ResponseReady),
        side: Some(Side::Server),
        sender: Side::Server,
        from_ns,
        to_ns: large.last.seen_ns,
        start: response.start,
        end: response.end,
        stream_id: Some(exchange.stream_id),
        copies: Copies::One,
        evidence: PacketProofs::of(&[
            PacketProof { packet: large.last.packet, time_ns: large.last.seen_ns, what: size },
            PacketProof { packet: response.first.packet, time_ns: response.first.seen_ns, what: next },
        ]),
    });
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene, part};
    use super::*;

    /// Two responses at the client's tap; `lost_of_other` selects which one lacks the bytes that arrive 10 ms
    /// late.
    fn scene(lost_of_other: bool) -> Scene {
        let mut scene = Scene::at_client();
        scene.data(CLIENT, 100);
        let asked = scene.mark();
        let request = 0..0;
        scene.at(2000);
        let start = scene.next(SERVER);
        let hole = if lost_of_other { start..start + 500 } else { start + 500..start + 700 };
        if !lost_of_other {
            scene.bytes(Kind::New, SERVER, start..start + 500);
        }
        scene.bytes(Kind::Ahead, SERVER, hole.end..start + 1000);
        let mut last = scene.mark();
        scene.at(12_000).bytes(Kind::Fill, SERVER, hole);
        let ready = scene.mark();
        (last.ready_ns, last.ready_packet) = (ready.seen_ns, ready.packet);
        scene.found.clear();
        scene.exchange(&Exchange {
            stream_id: 3,
            request: part(request, asked, asked),
            response: Some(part(start + 500..start + 1000, last, last)),
            ..Exchange::default()
        });
        scene
    }

    #[test]
    fn a_response_waits_for_the_lost_bytes_of_another() {
        let scene = scene(true);
        assert_eq!(scene.shown(), [Cause::HeadOfLine]);
        assert_eq!(scene.found[0].to_ns - scene.found[0].from_ns, 10_000_000);
        assert_eq!(scene.found[0].stream_id, Some(3));
    }

    #[test]
    fn a_response_that_waits_for_its_own_bytes_does_not_wait_for_another() {
        assert_eq!(scene(false).found, []);
    }

    /// A response of a megabyte until 10 ms, and a small one right after it, requested at `asked_us`.
    fn behind_large(asked_us: i64, comes_us: i64) -> Vec<Cause> {
        let mut scene = Scene::at_client();
        scene.data(CLIENT, 100);
        let large_asked = scene.mark();
        scene.at(1000);
        let large = scene.next(SERVER)..scene.next(SERVER) + 1_000_000;
        scene.bytes(Kind::New, SERVER, large.start..large.start + 1000);
        let first = scene.mark();
        scene.at(asked_us).data(CLIENT, 100);
        let small_asked = scene.mark();
        scene.at(asked_us.max(10_000)).bytes(Kind::New, SERVER, large.start + 1000..large.end);
        let last = scene.mark();
        let of = |request, response| Exchange { request, response: Some(response), ..Exchange::default() };
        scene.exchange(&of(part(0..0, large_asked, large_asked), part(large.clone(), first, last)));
        scene.at(comes_us);
        let small = scene.data(SERVER, 100);
        let came = scene.mark();
        scene.exchange(&of(part(0..0, small_asked, small_asked), part(small, came, came)));
        assert_eq!(scene.shown(), []);
        scene.possible()
    }

    #[test]
    fn a_response_right_behind_a_large_one_may_have_waited() {
        assert_eq!(behind_large(3000, 10_100), [Cause::HeadOfLine]);
        assert_eq!(behind_large(3000, 13_000), [], "it came when it came");
        assert_eq!(behind_large(10_000, 10_100), [], "it was asked for when the large one had left");
    }
}
