//! The share of a call that an episode, an application or the path takes, and what it does not take.

use super::held::About;
use super::*;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::join::Joiner;
use crate::join::world::{START, TrueCall, World};
use crate::spans::SpanTimes;
use spangap_model::evidence::{Certainty, Missing};

const US: i64 = 1_000;

/// A call: sent at 0, 500 us to the server, 1 ms there, 100 us of response, 600 us back.
fn call(number: u32, begin: i64, there: i64) -> TrueCall {
    let mut at = [0, 0, 20, 520, 520, 1_520, 1_520, 1_620, 2_220, 2_220].map(|us| begin + us * US);
    at[3..].iter_mut().for_each(|moment| *moment += there);
    let start = number * 1_000;
    TrueCall {
        connection: 1,
        at,
        early_ns: None,
        resent: [false; 2],
        request: (start, 900),
        response: (start, 900),
    }
}

fn joined(calls: Vec<TrueCall>) -> Vec<Halves> {
    let (client, offset_ns, skew_ppm, resolution_ns) = (0, 5_000_000, 0.0, 1);
    let world = World { client, offset_ns, skew_ppm, resolution_ns, translated: false, calls };
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut out = Vec::new();
    let facts = |capture: usize, connection: u32| Some(world.facts(capture, connection));
    for (capture, exchange) in world.exchanges() {
        joiner.offer(capture, &exchange, &facts, &mut out);
    }
    out.into_iter().map(|joined| *joined.halves).collect()
}

fn episode(cause: Cause, sender: Side, range: (i64, i64), bytes: (u64, u64)) -> Episode {
    let evidence = PacketProof { packet: 9, time_ns: range.0, what: What::text("sent again") };
    Episode {
        cause,
        certainty: Certainty::Shown,
        side: None,
        sender,
        from_ns: range.0,
        to_ns: range.1,
        start: (1 << 32) + bytes.0,
        end: (1 << 32) + bytes.1,
        stream_id: None,
        copies: Copies::One,
        evidence: PacketProofs::of(&[evidence]),
    }
}

fn held_findings(halves: &Halves, episodes: &[Vec<Episode>; 2]) -> Vec<CallFinding> {
    let moments = Moments::of(halves);
    let duration = moments.ends().map_or(0, |(first, last)| last.0 - first.0);
    let about = About {
        halves,
        moments: &moments,
        duration_ns: duration as u64,
        offset_ns: 5_000_000,
        least_path_ns: None,
    };
    held::findings(&about, episodes, &mut Vec::new())
}

#[test]
fn a_loss_seen_at_both_taps_costs_once_with_evidence_from_both() {
    let halves = joined(vec![call(1, START, 0)]).remove(0);
    let client = episode(Cause::Rto, Side::Client, (START + 20 * US, START + 420 * US), (1_000, 1_900));
    let server_clock = START + 5_000 * US;
    // The receiver's tap cannot tell which timer expired.
    let server = episode(
        Cause::FastRetransmit,
        Side::Client,
        (server_clock + 100 * US, server_clock + 520 * US),
        (1_000, 1_900),
    );
    let found = held_findings(&halves, &[vec![client], vec![server]]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].cause, found[0].cost_ns), (Cause::Rto, Some(400_000)));
    let captures: Vec<u8> = found[0].evidence.iter().map(|(capture, _)| *capture).collect();
    assert_eq!(captures, [0, 1]);
}

#[test]
fn two_losses_of_one_call_are_one_finding_without_counting_time_twice() {
    let halves = joined(vec![call(1, START, 0)]).remove(0);
    let first = episode(Cause::Rto, Side::Client, (START, START + 300 * US), (1_000, 1_500));
    let second = episode(Cause::Rto, Side::Client, (START + 200 * US, START + 500 * US), (1_500, 1_900));
    let found = held_findings(&halves, &[vec![first, second], Vec::new()]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].cost_ns, Some(500_000));
}

