//! Successful runs.

use crate::{Client, MILLISECOND, Server, settings};
use spangap_bench::contract::{Call, Channels, Pace, Phase};
use spangap_bench::schedule::Schedule;
use std::collections::BTreeSet;

/// 10,000 calls a second.
fn often() -> Pace {
    Pace::Open(Schedule::per_second(10_000).unwrap())
}

#[test]
fn every_kind_of_run_makes_exactly_the_requested_calls() {
    let server = Server::start();
    for call in [Call::Unary, Call::Stream] {
        for pace in [Pace::Closed, often()] {
            for (threads, channels) in [
                (1, Channels::Shared),
                (2, Channels::PerWorker),
                (1, Channels::Distinct),
                (2, Channels::Pool(2)),
            ] {
                let mut settings = settings(server.address);
                (settings.call, settings.pace, settings.threads, settings.channels) =
                    (call, pace, threads, channels);
                settings.in_flight = 5;
                settings.calls = 200;
                settings.request_bytes = 3;
                let told = Client::go(&settings).rest();
                let what = format!("{call} {pace} {threads} {channels}");
                let sum = told.sum(Phase::Measured);
                assert_eq!((sum.due, sum.error_counts()), (200, [].into()), "{what}");
                assert_eq!(told.end.as_deref(), Some("done"), "{what}");
                assert_eq!(told.phases, [Phase::Measured, Phase::Drain, Phase::Drained], "{what}");

                let seen = server.seen();
                assert_eq!(seen.len() as u64, sum.ok, "{what}");
                assert!(seen.iter().all(|ping| ping.payload_bytes == 3), "{what}");
                let traces: BTreeSet<_> = seen.iter().map(|ping| ping.context.expect("traced")).collect();
                assert_eq!(traces.len(), seen.len(), "every call is a trace of its own: {what}");

                let open = pace != Pace::Closed;
                assert_eq!(
                    (sum.latency.count(), sum.lateness.count()),
                    if open { (sum.ok, sum.ok) } else { (0, 0) }
                );
                assert!(open || sum.skipped == 0);

                let count = channels.count(5) as usize;
                assert_eq!(told.channels, Some(count as u32), "{what}");
                let expected: Vec<_> = (0..count).map(|n| (n as u16, Some(n as u32))).collect();
                let found: Vec<_> = told.connections.iter().map(|one| (one.id, one.channel)).collect();
                assert_eq!(found, expected, "{what}");
                let used: BTreeSet<_> = seen.iter().map(|ping| ping.from.expect("TCP")).collect();
                let opened: BTreeSet<_> = told.connections.iter().map(|one| one.local).collect();
                assert!(used.is_subset(&opened), "{what}: {used:?} {opened:?}");
            }
        }
    }
}

#[test]
fn without_trace_no_call_carries_one() {
    let server = Server::start();
    for call in [Call::Unary, Call::Stream] {
        let mut settings = settings(server.address);
        (settings.call, settings.trace, settings.calls) = (call, false, 10);
        Client::go(&settings).rest();
        let seen = server.seen();
        assert_eq!(seen.len(), 10);
        assert!(seen.iter().all(|ping| ping.context.is_none()));
    }
}

#[test]
fn phases_last_as_long_as_planned() {
    // A closed loop makes a call in each phase, if this process gets a CPU in it. A busy machine may take it away for longer than
    // a phase; a run with a phase without calls is made again, and must be as long as planned, too.
    let mut without_calls = 0;
    for pace in [Pace::Closed, often()] {
        while !phases_are_as_planned(pace) {
            without_calls += 1;
            assert!(without_calls < 5, "{pace}: no call in a phase, time and again");
        }
    }
}

/// Whether there were calls in each phase, as many as were due in an open loop.
fn phases_are_as_planned(pace: Pace) -> bool {
    let server = Server::start();
    let mut settings = settings(server.address);
    settings.pace = pace;
    settings.in_flight = 100;
    (settings.warmup_ns, settings.duration_ns) = (600 * MILLISECOND, 1_100 * MILLISECOND);
    let told = Client::go(&settings).rest();
    assert_eq!(told.phases, [Phase::Warmup, Phase::Measured, Phase::Drain, Phase::Drained]);
    let mut were_calls = true;
    for (phase, length_ns) in [(Phase::Warmup, settings.warmup_ns), (Phase::Measured, settings.duration_ns)] {
        let of = told.intervals.iter().filter(|interval| interval.phase == phase);
        assert_eq!(of.map(|interval| interval.duration_ns).sum::<u64>(), length_ns, "{pace} {phase:?}");
        let due = told.sum(phase).due;
        if let Pace::Open(schedule) = pace {
            assert_eq!(due, schedule.calls_before(length_ns), "{phase:?}");
        }
        were_calls &= due > 0;
    }
    assert_eq!(server.seen().len() as u64, told.sum(Phase::Warmup).ok + told.sum(Phase::Measured).ok);
    were_calls
}

#[test]
fn the_end_of_the_life_line_ends_the_run() {
    let server = Server::start();
    for pace in [Pace::Closed, often(), Pace::Open(Schedule::every(3_600_000 * MILLISECOND).unwrap())] {
        let mut settings = settings(server.address);
        settings.pace = pace;
        let mut client = Client::go(&settings);
        client.until_interval(|interval| interval.ok > 0);
        let told = client.stop();
        assert_eq!(told.end.as_deref(), Some("stopped"));
        assert_eq!(told.sum(Phase::Measured).error_counts(), [].into());
        assert_eq!(server.seen().len() as u64, told.sum(Phase::Measured).ok);
    }
}

#[test]
fn no_run_starts_without_go() {
    let server = Server::start();
    let mut client = Client::start(&settings(server.address));
    client.until(|message| matches!(message, spangap_bench::contract::ClientMessage::Ready { .. }));
    let told = client.stop();
    assert_eq!((told.phases.len(), told.intervals.len(), told.end.as_deref()), (0, 0, Some("stopped")));
    assert!(server.seen().is_empty());
}
