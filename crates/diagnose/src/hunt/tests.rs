//! Verdicts on made-up evidence: what is named, and above all what is not.

pub mod mixed;
mod noisy;

use super::lack::{Lack, Source};
use super::*;
use spangap_model::Doing;
use spangap_model::evidence::{Certainty, Finding, HostPart, HostTime, Instrument, LegRecord, Scope};

pub(super) const MS: i64 = 1_000_000;

pub(super) fn leg(leg: Leg, ms: i64) -> LegRecord {
    LegRecord { legs: Legs::one(leg), ns: ms * MS, bound_ns: 0, host: None }
}

pub(super) fn call(number: i64, method: &str, legs: Vec<LegRecord>, findings: Vec<Finding>) -> CallRecord {
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

pub(super) fn lost(ms: u64) -> Finding {
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

pub(super) fn of(calls: impl Iterator<Item = CallRecord>) -> Hunt {
    let calls: Vec<CallRecord> = calls.collect();
    hunt(&Evidence { matching_calls: calls.len() as u64, calls, ..Evidence::default() }, &Question::default())
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
        hunt.culprits[0].share.low > 0.9 && hunt.words.contains("rto (server) accounts for 100 %"),
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
    // Most calls are fast, and the others are as slow as all of their kind.
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Nothing, 0), "{hunt:#?}");
    // The time of all calls is explained as well: it is in the servers' spans.
    let all = hunt.questions.all.expect("it is always asked");
    assert_eq!(
        (all.verdict, all.place.map(|place| place.leg)),
        (Kind::Place, Some(Legs::one(Leg::ServerApp)))
    );
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
}

#[test]
fn nothing_is_not_said_of_calls_whose_begin_nobody_saw() {
    let of = |first: Leg| {
        of((0..100).map(|n| {
            let legs = vec![leg(first, 0), leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 0)];
            call(n, "/a", legs, Vec::new())
        }))
    };
    assert_eq!(of(Leg::ClientAppOut).verdict, Kind::Nothing);
    // Packets alone: the client may have waited before it sent anything.
    let packets = of(Leg::ClientSend);
    assert_eq!(packets.verdict, Kind::Unknown, "{packets:#?}");
    let clients = Lack::of(Source::ClientSpans);
    assert!(packets.not_looked.iter().any(|one| one.lacks == Some(clients)), "{packets:#?}");
}

#[test]
fn an_event_amid_calls_that_vary_anyway_is_shown_by_the_calls_that_have_it() {
    // The server takes up to 100 ms, whatever happens; every eighth call also waits for 80 ms.
    let of = |held: &dyn Fn(i64) -> bool| {
        of((0..800).map(|n| {
            let served = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1 + n * 37 % 100)];
            match held(n) {
                true => call(n, "/a", [served, vec![leg(Leg::ResponseWire, 80)]].concat(), vec![lost(80)]),
                false => call(n, "/a", served, Vec::new()),
            }
        }))
    };
    let hunt = of(&|n| n % 8 == 0);
    assert_eq!((hunt.verdict, hunt.culprits.len(), hunt.question), (Kind::One, 1, "slow"), "{hunt:#?}");
    assert!(hunt.excess.by_event && hunt.excess.slow_calls == 100, "{:?}", hunt.excess);
    assert!(
        hunt.words.starts_with("100 calls show rto (server); they took 78.3 ms longer"),
        "{}",
        hunt.words
    );
    // Calls that are slow for no other reason are simply the slow ones.
    let alone = of_losses_alone();
    assert!(alone.verdict == Kind::One && !alone.excess.by_event, "{alone:#?}");
}

fn of_losses_alone() -> Hunt {
    of((0..200).map(|n| {
        let lost_ms = if n % 10 == 0 { 80 } else { 0 };
        let legs = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, lost_ms)];
        call(n, "/a", legs, if lost_ms > 0 { vec![lost(80)] } else { Vec::new() })
    }))
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
    assert!(hunt.look_next.iter().any(|next| next.contains("threads and run queue")), "{:?}", hunt.look_next);
    let recording = Lack::of(Source::ClientHost);
    let lacking =
        hunt.not_looked.iter().find(|one| one.lacks == Some(recording)).expect("a recording is missing");
    assert!(lacking.needs.contains("host record"), "{}", lacking.needs);
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
    let calls = (0..40).map(|n| call(n, "/a", vec![leg(Leg::ServerApp, 1)], Vec::new())).collect();
    let evidence = Evidence { findings, calls, matching_calls: 40, ..Evidence::default() };
    let hunt = hunt(&evidence, &Question::default());
    let order: Vec<Instrument> = hunt.beside.iter().map(|finding| finding.instrument).collect();
    assert_eq!((hunt.verdict, order), (Kind::Nothing, vec![Instrument::Thieves, Instrument::HostCheck]));
}

