//! A hand-made dissection, for the tests of user-visible output.

use super::{DissectReport, Extras, RungReport};
use crate::align::{Clock, Stretch};
use crate::call::{Call, CallFinding, Halves, LegTime, Note, When};
use crate::dissect::{CaptureTotals, Dissection, Settings};
use crate::episode::{PacketProof, What};
use crate::exchange::{Exchange, Mark, Part, Protocol, TextId, TraceContext};
use crate::ladder::{Ladder, Rung};
use crate::segment::{Endpoint, Flags};
use crate::source::{Damage, Reading};
use crate::tcp::{ConnectionFacts, Handshake};
use crate::totals::{CauseSum, ConnectionTotals, LegSum, PairTotals, Sums};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{CallStatus, Cause, Histogram, Leg, Legs, Side};
use std::collections::BTreeMap;

/// 2026-02-28 12:00:00 UTC.
pub const START_NS: i64 = 1_772_280_000_000_000_000;
/// Clock of the server's capture minus that of the client's.
pub const OFFSET_NS: i64 = 1_500_000;

pub const TRACE_ID: [u8; 16] = [0xab; 16];

/// One hand-made packet of a ladder.
pub fn rung(seen_at: Side, from: Side, packet: u64, since_start_ns: i64, seq: u32, bytes: u32) -> RungReport {
    RungReport {
        capture: seen_at.index() as u8,
        seen_at,
        packet,
        time_unix_ns: START_NS + since_start_ns,
        since_start_ns,
        from,
        flags: String::new(),
        seq,
        bytes,
        ack: Some(1),
        acked_bytes: None,
        window: 500,
        notes: Vec::new(),
        stands_out: false,
        left_out_before: 0,
    }
}

fn endpoints() -> [Endpoint; 2] {
    [Endpoint::v4([10, 0, 0, 1], 40_312), Endpoint::v4([10, 0, 0, 2], 50_051)]
}

fn facts(capture: u32) -> ConnectionFacts {
    ConnectionFacts {
        id: 7 + capture,
        ends: endpoints(),
        network: 0,
        sides_known: true,
        handshake: Handshake::default(),
        protocol: Protocol::Grpc,
        packets: 640,
        first_ns: START_NS,
        last_ns: START_NS + 9_000_000_000,
        closed: false,
        bytes: [12_000, 8_000],
        resent_bytes: [57, 0],
        hole_bytes: [0, 0],
        rtt_min_ns: [Some(104_000), None],
        windows: [Some(64 << 10); 2],
        max_streams: Some(100),
        peak_in_flight: 4,
    }
}

fn mark(ns: i64, packet: u64) -> Mark {
    Mark { seen_ns: ns, ready_ns: ns, packet, ready_packet: packet }
}

const OUT: u64 = (1 << 32) + 1_000;
const BACK: u64 = (1 << 32) + 9_000;

fn exchange(side: Side, start_ns: i64, stall_ns: i64) -> Exchange {
    let at = |client: i64, server: i64, packet: u64| match side {
        Side::Client => mark(start_ns + client, packet),
        Side::Server => mark(start_ns + OFFSET_NS + server, packet + 3),
    };
    Exchange {
        connection: 7 + side.index() as u32,
        stream_id: 5,
        protocol: Protocol::Grpc,
        request: Part {
            first: at(0, 52_000, 12),
            last: at(stall_ns + 120_000, stall_ns + 170_000, 14),
            start: OUT,
            end: OUT + 148,
            body_bytes: 57,
            messages: 1,
        },
        response: Some(Part {
            first: at(stall_ns + 480_000, stall_ns + 430_000, 15),
            last: at(stall_ns + 480_000, stall_ns + 430_000, 15),
            start: BACK,
            end: BACK + 90,
            body_bytes: 40,
            messages: 1,
        }),
        method: TextId(1),
        status: CallStatus::from_grpc(0),
        trace: Some(TraceContext { trace_id: TRACE_ID, span_id: [0xcd; 8] }),
        in_flight: 1,
        ..Exchange::default()
    }
}

