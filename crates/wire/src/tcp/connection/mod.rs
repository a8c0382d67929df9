//! One connection: its state, its bytes in order handed to what reads them, its segments to the rules.

mod exchanges;

use super::accept_queue::{AcceptQueues, Listener, Place};
use super::classify::Tracker;
use super::closing::Closings;
use super::in_flight;
use super::multipath::MultipathConnections;
use super::news::{EpisodeNews, News, Seen};
use super::openings::{Opened, Openings};
use super::pools::{Member, Pools};
use super::reassembly::{Ledger, Output, Part, Reassembly};
use super::{Chunk, ConnectionFacts, Hole, Kind, SideState, Step};
use crate::app::{Context, Parser, Sink};
use crate::causes::{Causes, View};
use crate::episode::Episode;
use crate::exchange::Protocol;
use crate::names::LookUps;
use crate::segment::{Endpoint, Flags, Multipath, Segment};
use spangap_model::Side;
use std::collections::VecDeque;

/// What connections share.
#[derive(Default)]
pub struct Shared {
    /// Where parsers leave what they find.
    pub sink: Sink,
    /// Bytes kept, and bytes given up.
    pub ledger: Ledger,
    /// Runs of unacknowledged bytes in all connections.
    pub runs: usize,
    /// Connections that wait to be taken.
    pub queues: AcceptQueues,
    /// Clients with a few connections to a server.
    pub pools: Pools,
    /// Names looked up.
    pub names: LookUps,
    /// Connections that were opened before the capture.
    pub openings: Openings,
    /// Connections of Multipath TCP.
    pub multipath: MultipathConnections,
    /// Time and number of the capture's last packet, once it is over.
    pub end_of_capture: Option<(i64, u64)>,
    /// What is to be told of the connections.
    pub news: News,
    found: Vec<Episode>,
}

/// One connection.
#[derive(Debug)]
pub struct Connection<P> {
    id: u32,
    ends: [Endpoint; 2],
    network: u32,
    sides_known: bool,
    /// Whether the parser was told the sides the other way around, before they were known.
    told_swapped: bool,
    tracker: Tracker,
    reassembly: [Reassembly; 2],
    /// Made for the first byte, dropped when the connection is over.
    parser: Option<Box<P>>,
    causes: Causes,
    place: Place,
    member: Member,
    packets: u64,
    first_ns: i64,
    last_ns: i64,
    closed: bool,
    closings: Closings,
    /// Its bytes belong to the calls of another connection.
    is_further_path: bool,
    /// No more bytes are taken: closed, or the capture is over.
    over: bool,
    protocol: Protocol,
    max_streams: Option<u32>,
    peak_in_flight: u32,
    runs: usize,
    /// Its first time, those of its opening, and missing bytes, as last told.
    told: Told,
    /// Whether it had an exchange.
    has_exchanges: bool,
}

/// See [`Connection::told`].
type Told = (i64, [Option<i64>; 2], [bool; 2]);

impl<P: Parser + Default> Connection<P> {
    /// A connection of which this is the first segment seen. `client` is its sender's side.
    pub fn new(id: u32, segment: &Segment<'_>, from: Side, sides_known: bool) -> Connection<P> {
        let mut ends = [segment.source, segment.destination];
        if from == Side::Server {
            ends.swap(0, 1);
        }
        Connection {
            id,
            ends,
            network: segment.network,
            sides_known,
            told_swapped: false,
            tracker: Tracker::default(),
            reassembly: Default::default(),
            parser: None,
            causes: Causes::default(),
            place: Place::default(),
            member: Member::default(),
            packets: 0,
            first_ns: segment.time_ns,
            last_ns: segment.time_ns,
            closed: false,
            closings: Closings::default(),
            is_further_path: false,
            over: false,
            protocol: Protocol::default(),
            max_streams: None,
            peak_in_flight: 0,
            runs: 0,
            told: (segment.time_ns, [None; 2], [false; 2]),
            has_exchanges: false,
        }
    }

