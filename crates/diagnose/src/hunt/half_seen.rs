//! Calls of which not all was seen, or not the same as of others: what may not be said of them.

use super::innocents::{by_thread, running};
use super::lack::{Included, Lack, Source};
use super::tests::mixed::with_spans;
use super::tests::{call, leg, lost, of};
use super::*;
use spangap_model::Doing;
use spangap_model::evidence::{Certainty, Finding, HostPart, LegRecord, Missing, UnplacedSpans};

#[test]
fn spans_by_another_clock_than_the_packets_convict_nobody() {
    // Nearly all spans end before their call's first byte leaves the tap, though each call was answered.
    let hunt = of((0..400).map(|n| {
        let ms = if n % 8 == 0 { 12 + n % 3 } else { 1 };
        let out = by_thread(Leg::ClientAppOut, 7, ms, vec![running(ms)]);
        let unsent = call(n, "/a", vec![out], Vec::new());
        CallRecord { response_bytes: Some(9), ..unsent }
    }));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Unknown, 0), "{hunt:#?}");
}

#[test]
fn a_limit_of_streams_is_not_cleared_by_a_capture_that_missed_it() {
    let with_windows = |windows: [Option<u64>; 2]| {
        of((0..200).map(|n| CallRecord { windows, ..with_spans(n, if n % 10 == 0 { 40 } else { 1 }, 0) }))
    };
    // The server says once, when a connection opens, how many streams it allows.
    let late = with_windows([None; 2]);
    let lack =
        late.not_looked.iter().find(|one| one.culprit.cause == Cause::StreamLimit).and_then(|one| one.lacks);
    assert_eq!(lack, Some(Lack::with(Source::ClientCapture, Included::Opening)), "{late:#?}");
    let whole = with_windows([Some(65_535), Some(65_535)]);
    assert!(whole.cleared.iter().any(|one| one.culprit.cause == Cause::StreamLimit), "{whole:#?}");
}

#[test]
fn what_held_up_the_opening_of_connections_comes_before_the_connections() {
    // Without spans: each call opens a connection, and packets show that some SYNs were lost before the request's first byte.
    let opens =
        Finding { culprit: Culprit::at(Cause::ConnectionPerCall, Side::Client), cost_ns: Some(0), ..lost(0) };
    let of = |every: i64| {
        of((0..200).map(|n| {
            let syn = Finding { culprit: Culprit::of(Cause::SynLoss), ..lost(1_000) };
            let held = if n % every == 0 { vec![syn] } else { Vec::new() };
            let legs = [Leg::ClientSend, Leg::RequestWire, Leg::ServerSend, Leg::ResponseWire];
            let legs = legs.map(|one| leg(one, 1)).to_vec();
            call(n, "/a", legs, [vec![opens.clone()], held].concat())
        }))
    };
    let named = |hunt: &Hunt| hunt.culprits.iter().map(|one| one.culprit.cause).collect::<Vec<_>>();
    let lost = of(10);
    assert_eq!(named(&lost), [Cause::SynLoss], "{lost:#?}");
    assert!(lost.words.contains(&Culprit::of(Cause::SynLoss).to_string()), "{}", lost.words);
    // Two are no more than chance.
    assert_eq!(named(&of(100)), [Cause::ConnectionPerCall]);
}

/// Calls that the client's end alone shows, every so many of which lost bytes of its request for 200 ms, and all of which vary by
/// up to so many milliseconds.
fn lost_beyond_the_tap(every: i64, varies_ms: i64) -> Hunt {
    of((0..400).map(|n| {
        let ms = 2 + n * 37 % (varies_ms + 1);
        let beyond = |ms| LegRecord { legs: account::BEYOND_CLIENT, ..leg(Leg::RequestWire, ms) };
        let (ms, findings) = match n % every {
            0 => {
                let open = Certainty::Possible(Missing::DroppedByServer);
                (
                    ms + 200,
                    vec![Finding { culprit: Culprit::of(Cause::TailLoss), certainty: open, ..lost(200) }],
                )
            }
            _ => (ms, Vec::new()),
        };
        let legs = vec![leg(Leg::ClientAppOut, 0), beyond(ms), leg(Leg::ClientAppIn, 0)];
        CallRecord { seen_in: [Some(0), None], ..call(n * 30, "/a", legs, findings) }
    }))
}

