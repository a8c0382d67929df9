//! Any other protocol: bytes one way, then bytes back.
//!
//! A turn is a run of bytes from the client, and the following run of bytes from the server. It shows when a
//! request began and was complete, when the first byte of the response arrived, and when the last one did before
//! the client spoke again. It does not show:
//! - whether a run is one message or several, nor what it requests: there is no method and no status;
//! - whether a response is complete: it is assumed to be when the client speaks again, so unsolicited bytes from
//!   a server make the last turn longer;
//! - several requests in flight at once. If the bytes reveal it, because a request was sent before the response
//!   to the previous one began, both turns are marked; if pipelined requests look like turns, nothing reveals it.
//!
//! Bytes from the server before the client has said anything are a greeting, not a call.

use super::{Context, Parser, Sink};
use crate::exchange::{Ended, Exchange, Mark, Part, Protocol};
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// One connection of turns.
#[derive(Debug, Default)]
pub struct Turns {
    protocol: Protocol,
    /// Exchanges so far, including those of an earlier protocol on the connection.
    number: u32,
    /// The turn in progress.
    current: Option<Exchange>,
    /// The previous turn: kept until its successor is answered, since missing bytes of its response become
    /// certain only then.
    previous: Option<Exchange>,
    /// The next turn may have begun before its first observed byte.
    doubtful: bool,
    begun: bool,
    /// Size of the shortest request that was answered.
    shortest: Option<u64>,
    /// The snap length cut off what would have shown the protocol: turns may be anything.
    pub are_cut: bool,
}

/// Bytes of one side, present or missing.
struct Run {
    connection: u32,
    from: Side,
    offset: u64,
    len: u64,
    at: Mark,
    missing: bool,
}

impl Turns {
    /// Turns reported as `protocol`, numbered from `number` + 1.
    pub fn of(protocol: Protocol, number: u32) -> Turns {
        Turns { protocol, number, ..Turns::default() }
    }

    /// Marks the turn in progress as possibly several turns.
    pub fn doubt(&mut self) {
        if let Some(current) = &mut self.current {
            current.doubts.turns_overlap = true;
        }
    }

    /// Marks the response of the turn in progress as possibly preceded by bytes that are not part of it.
    pub fn tickets_may_come(&mut self) {
        if let Some(current) = &mut self.current {
            current.doubts.tickets = true;
        }
    }

    /// The next turn may have begun before its first observed byte, or may not be a turn.
    pub fn doubt_next(&mut self) {
        self.doubtful = true;
    }

    /// Whether a request waits for its response.
    pub fn waiting(&self) -> bool {
        self.current.as_ref().is_some_and(|turn| turn.response.is_none())
    }

    /// Exchanges so far.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether unanswered bytes are a request that waits for a response, judged by the connection itself: bytes
    /// shorter than any answered request may be an acknowledgement or a closing message of the protocol.
    fn asks(&self, turn: &Exchange) -> bool {
        self.shortest.is_none_or(|shortest| turn.request.body_bytes >= shortest)
    }

    /// Discards the turn in progress: its bytes turned out to be something else.
    pub fn abandon(&mut self, sink: &mut Sink) {
        self.hand_out_previous(sink);
        if let Some(turn) = self.current.take() {
            let response = turn.response.unwrap_or_default();
            sink.counts.bytes_skipped += turn.request.body_bytes + response.body_bytes;
            self.number = self.number.saturating_sub(1);
        }
    }

    fn hand_out_previous(&mut self, sink: &mut Sink) {
        sink.exchanges.extend(self.previous.take());
    }

    fn run(&mut self, context: Context, run: &Run, sink: &mut Sink) {
        if !self.begun {
            self.begun = true;
            self.doubtful |= !context.from_start;
        }
        if run.missing {
            for turn in [&mut self.previous, &mut self.current].into_iter().flatten() {
                turn.doubts.hole = true;
            }
        }
        match run.from {
            Side::Client => self.request(run, sink),
            Side::Server => self.response(run, sink),
        }
    }

