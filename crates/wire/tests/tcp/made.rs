//! Hand-made segments, and a parser that records its input.

use spangap_model::Side;
use spangap_wire::app::{Context, Parser, Sink};
use spangap_wire::exchange::{Mark, Protocol};
use spangap_wire::segment::{Endpoint, Flags, Options, Segment};
use spangap_wire::tcp::connection::{Connection, Shared};
use spangap_wire::tcp::{Chunk, Hole, Kind, Step};
use std::ops::Range;

pub const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub const SERVER: [u8; 4] = [10, 0, 0, 2];
pub const MS: i64 = 1_000_000;

/// A segment without payload from the client's port 40000 to the server's port 80, or back.
pub fn segment(from: Side, packet: u64, time_ns: i64) -> Segment<'static> {
    let ends = [Endpoint::v4(CLIENT, 40_000), Endpoint::v4(SERVER, 80)];
    Segment {
        packet,
        time_ns,
        source: ends[from.index()],
        destination: ends[from.other().index()],
        network: 0,
        seq: 0,
        ack: 0,
        flags: Flags(Flags::ACK),
        window: 1000,
        // Each packet has its own identification.
        ip_id: packet as u16,
        options: Options::default(),
        payload_len: 0,
        payload: &[],
    }
}

/// One input of a parser.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Bytes(Side, u64, Vec<u8>, Mark),
    Hole(Side, u64, u64, bool, Mark),
    Fin(Side),
    Finish(bool),
}

/// Records its input; considers any side that sends `GET` the client.
#[derive(Debug, Default)]
pub struct Recorder {
    pub told: Vec<Told>,
    client: Option<Side>,
}

impl Parser for Recorder {
    fn bytes(&mut self, _: Context, chunk: Chunk<'_>, _: &mut Sink) {
        if chunk.bytes.starts_with(b"GET") {
            self.client = Some(chunk.from);
        }
        self.told.push(Told::Bytes(chunk.from, chunk.offset, chunk.bytes.to_vec(), chunk.at));
    }
    fn hole(&mut self, _: Context, hole: Hole, _: &mut Sink) {
        self.told.push(Told::Hole(hole.from, hole.offset, hole.len, hole.cut, hole.at));
    }
    fn fin(&mut self, _: Context, from: Side, _: &mut Sink) {
        self.told.push(Told::Fin(from));
    }
    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink) {
        self.told.push(Told::Finish(closed));
        TOLD.with_borrow_mut(|told| told.push((context.connection, std::mem::take(&mut self.told))));
        let _ = sink;
    }
    fn protocol(&self) -> Protocol {
        Protocol::Turns
    }
    fn client(&self) -> Option<Side> {
        self.client
    }
    fn open(&self) -> usize {
        0
    }
    fn memory_bytes(&self) -> usize {
        0
    }
}

thread_local! {
    /// Inputs of this thread's parsers, by connection, stored when they finish.
    static TOLD: std::cell::RefCell<Vec<(u32, Vec<Told>)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Takes the inputs of finished parsers.
pub fn take_told() -> Vec<(u32, Vec<Told>)> {
    TOLD.with_borrow_mut(std::mem::take)
}

/// A step, without its segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub kind: Kind,
    pub from: Side,
    pub bytes: Range<u64>,
    pub newly_acked: Range<u64>,
    pub in_flight_before: u64,
    pub earlier: Option<(u64, u64, i64)>,
    pub window_before: Option<u64>,
}

impl Seen {
    fn of(step: &Step<'_>) -> Seen {
        Seen {
            kind: step.kind,
            from: step.from,
            bytes: step.bytes.clone(),
            newly_acked: step.newly_acked.clone(),
            in_flight_before: step.in_flight_before,
            earlier: step.earlier.map(|sent| (sent.start, sent.end, sent.time_ns)),
            window_before: step.window_before,
        }
    }
}

