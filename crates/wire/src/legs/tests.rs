//! The true legs always lie within their bounds, and sum to the duration exactly.

use super::*;
use crate::align::Clock;
use crate::join::Joiner;
use crate::join::world::{START, TrueCall, World, any_world};
use crate::spans::SpanTimes;
use crate::totals::accum::Accum;
use proptest::prelude::*;

fn joined(world: &World) -> (Joiner, Vec<Halves>) {
    let mut joiner = Joiner::new(true, [None; 2]);
    let mut joined = Vec::new();
    let facts = |capture: usize, connection: u32| Some(world.facts(capture, connection));
    for (capture, exchange) in world.exchanges() {
        joiner.offer(capture, &exchange, &facts, &mut joined);
    }
    (joiner, joined.into_iter().map(|joined| *joined.halves).collect())
}

fn call_of<'a>(world: &'a World, halves: &Halves) -> &'a TrueCall {
    let number = halves.exchanges.iter().flatten().next().map_or(0, |half| half.stream_id);
    &world.calls[number as usize]
}

/// Adds the spans of this call, by the clocks of their hosts.
fn with_spans(world: &World, halves: &mut Halves) {
    with_early_spans(world, halves, [false; 2]);
}

/// The same, with starts that are truncated to milliseconds at some ends, and durations that are not.
fn with_early_spans(world: &World, halves: &mut Halves, early: [bool; 2]) {
    let TrueCall { at, early_ns, resent, .. } = *call_of(world, halves);
    let begins = at[4] - early_ns.unwrap_or(0);
    let span = |capture: usize, (start, end): (i64, i64), is_early: bool| {
        let (start, end) = (world.shows(capture, start), world.shows(capture, end));
        // A duration in whole milliseconds would look as if both times were truncated.
        let is_early = is_early && (end - start) % MILLISECOND_NS != 0;
        let cut = if is_early { start.rem_euclid(MILLISECOND_NS) } else { 0 };
        Some((start - cut, end - cut))
    };
    let spans = SpanTimes {
        client: span(world.client, (at[0], at[9]), early[0]),
        // Nothing is served before its first byte can be read.
        server: span(1 - world.client, (begins, at[5]), early[1] && !resent[0]),
        ..SpanTimes::default()
    };
    halves.spans = Some(spans.placed(&halves.exchanges));
}

/// The time from one moment to a later one on the client's clock. Only the server's tap shows when the request
/// was complete at the server.
fn truth(world: &World, call: &TrueCall, halves: &Halves, leg: &LegTime) -> i64 {
    let begin = Leg::ALL.iter().position(|of| *of == leg.legs.first).unwrap_or_default();
    let end = Leg::ALL.iter().position(|of| *of == leg.legs.last).unwrap_or_default() + 1;
    let early_ns = call.early_ns.filter(|_| halves.exchanges[1].is_none()).unwrap_or(0);
    let at = |moment: usize| call.at[moment] - if moment == 4 { early_ns } else { 0 };
    world.shows(world.client, at(end)) - world.shows(world.client, at(begin))
}

