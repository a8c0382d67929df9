//! A hand-made connection for the tests of rules; times are in microseconds.

use super::{Causes, View};
use crate::episode::Episode;
use crate::exchange::{Exchange, Mark, Part};
use crate::segment::{Endpoint, Flags, Options, Segment};
use crate::tcp::{Handshake, Kind, Sent, SideState, Step};
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};
use std::ops::Range;

pub const CLIENT: Side = Side::Client;
pub const SERVER: Side = Side::Server;
/// Stream offset of the first byte of either side.
pub const FIRST: u64 = (1 << 32) + 1001;
const WINDOW: u64 = 60_000;

/// The connection so far.
pub struct Scene {
    now_us: i64,
    packet: u64,
    sides: [SideState; 2],
    handshake: Handshake,
    causes: Causes,
    /// Episodes so far.
    pub found: Vec<Episode>,
    /// Raw windows of the two sides.
    pub windows: [u64; 2],
    /// Timestamps option of the next segments.
    pub timestamps: Option<(u32, u32)>,
    /// IP identification of the next segment.
    pub ip_id: u16,
    /// Exchanges in flight.
    pub under_way: usize,
}

impl Scene {
    /// A connection joined after its start, with nothing known about it.
    pub fn joined() -> Scene {
        let side = || SideState { next: FIRST, acked: FIRST, mss: 1460, ..SideState::default() };
        Scene {
            now_us: 0,
            packet: 1,
            sides: [side(), side()],
            handshake: Handshake::default(),
            causes: Causes::default(),
            found: Vec::new(),
            windows: [WINDOW; 2],
            timestamps: None,
            ip_id: 0,
            under_way: 0,
        }
    }

    /// A connection opened at zero; the arguments are the round trips from the tap to each end.
    pub fn connected(client_us: i64, server_us: i64) -> Scene {
        let mut scene = Scene::joined();
        for side in &mut scene.sides {
            side.mss_announced = true;
            side.window_scale = Some(0);
            side.window = Some(WINDOW);
        }
        scene.handshake = Handshake {
            syn: Some((-1000 * (client_us + server_us), 1)),
            syns: 1,
            syn_ack: Some((-1000 * client_us, 2)),
            syn_acks: 1,
            ack: Some((0, 3)),
            queue_unanswered: None,
        };
        scene.packet = 4;
        scene
    }

    /// The tap is at the client, 1 ms from the server.
    pub fn at_client() -> Scene {
        Scene::connected(20, 1000)
    }

    /// The tap is at the server, 1 ms from the client.
    pub fn at_server() -> Scene {
        Scene::connected(1000, 20)
    }

    /// The connection's TCP handshake.
    pub fn handshake_mut(&mut self) -> &mut Handshake {
        &mut self.handshake
    }

    /// Sets the time of the following events.
    pub fn at(&mut self, now_us: i64) -> &mut Scene {
        assert!(now_us >= self.now_us, "the scene is told in order");
        self.now_us = now_us;
        self
    }

    /// Offset after the last byte sent.
    pub fn next(&self, side: Side) -> u64 {
        self.sides[side.index()].next
    }

    /// The number of the last packet.
    pub fn last_packet(&self) -> u64 {
        self.packet - 1
    }

    /// Sends new bytes that acknowledge nothing new. Returns their offsets.
    pub fn data(&mut self, from: Side, bytes: u64) -> Range<u64> {
        let range = self.next(from)..self.next(from) + bytes;
        let acked = self.sides[from.other().index()].acked;
        self.segment(Kind::New, from, range.clone(), acked, &[]);
        range
    }

    /// Sends new bytes that acknowledge everything.
    pub fn data_and_ack(&mut self, from: Side, bytes: u64) -> Range<u64> {
        let range = self.next(from)..self.next(from) + bytes;
        let ack = self.next(from.other());
        self.segment(Kind::New, from, range.clone(), ack, &[]);
        range
    }