#[test]
fn earlier_bytes_cost_a_call_only_its_own_wait() {
    let halves = joined(vec![call(1, START, 0)]).remove(0);
    let server_clock = START + 5_000 * US;
    // A response before this one was held back, and left long before this one was written.
    let early = (server_clock + 530 * US, server_clock + 570 * US);
    let earlier = episode(Cause::NagleDelayedAck, Side::Server, early, (0, 900));
    assert_eq!(held_findings(&halves, &[Vec::new(), vec![earlier]]), []);
    // This one was released together with it.
    let until = (server_clock + 530 * US, server_clock + 1_520 * US);
    let together = episode(Cause::NagleDelayedAck, Side::Server, until, (0, 900));
    assert_eq!(held_findings(&halves, &[Vec::new(), vec![together]])[0].cost_ns, Some(990_000));
    // Earlier lost bytes delay it from the time it was sent.
    let lost = episode(Cause::Rto, Side::Server, until, (0, 900));
    assert_eq!(held_findings(&halves, &[Vec::new(), vec![lost]]), []);
}

#[test]
fn the_span_gives_the_cost_of_a_wait_for_a_stream() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    let episodes =
        [vec![episode(Cause::StreamLimit, Side::Client, (START, START), (1_000, 1_900))], Vec::new()];
    assert_eq!(held_findings(&halves, &episodes)[0].cost_ns, None);
    halves.spans = Some(SpanTimes {
        client: Some((START - 7_000_000, START + 2_220 * US)),
        server: None,
        ..SpanTimes::default()
    });
    assert_eq!(held_findings(&halves, &episodes)[0].cost_ns, Some(7_000_000));
}

#[test]
fn an_idle_slot_costs_only_the_time_before_it_became_free() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    // A stream slot became free three milliseconds before the request.
    let free_ns = START - 3_000_000;
    let late = episode(Cause::StreamLimit, Side::Client, (free_ns - 9_000_000, free_ns), (1_000, 1_900));
    let episodes = [vec![late], Vec::new()];
    assert_eq!(held_findings(&halves, &episodes), [], "without a span nobody waited");
    for (begun_ns, waited_ns) in [(START - 7_000_000, Some(4_000_000)), (START - 2_000_000, None)] {
        halves.spans = Some(SpanTimes {
            client: Some((begun_ns, START + 2_220 * US)),
            server: None,
            ..SpanTimes::default()
        });
        let found = held_findings(&halves, &episodes);
        assert_eq!(found.first().and_then(|finding| finding.cost_ns), waited_ns);
        assert_eq!(found.len(), usize::from(waited_ns.is_some()));
    }
}

#[test]
fn the_server_is_convicted_only_with_its_span() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    let exchange = halves.exchanges[1].as_mut().expect("both ends");
    let response = exchange.response.as_mut().expect("answered");
    let later = |mark: &mut crate::exchange::Mark| {
        mark.seen_ns += 9_000_000;
        mark.ready_ns += 9_000_000;
    };
    later(&mut response.first);
    later(&mut response.last);
    let response = halves.exchanges[0].as_mut().and_then(|half| half.response.as_mut()).expect("answered");
    later(&mut response.first);
    later(&mut response.last);
    let find = |halves: &Halves| {
        let moments = Moments::of(halves);
        let duration = moments.ends().map_or(0, |(first, last)| last.0 - first.0) as u64;
        let mut found = Vec::new();
        let about = About {
            halves,
            moments: &moments,
            duration_ns: duration,
            offset_ns: 5_000_000,
            least_path_ns: None,
        };
        apps::findings(&about, &[], &mut found);
        found
    };
    let found = find(&halves);
    assert_eq!((found[0].cause, found[0].cost_ns), (Cause::ServerHostOrApp, Some(10_000_000)));
    assert_eq!(found[0].certainty, Certainty::Shown);
    // Bytes missing from a capture may have been anywhere.
    let mut doubtful = halves.clone();
    doubtful.exchanges[1].iter_mut().for_each(|half| half.doubts.hole = true);
    assert_eq!(find(&doubtful)[0].certainty, Certainty::Possible(Missing::ServerSpan));
    let server_clock = START + 5_000 * US;
    let arrived = server_clock + 520 * US;
    halves.spans = Some(SpanTimes {
        client: None,
        server: Some((arrived + 100, arrived + 9_900_000)),
        ..SpanTimes::default()
    });
    assert_eq!((find(&halves)[0].cause, find(&halves)[0].certainty), (Cause::ServerApp, Certainty::Shown));
    // Its application began late, so it was not the application.
    halves.spans = Some(SpanTimes {
        client: None,
        server: Some((arrived + 9_800_000, arrived + 9_900_000)),
        ..SpanTimes::default()
    });
    let found = find(&halves);
    assert_eq!((found.len(), found[0].cause, found[0].cost_ns), (1, Cause::ServerQueue, Some(9_800_000)));
    assert_eq!(find(&joined(vec![call(1, START, 0)])[0]), [], "a millisecond is not most of two");
}