#[test]
fn a_sample_stands_for_the_calls_that_it_was_drawn_from() {
    // All of the slowest are kept, but only fifty of a thousand ordinary calls. Service would seem to be half
    // of all the slow ones' time.
    let mut calls: Vec<CallRecord> = (0..40)
        .map(|n| call(n, "/a", vec![leg(Leg::ServerApp, 20), leg(Leg::ResponseWire, 41)], vec![lost(40)]))
        .collect();
    for n in 0..50 {
        let mut drawn =
            call(n * 20, "/a", vec![leg(Leg::ServerApp, 20), leg(Leg::ResponseWire, 1)], Vec::new());
        drawn.stands_for = Some(20.0);
        calls.push(drawn);
    }
    let evidence = Evidence { matching_calls: 1_040, calls, ..Evidence::default() };
    let hunt = hunt(&evidence, &Question { slower: Some(Slower::Quantile(0.97)), ..Question::default() });
    assert_eq!(
        (hunt.verdict, hunt.excess.calls, hunt.excess.slow_calls),
        (Kind::One, 1_040, 40),
        "{hunt:#?}"
    );
    assert!((hunt.culprits[0].share.mid - 1.0).abs() < 0.01);
    assert_eq!(hunt.culprits[0].wins.p99_ns, 40 * MS as u64);
}

#[test]
fn excesses_far_below_a_millisecond_are_found_where_calls_take_microseconds() {
    let hunt = of((0..400).map(|n| {
        let slow = n % 8 == 0;
        let mut quick = call(n, "/a", vec![leg(Leg::ServerApp, 0), leg(Leg::ResponseWire, 0)], Vec::new());
        (quick.legs[0].ns, quick.legs[1].ns) = (40_000 + n % 7 * 500, if slow { 160_000 } else { 10_000 });
        quick.duration_ns = (quick.legs[0].ns + quick.legs[1].ns) as u64;
        if slow {
            let mut held = lost(0);
            held.cost_ns = Some(145_000);
            quick.findings.push(held);
        }
        quick
    }));
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "slow"), "{hunt:#?}");
    assert!(hunt.excess.mean_ns < 200_000, "{}", hunt.excess.mean_ns);
}

#[test]
fn time_before_the_last_attempt_is_retries() {
    let ids = |n: i64, mut record: CallRecord| {
        (record.trace_id, record.span_id) =
            (Some(format!("{:032x}", n + 1)), Some(format!("{:016x}", n + 1)));
        record
    };
    let calls = (0..200).flat_map(|n| {
        let one = |out: i64, rest: i64| {
            let legs = vec![leg(Leg::ClientAppOut, out), leg(Leg::ServerApp, 5), leg(Leg::ClientAppIn, rest)];
            ids(n, call(n, "/a", legs, Vec::new()))
        };
        if n % 6 == 0 { vec![one(1, 60), one(61, 0)] } else { vec![one(1, 0)] }
    });
    let hunt = of(calls);
    assert_eq!((hunt.verdict, hunt.excess.calls), (Kind::One, 200), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::of(Cause::Retries));
    assert_eq!(hunt.excess.mean_ns, 60 * MS as u64, "each call counts once");
}

#[test]
fn suspects_are_cleared_with_figures_or_not_looked_for() {
    let hunt = of((0..200).map(|n| match n % 10 {
        0 => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 201)], vec![lost(200)]),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    let nagle =
        hunt.cleared.iter().find(|one| one.culprit == Culprit::at(Cause::NagleDelayedAck, Side::Client));
    let nagle = nagle.expect("packets were looked at");
    assert_eq!(nagle.seen, "0 of 20 calls did");
    assert!(nagle.would_show.contains("waited for a delayed ACK, for 100 ms"), "{}", nagle.would_show);
    let busy = hunt.not_looked.iter().find(|one| one.culprit == Culprit::at(Cause::RunQueue, Side::Server));
    assert!(busy.is_some_and(|one| one.needs.contains("host record")), "{:?}", hunt.not_looked);
    assert!(!hunt.cleared.iter().any(|one| one.culprit.cause == Cause::Rto), "the culprit is not cleared");
    let both = |culprit: &Culprit| hunt.not_looked.iter().any(|one| one.culprit == *culprit);
    assert!(!hunt.cleared.iter().any(|one| both(&one.culprit)), "a suspect is one or the other");
}