    /// Acknowledges everything.
    pub fn ack(&mut self, from: Side) {
        self.ack_to(from, self.next(from.other()), &[]);
    }

    /// Acknowledges up to an offset, with SACK blocks.
    pub fn ack_to(&mut self, from: Side, ack: u64, sack: &[(u64, u64)]) {
        let at = self.next(from);
        let kind =
            if ack > self.sides[from.other().index()].acked { Kind::BareAck } else { Kind::RepeatedAck };
        self.segment(kind, from, at..at, ack, sack);
    }

    /// Advertises a window, with an acknowledgement of everything.
    pub fn window(&mut self, from: Side, bytes: u64) {
        self.windows[from.index()] = bytes;
        let (at, ack) = (self.next(from), self.next(from.other()));
        let new = ack > self.sides[from.other().index()].acked;
        self.segment(if new { Kind::BareAck } else { Kind::WindowUpdate }, from, at..at, ack, &[]);
    }

    /// Sends a range of bytes in a segment of this kind.
    pub fn bytes(&mut self, kind: Kind, from: Side, range: Range<u64>) {
        let acked = self.sides[from.other().index()].acked;
        self.segment(kind, from, range, acked, &[]);
    }

    /// Sends a segment of any kind.
    pub fn segment(&mut self, kind: Kind, from: Side, bytes: Range<u64>, ack: u64, sack: &[(u64, u64)]) {
        self.flagged(kind, from, bytes, ack, sack, Flags::ACK);
    }

    /// Sends this payload.
    pub fn payload(&mut self, from: Side, payload: &[u8]) {
        let range = self.next(from)..self.next(from) + payload.len() as u64;
        let acked = self.sides[from.other().index()].acked;
        self.told(Kind::New, from, range, acked, &[], Flags::ACK, payload);
    }

    /// Sends a segment with these flags.
    pub fn flagged(
        &mut self,
        kind: Kind,
        from: Side,
        bytes: Range<u64>,
        ack: u64,
        sack: &[(u64, u64)],
        flags: u8,
    ) {
        self.told(kind, from, bytes, ack, sack, flags, &[]);
    }

    #[allow(clippy::too_many_arguments)]
    fn told(
        &mut self,
        kind: Kind,
        from: Side,
        bytes: Range<u64>,
        ack: u64,
        sack: &[(u64, u64)],
        flags: u8,
        payload: &[u8],
    ) {
        let time_ns = self.now_us * 1000;
        let mut options = Options { timestamps: self.timestamps, ..Options::default() };
        for (slot, block) in options.sack.iter_mut().zip(sack) {
            *slot = (block.0 as u32, block.1 as u32);
        }
        options.sack_count = sack.len() as u8;
        let end = |port| Endpoint::v4([10, 0, 0, 1], port);
        let segment = Segment {
            packet: self.packet,
            time_ns,
            source: end(from.index() as u16),
            destination: end(from.other().index() as u16),
            network: 0,
            seq: bytes.start as u32,
            ack: ack as u32,
            flags: Flags(flags),
            window: self.windows[from.index()] as u16,
            ip_id: self.ip_id,
            options,
            payload_len: (bytes.end - bytes.start) as u32,
            payload,
        };
        let own = &mut self.sides[from.index()];
        let in_flight_before = own.next - own.acked;
        let window_before = own.window;
        if own.window_scale.is_some() {
            own.window = Some(self.windows[from.index()]);
        }
        let mut earlier = None;
        if !bytes.is_empty() {
            for run in own.in_flight.iter_mut() {
                if run.start < bytes.end && bytes.start < run.end {
                    earlier.get_or_insert(*run);
                    run.last_time_ns = time_ns;
                    run.last_packet = self.packet;
                    run.sends += 1;
                }
            }
            let sent = Sent {
                start: bytes.start,
                end: bytes.end,
                time_ns,
                packet: self.packet,
                last_time_ns: time_ns,
                last_packet: self.packet,
                sends: 1,
            };
            if earlier.is_none() {
                own.in_flight.push_back(sent);
            }
            own.last_data = Some(sent);
            own.next = own.next.max(bytes.end);
        }
        own.last = Some((time_ns, self.packet));
        let peer = &mut self.sides[from.other().index()];
        let newly_acked = peer.acked..ack.max(peer.acked);
        peer.acked = newly_acked.end;
        while let Some(run) = peer.in_flight.front().filter(|run| run.end <= ack) {
            let took = (time_ns - run.time_ns) as u64;
            if run.sends == 1 {
                peer.rtt_min_ns = Some(peer.rtt_min_ns.map_or(took, |least| least.min(took)));
            }
            peer.in_flight.pop_front();
        }
        let step = Step {
            segment: &segment,
            from,
            kind,
            bytes,
            newly_acked,
            in_flight_before,
            earlier,
            window_before,
        };
        let view = View { id: 1, sides: &self.sides, handshake: &self.handshake, under_way: self.under_way };
        // As for a real connection, episodes are taken after each segment.
        let mut found = Vec::new();
        self.causes.step(&step, view, &mut found);
        self.found.append(&mut found);
        self.packet += 1;
    }