    #[inline]
    fn request(&mut self, run: &Run, sink: &mut Sink) {
        if let Some(turn) = &mut self.current {
            let Some(response) = &turn.response else {
                return extend(&mut turn.request, run);
            };
            // Sent before the response began, and read only after it: both were in flight.
            let overlap = run.at.seen_ns < response.first.seen_ns;
            turn.doubts.turns_overlap |= overlap;
            self.hand_out_previous(sink);
            self.previous = self.current.take();
            self.begin(run);
            if overlap {
                self.doubt();
            }
        } else {
            self.begin(run);
        }
    }

    fn begin(&mut self, run: &Run) {
        self.number = self.number.saturating_add(1);
        let mut turn = Exchange {
            connection: run.connection,
            stream_id: self.number,
            protocol: self.protocol,
            request: part(run),
            in_flight: 1,
            ..Exchange::default()
        };
        turn.doubts.hole = run.missing || self.doubtful;
        turn.doubts.cut = self.are_cut;
        // Bytes after missing ones of a request may be the rest of it.
        self.doubtful = false;
        self.current = Some(turn);
    }

    #[inline]
    fn response(&mut self, run: &Run, sink: &mut Sink) {
        let Some(turn) = &mut self.current else { return };
        match &mut turn.response {
            Some(response) => extend(response, run),
            None => {
                let bytes = turn.request.body_bytes;
                self.shortest = Some(self.shortest.map_or(bytes, |shortest| shortest.min(bytes)));
                turn.response = Some(part(run));
                self.hand_out_previous(sink);
            }
        }
    }
}

fn part(run: &Run) -> Part {
    Part {
        first: run.at,
        last: run.at,
        start: run.offset,
        end: run.offset + run.len,
        body_bytes: run.len,
        messages: 0,
    }
}

fn extend(part: &mut Part, run: &Run) {
    part.last = run.at;
    part.end = run.offset + run.len;
    part.body_bytes += run.len;
}