fn check(world: &World, halves: &Halves, clock: Option<&Clock>) -> Result<(), TestCaseError> {
    let resolution_ns = world.resolution_ns as u32;
    let clocks = Clocks { clock, client_capture: world.client as u8, resolution_ns };
    let (_, duration_ns, legs) = legs(halves, clocks);
    prop_assert_eq!(legs.iter().map(|leg| leg.ns).sum::<i64>(), duration_ns as i64);
    let call = call_of(world, halves);
    for leg in &legs {
        let truth = truth(world, call, halves, leg);
        // The clocks of the model round to whole nanoseconds.
        prop_assert!(
            truth.abs_diff(leg.ns) <= leg.bound_ns + 2,
            "{} is {truth}, found {} +- {}",
            leg.legs,
            leg.ns,
            leg.bound_ns
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn true_legs_are_within_their_bounds(world in any_world(), spans in any::<bool>(), early in any::<[bool; 2]>()) {
        let (joiner, mut calls) = joined(&world);
        let clock = Clock::fit(&joiner.bounds, world.resolution_ns as u32).expect("calls bound the clocks");
        prop_assert_eq!(clock.stretches.len(), 1);
        let found = |halves: &&mut Halves| usize::from(halves.captures[0]) == world.client;
        for halves in calls.iter_mut().filter(found) {
            if spans {
                with_early_spans(&world, halves, early);
            }
            check(&world, halves, Some(&clock))?;
            // Without the clocks, the sum of both directions is halved.
            check(&world, halves, None)?;
        }
    }

    #[test]
    fn one_end_and_spans_are_within_their_bounds(world in any_world(), end in 0..2_usize, spans in 0..3) {
        let (_, mut calls) = joined(&world);
        let found = |halves: &&mut Halves| usize::from(halves.captures[0]) == world.client;
        for halves in calls.iter_mut().filter(found) {
            with_spans(&world, halves);
            match (&mut halves.spans, spans) {
                (Some(times), 0) => times.client = None,
                (Some(times), 1) => times.server = None,
                _ => {}
            }
            halves.exchanges[end] = None;
            if halves.spans.is_some_and(|times| end == 0 && times.client.is_none()) {
                continue; // The server's clock alone: next test.
            }
            check(&world, halves, None)?;
        }
    }

    #[test]
    fn sums_are_within_their_bounds(world in any_world(), spans in any::<bool>()) {
        let (joiner, mut calls) = joined(&world);
        let clock = Clock::fit(&joiner.bounds, world.resolution_ns as u32);
        let mut sums = [Accum::default(), Accum::default()];
        let mut truths: Vec<(Legs, i64)> = Vec::new();
        let found = |halves: &&mut Halves| usize::from(halves.captures[0]) == world.client;
        for (i, halves) in calls.iter_mut().filter(found).enumerate() {
            if spans {
                with_spans(&world, halves);
            }
            let moments = Moments::of(halves).closed();
            let duration = moments.ends().map_or(0, |(first, last)| last.0 - first.0);
            sums[i % 2].call(halves, &moments, duration as u64, &[]);
            let call = call_of(&world, halves);
            moments.raw(|leg| {
                let of = truth(&world, call, halves, &LegTime { legs: leg.legs, ns: 0, bound_ns: 0 });
                match truths.iter_mut().find(|(legs, _)| *legs == leg.legs) {
                    Some(known) => known.1 += of,
                    None => truths.push((leg.legs, of)),
                }
            });
        }
        let [mut sum, other] = sums;
        sum.add(&other);
        let durations = sum.total_ns();
        let finished = sum.clone().finish(clock.as_ref(), world.resolution_ns as u32);
        prop_assert_eq!(finished.legs.iter().map(|leg| i128::from(leg.total_ns)).sum::<i128>(), durations as i128);
        for leg in &finished.legs {
            let truth = truths.iter().find(|(legs, _)| *legs == leg.legs).map_or(0, |known| known.1);
            let rounding = 3 * finished.calls;
            prop_assert!(
                truth.abs_diff(leg.total_ns) <= leg.bound_ns + rounding,
                "{} is {truth}, found {} +- {}", leg.legs, leg.total_ns, leg.bound_ns
            );
        }
        // Without the clocks, both directions and the server are one figure.
        let unknown = sum.finish(None, world.resolution_ns as u32);
        prop_assert_eq!(unknown.legs.iter().map(|leg| i128::from(leg.total_ns)).sum::<i128>(), durations as i128);
    }
}

fn names(legs: &[LegTime]) -> Vec<String> {
    legs.iter().map(|leg| leg.legs.to_string()).collect()
}

fn one_call() -> (World, Halves) {
    let at = [0, 10, 20, 520, 600, 700, 800, 900, 1_500, 1_600].map(|us| START + us * 1_000);
    let call = TrueCall {
        connection: 1,
        at,
        early_ns: None,
        resent: [false; 2],
        request: (5, 90),
        response: (7, 60),
    };
    let (client, offset_ns, skew_ppm, resolution_ns) = (0, 77_000, 0.0, 1);
    let world = World { client, offset_ns, skew_ppm, resolution_ns, translated: false, calls: vec![call] };
    let halves = joined(&world).1.remove(0);
    (world, halves)
}

#[test]
fn an_unsplittable_leg_is_named_by_its_ends() {
    let (world, halves) = one_call();
    let clocks = Clocks { clock: None, client_capture: 0, resolution_ns: 1 };
    let client = Halves { exchanges: [halves.exchanges[0].clone(), None], ..halves.clone() };
    let whole = "request_wire+server_host_in+server_app+server_host_out+server_send+response_wire";
    let (_, duration_ns, found) = legs(&client, clocks);
    assert_eq!((names(&found), duration_ns), (vec!["client_send".into(), whole.into()], 1_490_000));
    let server = Halves { exchanges: [None, halves.exchanges[1].clone()], ..halves.clone() };
    let (_, duration_ns, found) = legs(&server, clocks);
    let expected = ["client_send+request_wire", "server_host_in+server_app+server_host_out", "server_send"];
    assert_eq!((names(&found), duration_ns), (expected.map(String::from).to_vec(), 390_000));
    let mut both = halves.clone();
    with_spans(&world, &mut both);
    let (_, duration_ns, found) = legs(&both, clocks);
    assert_eq!((found.len(), duration_ns), (9, 1_600_000));
    let mut unanswered = halves;
    unanswered.exchanges.iter_mut().flatten().for_each(|half| half.response = None);
    let (_, _, found) = legs(&unanswered, clocks);
    assert_eq!(names(&found), ["client_send"]);
}

/// The call of [`one_call`], with its SERVER span by the clock of that end.
fn served(from_us: i64, to_us: i64) -> Vec<(String, i64)> {
    let (world, mut halves) = one_call();
    with_spans(&world, &mut halves);
    let server = [from_us, to_us].map(|us| world.shows(1, START + us * 1_000));
    halves.spans = halves.spans.map(|times| SpanTimes { server: Some(server.into()), ..times });
    let (_, duration_ns, found) = legs(&halves, Clocks { clock: None, client_capture: 0, resolution_ns: 1 });
    assert_eq!(found.iter().map(|leg| leg.ns).sum::<i64>(), duration_ns as i64);
    let at_server = |leg: &&LegTime| {
        [Leg::ServerHostIn, Leg::ServerApp, Leg::ServerHostOut].map(Legs::one).contains(&leg.legs)
    };
    found.iter().filter(at_server).map(|leg| (leg.legs.to_string(), leg.ns / 1_000)).collect()
}

fn at_server(host_in: i64, app: i64, host_out: i64) -> Vec<(String, i64)> {
    vec![("server_host_in".into(), host_in), ("server_app".into(), app), ("server_host_out".into(), host_out)]
}

#[test]
fn the_application_begins_with_the_complete_request() {
    // The last byte of the request is readable after 520 us; the first byte of the response leaves after 800.
    assert_eq!(served(600, 700), at_server(80, 100, 100));
    // A span that begins with the header, long before the rest.
    assert_eq!(served(100, 700), at_server(0, 180, 100));
    assert_eq!(served(100, 520), at_server(0, 0, 280));
    // A span that ended before the rest arrived did not need it.
    assert_eq!(served(100, 500), at_server(-420, 400, 300));
    // A span that continues while the response is being sent may or may not have written it.
    assert_eq!(served(600, 850), at_server(80, 250, -50));
}

#[test]
fn an_unseen_end_of_the_request_delays_nothing() {
    let (world, mut halves) = one_call();
    with_spans(&world, &mut halves);
    let from = world.shows(1, START + 100_000);
    halves.spans =
        halves.spans.map(|times| SpanTimes { server: times.server.map(|(_, to)| (from, to)), ..times });
    let moments = Moments::of(&halves);
    assert_eq!(moments.0[4], moments.0[3]);
    // Only the acknowledgement of a hole is known, which may come much later.
    let half = halves.exchanges[1].as_mut().expect("both ends");
    half.doubts.hole = true;
    assert_eq!(Moments::of(&halves).0[4], Some((from, Side::Server)));
    // The ends refer to different bytes.
    let half = halves.exchanges[1].as_mut().expect("both ends");
    (half.doubts.hole, half.request.end) = (false, half.request.end - 9);
    let moments = Moments::of(&halves);
    assert_eq!((moments.0[3], moments.0[4]), (None, Some((from, Side::Server))));
}