#[test]
fn a_loss_beyond_the_only_tap_is_told_as_such_and_nobody_is_named() {
    for hunt in [lost_beyond_the_tap(10, 0), lost_beyond_the_tap(8, 190)] {
        assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Place, 0), "{hunt:#?}");
        let place = hunt.place.as_ref().expect("it is a place");
        assert_eq!((place.lost, place.leg), (true, verdict::where_lost(Side::Client)), "{hunt:#?}");
        let lack = Some(Lack::of(Source::ServerCapture));
        for cause in [Cause::TailLoss, Cause::ReceiverDrop] {
            assert!(!hunt.cleared.iter().any(|one| one.culprit.cause == cause), "{hunt:#?}");
            let open = hunt.not_looked.iter().find(|one| one.culprit.cause == cause);
            assert_eq!(open.and_then(|one| one.lacks), lack, "{cause}: {hunt:#?}");
        }
    }
}

#[test]
fn of_what_clients_wait_for_beyond_the_packets_nobody_is_named() {
    // Every tenth call is stopped for 20 ms, and all take 2 ms besides.
    let calls = (0..200).map(|n| {
        let stop = HostPart { doing: Doing::Stopped, ..running(20) };
        let (ms, parts) = if n % 10 == 0 { (22, vec![stop, running(2)]) } else { (2, vec![running(2)]) };
        call(n, "/a", vec![leg(Leg::ClientSend, 0), by_thread(Leg::ServerApp, 7, ms, parts)], Vec::new())
    });
    let calls: Vec<CallRecord> = calls.collect();
    let of = |median_ns: Option<u64>| {
        let unplaced = median_ns.map(|median_ns| UnplacedSpans { spans: 190, median_ns });
        let evidence =
            Evidence { matching_calls: 200, calls: calls.clone(), unplaced, ..Evidence::default() };
        hunt(&evidence, &Question::default())
    };
    for close in [None, Some(3_000_000)] {
        let named = of(close);
        assert_eq!(named.culprits.first().map(|one| one.culprit.cause), Some(Cause::Stopped), "{named:#?}");
    }
    let elsewhere = of(Some(12_000_000));
    assert_eq!((elsewhere.verdict, elsewhere.culprits.len()), (Kind::Unknown, 0), "{elsewhere:#?}");
    assert_eq!(elsewhere.place, None, "{elsewhere:#?}");
}

/// All of a server's end, of which no span tells more.
const AT_SERVER: Legs = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };

/// Every tenth of these calls takes so many milliseconds longer at the server; spans tell when they began, or packets alone.
fn slow_at_server(number: i64, is_slow: bool, ms: i64, spans: bool, findings: Vec<Finding>) -> CallRecord {
    let ms = if is_slow { ms + 1 } else { 1 };
    let mut legs = if spans { vec![leg(Leg::ClientAppOut, 0)] } else { Vec::new() };
    legs.extend([leg(Leg::ClientSend, 0), leg(Leg::RequestWire, 0)]);
    legs.push(LegRecord { legs: AT_SERVER, ..leg(Leg::ServerApp, ms) });
    legs.push(leg(Leg::ResponseWire, 0));
    call(number * 3, "/a", legs, findings)
}

#[test]
fn calls_that_a_client_may_have_held_up_and_sent_at_once_are_no_place_at_the_server() {
    let of = |spans: bool| of((0..300).map(|n| slow_at_server(n, n % 10 == 0, 9, spans, Vec::new())));
    let (known, unknown) = (of(true), of(false));
    assert_eq!(known.place.as_ref().map(|place| place.leg), Some(AT_SERVER), "{known:#?}");
    assert_eq!((unknown.verdict, &unknown.place), (Kind::Unknown, &None), "{unknown:#?}");
}