#[test]
fn the_server_is_not_blamed_while_its_request_arrives() {
    let mut slow = call(1, START, 0);
    // The header takes 520 us, the rest of the request leaves 40 ms later, and the answer follows a millisecond
    // after it.
    slow.at[2..].iter_mut().for_each(|moment| *moment += 40_000 * US);
    let halves = |spans: SpanTimes, taps: [bool; 2]| {
        let mut halves = joined(vec![slow.clone()]).remove(0);
        for (half, seen) in halves.exchanges.iter_mut().zip(taps) {
            *half = half.take().filter(|_| seen);
        }
        halves.spans = Some(spans);
        halves
    };
    let server_clock = START + 5_000 * US;
    let span = |to_us: i64| Some((server_clock + 520 * US, server_clock + to_us * US));
    let found = |to_us: i64, taps| {
        let spans =
            SpanTimes { client: Some((slow.at[0], slow.at[9])), server: span(to_us), ..SpanTimes::default() };
        all(&halves(spans, taps), &Default::default())
            .into_iter()
            .map(|(cause, ..)| cause)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(41_500, [true, true]), []);
    // The client's tap knows that the request left late, but not when it arrived.
    assert_eq!(found(41_500, [true, false]), []);
    // It ended before the rest arrived, so it did not wait for that.
    assert_eq!(found(40_400, [true, true]), [Cause::ServerApp]);
    // Without both ends of the request, only the span is known.
    let spans = SpanTimes { client: None, server: span(41_500), ..SpanTimes::default() };
    let mut late = halves(spans, [true, true]);
    late.exchanges.iter_mut().flatten().for_each(|half| half.doubts.hole = true);
    assert_eq!(all(&late, &Default::default())[0].0, Cause::ServerApp);
}

/// Excess of each call's request, and whether it arrived in a batch.
fn requests(calls: Vec<TrueCall>) -> Vec<(u64, bool)> {
    let (mut paths, mut arrivals) = (Paths::default(), Arrivals::default());
    let mut detour = i64::MAX;
    let all: Vec<Way> =
        joined(calls).iter().filter_map(|halves| ways(halves, &Moments::of(halves))[0]).collect();
    all.iter().for_each(|way| arrivals.note(way));
    all.iter().map(|way| (paths.excess_ns(way, &mut detour), arrivals.batch(way).is_some())).collect()
}

#[test]
fn a_late_request_is_the_network_and_needs_no_offset() {
    let calls =
        (0..20).map(|i| call(i, START + i64::from(i) * 10_000 * US, if i == 13 { 4_000 * US } else { 0 }));
    let found = requests(calls.collect());
    for (i, (excess, batch)) in found.iter().enumerate() {
        assert_eq!((*excess, *batch), (if i == 13 { 4_000_000 } else { 0 }, false), "call {i}");
    }
    assert!(network_delay::is_late(4_000_000, 6_000_000) && !network_delay::is_late(900_000, 1_000_000));
}

#[test]
fn calls_sent_apart_that_arrive_together_are_a_batch() {
    // Five calls 1 ms apart arrive at the same moment, in order; others arrive on time.
    let calls = (0..30).map(|i| {
        let held = if (10..15).contains(&i) { i64::from(14 - i) * 1_000 * US + i64::from(i) } else { 0 };
        call(i, START + i64::from(i) * 1_000 * US, held)
    });
    let found = requests(calls.collect());
    for (i, (excess, batch)) in found.iter().enumerate() {
        assert_eq!(*batch, (10..15).contains(&i), "call {i}: {excess}");
    }
    // Calls written together arrive together: that is not a batch.
    let calls = (0..30).map(|i| call(i, START + i64::from(i) * US, 0));
    assert!(requests(calls.collect()).iter().all(|(_, batch)| !batch));
}

