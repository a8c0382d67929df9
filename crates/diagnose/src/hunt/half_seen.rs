//! Calls of which not all was seen, or not the same as of others: what may not be said of them.

use super::innocents::{by_thread, running};
use super::lack::{Included, Lack, Source};
use super::tests::mixed::with_spans;
use super::tests::{call, leg, lost, of};
use super::*;
use spangap_model::evidence::Finding;

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