    /// This is its SYN: what its client waited for before it sent that.
    #[cold]
    pub fn opened(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
        let [client, server] = self.ends.map(|end| end.address);
        let start = (1 << 32) + u64::from(segment.seq) + 1;
        if let Some(episode) = shared.names.before(client, server, (segment.time_ns, segment.packet), start) {
            shared.news.episodes.push(EpisodeNews::Found(self.id, episode));
        }
    }

    /// It was opened before the capture, and this is known of that.
    #[cold]
    pub fn opened_before(&mut self, opened: &Opened) {
        for announced in opened.announced.iter().flatten() {
            let side = self.side_of(&announced.end);
            self.tracker.announced(side, announced);
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Client and server.
    pub fn ends(&self) -> [Endpoint; 2] {
        self.ends
    }

    /// Virtual network, see [`Segment::network`].
    pub fn network(&self) -> u32 {
        self.network
    }

    /// Time of the latest packet.
    pub fn last_ns(&self) -> i64 {
        self.last_ns
    }

    /// Whether it was closed: FINs of both sides, or RST.
    pub fn closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing but SYNs was seen.
    pub fn half_open(&self) -> bool {
        self.tracker.sides.iter().any(|side| side.next == 0)
    }

    /// Memory of its parser, roughly.
    pub fn parser_bytes(&self) -> usize {
        self.parser.as_ref().map_or(0, |parser| parser.memory_bytes())
    }

    fn under_way(&self) -> usize {
        self.parser.as_ref().map_or(0, |parser| parser.open())
    }

    #[inline]
    fn listener(&self) -> Listener {
        (self.ends[Side::Server.index()], self.network)
    }

    /// Which side sent a segment of this connection.
    #[inline]
    pub fn side_of(&self, source: &Endpoint) -> Side {
        if *source == self.ends[0] { Side::Client } else { Side::Server }
    }

    /// Whether a segment is of this connection, and not of a later one between the same ports.
    #[inline]
    pub fn admits(&self, segment: &Segment<'_>) -> bool {
        self.tracker.admits(segment, self.side_of(&segment.source))
    }

    /// What each side sent, by [`Side::index`].
    pub fn sides(&self) -> &[SideState; 2] {
        &self.tracker.sides
    }

    /// Takes the next segment; gives what it did.
    #[inline]
    pub fn segment<'a>(&mut self, segment: &'a Segment<'a>, shared: &mut Shared) -> Step<'a> {
        let from = self.side_of(&segment.source);
        self.packets += 1;
        self.first_ns = self.first_ns.min(segment.time_ns);
        self.last_ns = self.last_ns.max(segment.time_ns);
        let exchanges = shared.sink.exchanges.len();
        self.settle(segment.time_ns, shared);
        let limit =
            if shared.runs < in_flight::MAX_TOTAL_RUNS { in_flight::MAX_RUNS } else { in_flight::FEW_RUNS };
        let reassembly = &self.reassembly[from.index()];
        let step = self.tracker.step(segment, from, limit, |bytes| reassembly.unseen(bytes));
        if step.kind == Kind::Handshake {
            self.path(segment, shared);
        }
        let listener = self.listener();
        self.place.step(&step, listener, &mut self.tracker.handshake, &mut shared.queues);
        let closes = segment.flags.0 & (Flags::FIN | Flags::RST) != 0;
        let under_way = if closes { self.under_way() } else { 0 };
        let Tracker { sides, handshake, .. } = &self.tracker;
        let view = View { id: self.id, sides, handshake, under_way };
        self.causes.step(&step, view, &mut shared.found);
        let [client, server] = &self.tracker.sides;
        let runs = client.in_flight.len() + server.in_flight.len();
        shared.runs = (shared.runs + runs).saturating_sub(self.runs);
        self.runs = runs;
        if !self.over {
            self.read(&step, shared);
        }
        if step.kind == Kind::Reset && self.resets(segment, from) {
            self.closings.reset(segment, from);
            self.release(shared);
        }
        if shared.sink.exchanges.len() > exchanges {
            self.exchanges(exchanges, shared);
        }
        if !(shared.found.is_empty() && shared.sink.episodes.is_empty()) {
            self.keep_episodes(shared);
        }
        self.tell(shared);
        step
    }

    /// What others may ask of it.
    pub fn seen(&self) -> Seen {
        let (first_ns, [syn_ns, ack_ns], holes) = self.to_tell();
        let Connection { id, ends, network, last_ns, .. } = *self;
        Seen { id, ends, network, first_ns, last_ns, syn_ns, ack_ns, holes }
    }

    #[inline]
    fn to_tell(&self) -> Told {
        let Tracker { handshake, sides, .. } = &self.tracker;
        let at_ns = |mark: Option<(i64, u64)>| mark.map(|(at_ns, _)| at_ns);
        let holes = [sides[0].hole_bytes != 0, sides[1].hole_bytes != 0];
        (self.first_ns, [at_ns(handshake.syn), at_ns(handshake.ack)], holes)
    }

    /// Tells what changed. Of a connection that is being opened, each packet does.
    #[inline]
    pub fn tell(&mut self, shared: &mut Shared) {
        let now = self.to_tell();
        if now != self.told || matches!(now, (_, [Some(_), None], _)) {
            self.told = now;
            shared.news.changed.push(self.id);
        }
    }

    #[cold]
    fn path(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
        match segment.options.multipath {
            Multipath::Token(token) if segment.flags.has(Flags::ACK) => {
                shared.multipath.opened(token, self.id);
            }
            Multipath::Joins(token) if !segment.flags.has(Flags::ACK) && !self.is_further_path => {
                self.is_further_path = true;
                shared.sink.counts.further_paths += 1;
                shared.multipath.joins(token, segment.time_ns);
            }
            _ => {}
        }
    }

    /// Bytes whose absence is certain by now become holes.
    #[inline]
    fn settle(&mut self, now_ns: i64, shared: &mut Shared) {
        if !self.reassembly.iter().any(Reassembly::misses_acknowledged) {
            return;
        }
        for from in [Side::Client, Side::Server] {
            let context = self.context();
            let Connection { reassembly, parser, told_swapped, tracker, .. } = self;
            let this = &mut reassembly[from.index()];
            let Shared { sink, ledger, .. } = shared;
            let mut out = |output: Output<'_>| hand_over(parser, context, from, *told_swapped, sink, output);
            if this.settle(now_ns, ledger, &mut out) {
                tracker.skip_to(from, this.next());
                tracker.sides[from.index()].hole_bytes = this.hole_bytes();
            }
        }
    }

    /// Reads a segment's bytes and its acknowledgement.
    #[inline]
    fn read(&mut self, step: &Step<'_>, shared: &mut Shared) {
        let (segment, from, flags) = (step.segment, step.from, step.segment.flags);
        match step.kind {
            Kind::Duplicate => return,
            Kind::Reset => {
                if self.resets(segment, from) {
                    self.closings.reset(segment, from);
                    self.close((segment.time_ns, segment.packet), shared);
                }
                return;
            }
            Kind::Handshake => self.reassembly[from.index()].anchor(step.bytes.start),
            _ => {}
        }
        if flags.has(Flags::ACK) {
            let peer = &self.tracker.sides[from.other().index()];
            let reassembly = &mut self.reassembly[from.other().index()];
            if from == Side::Client && self.tracker.handshake.syn.is_some() && peer.data_segments == 0 {
                // The SYN/ACK is not in the capture; the acknowledgement says what it would have said.
                reassembly.anchor(peer.acked);
            }
            let again = step.kind == Kind::RepeatedAck;
            reassembly.acknowledged(peer.acked, again, segment.time_ns, segment.packet);
        }
        let fin = flags.has(Flags::FIN);
        if fin {
            self.closings.fin(segment, from);
        }
        if step.bytes.is_empty() && !fin {
            if step.kind != Kind::Handshake {
                self.reassembly[from.index()].hint(step.bytes.start);
            }
            return;
        }
        if step.kind == Kind::KeepAlive {
            return;
        }
        let captured = segment.payload.len().min(segment.payload_len as usize);
        let part = Part {
            offset: step.bytes.start,
            len: segment.payload_len,
            bytes: segment.payload.get(..captured).unwrap_or_default(),
            fin,
            time_ns: segment.time_ns,
            packet: segment.packet,
        };
        let context = self.context();
        let Connection { reassembly, parser, told_swapped, tracker, .. } = self;
        let this = &mut reassembly[from.index()];
        let Shared { sink, ledger, .. } = shared;
        let mut out = |output: Output<'_>| hand_over(parser, context, from, *told_swapped, sink, output);
        this.insert(part, ledger, &mut out);
        tracker.sides[from.index()].hole_bytes = this.hole_bytes();
        self.after_reading(shared);
        self.in_pool(step, shared);
        if self.reassembly.iter().all(Reassembly::ended) {
            self.close((segment.time_ns, segment.packet), shared);
        }
    }

    /// Asks the parser what there is to know.
    #[inline]
    fn after_reading(&mut self, shared: &mut Shared) {
        let Some(parser) = &self.parser else { return };
        self.peak_in_flight = self.peak_in_flight.max(u32::try_from(parser.open()).unwrap_or(u32::MAX));
        if !self.sides_known
            && let Some(client) = parser.client()
        {
            self.sides_known = true;
            if client == Side::Server {
                self.swap(shared);
            }
        }
    }

    /// Tells the pool of this connection when it has a call and when it has none. Only HTTP/1 has one call at a time.
    #[inline]
    fn in_pool(&mut self, step: &Step<'_>, shared: &mut Shared) {
        let Some(parser) = &self.parser else { return };
        let busy = parser.open() > 0;
        if busy == matches!(self.member, Member::Busy) || parser.protocol() != Protocol::Http1 {
            return;
        }
        let (key, at) = (self.pool(), (step.segment.time_ns, step.segment.packet));
        if busy {
            let waited = shared.pools.begins(key, &mut self.member, at, step.bytes.start);
            let found = waited.into_iter().map(|episode| EpisodeNews::Found(self.id, episode));
            shared.news.episodes.extend(found);
        } else {
            shared.pools.ends(key, &mut self.member, at);
        }
    }

    fn pool(&self) -> ([u8; 16], Endpoint, u32) {
        let [client, server] = self.ends;
        (client.address, server, self.network)
    }

    /// The sides were guessed wrong: from now on, and in earlier records, they are swapped. The rules have
    /// seen little until a parser finds out, and start over.
    #[cold]
    fn swap(&mut self, shared: &mut Shared) {
        self.keep_episodes(shared);
        self.place.leave(self.listener(), &mut shared.queues);
        let pool = self.pool();
        shared.pools.leaves(pool, &mut self.member);
        self.closings.swap();
        self.ends.swap(0, 1);
        self.tracker.swap();
        self.reassembly.swap(0, 1);
        self.told_swapped = true;
        self.causes = Causes::default();
        shared.news.episodes.push(EpisodeNews::TurnedAround(self.id));
        shared.news.changed.push(self.id);
    }

    /// Whether an RST ends the connection, and is not one of another connection or made up (RFC 5961, 3).
    fn resets(&self, segment: &Segment<'_>, from: Side) -> bool {
        let own = &self.tracker.sides[from.index()];
        let offset = super::classify::unwrap(own.next, segment.seq);
        let refused = self.tracker.handshake.syn.is_some() && self.tracker.handshake.syn_ack.is_none();
        let peer_window = self.tracker.sides[from.other().index()].window.unwrap_or(0).max(1 << 16);
        refused || (offset + 1 >= own.acked && offset <= own.next + peer_window)
    }

    fn close(&mut self, now: (i64, u64), shared: &mut Shared) {
        self.closed = true;
        self.end(now, shared);
    }

    /// The capture is over, or there is no more room for this connection.
    pub fn finish(&mut self, shared: &mut Shared) {
        let exchanges = shared.sink.exchanges.len();
        let last = self.tracker.sides.iter().filter_map(|side| side.last).max();
        self.end(last.unwrap_or((self.last_ns, 0)), shared);
        self.release(shared);
        self.exchanges(exchanges, shared);
        let view = View {
            id: self.id,
            sides: &self.tracker.sides,
            handshake: &self.tracker.handshake,
            under_way: 0,
        };
        self.causes.finish(view, &mut shared.found);
        self.keep_episodes(shared);
        shared.runs = shared.runs.saturating_sub(std::mem::take(&mut self.runs));
        self.tracker.sides.iter_mut().for_each(|side| side.in_flight = VecDeque::new());
    }

    /// No more bytes will come.
    fn end(&mut self, now: (i64, u64), shared: &mut Shared) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.place.leave(self.listener(), &mut shared.queues);
        let pool = self.pool();
        shared.pools.leaves(pool, &mut self.member);
        for from in [Side::Client, Side::Server] {
            let context = self.context();
            let Connection { reassembly, parser, told_swapped, tracker, .. } = self;
            let this = &mut reassembly[from.index()];
            let Shared { sink, ledger, .. } = shared;
            let mut out = |output: Output<'_>| hand_over(parser, context, from, *told_swapped, sink, output);
            this.finish(now, ledger, &mut out);
            tracker.sides[from.index()].hole_bytes = this.hole_bytes();
        }
        self.after_reading(shared);
        let context = self.context();
        if let Some(mut parser) = self.parser.take() {
            parser.finish(context, self.closed, &mut shared.sink);
            self.protocol = parser.protocol();
            self.max_streams = parser.max_streams();
        }
    }

    /// Takes the episodes found, of rules and of the parser.
    #[cold]
    fn keep_episodes(&mut self, shared: &mut Shared) {
        let of_parser = shared.sink.episodes.drain(..).map(|(_, mut episode)| {
            if self.told_swapped {
                turn_around(&mut episode);
            }
            episode
        });
        let all = shared.found.drain(..).chain(of_parser);
        shared.news.episodes.extend(all.map(|episode| EpisodeNews::Found(self.id, episode)));
    }

    fn context(&self) -> Context {
        let handshake = &self.tracker.handshake;
        Context { connection: self.id, from_start: handshake.syn.is_some() || handshake.syn_ack.is_some() }
    }

    /// Remarks about it as a whole, in sentences.
    pub fn notes(&self) -> Vec<String> {
        self.causes.notes()
    }

    /// What is known of it.
    pub fn facts(&self) -> ConnectionFacts {
        let [client, server] = &self.tracker.sides;
        let parser = self.parser.as_deref();
        ConnectionFacts {
            id: self.id,
            ends: self.ends,
            network: self.network,
            sides_known: self.sides_known,
            handshake: self.tracker.handshake,
            protocol: parser.map_or(self.protocol, Parser::protocol),
            packets: self.packets,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            closed: self.closed,
            bytes: [client.bytes, server.bytes],
            resent_bytes: [client.resent_bytes, server.resent_bytes],
            hole_bytes: [client.hole_bytes, server.hole_bytes],
            rtt_min_ns: [client.rtt_min_ns, server.rtt_min_ns],
            windows: [let_in(client, server), let_in(server, client)],
            max_streams: parser.map_or(self.max_streams, Parser::max_streams),
            peak_in_flight: self.peak_in_flight,
        }
    }
}

/// The largest window that a receiver is known to have had.
fn let_in(receiver: &SideState, sender: &SideState) -> Option<u64> {
    let in_flight = Some(sender.most_in_flight).filter(|bytes| *bytes > 0);
    receiver.largest_window.or(in_flight)
}

/// Exchanges the sides of an episode.
pub(crate) fn turn_around(episode: &mut Episode) {
    episode.sender = episode.sender.other();
    episode.side = episode.side.map(Side::other);
}

/// Hands what is in order to the parser.
#[inline]
fn hand_over<P: Parser + Default>(
    parser: &mut Option<Box<P>>,
    context: Context,
    from: Side,
    told_swapped: bool,
    sink: &mut Sink,
    output: Output<'_>,
) {
    let from = if told_swapped { from.other() } else { from };
    match output {
        Output::Bytes { offset, bytes, at } => {
            let parser = parser.get_or_insert_default();
            parser.bytes(context, Chunk { from, offset, bytes, at }, sink);
        }
        Output::Hole { offset, len, at, cut } => {
            let parser = parser.get_or_insert_default();
            parser.hole(context, Hole { from, offset, len, at, cut }, sink);
        }
        Output::Fin => {
            if let Some(parser) = parser {
                parser.fin(context, from, sink);
            }
        }
    }
}
