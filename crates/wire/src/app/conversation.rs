//! Detects the protocol of a connection from its first bytes; from then on, one parser handles it.
//!
//! A small number of bytes is buffered until the protocol is certain, and replayed to the parser with their
//! original marks. A connection that was joined after its start, or whose first bytes are missing, is examined
//! for longer; if nothing is recognised, it is treated as turns. Turns are still examined for a while, since many
//! protocols begin with a few turns of their own and continue with TLS or HTTP (proxies, databases, mail).

use super::detect::look;
use super::http1::Http1;
use super::http2::Http2;
use super::proxy_header::{self, ProxyHeader};
use super::tls::Tls;
use super::turns::Turns;
use super::{Context, Look, Parser, Sink, Spoken};
use crate::exchange::{Exchange, Mark, Protocol};
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// Maximum bytes of one side buffered before the protocol is certain.
const MAX_HELD_BYTES: usize = 4096;

/// Maximum pieces and holes buffered before the protocol is certain.
const MAX_HELD: usize = 32;

/// Number of pieces of turns that are still examined for the start of another protocol.
const LOOKS: u8 = 32;

/// Maximum nesting of conversations (HTTP over TLS through a proxy is three); deeper ones are turns.
const MAX_DEPTH: u8 = 4;

/// One connection, of any protocol.
#[derive(Debug, Default)]
pub struct Conversation {
    state: State,
    /// Number of enclosing conversations.
    depth: u8,
    /// Number of exchanges of the enclosing conversation; numbering continues after them.
    number: u32,
    /// Pieces of turns still to be examined.
    looks: u8,
    /// Whether the first bytes seen may not be the beginning.
    joined: bool,
    /// Whether the snap length cut off bytes that would have shown the protocol.
    is_cut: bool,
    /// Whether the content shows that the sides are swapped.
    exchanged: bool,
}

#[derive(Debug)]
enum State {
    Undecided(Box<HeldBytes>),
    Http1(Box<Http1>),
    Http2(Box<Http2>),
    Tls(Box<Tls>),
    Turns(Box<Turns>),
}

impl Default for State {
    fn default() -> State {
        State::Undecided(Box::default())
    }
}

/// Bytes seen before the protocol was certain.
#[derive(Debug, Default)]
struct HeldBytes {
    events: Vec<Event>,
    /// Bytes by side.
    bytes: [Vec<u8>; 2],
    /// Index into `bytes` after the last hole, by side.
    since: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Bytes { from: Side, offset: u64, len: usize, at: Mark },
    Hole(Hole),
    Fin(Side),
}

impl HeldBytes {
    fn last(&self, from: Side) -> &[u8] {
        let side = from.index();
        &self.bytes[side][self.since[side]..]
    }

    /// Forgets the bytes of one side; returns how many there were.
    fn forget(&mut self, from: Side) -> usize {
        let of_side = |event: &Event| matches!(event, Event::Bytes { from: other, .. } if *other == from);
        self.events.retain(|event| !of_side(event));
        std::mem::take(&mut self.bytes[from.index()]).len()
    }
}

macro_rules! each {
    ($state:expr, $parser:ident => $do:expr, $undecided:expr) => {
        match $state {
            State::Http1($parser) => $do,
            State::Http2($parser) => $do,
            State::Tls($parser) => $do,
            State::Turns($parser) => $do,
            State::Undecided(_) => $undecided,
        }
    };
}

impl Conversation {
    /// A conversation inside another protocol, with `depth` enclosing conversations and `number` earlier
    /// exchanges.
    pub fn within(depth: u8, number: u32) -> Conversation {
        Conversation { depth, number, ..Conversation::default() }
    }

    /// Turns, regardless of the bytes.
    pub fn turns(protocol: Protocol, number: u32) -> Conversation {
        let state = State::Turns(Box::new(Turns::of(protocol, number)));
        Conversation { state, ..Conversation::default() }
    }

    /// HTTP/2 from its preface on, which begins with the answer to an earlier request.
    pub fn upgraded(request: Exchange) -> Conversation {
        let state = State::Http2(Box::new(Http2::upgraded(request)));
        Conversation { state, ..Conversation::default() }
    }

