//! Halves find each other, whatever the clocks and the addresses; what has no other half is counted.

use super::world::{START, TrueCall, World, any_world};
use super::*;
use proptest::prelude::*;

fn join(world: &World, exchanges: Vec<(usize, Exchange)>) -> (Joiner, Vec<Joined>) {
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut joined = Vec::new();
    let facts = |capture: usize, connection: u32| Some(world.facts(capture, connection));
    for (capture, exchange) in exchanges {
        joiner.offer(capture, &exchange, &facts, &mut joined);
    }
    joiner.finish(&mut joined);
    (joiner, joined)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_joined_and_its_client_found(world in any_world()) {
        let (joiner, joined) = join(&world, world.exchanges());
        prop_assert_eq!(joined.len(), world.calls.len());
        prop_assert_eq!((joiner.unmatched, joiner.copies, joiner.contradictions), ([0; 2], 0, 0));
        for call in &joined {
            let [Some(client), Some(server)] = &call.halves.exchanges else {
                return Err(TestCaseError::fail("a half is missing"));
            };
            prop_assert_eq!(client.stream_id, server.stream_id);
            // With a microsecond's resolution a short path may not show.
            if world.resolution_ns == 1 {
                prop_assert_eq!(usize::from(call.halves.captures[0]), world.client);
            }
        }
    }

    #[test]
    fn what_is_missing_at_one_end_is_counted(world in any_world(), lost in prop::collection::vec(any::<bool>(), 120)) {
        let mut kept = Vec::new();
        let mut gone = [0_u64; 2];
        for ((capture, exchange), lost) in world.exchanges().into_iter().zip(lost) {
            if lost {
                gone[capture] += 1;
            } else {
                kept.push((capture, exchange));
            }
        }
        let halves = kept.len();
        let (joiner, joined) = join(&world, kept);
        prop_assert_eq!(halves as u64, 2 * joiner.matched + joiner.unmatched[0] + joiner.unmatched[1]);
        prop_assert_eq!(joined.len() as u64, joiner.matched + joiner.unmatched[0] + joiner.unmatched[1]);
        // What one capture lacks is alone in the other, if it is not lacking there, too.
        prop_assert!(joiner.unmatched[0] <= gone[1] && joiner.unmatched[1] <= gone[0]);
    }
}

fn plain(translated: bool, connections: u32) -> World {
    let calls = (0..40_u32).map(|i| {
        let begin = START + i64::from(i) * 1_000_000;
        let at = [0, 10, 20, 520, 600, 700, 800, 900, 1_500, 1_600].map(|us| begin + us * 1_000);
        let connection = i % connections + 1;
        let start = connection.wrapping_mul(0x1234_5678).wrapping_add(i * 100);
        TrueCall {
            connection,
            at,
            early_ns: None,
            resent: [false; 2],
            request: (start, 90),
            response: (!start, 60),
        }
    });
    let calls = calls.collect();
    World { client: 0, offset_ns: 77_000, skew_ppm: 0.0, resolution_ns: 1, translated, calls }
}

#[test]
fn a_call_captured_before_and_after_translation_counts_once() {
    for copy_first in [false, true] {
        let world = plain(true, 1);
        let mut exchanges = Vec::new();
        for (capture, exchange) in world.exchanges() {
            let copy = Exchange { connection: 100 + exchange.connection, ..exchange.clone() };
            match (capture, copy_first) {
                (1, true) => exchanges.extend([(1, copy), (1, exchange)]),
                (1, false) => exchanges.extend([(1, exchange), (1, copy)]),
                _ => exchanges.push((capture, exchange)),
            }
        }
        let mut joiner = Joiner::new(true, [None; 2]);
        let mut joined = Vec::new();
        // The copy's addresses are those of another network.
        let facts = |capture: usize, connection: u32| {
            let mut facts = world.facts(capture, connection);
            facts.ends[1].address[15] ^= u8::from(connection > 100);
            Some(facts)
        };
        for (capture, exchange) in exchanges {
            joiner.offer(capture, &exchange, &facts, &mut joined);
        }
        joiner.finish(&mut joined);
        assert_eq!(joiner.matched, 40, "copy first: {copy_first}");
        assert_eq!((joiner.copies, joiner.unmatched), (40, [0; 2]), "copy first: {copy_first}");
        assert_eq!(joined.len(), 40);
    }
}

#[test]
fn a_call_captured_twice_at_both_ends_counts_once() {
    // An overlay network: both hosts capture the connection, and the tunnel that it travels in. Whichever of the four halves
    // comes first.
    let orders = [[0, 1, 2, 3], [0, 1, 3, 2], [2, 0, 3, 1], [3, 1, 0, 2], [0, 2, 1, 3], [1, 0, 2, 3]];
    let world = plain(false, 1);
    let halves = world.exchanges();
    let facts = |capture: usize, connection: u32| {
        let mut facts = world.facts(capture, connection % 100);
        facts.network = if connection > 100 { 42 } else { 0 };
        Some(facts)
    };
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut joined = Vec::new();
    for (nth, call) in (0..world.calls.len() as u32).enumerate() {
        let of = |capture: usize| {
            let own = halves.iter().find(|(at, half)| *at == capture && half.stream_id == call);
            own.expect("both ends have every call").1.clone()
        };
        for place in orders[nth % orders.len()] {
            let (capture, tunnel) = (place / 2, place % 2 == 1);
            let mut half = of(capture);
            half.connection += if tunnel { 100 } else { 0 };
            joiner.offer(capture, &half, &facts, &mut joined);
        }
    }
    joiner.finish(&mut joined);
    assert_eq!((joiner.matched, joiner.copies, joiner.unmatched), (40, 80, [0; 2]));
    assert_eq!(joined.len(), 40);
}