#[test]
fn an_instrument_that_looked_and_shows_nothing_speaks_against() {
    use spangap_model::evidence::Coverage;
    let calls: Vec<CallRecord> = (0..200)
        .map(|n| match n % 10 {
            0 => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 201)], vec![lost(200)]),
            _ => call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new()),
        })
        .collect();
    let mut sockets = lost(7);
    (sockets.instrument, sockets.scope) = (Instrument::Sockets, Scope::Host);
    let coverage = Coverage {
        instrument: Instrument::Thieves,
        source: "server".into(),
        side: Some(Side::Server),
        when: None,
        seen: 3,
        lost: 0,
        cannot: Vec::new(),
    };
    let evidence = Evidence {
        matching_calls: 200,
        calls,
        findings: vec![sockets],
        coverage: vec![coverage],
        ..Evidence::default()
    };
    let hunt = hunt(&evidence, &Question::default());
    let rto = &hunt.culprits[0];
    assert!(rto.speaks_for.iter().any(|words| words.starts_with("sockets shows rto (server)")), "{rto:?}");
    assert!(rto.speaks_for.iter().any(|words| words.starts_with("20 of the 20 calls")), "{rto:?}");
    // The taker of the CPU is no evidence about lost packets.
    assert!(rto.speaks_against.is_empty(), "{rto:?}");
}

#[test]
fn what_a_cause_costs_is_told_of_the_calls_that_show_it() {
    let quick = |n| call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)], Vec::new());
    let hunt = of((0..400).map(|n| match n % 40 {
        0 | 10 | 20 => {
            call(n, "/a", vec![leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 201)], vec![lost(200)])
        }
        30 => call(n, "/a", vec![leg(Leg::ServerApp, 202), leg(Leg::ResponseWire, 1)], Vec::new()),
        _ => quick(n),
    }));
    let rto = &hunt.culprits[0];
    let words = "30 of the 40 calls show it, for 200 ms each on average.";
    assert!(rto.speaks_for.iter().any(|line| line == words), "{rto:?}");
}

#[test]
fn few_calls_that_take_most_of_the_time_are_not_nothing_and_convict_nobody() {
    let hunt = of((0..30).map(|n| match n {
        7 => call(n, "/a", vec![leg(Leg::ServerApp, 0), leg(Leg::ResponseWire, 1_000)], vec![lost(1_000)]),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 0), leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Unknown, 0), "{hunt:#?}");
    assert!(hunt.words.starts_with("1 call took 999 ms longer"), "{}", hunt.words);
}

#[test]
fn calls_that_were_tried_again_are_compared_with_those_that_were_not() {
    // Of the last attempt, the server's span is unknown, so its legs are merged.
    let served = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
    let calls = (0..200).flat_map(|n| {
        let one = |out: i64, known: bool| {
            let parts = match known {
                true => vec![leg(Leg::ServerHostIn, 0), leg(Leg::ServerApp, 20), leg(Leg::ServerHostOut, 0)],
                false => vec![LegRecord { legs: served, ns: 20 * MS, bound_ns: 0, host: None }],
            };
            let rest = if known && out == 1 && n % 5 == 0 { 21 } else { 0 };
            let legs = [vec![leg(Leg::ClientAppOut, out)], parts, vec![leg(Leg::ClientAppIn, rest)]].concat();
            CallRecord {
                trace_id: Some(format!("{n:032x}")),
                span_id: Some(format!("{n:016x}")),
                ..call(n, "/a", legs, Vec::new())
            }
        };
        if n % 5 == 0 { vec![one(1, true), one(22, false)] } else { vec![one(1, true)] }
    });
    let hunt = of(calls);
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "slow"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::of(Cause::Retries));
}

#[test]
fn what_is_shown_call_by_call_is_found_within_the_spread_and_a_place_is_not() {
    // Calls differ by up to 8 ms anyway; one in three takes 14 ms longer.
    let of = |findings: &dyn Fn() -> Vec<Finding>| {
        of((0..300).map(|n| {
            let usual = 30 + n * 7919 % 9;
            let slow = n % 3 == 0;
            let legs = vec![leg(Leg::ServerApp, usual), leg(Leg::ResponseWire, if slow { 15 } else { 1 })];
            call(n, "/a", legs, if slow { findings() } else { Vec::new() })
        }))
    };
    let shown = of(&|| vec![lost(14)]);
    let slow = shown.questions.slow.as_ref().map(|slow| slow.verdict);
    assert_eq!(
        (slow, shown.culprits.first().map(|one| one.culprit.cause)),
        (Some(Kind::One), Some(Cause::Rto)),
        "{shown:#?}"
    );
    let not = of(&Vec::new);
    assert!(not.questions.slow.is_none(), "{not:#?}");
}

#[test]
fn what_takes_most_of_all_time_comes_before_a_smaller_excess_that_nobody_owns() {
    let hunt = of((0..300).map(|n| {
        let slow = if n % 10 == 0 { 30 } else { 0 };
        let own = HostPart {
            doing: Doing::Running,
            behind: None,
            waited_for: None,
            woken_by: None,
            waker: None,
            ns: 60 * MS as u64,
        };
        let host = HostTime { parts: vec![own], ..HostTime::default() };
        let out = LegRecord { host: Some(host), ..leg(Leg::ClientAppOut, 60) };
        call(n, "/a", vec![out, leg(Leg::ServerSend, slow), leg(Leg::ClientAppIn, slow)], Vec::new())
    }));
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "all"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::ClientApp, Side::Client));
}