/// The same calls beside those of a reference, in which none was slow.
fn beside_quick(of: impl Fn(i64, bool) -> CallRecord) -> Hunt {
    let evidence = |slow: bool| {
        let calls: Vec<CallRecord> = (0..300).map(|n| of(n, slow && n % 2 == 0)).collect();
        Evidence { matching_calls: 300, calls, ..Evidence::default() }
    };
    let before = evidence(false);
    hunt(&evidence(true), &Question { against: Some(&before), ..Question::default() })
}

#[test]
fn responses_that_may_wait_behind_others_are_not_the_servers_work() {
    let behind = |ms: u64| Finding {
        culprit: Culprit::at(Cause::HeadOfLine, Side::Server),
        certainty: Certainty::Possible(Missing::ResponseReady),
        ..lost(ms)
    };
    let alone = beside_quick(|n, is_slow| slow_at_server(n, is_slow, 40, false, Vec::new()));
    assert_eq!(alone.place.as_ref().map(|place| place.leg), Some(AT_SERVER), "{alone:#?}");
    let shared = beside_quick(|n, is_slow| {
        slow_at_server(n, is_slow, 40, false, if is_slow { vec![behind(39)] } else { Vec::new() })
    });
    assert_eq!((shared.verdict, shared.culprits.len()), (Kind::Unknown, 0), "{shared:#?}");
    // A little of that time is not why.
    let little = beside_quick(|n, is_slow| {
        slow_at_server(n, is_slow, 40, false, if is_slow { vec![behind(4)] } else { Vec::new() })
    });
    assert_eq!(little.place.as_ref().map(|place| place.leg), Some(AT_SERVER), "{little:#?}");
}

#[test]
fn what_a_client_takes_to_send_is_no_place_where_more_of_it_may_be_unseen() {
    let of = |spans: bool| {
        beside_quick(|n, is_slow| {
            let sends = leg(Leg::ClientSend, if is_slow { 8 } else { 1 });
            let begins = if spans { vec![leg(Leg::ClientAppOut, 0)] } else { Vec::new() };
            let rest = vec![sends, LegRecord { legs: AT_SERVER, ..leg(Leg::ServerApp, 1) }];
            call(n * 3, "/a", [begins, rest].concat(), Vec::new())
        })
    };
    let known = of(true);
    assert_eq!(known.place.as_ref().map(|place| place.leg), Some(Legs::one(Leg::ClientSend)), "{known:#?}");
    assert_eq!((of(false).verdict, of(false).place), (Kind::Unknown, None));
}

#[test]
fn of_the_path_and_the_servers_host_one_end_tells_only_both_together() {
    // The server's span lies between two legs, whose sum is known and whose halves are not.
    let hunt = of((0..300).map(|n| {
        let ms = if n % 10 == 0 { 30 } else { 2 };
        let legs = HALVES.map(|legs| LegRecord { legs, ..leg(Leg::RequestWire, ms) });
        let [there, back] = legs;
        call(n * 20, "/a", vec![leg(Leg::ClientAppOut, 0), there, leg(Leg::ServerApp, 1), back], Vec::new())
    }));
    assert_eq!(hunt.place.as_ref().map(|place| place.leg), Some(account::BEYOND_CLIENT), "{hunt:#?}");
    assert!(hunt.place.is_some_and(|place| place.share.low > 0.9));
}

#[test]
fn requests_on_connections_that_a_full_accept_queue_left_closed_are_that_queues() {
    let of_opening =
        |cost_ns| Finding { culprit: Culprit::at(Cause::AcceptOverflow, Side::Server), cost_ns, ..lost(0) };
    let dropped = Finding { culprit: Culprit::at(Cause::ReceiverDrop, Side::Server), ..lost(900) };
    let of = |held: Vec<Finding>| {
        of((0..200).map(|n| {
            let (ms, findings) = if n % 10 == 0 { (900, held.clone()) } else { (0, Vec::new()) };
            let legs = vec![leg(Leg::ClientSend, 0), leg(Leg::RequestWire, ms), leg(Leg::ServerSend, 1)];
            call(n * 100, "/a", legs, findings)
        }))
    };
    let named = |hunt: &Hunt| hunt.culprits.first().map(|one| one.culprit.cause);
    assert_eq!(named(&of(vec![dropped.clone()])), Some(Cause::ReceiverDrop));
    let full = of(vec![of_opening(None), dropped]);
    assert_eq!(named(&full), Some(Cause::AcceptOverflow), "{full:#?}");
}

