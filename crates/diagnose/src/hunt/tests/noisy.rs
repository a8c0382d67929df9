//! Waits for a CPU, softirqs, and what is named beside them.

use super::super::innocents::running;
use super::super::*;
use super::{MS, call, leg, lost, of};
use spangap_model::evidence::{HostPart, HostTime, LegRecord};
use spangap_model::{Doing, Taker};

/// A leg of `ms`, throughout which its thread waited for a CPU that one of several processes had in turn.
fn waited(place: Leg, ms: i64, call: i64, processes: u32) -> LegRecord {
    let part = |n: u32| HostPart {
        doing: Doing::Runnable,
        behind: Some(Taker::Task {
            tid: 100 + (call as u32 + n) % processes,
            pid: None,
            name: Some("busy".into()),
        }),
        waited_for: None,
        woken_by: None,
        waker: None,
        ns: (ms * MS / 2) as u64,
    };
    LegRecord {
        host: Some(HostTime { parts: vec![part(0), part(1)], ..HostTime::default() }),
        ..leg(place, ms)
    }
}

#[test]
fn waits_for_a_cpu_behind_one_process_are_its_doing_and_behind_many_the_machines_noise() {
    let behind = |processes: u32| {
        of((0..200).map(|n| match n % 8 {
            0 => call(
                n,
                "/a",
                vec![waited(Leg::ServerHostIn, 30, n, processes), leg(Leg::ServerApp, 1)],
                vec![],
            ),
            _ => call(n, "/a", vec![leg(Leg::ServerHostIn, 0), leg(Leg::ServerApp, 1)], vec![]),
        }))
    };
    let one = behind(1);
    assert_eq!(
        one.culprits.first().map(|one| one.culprit),
        Some(Culprit::at(Cause::RunQueue, Side::Server)),
        "{one:#?}"
    );
    // The process is named, too.
    let who = &one.culprits[0].behind;
    assert_eq!(who.iter().map(|one| one.words.as_str()).collect::<Vec<_>>(), ["thread 100"], "{who:?}");
    assert!((who[0].share - 1.0).abs() < 1e-9 && who[0].ns > 0, "{who:?}");
    assert!(
        one.culprits[0].speaks_for.iter().any(|words| words.contains("taken by thread 100 (100 %)")),
        "{one:#?}"
    );
    let many = behind(9);
    assert_eq!((many.verdict, many.culprits.len()), (Kind::Nothing, 0), "{many:#?}");
    assert!(many.words.starts_with("Nothing but the machine's own noise"), "{}", many.words);
    let line =
        many.sheet.iter().find(|line| line.culprit == Some(Culprit::at(Cause::RunQueue, Side::Server)));
    assert!(
        line.is_some_and(|line| line.noise && line.share.mid > 0.9),
        "it stays on the sheet: {:?}",
        many.sheet
    );
    let all = many.cleared.iter().map(|one| one.culprit).chain(many.not_looked.iter().map(|one| one.culprit));
    assert!(
        !all.into_iter().any(|one| one == Culprit::at(Cause::RunQueue, Side::Server)),
        "it is not cleared"
    );
}

#[test]
fn softirqs_are_named_by_the_interface_whose_packets_they_handled() {
    let of_device = |device: &str, ms: i64| HostPart {
        doing: Doing::Interrupted,
        behind: Some(Taker::Softirq { vector: "NET_RX".into(), device: Some(device.into()) }),
        waited_for: None,
        woken_by: None,
        waker: None,
        ns: (ms * MS) as u64,
    };
    let hunt = of((0..200).map(|n| {
        let slow = n % 8 == 0;
        let parts = if slow { vec![of_device("eth1", 27), of_device("eth0", 3)] } else { Vec::new() };
        let held = LegRecord {
            host: Some(HostTime { parts, ..HostTime::default() }),
            ..leg(Leg::ServerHostIn, if slow { 30 } else { 0 })
        };
        call(n, "/a", vec![held, leg(Leg::ServerApp, 1)], vec![])
    }));
    let blamed = hunt.culprits.first().expect("somebody");
    assert_eq!(blamed.culprit, Culprit::at(Cause::SoftirqOnCpu, Side::Server), "{hunt:#?}");
    let shares: Vec<(&str, i64)> =
        blamed.behind.iter().map(|one| (one.words.as_str(), (one.share * 100.0).round() as i64)).collect();
    assert_eq!(shares, [("NET_RX of eth1", 90), ("NET_RX of eth0", 10)]);
}