    fn parser(&self, spoken: Spoken, number: u32) -> State {
        if self.depth >= MAX_DEPTH {
            return State::Turns(Box::new(Turns::of(Protocol::Turns, number)));
        }
        match spoken {
            Spoken::Http1 => State::Http1(Box::new(Http1::within(self.depth + 1, number))),
            Spoken::Http2 => State::Http2(Box::default()),
            Spoken::Tls => State::Tls(Box::new(Tls::within(self.depth + 1, number))),
            Spoken::Unknown => {
                let mut turns = Turns::of(Protocol::Turns, number);
                turns.are_cut = self.is_cut;
                State::Turns(Box::new(turns))
            }
        }
    }

    /// Examines `bytes` of one side: everything buffered since the last hole, and the new chunk. `full`: no more
    /// can be buffered.
    fn look(&mut self, from: Side, bytes: &[u8], full: bool) -> Option<Spoken> {
        match look(from, bytes, self.joined) {
            Look::Is(spoken) => Some(spoken),
            Look::OtherWay => {
                self.exchanged = true;
                match look(from.other(), bytes, self.joined) {
                    Look::Is(spoken) => Some(spoken),
                    _ => Some(Spoken::Unknown),
                }
            }
            Look::More if !full => None,
            // The server speaks first: its client will show the protocol.
            Look::Unknown if !full && (self.joined || from == Side::Server) => None,
            Look::More | Look::Unknown => Some(Spoken::Unknown),
        }
    }

    /// The true sender of bytes that the tap attributes to `from`.
    #[inline]
    fn side(&self, from: Side) -> Side {
        if self.exchanged { from.other() } else { from }
    }

    fn decide(&mut self, spoken: Spoken, context: Context, sink: &mut Sink) {
        self.looks = LOOKS;
        let next = self.parser(spoken, self.number);
        let State::Undecided(held) = std::mem::replace(&mut self.state, next) else { return };
        let mut at = [0; 2];
        for event in held.events {
            match event {
                Event::Bytes { from, offset, len, at: mark } => {
                    let side = from.index();
                    let bytes = &held.bytes[side][at[side]..at[side] + len];
                    at[side] += len;
                    let chunk = Chunk { from: self.side(from), offset, bytes, at: mark };
                    each!(&mut self.state, parser => parser.bytes(context, chunk, sink), ());
                }
                Event::Hole(hole) => {
                    let hole = Hole { from: self.side(hole.from), ..hole };
                    each!(&mut self.state, parser => parser.hole(context, hole, sink), ());
                }
                Event::Fin(from) => {
                    let from = self.side(from);
                    each!(&mut self.state, parser => parser.fin(context, from, sink), ());
                }
            }
        }
    }

    /// Skips the header of a proxy at the beginning of a connection. Returns the part of a client's chunk after it,
    /// and whether more bytes have to be held to find its end.
    fn after_proxy_header<'a>(&mut self, mut chunk: Chunk<'a>) -> (Chunk<'a>, bool) {
        let State::Undecided(held) = &mut self.state else { return (chunk, false) };
        let before = held.last(chunk.from);
        let too_long = before.len() + chunk.bytes.len() > MAX_HELD_BYTES;
        let header = match before {
            [] => proxy_header::look(chunk.bytes),
            _ => proxy_header::look(&[before, chunk.bytes].concat()),
        };
        if let ProxyHeader::Len(len) = header {
            let used = len - held.forget(chunk.from);
            (chunk.bytes, chunk.offset) = (&chunk.bytes[used..], chunk.offset + used as u64);
        }
        (chunk, header == ProxyHeader::More && !too_long)
    }

    fn undecided(&mut self, context: Context, mut chunk: Chunk<'_>, sink: &mut Sink) {
        self.joined |= !context.from_start;
        if chunk.from == Side::Client && !self.joined {
            let (rest, is_header) = self.after_proxy_header(chunk);
            if is_header {
                return self.hold(chunk);
            }
            if rest.bytes.is_empty() {
                return;
            }
            chunk = rest;
        }
        let State::Undecided(held) = &mut self.state else { return };
        let side = chunk.from.index();
        let full =
            held.events.len() >= MAX_HELD || held.bytes[side].len() + chunk.bytes.len() > MAX_HELD_BYTES;
        let first = held.last(chunk.from).is_empty();
        let spoken = if first {
            self.look(chunk.from, chunk.bytes, full)
        } else {
            let room = MAX_HELD_BYTES.saturating_sub(held.bytes[side].len());
            let bytes = [held.last(chunk.from), &chunk.bytes[..chunk.bytes.len().min(room)]].concat();
            self.look(chunk.from, &bytes, full)
        };
        if let Some(spoken) = spoken {
            self.decide(spoken, context, sink);
            let chunk = Chunk { from: self.side(chunk.from), ..chunk };
            return each!(&mut self.state, parser => parser.bytes(context, chunk, sink), ());
        }
        self.hold(chunk);
    }

    fn hold(&mut self, Chunk { from, offset, bytes, at }: Chunk<'_>) {
        let State::Undecided(held) = &mut self.state else { return };
        held.bytes[from.index()].extend_from_slice(bytes);
        held.events.push(Event::Bytes { from, offset, len: bytes.len(), at });
    }

    /// Checks whether turns continue as another protocol from this chunk on.
    fn look_again(&mut self, context: Context, chunk: &Chunk<'_>, sink: &mut Sink) {
        self.looks -= 1;
        let State::Turns(turns) = &mut self.state else { return };
        if self.depth >= MAX_DEPTH || (!self.joined && (chunk.from == Side::Server || turns.waiting())) {
            return;
        }
        let Look::Is(spoken) = look(chunk.from, chunk.bytes, self.joined) else { return };
        // The end of a message whose beginning was not seen is not a turn of its own.
        if turns.waiting() {
            turns.abandon(sink);
        }
        turns.finish(context, false, sink);
        let number = turns.number();
        self.state = self.parser(spoken, number);
    }
}