fn call(start_ns: i64, stall_ns: i64, certainty: Certainty) -> Call {
    let server = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
    let leg = |legs, ns, bound_ns| LegTime { legs, ns, bound_ns };
    let finding = CallFinding {
        cause: Cause::NagleDelayedAck,
        certainty,
        side: Some(Side::Client),
        when: When::Between(start_ns, start_ns + stall_ns),
        cost_ns: Some(stall_ns as u64),
        note: Note::None,
        evidence: vec![
            (0, evidence(12, start_ns, What::with("{} bytes sent, less than a full segment", 91, 0))),
            (0, evidence(13, start_ns + stall_ns + 100_000, What::text("a bare ACK ends the wait"))),
            (
                0,
                evidence(
                    14,
                    start_ns + stall_ns + 120_000,
                    What::with("{} bytes that were held back", 57, 0),
                ),
            ),
        ],
    };
    Call {
        halves: Halves {
            exchanges: [
                Some(exchange(Side::Client, start_ns, stall_ns)),
                Some(exchange(Side::Server, start_ns, stall_ns)),
            ],
            captures: [0, 1],
            spans: None,
            never_arrived: false,
        },
        connection: 1,
        ends: None,
        start_ns,
        duration_ns: stall_ns as u64 + 480_000,
        legs: vec![
            leg(Legs::one(Leg::ClientSend), stall_ns + 120_000, 0),
            leg(Legs::one(Leg::RequestWire), 50_000, 20_000),
            leg(server, 260_000, 0),
            leg(Legs::one(Leg::ServerSend), 0, 0),
            leg(Legs::one(Leg::ResponseWire), 50_000, 20_000),
        ],
        findings: if stall_ns > 0 { vec![finding] } else { Vec::new() },
        hosts: Default::default(),
        section: 0,
        hops: Vec::new(),
        path: Vec::new(),
    }
}

fn evidence(packet: u64, time_ns: i64, what: What) -> PacketProof {
    PacketProof { packet, time_ns, what }
}

fn sums() -> Sums {
    let mut durations = Histogram::default();
    (0..60).for_each(|_| durations.record(40_480_000));
    (0..140).for_each(|_| durations.record(480_000));
    let sum = |legs, total_ns, bound_ns| LegSum { legs, total_ns, bound_ns };
    Sums {
        calls: 200,
        one_end: [1, 0],
        failed: 2,
        unfinished: 1,
        unanswered: 0,
        status_unknown: 0,
        http_statuses: BTreeMap::new(),
        cut_by_snap: 0,
        durations,
        legs: vec![
            sum(Legs::one(Leg::ClientSend), 2_424_000_000, 0),
            sum(Legs::one(Leg::RequestWire), 10_000_000, 4_000_000),
            sum(Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut }, 52_000_000, 0),
            sum(Legs::one(Leg::ResponseWire), 10_000_000, 4_000_000),
        ],
        causes: vec![CauseSum {
            cause: Cause::NagleDelayedAck,
            side: Some(Side::Client),
            calls: 60,
            possible: 2,
            cost_ns: 2_400_000_000,
        }],
    }
}

fn capture(file: &str, offset_ns: i64) -> CaptureTotals {
    let mut totals = CaptureTotals {
        reading: Reading {
            file: file.into(),
            format: "pcapng, zstd".into(),
            packets: 640,
            bytes: 64_000,
            dropped: Some(3),
            cut: 12,
            resolution_ns: 1,
            damage: vec![Damage {
                offset: 4_096,
                what: "block length 3, expected at least 12: the rest is skipped".into(),
            }],
            damaged_places: 1,
            damaged_bytes: 77,
            first_ns: Some(START_NS + offset_ns),
            last_ns: Some(START_NS + offset_ns + 9_000_000_000),
            ..Reading::default()
        },
        unmatched: 1,
        ..CaptureTotals::default()
    };
    totals.counts.packets = 640;
    totals.counts.segments = 630;
    totals.counts.connections = 1;
    totals.counts.unparsed.insert(crate::decode::Unparsed::NotIp, 10);
    totals
}

