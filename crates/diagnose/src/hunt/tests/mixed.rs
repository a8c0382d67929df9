//! Calls of several kinds: streams, methods, with a connection of their own, without spans.

use super::super::innocents::{by_thread, running};
use super::super::*;
use super::{call, leg, lost, of};
use spangap_model::Doing;
use spangap_model::evidence::{HostPart, LegRecord};

#[test]
fn streams_last_as_long_as_they_are_meant_to() {
    let hunt = of((0..200).map(|n| match n % 4 {
        // The server's span ends with the stream, which it sent from the first moment on.
        0 => {
            let legs = vec![leg(Leg::ServerApp, 64), leg(Leg::ServerHostOut, -64), leg(Leg::ServerSend, 64)];
            call(n, "/watch", legs, Vec::new())
        }
        _ => call(n, "/get", vec![leg(Leg::ServerApp, 1)], Vec::new()),
    }));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Nothing, 0), "{hunt:#?}");
    assert_eq!(hunt.questions.all.map(|all| all.excess.slow_calls), Some(150));
}

#[test]
fn the_mix_of_methods_is_no_doubt_about_their_slow_calls() {
    // Two methods that take 2 and 50 ms by design, and a loss of 40 ms that hits a few calls of each.
    let hunt = of((0..120).map(|n| {
        let served = if n * 7919 % 10 < 3 { 50 } else { 2 };
        let method = if served == 50 { "/report" } else { "/get" };
        let slow = n % 11 == 0;
        let legs = vec![leg(Leg::ServerApp, served), leg(Leg::ResponseWire, if slow { 41 } else { 1 })];
        call(n, method, legs, if slow { vec![lost(40)] } else { Vec::new() })
    }));
    let slow = hunt.questions.slow.expect("they stand out");
    let served = slow.sheet.iter().find(|line| line.leg == Some(Legs::one(Leg::ServerApp)));
    assert!(served.is_none_or(|line| line.share.high < 0.1 && line.share.low > -0.1), "{served:?}");
}

#[test]
fn calls_that_open_their_connection_are_compared_with_those_that_need_not() {
    let hunt = of((0..200).map(|n| {
        let mut opened = lost(40);
        opened.culprit = Culprit::at(Cause::ConnectionPerCall, Side::Client);
        match n % 10 {
            0 => call(n, "/a", vec![leg(Leg::ClientAppOut, 41), leg(Leg::ServerApp, 2)], vec![opened]),
            _ => call(n, "/a", vec![leg(Leg::ClientAppOut, 1), leg(Leg::ServerApp, 2)], Vec::new()),
        }
    }));
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "slow"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::ConnectionPerCall, Side::Client));
}

#[test]
fn three_calls_that_are_alike_say_what_they_consist_of_and_one_of_many_does_not() {
    let lost_in =
        |n: i64| call(n, "/a", vec![leg(Leg::ServerApp, 1), leg(Leg::ResponseWire, 900)], vec![lost(900)]);
    let three = of((0..3).map(lost_in));
    assert_eq!(three.culprits.first().map(|one| one.culprit.cause), Some(Cause::Rto), "{three:#?}");
    let one = of((0..60).map(|n| match n {
        5 => lost_in(n),
        _ => call(n, "/a", vec![leg(Leg::ServerApp, 1)], Vec::new()),
    }));
    assert!(one.culprits.is_empty() && one.questions.all.is_none(), "{one:#?}");
}

/// A call known from packets alone: the applications' time is in the neighbouring legs.
fn without_spans(n: i64, ms: i64) -> CallRecord {
    let server = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
    let legs = vec![leg(Leg::RequestWire, 0), LegRecord { legs: server, ..leg(Leg::ServerApp, ms) }];
    call(n, "/a", legs, Vec::new())
}

pub(in crate::hunt) fn with_spans(n: i64, server_ms: i64, client_in_ms: i64) -> CallRecord {
    let legs = vec![
        leg(Leg::ClientAppOut, 0),
        leg(Leg::RequestWire, 0),
        leg(Leg::ServerApp, server_ms),
        leg(Leg::ClientAppIn, client_in_ms),
    ];
    call(n, "/a", legs, Vec::new())
}

#[test]
fn among_many_calls_without_spans_those_with_spans_say_where_the_time_passed() {
    // The client takes 60 ms for each response; most calls were not sampled, and end with the last packet.
    let live = of((0..1_000).map(|n| match n % 8 {
        0 => with_spans(n, 1, if n % 16 == 0 { 60 } else { 0 }),
        _ => without_spans(n, 1),
    }));
    assert_eq!(live.coverage.without_spans, 875, "{live:#?}");
    let place = live.place.expect("a place");
    assert_eq!(place.leg, Legs::one(Leg::ClientAppIn), "{}", live.words);
    // If only slow calls were sampled, they can only be compared with the others.
    let tail = of((0..1_000).map(|n| match n % 8 {
        0 => with_spans(n, 40, 0),
        _ => without_spans(n, 1),
    }));
    assert_eq!(tail.coverage.without_spans, 0, "{}", tail.words);
    // A handful is not a sample.
    let few = of((0..1_000).map(|n| match n % 50 {
        0 => with_spans(n, 1, 60),
        _ => without_spans(n, 1),
    }));
    assert_eq!(few.coverage.without_spans, 0, "{}", few.words);
}