/// All findings of a call with these episodes, with costs.
fn all(halves: &Halves, episodes: &[Vec<Episode>; 2]) -> Vec<(Cause, bool, Option<u64>)> {
    let moments = Moments::of(halves);
    let duration_ns = moments.ends().map_or(0, |(first, last)| last.0 - first.0) as u64;
    let about = About { halves, moments: &moments, duration_ns, offset_ns: 5_000_000, least_path_ns: None };
    let mut explained = Vec::new();
    let mut found = held::findings(&about, episodes, &mut explained);
    apps::findings(&about, &explained, &mut found);
    by_weight(&mut found);
    found.into_iter().map(|f| (f.cause, f.certainty == Certainty::Shown, f.cost_ns)).collect()
}

#[test]
fn shown_causes_leave_only_the_rest_to_the_application() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    // The response leaves 9 ms later at both ends: 10 ms at the server in total.
    for half in halves.exchanges.iter_mut().flatten() {
        let response = half.response.as_mut().expect("answered");
        for mark in [&mut response.first, &mut response.last] {
            mark.seen_ns += 9_000_000;
            mark.ready_ns += 9_000_000;
        }
    }
    assert_eq!(all(&halves, &Default::default()), [(Cause::ServerHostOrApp, true, Some(10_000_000))]);
    let server_clock = START + 5_000 * US;
    let held = |until_us: i64| {
        let range = (server_clock + 1_520 * US, server_clock + until_us * US);
        [Vec::new(), vec![episode(Cause::NagleDelayedAck, Side::Server, range, (1_000, 1_900))]]
    };
    assert_eq!(all(&halves, &held(10_520)), [(Cause::NagleDelayedAck, true, Some(9_000_000))]);
    // If it was held for a shorter time, most of it still belongs to the server.
    let both =
        [(Cause::ServerHostOrApp, true, Some(8_000_000)), (Cause::NagleDelayedAck, true, Some(2_000_000))];
    assert_eq!(all(&halves, &held(3_520)), both);
}

#[test]
fn delays_before_the_wire_cost_the_wait_of_the_span() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    let opened = episode(Cause::ConnectionPerCall, Side::Client, (START - 8_000 * US, START), (1_000, 1_900));
    let episodes = [vec![opened], Vec::new()];
    assert_eq!(all(&halves, &episodes), [(Cause::ConnectionPerCall, true, None)]);
    // The span began when the connection had already been opening for 3 ms.
    halves.spans = Some(SpanTimes {
        client: Some((START - 5_000 * US, START + 2_220 * US)),
        server: None,
        ..SpanTimes::default()
    });
    assert_eq!(all(&halves, &episodes), [(Cause::ConnectionPerCall, true, Some(5_000_000))]);
    // It began long before: that time is the client's own.
    halves.spans = Some(SpanTimes {
        client: Some((START - 30_000 * US, START + 2_220 * US)),
        server: None,
        ..SpanTimes::default()
    });
    let both =
        [(Cause::ConnectionPerCall, true, Some(8_000_000)), (Cause::ClientApp, false, Some(22_000_000))];
    assert_eq!(all(&halves, &episodes), both);
}