/// Two slow calls with a shown cause, and a fast one, all seen at both ends.
pub fn dissection() -> Dissection {
    Dissection {
        clock: Some(Clock {
            stretches: vec![Stretch {
                from_ns: START_NS,
                to_ns: START_NS + 9_000_000_000,
                base_ns: OFFSET_NS,
                corners: vec![(-20_000.0, 0.0), (20_000.0, 0.0)],
            }],
            contradictions: 0,
        }),
        calls: vec![
            call(START_NS + 1_000_000_000, 40_012_000, Certainty::Shown),
            call(START_NS + 2_000_000_000, 39_980_000, Certainty::Shown),
            call(START_NS + 3_000_000_000, 0, Certainty::Shown),
        ],
        methods: [((0, 0, TextId(1)), "/shop.v1.Cart/Add".into())].into(),
        sums: sums(),
        matching: 200,
        connections: vec![ConnectionTotals {
            number: 1,
            captures: [0, 1],
            seen: [Some(facts(0)), Some(facts(1))],
            client_capture: Some(0),
            sums: sums(),
            notes: vec!["the client never sends two segments in flight below the maximum size".into()],
        }],
        pairs: vec![PairTotals {
            client: Endpoint { port: 0, ..endpoints()[0] },
            server: endpoints()[1],
            connections: 1,
            sums: sums(),
        }],
        captures: vec![capture("client.pcap", 0), capture("server.pcap", OFFSET_NS)],
        caveats: vec!["The captures do not say whether packets were dropped before the first one.".into()],
        ..Dissection::default()
    }
}

/// One slow call with a cause that is only possible.
pub fn possible_dissection() -> Dissection {
    Dissection {
        calls: vec![call(START_NS, 40_012_000, Certainty::Possible(Missing::ServerCapture))],
        ..dissection()
    }
}

/// The packets of the first call.
pub fn ladder() -> Ladder {
    let start = START_NS + 1_000_000_000;
    let stall = 40_012_000;
    let rung = |capture: u8, packet, ns: i64, from, offset, len, ack, notes: &[&str]| Rung {
        capture,
        packet,
        time_ns: start + ns + if capture == 1 { OFFSET_NS } else { 0 },
        from,
        flags: Flags(Flags::ACK),
        offset,
        len,
        ack: Some(ack),
        window: 501,
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        stands_out: notes == ["delayed ACK"],
        left_out_before: 0,
    };
    let (c, s) = (Side::Client, Side::Server);
    Ladder {
        rungs: vec![
            rung(0, 12, 0, c, OUT, 91, BACK, &["first request byte"]),
            rung(1, 15, 52_000, c, OUT, 91, BACK, &[]),
            rung(1, 16, stall + 52_000, s, BACK, 0, OUT + 91, &["delayed ACK"]),
            rung(0, 13, stall + 100_000, s, BACK, 0, OUT + 91, &[]),
            rung(
                0,
                14,
                stall + 120_000,
                c,
                OUT + 91,
                57,
                BACK,
                &["last request byte", "57 bytes that were held back"],
            ),
            rung(1, 17, stall + 170_000, c, OUT + 91, 57, BACK, &["request complete"]),
            rung(1, 18, stall + 430_000, s, BACK, 90, OUT + 148, &["response"]),
            rung(0, 15, stall + 480_000, s, BACK, 90, OUT + 148, &["last response byte"]),
        ],
        left_out: 0,
    }
}

/// The user's view of [`dissection`].
pub fn report() -> DissectReport {
    report_of(dissection())
}

/// The user's view of a dissection.
pub fn report_of(dissection: Dissection) -> DissectReport {
    let settings = Settings { slowest: 10, ..Settings::default() };
    let extras = Extras {
        command: Some("spangap dissect client.pcap server.pcap".into()),
        ladders: BTreeMap::from([(0, ladder())]),
    };
    DissectReport::new(&dissection, &settings, &extras)
}
