//! Verdicts on made-up evidence: what is named, and above all what is not.

use super::*;
use spangap_model::evidence::{Certainty, Finding, Instrument, LegRecord, Scope};

const MS: i64 = 1_000_000;

fn leg(leg: Leg, ms: i64) -> LegRecord {
    LegRecord { legs: Legs::one(leg), ns: ms * MS, bound_ns: 0, host: None }
}

fn call(number: i64, method: &str, legs: Vec<LegRecord>, findings: Vec<Finding>) -> CallRecord {
    let ns: i64 = legs.iter().map(|leg| leg.ns).sum();
    CallRecord {
        start_unix_ns: number * 10 * MS,
        duration_ns: ns as u64,
        method: Some(method.into()),
        seen_in: [Some(0), Some(1)],
        legs,
        findings,
        ..CallRecord::default()
    }
}

fn lost(ms: u64) -> Finding {
    Finding {
        hop: None,
        culprit: Culprit::at(Cause::Rto, Side::Server),
        certainty: Certainty::Shown,
        instrument: Instrument::Packets,
        scope: Scope::Call,
        when: None,
        cost_ns: Some(ms * MS as u64),
        note: String::new(),
        proofs: Vec::new(),
    }
}

fn of(calls: impl Iterator<Item = CallRecord>) -> Hunt {
    let calls: Vec<CallRecord> = calls.collect();
    hunt(&Evidence { matching_calls: calls.len() as u64, calls, ..Evidence::default() })
}

#[test]
fn a_loss_that_slow_calls_have_and_others_do_not_is_it() {
    let hunt = of((0..200).map(|n| match n % 10 {
        0 => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 201)], vec![lost(200)]),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "slow"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::Rto, Side::Server));
    assert!(
        hunt.culprits[0].share.low > 0.9 && hunt.words.contains("rto (server) owns 100 %"),
        "{}",
        hunt.words
    );
}

#[test]
fn a_slow_method_by_design_is_no_fault() {
    let hunt = of((0..400).map(|n| match n % 4 {
        0 => call(n, "/report", vec![leg(Leg::ServerApp, 80)], Vec::new()),
        _ => call(n, "/get", vec![leg(Leg::ServerApp, 2)], Vec::new()),
    }));
    assert!(hunt.culprits.is_empty(), "{hunt:#?}");
    // All of the time is in the servers' spans: that is said, as a place.
    assert_eq!((hunt.verdict, hunt.question), (Kind::Place, "all"));
}

#[test]
fn quick_calls_that_are_all_alike_are_nothing() {
    let quick = |n: i64| {
        let mut quick = call(n, "/a", vec![leg(Leg::ServerApp, 0), leg(Leg::ResponseWire, 0)], Vec::new());
        (quick.legs[0].ns, quick.legs[1].ns, quick.duration_ns) =
            (90_000 + n * 100, 40_000, 130_000 + n as u64 * 100);
        quick
    };
    assert_eq!(of((0..100).map(quick)).verdict, Kind::Nothing);
    assert_eq!(of(std::iter::empty()).verdict, Kind::Nothing);
}

#[test]
fn one_outlier_convicts_nobody() {
    let hunt = of((0..100).map(|n| match n {
        50 => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 3_000)], vec![lost(3_000)]),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    assert!(!hunt.culprits.iter().any(|one| one.culprit.cause == Cause::Rto), "{hunt:#?}");
}

#[test]
fn two_that_share_it_are_several() {
    let hunt = of((0..300).map(|n| match n % 10 {
        0 => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 101)], vec![lost(100)]),
        1 => {
            let mut held = lost(100);
            held.culprit = Culprit::at(Cause::StreamLimit, Side::Client);
            call(n, "/a", vec![leg(Leg::ClientAppOut, 100), leg(Leg::ServerApp, 2)], vec![held])
        }
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Several, 2), "{hunt:#?}");
}

#[test]
fn a_leg_without_a_cause_is_a_place_with_what_to_look_at_next() {
    let hunt = of((0..200).map(|n| match n % 5 {
        0 => call(n, "/a", vec![leg(Leg::ClientAppIn, 50), leg(Leg::ServerApp, 2)], Vec::new()),
        _ => call(n, "/a", vec![leg(Leg::ClientAppIn, 0), leg(Leg::ServerApp, 2)], Vec::new()),
    }));
    assert_eq!(hunt.verdict, Kind::Place, "{hunt:#?}");
    assert_eq!(hunt.place.map(|place| place.leg), Some(Legs::one(Leg::ClientAppIn)));
    assert!(hunt.look_next.iter().any(|next| next.contains("host record")), "{:?}", hunt.look_next);
}

#[test]
fn legs_that_are_not_told_apart_convict_nobody() {
    let between = Legs { first: Leg::RequestWire, last: Leg::ResponseWire };
    let one = |n: i64, ms: i64, findings| {
        let whole = LegRecord { legs: between, ns: ms * MS, bound_ns: 0, host: None };
        call(n, "/a", vec![whole], findings)
    };
    let hunt = of((0..200)
        .map(|n| one(n, if n % 5 == 0 { 60 } else { 10 }, if n % 5 == 0 { vec![lost(5)] } else { vec![] })));
    assert!(hunt.culprits.is_empty() && hunt.coverage.with_legs < 0.2, "{hunt:#?}");
}

#[test]
fn few_calls_that_are_unlike_each_other_are_not_nothing() {
    let hunt = of((0..6).map(|n| call(n, &format!("/{n}"), vec![leg(Leg::ClientSend, 300)], Vec::new())));
    assert_eq!((hunt.verdict, hunt.coverage.set_aside), (Kind::Place, 6), "{hunt:#?}");
}

#[test]
fn why_slow_calls_are_slow_comes_before_what_all_calls_consist_of() {
    let hunt = of((0..300).map(|n| match n % 15 {
        0 => call(n, "/a", vec![leg(Leg::ServerApp, 20), leg(Leg::ResponseWire, 30)], vec![lost(30)]),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 20), leg(Leg::ResponseWire, 0)], Vec::new()),
    }));
    assert_eq!(hunt.culprits.first().map(|one| one.culprit.cause), Some(Cause::Rto), "{hunt:#?}");
}

#[test]
fn what_holds_every_call_up_comes_before_a_smaller_excess_of_some() {
    let mut nagle = lost(40);
    nagle.culprit = Culprit::at(Cause::NagleDelayedAck, Side::Client);
    let hunt = of((0..300).map(|n| {
        let more = if n % 10 == 0 { 25 } else { 0 };
        let findings = if more > 0 { vec![nagle.clone(), lost(25)] } else { vec![nagle.clone()] };
        call(n, "/a", vec![leg(Leg::ClientSend, 41), leg(Leg::ResponseWire, more)], findings)
    }));
    assert_eq!(hunt.culprits.first().map(|one| one.culprit.cause), Some(Cause::NagleDelayedAck), "{hunt:#?}");
}

#[test]
fn what_other_instruments_show_stands_beside_the_sheet() {
    let mut possible = lost(1);
    (possible.certainty, possible.instrument) =
        (Certainty::Possible(spangap_model::evidence::Missing::MetByCalls), Instrument::HostCheck);
    let mut shown = lost(1);
    shown.instrument = Instrument::Thieves;
    let findings = vec![possible, shown];
    let hunt = hunt(&Evidence { findings, ..Evidence::default() });
    let order: Vec<Instrument> = hunt.beside.iter().map(|finding| finding.instrument).collect();
    assert_eq!((hunt.verdict, order), (Kind::Nothing, vec![Instrument::Thieves, Instrument::HostCheck]));
}
