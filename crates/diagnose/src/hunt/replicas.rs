//! Several servers behind one name: one of them is delayed, and the proxy in front hides which.

use super::innocents::{blocked, running};
use super::tests::{MS, call, leg, lost, of};
use super::*;
use spangap_model::evidence::{Finding, HopLeg, HopPlace, HostPart, HostTime, LegRecord, Waker};
use spangap_model::{Doing, Taker, WaitReason};

fn step(hop: u8, place: HopPlace, ms: i64, host: Option<HostTime>) -> HopLeg {
    HopLeg { hop, attempt: 0, place, ns: ms * MS, bound_ns: 0, host }
}

/// What a replica's thread did with a call in hand.
fn by(tid: u32, parts: Vec<HostPart>) -> Option<HostTime> {
    Some(HostTime { threads: Vec::new(), tids: vec![tid], read: None, parts })
}

/// A call that a proxy forwards: time before the server's application began and within it, and what the
/// server's thread did.
fn passed_on(n: i64, before: (i64, Option<HostTime>), app: (i64, Option<HostTime>)) -> CallRecord {
    let of = |one| HopPlace::Leg(Legs::one(one));
    let path = vec![
        step(0, of(Leg::ClientAppOut), 0, None),
        step(0, HopPlace::Proxy, 1, None),
        step(1, of(Leg::ServerHostIn), before.0, before.1),
        step(1, of(Leg::ServerApp), app.0, app.1),
        step(0, of(Leg::ClientAppIn), 0, None),
    ];
    let between = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
    let inside = LegRecord { legs: between, ..leg(Leg::ServerApp, 1 + before.0 + app.0) };
    let legs = vec![leg(Leg::ClientAppOut, 0), inside, leg(Leg::ClientAppIn, 0)];
    CallRecord { path, ..call(n * 10, "/a", legs, Vec::new()) }
}

/// Three replicas take turns; every fourth call of the first one is delayed for 100 ms in this way.
fn one_of_three(held_up: impl Fn() -> HostPart) -> Hunt {
    of((0..360).map(|n| {
        let tid = 100 + (n % 3) as u32;
        let app = (2, by(tid, vec![running(2)]));
        match n % 12 {
            0 => passed_on(n, (100, by(tid, vec![HostPart { ns: 100 * MS as u64, ..held_up() }])), app),
            _ => passed_on(n, (0, None), app),
        }
    }))
}

#[test]
fn a_replica_that_is_stopped_is_told_from_a_queue() {
    let hunt = one_of_three(|| HostPart { doing: Doing::Stopped, ..running(0) });
    assert_eq!(hunt.verdict, Kind::One, "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::Stopped, Side::Server));
    assert!(hunt.culprits[0].share.low > 0.8, "{:?}", hunt.culprits[0].share);
    assert_eq!(hunt.coverage.hosts, ["server"]);
}

#[test]
fn what_holds_one_replica_up_is_named_and_what_its_program_does_is_a_place() {
    let behind = || HostPart {
        doing: Doing::Runnable,
        behind: Some(Taker::Task { tid: 9, pid: Some(9), name: Some("batch".into()) }),
        ..running(0)
    };
    let parts: [(fn() -> HostPart, Cause); 3] = [
        (|| HostPart { doing: Doing::Throttled, ..running(0) }, Cause::CpuQuota),
        (|| blocked(WaitReason::Fsync, Waker::Other, 0), Cause::Disk),
        (behind, Cause::RunQueue),
    ];
    for (part, cause) in parts {
        let hunt = one_of_three(part);
        let named = hunt.culprits.first().map(|one| one.culprit);
        assert_eq!(named, Some(Culprit::at(cause, Side::Server)), "{hunt:#?}");
    }
    // A proxy chooses how many calls each server gets, so a busy server behind one is not proof of a culprit.
    let busy = one_of_three(|| running(0));
    assert_eq!((busy.culprits.len(), busy.verdict), (0, Kind::Place), "{busy:#?}");
    assert_eq!(busy.place.and_then(|place| place.hop), Some(1));
}

#[test]
fn calls_that_wait_behind_one_that_is_held_up_wait_for_the_same_behind_a_proxy() {
    // Each replica has one thread. While the first one has a call in hand that waits for a disk, two more
    // wait for the thread.
    let hunt = of((0..40).flat_map(|n| {
        let at = n * 400;
        let disk = by(7, vec![blocked(WaitReason::Fsync, Waker::Other, 90)]);
        let held = CallRecord { start_unix_ns: at * MS, ..passed_on(0, (0, None), (90, disk)) };
        let behind = (1..3).map(move |m| {
            let waits = (90 - m, by(7, Vec::new()));
            let one = passed_on(0, waits, (1, by(7, vec![running(1)])));
            CallRecord { start_unix_ns: (at + m) * MS, ..one }
        });
        let quick = (3..12).map(move |m| {
            let one = passed_on(0, (0, None), (1, by(8, vec![running(1)])));
            CallRecord { start_unix_ns: (at + 30 * m) * MS, ..one }
        });
        std::iter::once(held).chain(behind).chain(quick).collect::<Vec<_>>()
    }));
    let named = hunt.culprits.first().map(|one| one.culprit);
    assert_eq!(named, Some(Culprit::at(Cause::Disk, Side::Server)), "{hunt:#?}");
    assert!(hunt.culprits[0].share.low > 0.8, "{:?}", hunt.culprits[0].share);
}

#[test]
fn connections_that_a_proxy_opens_are_not_the_clients() {
    // A server that speaks HTTP/1.0 closes each connection, so nginx opens another one for each call.
    let opens = |hop| Finding {
        hop,
        culprit: Culprit::at(Cause::ConnectionPerCall, Side::Client),
        cost_ns: Some(0),
        ..lost(0)
    };
    let of = |hop: Option<u8>| {
        of((0..200).map(|n| {
            let record = call(n, "/a", vec![leg(Leg::ServerApp, 1)], vec![opens(hop)]);
            CallRecord { path: Vec::new(), ..record }
        }))
    };
    assert_eq!((of(Some(1)).verdict, of(Some(1)).culprits.len()), (Kind::Nothing, 0));
    assert_eq!(of(None).culprits[0].culprit, Culprit::at(Cause::ConnectionPerCall, Side::Client));
}

#[test]
fn what_a_proxys_sockets_do_wrong_is_not_laid_at_the_clients_door() {
    let nagle = |ms: i64| Finding {
        hop: Some(1),
        culprit: Culprit::at(Cause::NagleDelayedAck, Side::Client),
        ..lost(ms as u64)
    };
    let hunt = of((0..300).map(|n| {
        let slow = n % 8 == 0;
        let record = passed_on(n, (if slow { 40 } else { 0 }, None), (2, None));
        CallRecord { findings: if slow { vec![nagle(40)] } else { Vec::new() }, ..record }
    }));
    assert_eq!(
        hunt.culprits.first().map(|one| one.culprit),
        Some(Culprit::of(Cause::NagleDelayedAck)),
        "{hunt:#?}"
    );
}