#[test]
fn a_late_opening_does_not_count_as_the_cost_of_opening() {
    let mut halves = joined(vec![call(1, START, 0)]).remove(0);
    halves.spans = Some(SpanTimes {
        client: Some((START - 1_009_000 * US, START + 2_220 * US)),
        server: None,
        ..SpanTimes::default()
    });
    let since = |from_us: i64, to_us: i64| (START - from_us * US, START - to_us * US);
    let opened = episode(Cause::ConnectionPerCall, Side::Client, since(1_008_000, 0), (1_000, 1_900));
    let late = |certainty| Episode {
        certainty,
        side: Some(Side::Server),
        ..episode(Cause::AcceptOverflow, Side::Client, since(1_008_000, 4_000), (1_000, 1_900))
    };
    let found = |certainty| {
        let mut found = all(&halves, &[vec![opened.clone(), late(certainty)], Vec::new()]);
        found.retain(|(cause, ..)| *cause != Cause::ClientApp);
        found
    };
    let both = [
        (Cause::AcceptOverflow, true, Some(1_004_000_000)),
        (Cause::ConnectionPerCall, true, Some(4_000_000)),
    ];
    assert_eq!(found(Certainty::Shown), both);
    let possible = found(Certainty::Possible(Missing::ListenCounters));
    assert_eq!(possible[0], (Cause::ConnectionPerCall, true, Some(1_008_000_000)));
}

#[test]
fn the_sum_of_both_directions_needs_no_clock_and_excludes_loss() {
    let halves = joined(vec![call(1, START, 20_000 * US)]).remove(0);
    let path = |explained_ns| {
        let both = ways(&halves, &Moments::of(&halves)).map(|way| way.map(|way| (way, 0, 0)));
        let mut taken = network_delay::PathTime { ways: both };
        if let Some((_, explained, _)) = &mut taken.ways[0] {
            *explained = explained_ns;
        }
        taken
    };
    // 500 us there and 600 us back, plus 20 ms.
    assert_eq!(path(0).sum_ns(), Some(21_100_000));
    assert_eq!(path(0).cost_ns(22_220_000), Some(21_100_000));
    assert_eq!(path(20_000_000).cost_ns(22_220_000), None, "what is left is not most of the call");
    let note = network_delay::note(21_100_000, Some(1_100_000));
    assert!(note.starts_with("the minimum on this connection is 1.10 ms there and back"), "{note}");
    assert!(note.contains("; 20.0 ms come on top: not the queue of one switch"), "{note}");
}

#[test]
fn a_ready_response_waited_behind_the_other() {
    let server_clock = START + 5_000 * US;
    let possible = |from_us: i64| {
        let range = (server_clock + from_us * US, server_clock + 41_520 * US);
        let certainty = Certainty::Possible(Missing::ResponseReady);
        let behind = episode(Cause::HeadOfLine, Side::Server, range, (1_000, 1_900));
        Episode { certainty, stream_id: Some(1), ..behind }
    };
    // A request at 520 us, and a response that leaves at 41.52 ms, right behind another one that began at
    // `from_us`.
    let found = |from_us: i64, span: Option<(i64, i64)>| {
        let mut slow = call(1, START, 0);
        slow.at[6..].iter_mut().for_each(|moment| *moment += 40_000 * US);
        let mut halves = joined(vec![slow]).remove(0);
        let server = span.map(|(from, to)| (server_clock + from * US, server_clock + to * US));
        halves.spans = Some(SpanTimes { server, ..SpanTimes::default() });
        let seen = |ahead_us: i64| {
            let Episode { from_ns, to_ns, .. } = possible(from_us);
            Episode { from_ns: from_ns - ahead_us * US, to_ns: to_ns - ahead_us * US, ..possible(from_us) }
        };
        let mut episodes = [vec![seen(4_400)], vec![seen(0)]];
        ready::settle(&Moments::of(&halves), &mut episodes);
        let mut found = all(&halves, &episodes);
        found.retain(|(cause, ..)| *cause == Cause::HeadOfLine);
        found
    };
    let shown = |cost_us: u64| [(Cause::HeadOfLine, true, Some(cost_us * 1_000))];
    // It was ready after a millisecond: it waited for the rest of the other response's transmission.
    assert_eq!(found(0, Some((600, 1_520))), shown(40_000));
    assert_eq!(found(11_520, Some((600, 1_520))), shown(30_000));
    // It was ready only at that moment.
    assert_eq!(found(0, Some((600, 41_400))), []);
    // Unknown, or its span continues until after it has left.
    assert!(matches!(found(0, None)[..], [(Cause::HeadOfLine, false, Some(_))]));
    assert!(matches!(found(0, Some((600, 41_600)))[..], [(Cause::HeadOfLine, false, Some(_))]));
}
