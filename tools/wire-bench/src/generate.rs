//! Generates both ends of synthetic gRPC traffic, packet by packet in order of time, with its truth.

use crate::frames::{Compressor, Pcap, Segment, client_preface, flags, server_preface};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

/// Parameters of the traffic.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Total number of calls.
    pub calls: u64,
    pub connections: usize,
    /// Calls in flight on each connection.
    pub in_flight: u32,
    /// Bytes of a request message.
    pub request_bytes: usize,
    /// Bytes of a response message.
    pub response_bytes: usize,
    /// Maximum payload of a packet.
    pub segment_bytes: usize,
    /// Clock of the server's capture minus clock of the client's, nanoseconds.
    pub offset_ns: i64,
    /// How much faster the server's clock runs, parts per million.
    pub skew_ppm: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// True figures of the traffic, summed over its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub calls: u64,
    /// Last request byte: from the client's tap to the server's.
    pub request_wire_ns: i64,
    /// Last response byte: from the server's tap to the client's.
    pub response_wire_ns: i64,
    /// Last request byte to first response byte, by the server's clock.
    pub server_ns: i64,
    /// First request byte to last response byte, by the client's clock.
    pub duration_ns: i64,
    /// Packets of both captures.
    pub packets: u64,
    /// Bytes of both captures.
    pub bytes: u64,
}

/// 2026-01-01T00:00:00Z.
const START_NS: i64 = 1_767_225_600_000_000_000;
/// Time between two packets of one message, as on a 10 Gbit/s link with 1,500 bytes.
const SERIAL_NS: i64 = 1_200;
/// One in this many messages gets a bare acknowledgement; the others are acknowledged by data.
const BARE_ACK_OF: u64 = 4;

enum Event {
    /// A call begins.
    Call { connection: usize },
    /// The server's answer is ready.
    Answer { connection: usize, stream: u32 },
    /// A packet reaches the other tap.
    Arrival { segment: Segment, ends: Option<(Part, u32)> },
    /// A packet leaves.
    Departure { segment: Segment, ends: Option<(Part, u32)> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Request,
    Response,
}

struct Scheduled {
    at_ns: i64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

#[derive(Default)]
struct Connection {
    next_stream: u32,
    seq: [u32; 2],
    /// Sequence number up to which the other end has received.
    received: [u32; 2],
    /// The latest acknowledgement, by its direction.
    acknowledged: [u32; 2],
    /// When the latest packet of that direction left, and arrived.
    left_ns: [i64; 2],
    arrived_ns: [i64; 2],
    requests: Compressor,
    responses: Compressor,
    begun: under_way::Streams,
}

/// Start of each call in flight: a list suffices for a few at a time.
mod under_way {
    #[derive(Default)]
    pub struct Streams(Vec<(u32, [i64; 2])>);

    impl Streams {
        pub fn put(&mut self, stream: u32, sent_ns: i64) {
            self.0.push((stream, [sent_ns, 0]));
        }
        pub fn arrived(&mut self, stream: u32, at_ns: i64) {
            if let Some(entry) = self.0.iter_mut().find(|entry| entry.0 == stream) {
                entry.1[1] = at_ns;
            }
        }
        pub fn take(&mut self, stream: u32) -> Option<[i64; 2]> {
            let at = self.0.iter().position(|entry| entry.0 == stream)?;
            Some(self.0.swap_remove(at).1)
        }
        pub fn get(&self, stream: u32) -> Option<[i64; 2]> {
            self.0.iter().find(|entry| entry.0 == stream).map(|entry| entry.1)
        }
    }
}

/// Writes both captures.
///
/// # Errors
/// Those of the files.
pub fn generate<W: Write>(traffic: &Traffic, client: W, server: W) -> io::Result<Truth> {
    let mut world = World {
        traffic,
        random: fastrand::Rng::with_seed(traffic.seed),
        files: [Pcap::create(client)?, Pcap::create(server)?],
        connections: (0..traffic.connections).map(|_| Connection::default()).collect(),
        events: BinaryHeap::new(),
        order: 0,
        started: 0,
        truth: Truth::default(),
    };
    world.run()?;
    let World { files, mut truth, .. } = world;
    for file in files {
        let (packets, bytes) = file.finish()?;
        truth.packets += packets;
        truth.bytes += bytes;
    }
    Ok(truth)
}

struct World<'a, W> {
    traffic: &'a Traffic,
    random: fastrand::Rng,
    files: [Pcap<W>; 2],
    connections: Vec<Connection>,
    events: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    started: u64,
    truth: Truth,
}

impl<W: Write> World<'_, W> {
    fn run(&mut self) -> io::Result<()> {
        for connection in 0..self.connections.len() {
            self.open(connection);
            for call in 0..self.traffic.in_flight {
                let at_ns = START_NS + 1_000_000 + (connection as i64 * 7 + call as i64) * 1_000;
                self.schedule(at_ns, Event::Call { connection });
            }
        }
        while let Some(Reverse(Scheduled { at_ns, event, .. })) = self.events.pop() {
            match event {
                Event::Call { connection } => self.call(connection, at_ns),
                Event::Answer { connection, stream } => self.answer(connection, stream, at_ns),
                Event::Departure { segment, ends } => self.depart(segment, ends, at_ns)?,
                Event::Arrival { segment, ends } => self.arrive(segment, ends, at_ns)?,
            }
        }
        Ok(())
    }