impl Parser for Conversation {
    #[inline]
    fn bytes(&mut self, context: Context, mut chunk: Chunk<'_>, sink: &mut Sink) {
        chunk.from = self.side(chunk.from);
        match &mut self.state {
            State::Http2(parser) => parser.bytes(context, chunk, sink),
            State::Http1(parser) => parser.bytes(context, chunk, sink),
            State::Tls(parser) => parser.bytes(context, chunk, sink),
            State::Turns(parser) if self.looks == 0 => parser.bytes(context, chunk, sink),
            State::Turns(_) => {
                self.look_again(context, &chunk, sink);
                each!(&mut self.state, parser => parser.bytes(context, chunk, sink), ());
            }
            State::Undecided(_) => self.undecided(context, chunk, sink),
        }
    }

    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        if let State::Undecided(held) = &mut self.state {
            self.joined = true;
            self.is_cut |= hole.cut;
            if held.events.len() < MAX_HELD {
                let side = hole.from.index();
                held.since[side] = held.bytes[side].len();
                held.events.push(Event::Hole(hole));
                return;
            }
            self.decide(Spoken::Unknown, context, sink);
        }
        let hole = Hole { from: self.side(hole.from), ..hole };
        each!(&mut self.state, parser => parser.hole(context, hole, sink), ());
    }

    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink) {
        if let State::Undecided(held) = &mut self.state {
            // At most one per side, so the limit is exceeded by no more than that.
            held.events.push(Event::Fin(from));
            return;
        }
        let from = self.side(from);
        each!(&mut self.state, parser => parser.fin(context, from, sink), ());
    }

    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink) {
        if matches!(self.state, State::Undecided(_)) {
            self.decide(Spoken::Unknown, context, sink);
        }
        each!(&mut self.state, parser => parser.finish(context, closed, sink), ());
    }

    fn protocol(&self) -> Protocol {
        each!(&self.state, parser => parser.protocol(), Protocol::Turns)
    }

    fn max_streams(&self) -> Option<u32> {
        each!(&self.state, parser => parser.max_streams(), None)
    }

    fn client(&self) -> Option<Side> {
        let inside = each!(&self.state, parser => parser.client(), None);
        if self.exchanged { Some(self.side(inside.unwrap_or(Side::Client))) } else { inside }
    }

    fn open(&self) -> usize {
        each!(&self.state, parser => parser.open(), 0)
    }

    fn memory_bytes(&self) -> usize {
        let held = match &self.state {
            State::Undecided(held) => {
                held.bytes[0].capacity()
                    + held.bytes[1].capacity()
                    + held.events.capacity() * std::mem::size_of::<Event>()
                    + std::mem::size_of::<HeldBytes>()
            }
            _ => 0,
        };
        std::mem::size_of::<Conversation>() + held + each!(&self.state, parser => parser.memory_bytes(), 0)
    }
}