#[test]
fn what_is_shown_is_named_beside_noise_and_what_queues_behind_noise_is_not() {
    let with = |legs: &dyn Fn(i64, bool) -> Vec<LegRecord>, lost_ms: u64| {
        of((0..240).map(|n| {
            let slow = n % 8 == 0;
            let findings = if slow && lost_ms > 0 { vec![lost(lost_ms)] } else { Vec::new() };
            call(n, "/a", legs(n, slow), findings)
        }))
    };
    // 20 ms of noise, 30 ms from a loss.
    let lost = with(
        &|n, slow| match slow {
            true => vec![waited(Leg::ServerHostIn, 24, n, 9), leg(Leg::ResponseWire, 23)],
            false => vec![leg(Leg::ServerHostIn, 0), leg(Leg::ResponseWire, 1)],
        },
        22,
    );
    assert_eq!(lost.culprits.first().map(|one| one.culprit.cause), Some(Cause::Rto), "{lost:#?}");
    assert!(lost.culprits[0].share.high < 0.6, "of everything it has no more than before: {lost:#?}");
    // Late threads have calls queued before them: that the client then works through these is not the reason.
    let own = |ms: i64| {
        let host = HostTime { parts: vec![running(ms)], ..HostTime::default() };
        LegRecord { host: Some(host), ..leg(Leg::ClientAppOut, ms) }
    };
    let queued = with(
        &|n, slow| match slow {
            true => vec![own(20), waited(Leg::ClientAppIn, 24, n, 9), leg(Leg::ServerApp, 1)],
            false => vec![own(0), leg(Leg::ClientAppIn, 0), leg(Leg::ServerApp, 1)],
        },
        0,
    );
    assert!(queued.culprits.is_empty(), "{queued:#?}");
}

#[test]
fn work_that_slow_calls_alone_have_is_not_the_machines_noise() {
    // Slow calls wait for CPUs for 24 ms, and their server runs for 10; that of others runs for so long.
    let of = |ordinary_ms: i64| {
        let served = |ms: i64| {
            let host = HostTime { parts: vec![running(ms)], ..HostTime::default() };
            LegRecord { host: Some(host), ..leg(Leg::ServerApp, ms) }
        };
        of((0..240).map(|n| match n % 8 {
            0 => call(n, "/a", vec![waited(Leg::ServerHostIn, 24, n, 9), served(10)], vec![]),
            _ => call(n, "/a", vec![leg(Leg::ServerHostIn, 0), served(ordinary_ms)], vec![]),
        }))
    };
    let hashes = of(1);
    assert_eq!((hashes.verdict, hashes.culprits.len()), (Kind::Unknown, 0), "{hashes:#?}");
    let server_app = Culprit::at(Cause::ServerApp, Side::Server).to_string();
    assert!(hashes.words.contains(&server_app), "{}", hashes.words);
    // A busy machine stretches what all calls do.
    let stretched = of(4);
    assert_eq!((stretched.verdict, stretched.culprits.len()), (Kind::Nothing, 0), "{stretched:#?}");
}

#[test]
fn a_little_of_many_things_at_one_end_is_nothing() {
    // Every fifth call takes longer, two thirds of it in the client: at work, for want of a CPU, under softirqs, and before them.
    let sixths = |us: i64, n: i64| {
        let part = |doing: Doing, behind: Option<Taker>| HostPart {
            doing,
            behind,
            waited_for: None,
            woken_by: None,
            waker: None,
            ns: (us * 1_000) as u64,
        };
        let busy = Taker::Task { tid: 100, pid: None, name: Some("busy".into()) };
        let parts = vec![
            part(Doing::Running, None),
            part(Doing::Runnable, Some(busy)),
            part(Doing::Interrupted, Some(Taker::Softirq { vector: "NET_RX".into(), device: None })),
            part(Doing::SoftirqLate, None),
        ];
        let of = |place, us: i64| LegRecord { ns: us * 1_000, ..leg(place, 0) };
        let host = Some(HostTime { parts, ..HostTime::default() });
        let slow = LegRecord { host, ..of(Leg::ClientAppIn, 4 * us) };
        let (served, sent) = (of(Leg::ServerApp, 100 + n % 7), of(Leg::ServerHostOut, us));
        let legs = vec![leg(Leg::ClientAppOut, 0), of(Leg::ServerHostIn, us), served, sent, slow];
        CallRecord {
            duration_ns: legs.iter().map(|leg| leg.ns).sum::<i64>() as u64,
            ..call(n, "/a", legs, Vec::new())
        }
    };
    let of = |us: i64| of((0..1_000).map(|n| sixths(if n % 5 == 0 { us } else { 1 }, n)));
    let little = of(40);
    assert_eq!((little.verdict, little.culprits.len()), (Kind::Nothing, 0), "{little:#?}");
    assert!(little.words.contains("a little of many things"), "{}", little.words);
    let much = of(500);
    assert_eq!(much.place.as_ref().map(|place| place.leg), Some(Legs::one(Leg::ClientAppIn)), "{much:#?}");
}