/// One connection whose segments are made in sequence.
pub struct Line {
    pub connection: Option<Connection<Recorder>>,
    pub shared: Shared,
    pub time_ns: i64,
    pub packet: u64,
    /// Whether the first segment is known to come from the client.
    pub sides_known: bool,
}

impl Line {
    /// A connection without any segment.
    pub fn new() -> Line {
        take_told();
        Line {
            connection: None,
            shared: Shared::default(),
            time_ns: 1_000 * MS,
            packet: 0,
            sides_known: true,
        }
    }

    /// After a handshake: client from 1000, server from 5000, both with window scale 2 and MSS 1460.
    pub fn open() -> Line {
        let mut line = Line::new();
        let options = Options { mss: Some(1460), window_scale: Some(2), ..Options::default() };
        let syn = |segment: &mut Segment<'_>| (segment.flags, segment.options) = (Flags(Flags::SYN), options);
        line.send(Side::Client, 1000, 0, b"", syn);
        let syn_ack = |segment: &mut Segment<'_>| {
            (segment.flags, segment.options) = (Flags(Flags::SYN | Flags::ACK), options);
        };
        line.send(Side::Server, 5000, 1001, b"", syn_ack);
        line.send(Side::Client, 1001, 5001, b"", |_| ());
        line
    }

    /// Sends one more segment, 1 ms after the last.
    pub fn send(
        &mut self,
        from: Side,
        seq: u32,
        ack: u32,
        payload: &[u8],
        change: impl FnOnce(&mut Segment<'_>),
    ) -> Seen {
        self.time_ns += MS;
        self.packet += 1;
        let mut made = Segment { payload, ..segment(from, self.packet, self.time_ns) };
        (made.seq, made.ack, made.payload_len) = (seq, ack, payload.len() as u32);
        change(&mut made);
        self.take(&made)
    }

    /// Processes an unmodified segment.
    pub fn take(&mut self, made: &Segment<'_>) -> Seen {
        let from = if made.source.port == 80 { Side::Server } else { Side::Client };
        let known = self.sides_known;
        let connection = self.connection.get_or_insert_with(|| Connection::new(1, made, from, known));
        Seen::of(&connection.segment(made, &mut self.shared))
    }

    /// Ends the connection; returns the parser's input.
    pub fn told(mut self) -> Vec<Told> {
        if let Some(connection) = &mut self.connection {
            connection.finish(&mut self.shared);
        }
        assert_eq!(self.shared.ledger.ahead_bytes, 0, "what was buffered is free again");
        assert_eq!(self.shared.runs, 0, "runs are accounted for");
        take_told().pop().map(|(_, told)| told).unwrap_or_default()
    }
}

/// Runs of bytes as `(offset, bytes)`.
type Runs = Vec<(u64, Vec<u8>)>;
/// Holes as `(offset, len)`.
type Holes = Vec<(u64, u64)>;

/// Bytes of one side, joined, and its holes.
pub fn stream(told: &[Told], side: Side) -> (Runs, Holes) {
    let (mut bytes, mut holes) = (Runs::new(), Holes::new());
    let mut next = None;
    for told in told {
        let (offset, len) = match told {
            Told::Bytes(from, offset, new, at) if *from == side => {
                assert!(at.ready_ns >= at.seen_ns && !new.is_empty());
                match bytes.last_mut().filter(|(start, old)| start + old.len() as u64 == *offset) {
                    Some((_, old)) => old.extend(new),
                    None => bytes.push((*offset, new.clone())),
                }
                (*offset, new.len() as u64)
            }
            Told::Hole(from, offset, len, _, _) if *from == side => {
                match holes.last_mut().filter(|(start, old)| start + *old == *offset) {
                    Some((_, old)) => *old += len,
                    None => holes.push((*offset, *len)),
                }
                (*offset, *len)
            }
            _ => continue,
        };
        assert!(len > 0);
        assert!(next.is_none_or(|next| next == offset), "nothing twice, and nothing silently left out");
        next = Some(offset + len);
    }
    (bytes, holes)
}
