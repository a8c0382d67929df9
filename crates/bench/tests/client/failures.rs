//! Failures are counted and reported.

use crate::{Client, MILLISECOND, Server, settings};
use spangap_bench::client;
use spangap_bench::contract::{Call, Channels, ClientMessage, Pace, Phase, Stack};
use spangap_bench::schedule::Schedule;
use std::net::TcpListener;
use std::time::Duration;

fn per_second(rate: u32) -> Pace {
    Pace::Open(Schedule::per_second(rate).unwrap())
}

#[test]
fn no_listener() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = Client::start(&settings(free)).rest();
    let error = told.failed.expect("no run");
    assert!(error.starts_with(&format!("cannot connect to {free}: Connection refused")), "{error}");
}

#[test]
fn settings_unsupported_by_tonic_are_refused_with_the_reason() {
    let good = settings("127.0.0.1:1".parse().unwrap());
    let refused = |change: fn(&mut client_settings::Settings)| {
        let mut settings = good.clone();
        change(&mut settings);
        client::check(&settings).unwrap_err().to_string()
    };
    assert!(refused(|s| s.channels = Channels::LocalPool).contains("no subchannel pool"));
    assert!(refused(|s| s.split_writes = true).contains("split-writes"));
    assert!(refused(|s| s.request_bytes = 1 << 40).contains("at most"));
    assert!(refused(|s| s.stack = Stack::Go).contains("--stack=go"));
    assert!(
        refused(|s| {
            (s.pace, s.in_flight, s.channels) = (per_second(1), 1025, Channels::Distinct);
        })
        .contains("1024")
    );
}

mod client_settings {
    pub use spangap_bench::contract::ClientSettings as Settings;
}

#[test]
fn a_target_that_dies_and_comes_back() {
    for call in [Call::Unary, Call::Stream] {
        let server = Server::start();
        let address = server.address;
        let mut settings = settings(address);
        (settings.call, settings.pace, settings.in_flight) = (call, per_second(500), 100);
        let mut client = Client::go(&settings);
        client.until_interval(|interval| interval.ok > 0);
        drop(server);
        client.until_interval(|interval| interval.errors.contains_key("UNAVAILABLE") && interval.ok == 0);
        let _again = Server::start_on(address);
        client.until(|message| matches!(message, ClientMessage::Connection(_)));
        client.until_interval(|interval| interval.ok > 0);
        let told = client.stop();
        let ids: Vec<_> = told.connections.iter().map(|one| (one.id, one.channel)).collect();
        assert_eq!(ids, [(0, Some(0)), (1, Some(0))], "a reopened connection is a new one");
        assert_eq!(told.end.as_deref(), Some("stopped"));
        let sum = told.sum(Phase::Measured);
        assert!(sum.ok > 0 && !sum.errors["UNAVAILABLE"].last.is_empty());
    }
}

#[test]
fn a_peer_that_drops_every_connection_is_not_flooded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = settings(listener.local_addr().unwrap());
    std::thread::spawn(move || while listener.accept().is_ok() {});
    (settings.pace, settings.in_flight, settings.calls) = (per_second(1_000), 1_000, 200);
    let told = Client::go(&settings).rest();
    assert_eq!((told.sum(Phase::Measured).ok, told.sum(Phase::Measured).due), (0, 200));
    // Pauses of 10 ms, then 20, 40, 80: even ten times the 200 ms would allow only a few more.
    assert!((1..12).contains(&told.connections.len()), "{:?}", told.connections);
}

#[test]
fn a_closed_loop_waits_after_a_failure() {
    let server = Server::start();
    let mut settings = settings(server.address);
    settings.in_flight = 3;
    let mut client = Client::go(&settings);
    client.until_interval(|interval| interval.ok > 0);
    drop(server);
    client.until_interval(|interval| interval.ok == 0 && interval.due > 0);
    let told = client.stop();
    for interval in told.intervals.iter().filter(|one| one.ok == 0 && one.duration_ns > 0) {
        let most = 3 * (interval.duration_ns / MILLISECOND + 1);
        assert!(interval.due <= most, "{} calls in {} ns", interval.due, interval.duration_ns);
    }
}

#[test]
fn excess_calls_are_skipped_and_counted() {
    for call in [Call::Unary, Call::Stream] {
        let server = Server::start();
        server.answer(false);
        let mut settings = settings(server.address);
        (settings.call, settings.pace, settings.in_flight, settings.calls) =
            (call, per_second(1_000), 2, 100);
        let mut client = Client::go(&settings);
        client.until_phase(Phase::Drain);
        server.answer(true);
        let told = client.rest();
        let sum = told.sum(Phase::Measured);
        assert_eq!((sum.due, sum.skipped, sum.ok), (100, 98, 2));
        assert_eq!(server.seen().len(), 2);
    }
}

#[test]
fn a_call_that_takes_too_long_ends() {
    for call in [Call::Unary, Call::Stream] {
        for pace in [Pace::Closed, per_second(1_000)] {
            let server = Server::start();
            server.answer(false);
            let mut settings = settings(server.address);
            (settings.call, settings.pace, settings.in_flight, settings.calls) = (call, pace, 10, 30);
            settings.timeout = Duration::from_millis(60);
            settings.slow_ns = 50 * MILLISECOND;
            let told = Client::go(&settings).rest();
            let sum = told.sum(Phase::Measured);
            let made = sum.due - sum.skipped;
            assert_eq!(sum.error_counts(), [("DEADLINE_EXCEEDED", made)].into(), "{call} {pace}");
            assert_eq!(sum.errors["DEADLINE_EXCEEDED"].last, "no response within 60ms");
            assert_eq!((sum.slow, sum.latency.count()), (made, 0), "{call} {pace}");
            assert_eq!(told.end.as_deref(), Some("done"));
        }
    }
}

/// After a stop, calls that do not end are cancelled.
#[test]
fn stopping_cancels_calls_that_do_not_end() {
    for pace in [Pace::Closed, per_second(1_000)] {
        let server = Server::start();
        server.answer(false);
        let mut settings = settings(server.address);
        (settings.pace, settings.in_flight) = (pace, 7);
        let mut client = Client::go(&settings);
        client.until_interval(|interval| interval.in_flight == 7);
        let told = client.stop();
        let sum = told.sum(Phase::Measured);
        assert_eq!(sum.error_counts(), [("CANCELLED", 7)].into(), "{pace}");
        assert_eq!(told.end.as_deref(), Some("stopped"));
    }
}

#[test]
fn a_target_without_the_service_is_counted() {
    use tonic::transport::server::TcpIncoming;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let incoming = runtime.block_on(async { TcpIncoming::bind("127.0.0.1:0".parse().unwrap()) }).unwrap();
    let mut settings = settings(incoming.local_addr().unwrap());
    let (_, health) = tonic_health::server::health_reporter();
    runtime.spawn(tonic::transport::Server::builder().add_service(health).serve_with_incoming(incoming));
    settings.calls = 5;
    for call in [Call::Unary, Call::Stream] {
        settings.call = call;
        let told = Client::go(&settings).rest();
        assert_eq!(told.sum(Phase::Measured).error_counts(), [("UNIMPLEMENTED", 5)].into());
    }
}