#[test]
fn requests_with_the_same_number_on_other_connections_are_not_taken() {
    // All connections begin with the same numbers; the addresses tell them apart.
    let mut world = plain(false, 4);
    for (i, call) in world.calls.iter_mut().enumerate() {
        call.request = (i as u32 / 4 * 100, 90);
        call.response = (i as u32 / 4 * 100, 60);
    }
    let (joiner, joined) = join(&world, world.exchanges());
    assert_eq!(joiner.matched, 40);
    for call in &joined {
        let [Some(client), Some(server)] = &call.halves.exchanges else { panic!("a half is missing") };
        assert_eq!((client.connection, client.stream_id), (server.connection, server.stream_id));
    }
}

#[test]
fn one_end_fills_in_what_the_other_does_not_know() {
    let world = plain(false, 1);
    let trace = crate::exchange::TraceContext { trace_id: [7; 16], span_id: [3; 8] };
    let mut exchanges = world.exchanges();
    for (capture, exchange) in &mut exchanges {
        if *capture == 1 {
            exchange.trace = Some(trace);
            exchange.status = spangap_model::CallStatus::from_grpc(4);
        }
    }
    let (_, joined) = join(&world, exchanges);
    for call in &joined {
        let client = call.halves.exchanges[0].as_ref().expect("both ends");
        assert_eq!((client.trace, client.status.name()), (Some(trace), "DEADLINE_EXCEEDED"));
    }
}

/// A path of 2 us each way, and a server that takes 222 ms, in which its clock gains 8 us; the first of the calls is answered at once.
fn long_calls_behind_a_short_path(first_us: i64) -> World {
    let world = plain(false, 1);
    let calls = world.calls.iter().enumerate().map(|(number, call)| {
        let begin = START + number as i64 * 300_000_000;
        let served_us = if number == 0 { first_us } else { 222_000 };
        let at = [
            0,
            10,
            12,
            14,
            15,
            15 + served_us,
            16 + served_us,
            17 + served_us,
            19 + served_us,
            30 + served_us,
        ];
        TrueCall { at: at.map(|us| begin + us * 1_000), ..call.clone() }
    });
    World { skew_ppm: 35.0, calls: calls.collect(), ..world }
}

fn clients(joined: &[Joined]) -> Vec<u8> {
    let mut clients: Vec<u8> = joined.iter().map(|call| call.halves.captures[0]).collect();
    clients.dedup();
    clients
}

#[test]
fn a_clock_that_runs_faster_does_not_swap_the_ends_of_long_calls() {
    // The opening tells the ends ...
    let world = long_calls_behind_a_short_path(222_000);
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut joined = Vec::new();
    let facts = |capture: usize, connection: u32| {
        let mut facts = world.facts(capture, connection);
        let answered = START + if capture == 0 { 7_000 } else { 3_000 };
        facts.handshake.syn = Some((START, 1));
        facts.handshake.syn_ack = Some((answered, 2));
        (facts.handshake.syns, facts.handshake.syn_acks) = (1, 1);
        Some(facts)
    };
    for (capture, exchange) in world.exchanges() {
        joiner.offer(capture, &exchange, &facts, &mut joined);
    }
    joiner.finish(&mut joined);
    assert_eq!((joined.len(), clients(&joined), joiner.contradictions), (40, vec![0], 0));

    // ... or, in the middle of a connection, a single quick call.
    let world = long_calls_behind_a_short_path(100);
    let (joiner, joined) = join(&world, world.exchanges());
    assert_eq!((joined.len(), clients(&joined), joiner.contradictions), (40, vec![0], 0));
}

#[test]
fn the_end_that_answers_at_once_is_the_nearer_one() {
    let mut facts = plain(false, 1).facts(0, 1);
    facts.handshake.syn = Some((0, 1));
    facts.handshake.syn_ack = Some((1_000, 2));
    facts.handshake.ack = Some((1_010, 3));
    (facts.handshake.syns, facts.handshake.syn_acks) = (1, 1);
    assert_eq!(nearer_side(&facts), Some(Side::Client));
    facts.handshake.syn_ack = Some((10, 2));
    assert_eq!(nearer_side(&facts), Some(Side::Server));
    facts.handshake.ack = Some((25, 3));
    assert_eq!(nearer_side(&facts), None);
}

#[test]
fn a_full_store_gives_up_the_oldest() {
    let world = plain(false, 1);
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut out = Vec::new();
    let facts = |capture: usize, connection: u32| Some(world.facts(capture, connection));
    let half = world.exchange(&world.calls[0], Side::Client, 0);
    for i in 0..MAX_PENDING as u64 + 10 {
        let mut half = half.clone();
        half.request.start = (1 << 32) + i * 3;
        joiner.offer(0, &half, &facts, &mut out);
    }
    assert!(joiner.is_full(0));
    assert_eq!((joiner.evicted[0], joiner.unmatched[0], out.len()), (10, 10, 10));
    let given_up = out[0].halves.exchanges.iter().flatten().next().expect("one half");
    assert_eq!(given_up.request.start as u32, 0);
}