#[test]
fn of_calls_that_nobody_saw_nothing_is_said() {
    let none = of(std::iter::empty());
    assert_eq!(none.verdict, Kind::Unknown, "{none:#?}");
    assert!(none.words.contains("show no call"), "{}", none.words);
    let calls = vec![call(0, "/a", vec![leg(Leg::ServerApp, 1)], Vec::new())];
    let evidence = Evidence { matching_calls: 1, calls, ..Evidence::default() };
    let other = Question { method: Some("/b".into()), ..Question::default() };
    let hunt = hunt(&evidence, &other);
    assert_eq!(hunt.verdict, Kind::Unknown, "{hunt:#?}");
    assert!(hunt.words.contains("none of those"), "{}", hunt.words);
}

#[test]
fn of_streams_alone_nobody_says_that_nothing_is_wrong() {
    // The server writes while its client's small window lets it: the response has begun long before the application is done.
    let stream = |n: i64| {
        let legs = vec![
            leg(Leg::ClientAppOut, 0),
            leg(Leg::ServerApp, 100 + n % 3),
            leg(Leg::ServerHostOut, -90),
            leg(Leg::ServerSend, 95),
        ];
        call(n * 20, "/a", legs, Vec::new())
    };
    let alone = of((0..40).map(stream));
    assert_eq!(alone.verdict, Kind::Unknown, "{alone:#?}");
    assert!(alone.words.contains("streams") && alone.words.contains("106 ms"), "{}", alone.words);
    // Beside calls that are none, these say what is usual.
    let quick =
        (0..400).map(|n| call(n, "/b", vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1)], Vec::new()));
    assert_eq!(of((0..40).map(stream).chain(quick)).verdict, Kind::Nothing);
}

#[test]
fn what_holds_up_a_few_calls_comes_before_the_work_that_all_of_them_wait_for() {
    // A server that takes 20 ms; every 30th call is stopped for 15 ms, and takes 12 ms longer for what that sets off elsewhere.
    let hunt = of((0..900).map(|n| {
        let slow = n % 30 == 0;
        let stop = HostPart { doing: Doing::Stopped, ..running(15) };
        let read = match slow {
            true => by_thread(Leg::ClientAppIn, 3, 17, vec![stop, running(2)]),
            false => leg(Leg::ClientAppIn, 0),
        };
        let after = leg(Leg::ServerHostOut, if slow { 10 } else { 0 });
        let legs =
            vec![leg(Leg::ClientAppOut, 0), by_thread(Leg::ServerApp, 7, 20, vec![running(20)]), after, read];
        call(n * 3, "/a", legs, Vec::new())
    }));
    assert_eq!((hunt.verdict, hunt.question), (Kind::Place, "slow"), "{hunt:#?}");
    assert_eq!(hunt.place.as_ref().map(|place| place.leg), Some(Legs::one(Leg::ClientAppIn)), "{hunt:#?}");
}

#[test]
fn what_all_calls_consist_of_is_no_answer_beside_stops_elsewhere() {
    // Three calls of 42 are stopped for 40 ms, too few to compare; all wait 20 ms for the server.
    let stopped = |side: Side| {
        of((0..42).map(|n| {
            let stop = HostPart { doing: Doing::Stopped, ..running(40) };
            let [served, read] = match (n % 14 == 5, side) {
                (false, _) => [by_thread(Leg::ServerApp, 7, 20, vec![running(20)]), leg(Leg::ClientAppIn, 0)],
                (true, Side::Server) => {
                    [by_thread(Leg::ServerApp, 7, 60, vec![stop, running(20)]), leg(Leg::ClientAppIn, 0)]
                }
                (true, Side::Client) => [
                    by_thread(Leg::ServerApp, 7, 20, vec![running(20)]),
                    by_thread(Leg::ClientAppIn, 3, 40, vec![stop]),
                ],
            };
            call(n * 20, "/a", vec![leg(Leg::ClientAppOut, 0), served, read], Vec::new())
        }))
    };
    let client = stopped(Side::Client);
    assert_eq!((client.verdict, client.place.is_none()), (Kind::Unknown, true), "{client:#?}");
    let server = stopped(Side::Server);
    assert_eq!(server.place.map(|place| place.leg), Some(Legs::one(Leg::ServerApp)));
}
