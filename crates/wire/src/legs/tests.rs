//! The true legs lie within their bounds, always, and sum to the duration exactly.

use super::*;
use crate::align::Clock;
use crate::join::Joiner;
use crate::join::world::{START, TrueCall, World, any_world};
use crate::spans::SpanTimes;
use crate::totals::accum::Accum;
use proptest::prelude::*;

fn joined(world: &World) -> (Joiner, Vec<Halves>) {
    let mut joiner = Joiner::new(true);
    let mut joined = Vec::new();
    let facts = |capture: usize, connection: u32| Some(world.facts(capture, connection));
    for (capture, exchange) in world.exchanges() {
        joiner.offer(capture, exchange, &facts, &mut joined);
    }
    (joiner, joined.into_iter().map(|joined| *joined.halves).collect())
}

fn call_of<'a>(world: &'a World, halves: &Halves) -> &'a TrueCall {
    let number = halves.exchanges.iter().flatten().next().map_or(0, |half| half.stream_id);
    &world.calls[number as usize]
}

/// Adds the spans that this call had, by the clocks of their hosts.
fn with_spans(world: &World, halves: &mut Halves) {
    let at = call_of(world, halves).at;
    let shown = |side: Side, moment: usize| {
        let capture = if side == Side::Client { world.client } else { 1 - world.client };
        world.shows(capture, at[moment])
    };
    halves.spans = Some(SpanTimes {
        client: Some((shown(Side::Client, 0), shown(Side::Client, 9))),
        server: Some((shown(Side::Server, 4), shown(Side::Server, 5))),
    });
}

/// The time from one moment to a later one by the client's clock.
fn truth(world: &World, call: &TrueCall, leg: &LegTime) -> i64 {
    let begin = Leg::ALL.iter().position(|of| *of == leg.legs.first).unwrap_or_default();
    let end = Leg::ALL.iter().position(|of| *of == leg.legs.last).unwrap_or_default() + 1;
    world.shows(world.client, call.at[end]) - world.shows(world.client, call.at[begin])
}

fn check(world: &World, halves: &Halves, clock: Option<&Clock>) -> Result<(), TestCaseError> {
    let resolution_ns = world.resolution_ns as u32;
    let clocks = Clocks { clock, client_capture: world.client as u8, resolution_ns };
    let (_, duration_ns, legs) = legs(halves, clocks);
    prop_assert_eq!(legs.iter().map(|leg| leg.ns).sum::<i64>(), duration_ns as i64);
    let call = call_of(world, halves);
    for leg in &legs {
        let truth = truth(world, call, leg);
        // Clocks of the world round to whole nanoseconds.
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
    fn true_legs_are_within_their_bounds(world in any_world(), spans in any::<bool>()) {
        let (joiner, mut calls) = joined(&world);
        let clock = Clock::fit(&joiner.bounds, world.resolution_ns as u32).expect("calls bound the clocks");
        prop_assert_eq!(clock.stretches.len(), 1);
        let found = |halves: &&mut Halves| usize::from(halves.captures[0]) == world.client;
        for halves in calls.iter_mut().filter(found) {
            if spans {
                with_spans(&world, halves);
            }
            check(&world, halves, Some(&clock))?;
            // Without the clocks, what both ways took is halved.
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
        let guess = joiner.bounds.guess_ns().unwrap_or(0);
        let mut sums = [Accum::default(), Accum::default()];
        let mut truths: Vec<(Legs, i64)> = Vec::new();
        let found = |halves: &&mut Halves| usize::from(halves.captures[0]) == world.client;
        for (i, halves) in calls.iter_mut().filter(found).enumerate() {
            if spans {
                with_spans(&world, halves);
            }
            let moments = Moments::of(halves).closed();
            let duration = moments.ends().map_or(0, |(first, last)| last.0 - first.0);
            sums[i % 2].call(halves, &moments, duration as u64, &[], guess);
            let call = call_of(&world, halves);
            moments.raw(|leg| {
                let of = truth(&world, call, &LegTime { legs: leg.legs, ns: 0, bound_ns: 0 });
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
        // Without the clocks, the ways and the server are one figure.
        let unknown = sum.finish(None, world.resolution_ns as u32);
        prop_assert_eq!(unknown.legs.iter().map(|leg| i128::from(leg.total_ns)).sum::<i128>(), durations as i128);
    }
}

fn names(legs: &[LegTime]) -> Vec<String> {
    legs.iter().map(|leg| leg.legs.to_string()).collect()
}

fn one_call() -> (World, Halves) {
    let at = [0, 10, 20, 520, 600, 700, 800, 900, 1_500, 1_600].map(|us| START + us * 1_000);
    let call = TrueCall { connection: 1, at, resent: [false; 2], request: (5, 90), response: (7, 60) };
    let (client, offset_ns, skew_ppm, resolution_ns) = (0, 77_000, 0.0, 1);
    let world = World { client, offset_ns, skew_ppm, resolution_ns, translated: false, calls: vec![call] };
    let halves = joined(&world).1.remove(0);
    (world, halves)
}

#[test]
fn what_cannot_be_split_is_named_by_its_ends() {
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