    fn schedule(&mut self, at_ns: i64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Scheduled { at_ns, order: self.order, event }));
    }

    /// The handshake and each side's first bytes; nobody waits for them.
    fn open(&mut self, connection: usize) {
        let (client, server) = (self.random.u32(..), self.random.u32(..));
        let state = &mut self.connections[connection];
        state.next_stream = 1;
        state.seq = [client.wrapping_add(1), server.wrapping_add(1)];
        state.received = state.seq;
        let at_ns = START_NS + connection as i64 * 1_000;
        let empty = |from_client, seq, ack, flags| Segment {
            connection,
            from_client,
            seq,
            ack,
            flags,
            payload: Vec::new(),
        };
        let syn = empty(true, client, 0, flags::SYN);
        let syn_ack = empty(false, server, client.wrapping_add(1), flags::SYN | flags::ACK);
        let ack = empty(true, client.wrapping_add(1), server.wrapping_add(1), flags::ACK);
        self.schedule(at_ns, Event::Departure { segment: syn, ends: None });
        self.schedule(at_ns + 60_000, Event::Departure { segment: syn_ack, ends: None });
        self.schedule(at_ns + 120_000, Event::Departure { segment: ack, ends: None });
        let mut first = Vec::new();
        client_preface(&mut first);
        self.send(connection, true, first, None, at_ns + 130_000);
        let mut first = Vec::new();
        server_preface(&mut first);
        self.send(connection, false, first, None, at_ns + 190_000);
    }

    fn call(&mut self, connection: usize, at_ns: i64) {
        if self.started == self.traffic.calls {
            return;
        }
        self.started += 1;
        let trace = traceparent(self.traffic.seed, self.started);
        let state = &mut self.connections[connection];
        let stream = state.next_stream;
        state.next_stream += 2;
        let mut bytes = Vec::with_capacity(256 + self.traffic.request_bytes);
        state.requests.request(stream, &trace, self.traffic.request_bytes, &mut bytes);
        let at_ns = at_ns.max(state.left_ns[0] + 1);
        state.begun.put(stream, at_ns);
        self.send(connection, true, bytes, Some((Part::Request, stream)), at_ns);
    }

    fn answer(&mut self, connection: usize, stream: u32, at_ns: i64) {
        let state = &mut self.connections[connection];
        let mut bytes = Vec::with_capacity(256 + self.traffic.response_bytes);
        state.responses.response(stream, self.traffic.response_bytes, &mut bytes);
        let at_ns = at_ns.max(state.left_ns[1] + 1);
        if let Some([_, arrived_ns]) = state.begun.get(stream) {
            self.truth.server_ns += self.by_server(at_ns) - self.by_server(arrived_ns);
        }
        self.send(connection, false, bytes, Some((Part::Response, stream)), at_ns);
    }

    fn send(
        &mut self,
        connection: usize,
        from_client: bool,
        bytes: Vec<u8>,
        ends: Option<(Part, u32)>,
        at_ns: i64,
    ) {
        let way = usize::from(!from_client);
        let pieces = bytes.len().div_ceil(self.traffic.segment_bytes).max(1);
        let mut at_ns = at_ns.max(self.connections[connection].left_ns[way] + 1);
        for (n, piece) in bytes.chunks(self.traffic.segment_bytes).enumerate() {
            let state = &mut self.connections[connection];
            let seq = state.seq[way];
            state.seq[way] = seq.wrapping_add(piece.len() as u32);
            state.left_ns[way] = at_ns;
            let flags = flags::ACK | if n + 1 == pieces { flags::PSH } else { 0 };
            let segment = Segment { connection, from_client, seq, ack: 0, flags, payload: piece.to_vec() };
            let ends = ends.filter(|_| n + 1 == pieces);
            self.schedule(at_ns, Event::Departure { segment, ends });
            at_ns += SERIAL_NS;
        }
    }

    fn depart(&mut self, mut segment: Segment, ends: Option<(Part, u32)>, at_ns: i64) -> io::Result<()> {
        let way = usize::from(!segment.from_client);
        if segment.flags & flags::SYN == 0 {
            let state = &mut self.connections[segment.connection];
            segment.ack = state.received[1 - way];
            let nothing_new = state.acknowledged[way] == segment.ack;
            state.acknowledged[way] = segment.ack;
            if segment.payload.is_empty() && nothing_new {
                return Ok(());
            }
        }
        self.write(way, at_ns, &segment)?;
        // 20 us, usually plus a little, and occasionally plus a lot.
        let mut delay_ns = 20_000 + self.random.i64(0..8_000);
        if self.random.u32(..1_000) == 0 {
            delay_ns += self.random.i64(0..3_000_000);
        }
        let state = &mut self.connections[segment.connection];
        let arrives_ns = (at_ns + delay_ns).max(state.arrived_ns[way] + 1);
        state.arrived_ns[way] = arrives_ns;
        match ends {
            Some((Part::Request, _)) => self.truth.request_wire_ns += arrives_ns - at_ns,
            Some((Part::Response, _)) => self.truth.response_wire_ns += arrives_ns - at_ns,
            None => {}
        }
        self.schedule(arrives_ns, Event::Arrival { segment, ends });
        Ok(())
    }

    fn arrive(&mut self, segment: Segment, ends: Option<(Part, u32)>, at_ns: i64) -> io::Result<()> {
        let (connection, way) = (segment.connection, usize::from(!segment.from_client));
        self.write(1 - way, at_ns, &segment)?;
        let state = &mut self.connections[connection];
        state.received[way] = segment.seq.wrapping_add(segment.payload.len() as u32);
        if segment.flags & flags::SYN != 0 {
            state.received[way] = segment.seq.wrapping_add(1);
        }
        let acknowledge = segment.payload.len() > 1_000 || self.random.u64(..BARE_ACK_OF) == 0;
        if !segment.payload.is_empty() && acknowledge {
            let (from_client, seq) = (!segment.from_client, state.seq[1 - way]);
            let at_ns = (at_ns + 1_000).max(state.left_ns[1 - way] + 1);
            // Earlier data has a smaller sequence number: this must not overtake it.
            state.left_ns[1 - way] = at_ns;
            let ack =
                Segment { connection, from_client, seq, ack: 0, flags: flags::ACK, payload: Vec::new() };
            self.schedule(at_ns, Event::Departure { segment: ack, ends: None });
        }
        match ends {
            Some((Part::Request, stream)) => {
                self.connections[connection].begun.arrived(stream, at_ns);
                let think_ns = 30_000 + self.random.i64(0..60_000);
                self.schedule(at_ns + think_ns, Event::Answer { connection, stream });
            }
            Some((Part::Response, stream)) => {
                if let Some([sent_ns, _]) = self.connections[connection].begun.take(stream) {
                    self.truth.calls += 1;
                    self.truth.duration_ns += at_ns - sent_ns;
                }
                let pause_ns = 2_000 + self.random.i64(0..3_000);
                self.schedule(at_ns + pause_ns, Event::Call { connection });
            }
            None => {}
        }
        Ok(())
    }

    fn by_server(&self, at_ns: i64) -> i64 {
        let since_ns = at_ns - START_NS;
        at_ns + self.traffic.offset_ns + (since_ns as f64 * self.traffic.skew_ppm / 1e6).round() as i64
    }

    /// Writes to the capture of the client (0) or the server (1), by its clock.
    fn write(&mut self, tap: usize, at_ns: i64, segment: &Segment) -> io::Result<()> {
        let at_ns = if tap == 1 { self.by_server(at_ns) } else { at_ns };
        self.files[tap].segment(at_ns, segment)
    }
}

fn traceparent(seed: u64, call: u64) -> [u8; 55] {
    let text = format!("00-{seed:016x}{call:016x}-{call:016x}-01");
    let mut out = [0; 55];
    out.copy_from_slice(text.as_bytes());
    out
}