#[test]
fn connections_that_opened_late_come_before_a_place_that_explains_less() {
    // Ten calls of the window waited for a full accept queue, for a second at least; all take longer at the server.
    let of = |opened_late: i64, ms: i64| {
        beside_quick(|n, is_slow| {
            let full = Finding {
                culprit: Culprit::at(Cause::AcceptOverflow, Side::Server),
                cost_ns: None,
                ..lost(0)
            };
            let findings = if is_slow && n < 2 * opened_late { vec![full] } else { Vec::new() };
            slow_at_server(n, is_slow, ms, false, findings)
        })
    };
    let named = |hunt: &Hunt| hunt.culprits.first().map(|one| one.culprit.cause);
    let late = of(10, 40);
    assert_eq!((named(&late), &late.place), (Some(Cause::AcceptOverflow), &None), "{late:#?}");
    // What all calls take explains more than that.
    for more in [of(10, 400), of(2, 40)] {
        assert_eq!((named(&more), more.place.map(|place| place.leg)), (None, Some(AT_SERVER)));
    }
}

#[test]
fn a_socket_that_gets_the_second_copy_of_dropped_bytes_late_has_no_late_softirq() {
    // The recording of the server's host shows the time between the tap and the socket, and packets of the call that came twice.
    let of = |open: bool| {
        of((0..300).map(|n| {
            let late = HostPart { doing: Doing::SoftirqLate, ..running(200) };
            let twice = Finding {
                culprit: Culprit::at(Cause::ReceiverDrop, Side::Server),
                certainty: Certainty::Possible(Missing::SentOnce),
                ..lost(20)
            };
            let (ms, parts, findings) = match n % 10 {
                0 => (201, vec![late, running(1)], if open { vec![twice] } else { Vec::new() }),
                _ => (1, vec![running(1)], Vec::new()),
            };
            let legs = vec![leg(Leg::ClientAppOut, 0), by_thread(Leg::ServerApp, 7, ms, parts)];
            CallRecord { seen_in: [None, Some(0)], ..call(n * 30, "/a", legs, findings) }
        }))
    };
    let late = of(false);
    assert_eq!(late.culprits.first().map(|one| one.culprit.cause), Some(Cause::SoftirqLate), "{late:#?}");
    let dropped = of(true);
    assert_eq!(dropped.culprits.len(), 0, "{dropped:#?}");
    assert!(dropped.place.as_ref().is_some_and(|place| place.lost), "{dropped:#?}");
}

#[test]
fn what_calls_consist_of_at_the_server_is_no_answer_where_they_are_slow_outside_of_it() {
    // The server's end alone: every twentieth call takes 12 ms or more longer at its client or on the way, and all of them 20 ms at the server.
    let of = |held_ms: i64| {
        of((0..400).map(|n| {
            let ms = if n % 20 == 0 { held_ms / 2 } else { 1 };
            let there = Legs { first: Leg::ClientAppOut, last: Leg::RequestWire };
            let back = Legs { first: Leg::ResponseWire, last: Leg::ClientAppIn };
            let [there, back] = [there, back].map(|legs| LegRecord { legs, ..leg(Leg::ClientAppOut, ms) });
            let served = leg(Leg::ServerApp, 20);
            CallRecord {
                seen_in: [None, Some(0)],
                ..call(n * 10, "/a", vec![there, served, back], Vec::new())
            }
        }))
    };
    for held in [of(60), of(14)] {
        assert_eq!((held.verdict, &held.place, held.question), (Kind::Unknown, &None, "slow"), "{held:#?}");
    }
    let usual = of(2);
    assert_eq!(usual.place.as_ref().map(|place| place.leg), Some(Legs::one(Leg::ServerApp)), "{usual:#?}");
}