impl Parser for Turns {
    fn bytes(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) {
        let Chunk { from, offset, bytes, at } = chunk;
        let run =
            Run { connection: context.connection, from, offset, len: bytes.len() as u64, at, missing: false };
        self.run(context, &run, sink);
    }

    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        let Hole { from, offset, len, at, cut } = hole;
        let run = Run { connection: context.connection, from, offset, len, at, missing: !cut };
        self.run(context, &run, sink);
        // A whole request may have been lost with its response, and more of it may follow.
        self.doubtful |= !cut && from == Side::Client && self.current.is_none();
    }

    fn fin(&mut self, _: Context, _: Side, _: &mut Sink) {}

    fn finish(&mut self, _: Context, closed: bool, sink: &mut Sink) {
        self.hand_out_previous(sink);
        if let Some(mut turn) = self.current.take() {
            if turn.response.is_none() {
                turn.ended = if closed { Ended::ConnectionClosed } else { Ended::CaptureEnded };
                turn.doubts.end_unknown = turn.doubts.hole || !self.asks(&turn);
            }
            sink.exchanges.push(turn);
        }
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn open(&self) -> usize {
        // An answered turn may continue until the client speaks again.
        usize::from(self.current.is_some())
    }

    fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Turns>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{CONTEXT, at, chunk, hole};
    use proptest::prelude::*;

    fn talk(events: &[(Side, usize)]) -> Vec<Exchange> {
        let (mut turns, mut sink, mut offsets) = (Turns::default(), Sink::default(), [1000u64, 5000]);
        for (time, (from, len)) in events.iter().enumerate() {
            let offset = &mut offsets[from.index()];
            turns.bytes(CONTEXT, chunk(*from, *offset, &vec![0; *len], time as i64), &mut sink);
            *offset += *len as u64;
        }
        turns.finish(CONTEXT, true, &mut sink);
        sink.exchanges
    }

    use Side::{Client as C, Server as S};

    #[test]
    fn bytes_both_ways_are_a_turn_and_a_greeting_is_not() {
        let turns = talk(&[(S, 9), (C, 10), (C, 5), (S, 7), (S, 8), (C, 1), (S, 2), (C, 3)]);
        assert_eq!(turns.len(), 3);
        let first = &turns[0];
        assert_eq!((first.stream_id, first.request.start, first.request.end), (1, 1000, 1015));
        assert_eq!((first.request.first, first.request.last), (at(1), at(2)));
        let response = first.response.unwrap();
        assert_eq!((response.start, response.end, response.body_bytes), (5009, 5024, 15));
        assert_eq!((response.first, response.last), (at(3), at(4)));
        assert_eq!((turns[1].ended, turns[2].ended), (Ended::Complete, Ended::ConnectionClosed));
        assert_eq!(turns[2].response, None);
        assert!(turns.iter().all(|turn| turn.doubts == Default::default()));
    }

    #[test]
    fn a_request_sent_before_the_last_response_began_marks_both() {
        let (mut turns, mut sink) = (Turns::default(), Sink::default());
        turns.bytes(CONTEXT, chunk(C, 0, b"a", 1), &mut sink);
        turns.bytes(CONTEXT, chunk(S, 0, b"A", 5), &mut sink);
        turns.bytes(CONTEXT, chunk(C, 1, b"b", 4), &mut sink);
        turns.bytes(CONTEXT, chunk(S, 1, b"B", 6), &mut sink);
        turns.finish(CONTEXT, true, &mut sink);
        assert_eq!(sink.exchanges.iter().filter(|turn| turn.doubts.turns_overlap).count(), 2);
    }

    #[test]
    fn missing_bytes_mark_the_turns_they_may_belong_to() {
        // The missing end of the first response becomes certain only when the second request has been seen.
        let (mut turns, mut sink) = (Turns::default(), Sink::default());
        turns.bytes(CONTEXT, chunk(C, 0, b"a", 1), &mut sink);
        turns.bytes(CONTEXT, chunk(S, 0, b"A", 2), &mut sink);
        turns.bytes(CONTEXT, chunk(C, 1, b"b", 3), &mut sink);
        turns.hole(CONTEXT, hole(S, 1, 10, 4, false), &mut sink);
        turns.bytes(CONTEXT, chunk(S, 11, b"B", 4), &mut sink);
        turns.bytes(CONTEXT, chunk(C, 2, b"c", 5), &mut sink);
        turns.hole(CONTEXT, hole(S, 12, 10, 6, true), &mut sink);
        turns.finish(CONTEXT, false, &mut sink);
        let holes: Vec<_> = sink.exchanges.iter().map(|turn| turn.doubts.hole).collect();
        assert_eq!(holes, [true, true, false]);
        assert_eq!(sink.exchanges[2].response.unwrap().body_bytes, 10, "cut bytes were on the wire");
    }

    #[test]
    fn the_first_turn_after_joining_is_doubtful() {
        let (mut turns, mut sink) = (Turns::default(), Sink::default());
        let context = Context { from_start: false, ..CONTEXT };
        for offset in 0..2 {
            turns.bytes(context, chunk(C, offset, b"a", 1), &mut sink);
            turns.bytes(context, chunk(S, offset, b"A", 2), &mut sink);
        }
        turns.finish(context, true, &mut sink);
        assert_eq!(sink.exchanges.iter().map(|turn| turn.doubts.hole).collect::<Vec<_>>(), [true, false]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_turns(runs in prop::collection::vec((1usize..50, 1usize..50), 1..20), cut in 1usize..10) {
            let pieces = |from, len: usize| (0..len).step_by(cut).map(move |at| (from, cut.min(len - at)));
            let whole: Vec<_> = runs.iter().flat_map(|(c, s)| [(C, *c), (S, *s)]).collect();
            let cut: Vec<_> = runs.iter().flat_map(|(c, s)| pieces(C, *c).chain(pieces(S, *s))).collect();
            let shape = |turns: Vec<Exchange>| -> Vec<_> {
                turns.iter().map(|t| (t.stream_id, t.request.start, t.request.end, t.response.map(|r| (r.start, r.end, r.body_bytes)))).collect()
            };
            let all = shape(talk(&whole));
            prop_assert_eq!(all.len(), runs.len());
            prop_assert_eq!(all, shape(talk(&cut)));
        }
    }
}