    /// The client's SYN, or the server's SYN/ACK.
    pub fn syn(&mut self, from: Side) {
        let mark = Some((self.now_us * 1000, self.packet));
        match from {
            Side::Client => {
                self.handshake.syn = self.handshake.syn.or(mark);
                self.handshake.syns += 1;
            }
            Side::Server => {
                self.handshake.syn_ack = self.handshake.syn_ack.or(mark);
                self.handshake.syn_acks += 1;
            }
        }
        let ack = if from == SERVER { Flags::ACK } else { 0 };
        self.flagged(Kind::Handshake, from, FIRST..FIRST, FIRST, &[], Flags::SYN | ack);
    }

    /// The ACK that completes the handshake, or repeats it.
    pub fn syn_done(&mut self) {
        self.handshake.ack = self.handshake.ack.or(Some((self.now_us * 1000, self.packet)));
        self.segment(Kind::BareAck, CLIENT, FIRST..FIRST, FIRST, &[]);
    }

    /// A FIN.
    pub fn fin(&mut self, from: Side) {
        let (at, ack) = (self.next(from), self.sides[from.other().index()].acked);
        self.flagged(Kind::New, from, at..at, ack, &[], Flags::FIN | Flags::ACK);
    }

    /// A mark for the last packet: seen and readable now.
    pub fn mark(&self) -> Mark {
        let time = self.now_us * 1000;
        let packet = self.last_packet();
        Mark { seen_ns: time, ready_ns: time, packet, ready_packet: packet }
    }

    /// An exchange finished.
    pub fn exchange(&mut self, exchange: &Exchange) {
        let view = View { id: 1, sides: &self.sides, handshake: &self.handshake, under_way: self.under_way };
        self.causes.exchange(exchange, view, &mut self.found);
    }

    /// The connection ended.
    pub fn finish(&mut self) {
        let view = View { id: 1, sides: &self.sides, handshake: &self.handshake, under_way: self.under_way };
        self.causes.finish(view, &mut self.found);
    }

    /// Notes about the connection.
    pub fn notes(&self) -> Vec<String> {
        self.causes.notes()
    }

    /// Shown causes, in order.
    pub fn shown(&self) -> Vec<Cause> {
        self.found.iter().filter(|e| e.certainty == Certainty::Shown).map(|e| e.cause).collect()
    }

    /// Causes that are only possible, in order.
    pub fn possible(&self) -> Vec<Cause> {
        self.found.iter().filter(|e| e.certainty != Certainty::Shown).map(|e| e.cause).collect()
    }
}

/// A message between two marks.
pub fn part(range: Range<u64>, first: Mark, last: Mark) -> Part {
    Part { first, last, start: range.start, end: range.end, ..Part::default() }
}
