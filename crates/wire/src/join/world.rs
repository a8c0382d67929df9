//! Made-up calls seen by two taps, with the truth, for tests.

use crate::exchange::{Doubts, Exchange, Mark, Part};
use crate::segment::Endpoint;
use crate::tcp::{ConnectionFacts, Handshake};
use proptest::prelude::*;
use spangap_model::Side;

/// Start of the world.
pub(crate) const START: i64 = 1_767_225_600_000_000_000;

/// Ten moments of a call in true time, including those of both spans: see [`crate::legs`].
pub(crate) type Truth = [i64; 10];

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct TrueCall {
    pub connection: u32,
    pub at: Truth,
    /// How long the SERVER span began before its request was complete, if it did: the application then begins
    /// with the last byte, so that moments 3 and 4 coincide.
    pub early_ns: Option<i64>,
    /// Whether the last byte of the request and of the response is retransmitted before it arrives.
    pub resent: [bool; 2],
    pub request: (u32, u32),
    pub response: (u32, u32),
}

/// Two taps and their clocks.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The capture at the client's end.
    pub client: usize,
    pub offset_ns: i64,
    pub skew_ppm: f64,
    pub resolution_ns: i64,
    /// Whether the addresses differ between the taps.
    pub translated: bool,
    pub calls: Vec<TrueCall>,
}

impl World {
    /// Time on a capture's clock, not truncated.
    pub fn shows(&self, capture: usize, at: i64) -> i64 {
        let drift = ((at - START) as f64 * self.skew_ppm * 1e-6).round() as i64;
        if capture == 0 { at } else { at + self.offset_ns + drift }
    }

    fn mark(&self, capture: usize, seen: i64, ready: i64, packet: u64) -> Mark {
        let cut = |at: i64| at - at.rem_euclid(self.resolution_ns);
        let (seen_ns, ready_ns) = (cut(self.shows(capture, seen)), cut(self.shows(capture, ready)));
        Mark { seen_ns, ready_ns, packet, ready_packet: packet }
    }

    /// The exchange as seen by the tap at one end.
    pub fn exchange(&self, call: &TrueCall, side: Side, number: u64) -> Exchange {
        let capture = if side == Side::Client { self.client } else { 1 - self.client };
        let at = &call.at;
        let (requested, answered) = ((at[1], at[2], at[3]), (at[6], at[7], at[8]));
        let part = |sender: Side,
                    (first, last, arrived): (i64, i64, i64),
                    resent: bool,
                    (start, len): (u32, u32)| {
            let high = 1 << 32;
            let start = high + u64::from(start);
            let end = start + u64::from(len);
            let (first, last) = if sender == side {
                (self.mark(capture, first, first, number * 4), self.mark(capture, last, last, number * 4 + 1))
            } else {
                // The first byte has the same transit time as the last; if an earlier byte was retransmitted, the
                // last one arrived before it could be read.
                let early = arrived - (last - first);
                let seen = if resent { last + (arrived - last) / 2 } else { arrived };
                let first = if resent { arrived } else { early };
                (
                    self.mark(capture, first, first, number * 4),
                    self.mark(capture, seen, arrived, number * 4 + 1),
                )
            };
            Part { first, last, start, end, body_bytes: u64::from(len), messages: 1 }
        };
        Exchange {
            connection: call.connection,
            stream_id: number as u32,
            request: part(Side::Client, requested, call.resent[0], call.request),
            response: Some(part(Side::Server, answered, call.resent[1], call.response)),
            doubts: Doubts::default(),
            ..Exchange::default()
        }
    }

    /// Facts of a connection at a capture.
    pub fn facts(&self, capture: usize, connection: u32) -> ConnectionFacts {
        let net = if self.translated { capture as u8 } else { 0 };
        let client = Endpoint::v4([10, net, 0, 1], 40_000 + connection as u16);
        facts(connection, [client, Endpoint::v4([10, net, 0, 2], 50_051)])
    }

    /// Every exchange with its capture, in the order in which the taps finish them.
    pub fn exchanges(&self) -> Vec<(usize, Exchange)> {
        let mut all = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            for side in [Side::Client, Side::Server] {
                let capture = if side == Side::Client { self.client } else { 1 - self.client };
                let done = if side == Side::Client { call.at[8] } else { call.at[7] };
                all.push((done, capture, self.exchange(call, side, number as u64)));
            }
        }
        all.sort_by_key(|(done, ..)| *done);
        all.into_iter().map(|(_, capture, exchange)| (capture, exchange)).collect()
    }
}

/// Facts that contain only the addresses.
pub(crate) fn facts(id: u32, ends: [Endpoint; 2]) -> ConnectionFacts {
    ConnectionFacts {
        id,
        ends,
        network: 0,
        sides_known: true,
        handshake: Handshake::default(),
        protocol: Default::default(),
        packets: 0,
        first_ns: START,
        last_ns: START,
        closed: false,
        bytes: [0; 2],
        resent_bytes: [0; 2],
        hole_bytes: [0; 2],
        rtt_min_ns: [None; 2],
        windows: [None; 2],
        max_streams: None,
        peak_in_flight: 0,
    }
}

/// Any world: clocks hours apart, drifting, either order, asymmetric paths, retransmissions, calls spread over
/// time.
pub(crate) fn any_world() -> impl Strategy<Value = World> {
    let delay = || prop_oneof![8 => 1_000..3_000_000_i64, 1 => 1_000..200_000_000_i64];
    let gap = || prop_oneof![Just(0), 0..50_000_i64, 0..20_000_000_i64];
    let legs = (gap(), gap(), delay(), gap(), gap(), gap(), gap(), delay(), gap());
    let early = prop::option::of(0..50_000_000_i64);
    let call =
        (0..60_000_000_000_i64, 1..4_u32, legs, early, any::<[bool; 2]>(), (1..9_000_u32, 1..9_000_u32));
    let calls = prop::collection::vec(call, 1..60);
    let clocks = (-30_000_000_000_000..30_000_000_000_000_i64, -200.0..200.0_f64);
    let clocks = prop_oneof![3 => clocks, 1 => (-50_000..50_000_i64, -200.0..200.0_f64)];
    (0..2_usize, clocks, prop_oneof![Just(1_i64), Just(1_000)], any::<bool>(), any::<[u32; 8]>(), calls)
        .prop_map(|(client, (offset_ns, skew_ppm), resolution_ns, translated, numbers, calls)| {
            let mut next = numbers;
            let mut order = calls;
            order.sort_by_key(|(at, ..)| *at);
            let calls = order.into_iter().map(|(at, connection, legs, early_ns, resent, sizes)| {
                let (a, b, c, d, e, f, g, h, i) = legs;
                let d = if early_ns.is_some() { 0 } else { d };
                // The first byte of the request arrived before the last by as much as it was sent before it.
                let early_ns = early_ns.map(|ns: i64| ns.min(b));
                let mut truth = [START + at; 10];
                for (place, leg) in [a, b, c, d, e, f, g, h, i].into_iter().enumerate() {
                    truth[place + 1] = truth[place] + leg;
                }
                let mut take = |side: usize, len: u32| {
                    let number = &mut next[connection as usize * 2 + side - 2];
                    let first = *number;
                    *number = first.wrapping_add(len);
                    (first, len)
                };
                let (request, response) = (take(0, sizes.0), take(1, sizes.1));
                // A retransmission happens while the original is in transit.
                TrueCall { connection, at: truth, early_ns, resent, request, response }
            });
            let calls = calls.collect();
            World { client, offset_ns, skew_ppm, resolution_ns, translated, calls }
        })
}
