//! The API's errors, health, many readers at once, and the configuration file.

use super::client::request;
use super::process::{FREE_PORTS, Meter, PATIENCE, Program};
use super::spans::calls;
use prost::Message;
use spangap_meter::report::{CallReport, PairOverTime, PairsReport, WorstReport};
use std::sync::mpsc;

fn send(meter: &Meter, numbers: std::ops::Range<u64>) -> u16 {
    let body = calls("web", "cart", numbers).encode_to_vec();
    let headers = [("Content-Type", "application/x-protobuf")];
    request(meter.otlp_http, "POST", "/v1/traces", &headers, &body).status
}

#[test]
fn errors_say_what_was_expected() {
    let meter = Meter::start(&[]);
    assert_eq!(send(&meter, 0..10), 200);
    let cases = [
        ("/api/v1/pairs?window=soon", 400, "window"),
        ("/api/v1/pairs?window=15", 400, "expected a number and a unit"),
        ("/api/v1/pairs?from=x", 400, "from"),
        ("/api/v1/pairs?from=20&to=10", 400, "from 20 lies after to 10"),
        ("/api/v1/pair", 400, "expected client=SERVICE and server=SERVICE"),
        ("/api/v1/pair?server=cart", 400, "expected client=SERVICE"),
        ("/api/v1/pair?client=web&server=nobody", 404, "web -> nobody"),
        ("/api/v1/worst?limit=-1", 400, "limit"),
        ("/api/v1/call", 400, "expected trace_id=32 hex digits"),
        ("/api/v1/call?trace_id=00", 400, "expected trace_id=32 hex digits"),
        ("/api/v1/call?trace_id=00000000000000000000000000000001&client_span_id=é", 400, "16 hex digits"),
        ("/api/v1/call?trace_id=000000000000000000000000000000ff", 404, "not among the worst calls"),
        ("/api/v1/pears", 404, "/api/v1/pairs"),
        ("/api/", 404, "/api/v1/pairs"),
    ];
    for (path, status, expected) in cases {
        let error = meter.api_error(path, status);
        assert!(error.contains(expected), "{path}: {error}");
    }
    let wrong_method = request(meter.http, "POST", "/api/v1/pairs", &[], b"");
    assert_eq!(wrong_method.status, 405);
    for (path, word) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = meter.get(path);
        assert_eq!((answer.status, &*answer.body), (200, word.as_bytes()), "{path}");
    }
    // The same figures by every way.
    assert_eq!(meter.pair("web", "cart", 10).calls, 10);
    let over_time: PairOverTime = meter.api("/api/v1/pair?client=web&server=cart&window=1h");
    assert_eq!(over_time.total.calls, 10);
    assert_eq!(over_time.points.iter().map(|point| point.gap.count).sum::<u64>(), 10);
    let worst: WorstReport = meter.api("/api/v1/worst?limit=3");
    assert_eq!(worst.calls.len(), 3);
    let call: CallReport = meter.api("/api/v1/call?trace_id=0000000000000000000000000000000A");
    assert_eq!(call.call, worst.calls[0]);
}

#[test]
fn every_answer_comes_while_all_others_are_asked_for() {
    let meter = Meter::start(&[]);
    // The first calls have the largest gaps, and so stay among the worst.
    assert_eq!(send(&meter, 1000..1010), 200);
    let (first, second) = (meter.coverage(), meter.coverage());
    assert_eq!(first.spans.received, second.spans.received);
    let paths = [
        "/api/v1/coverage",
        "/metrics",
        "/api/v1/pairs?window=1h",
        "/api/v1/pair?client=web&server=cart",
        "/api/v1/worst",
        "/api/v1/call?trace_id=000000000000000000000000000003f2",
        "/api/v1/coverage",
        "/",
    ];
    const ROUNDS: usize = 40;
    let meter = &meter;
    std::thread::scope(|scope| {
        let (answered, answers) = mpsc::channel();
        for (reader, path) in paths.iter().enumerate() {
            let answered = answered.clone();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let status = meter.get(path).status;
                    answered.send((reader, status)).expect("somebody counts");
                }
            });
        }
        for round in 1..=ROUNDS as u64 {
            assert_eq!(send(meter, (round - 1) * 10..round * 10), 200);
        }
        for _ in 0..paths.len() * ROUNDS {
            let (reader, status) = answers.recv_timeout(PATIENCE).expect("an answer");
            assert_eq!(status, 200, "{}", paths[reader]);
        }
    });
    assert_eq!(meter.pair("web", "cart", 10 * (ROUNDS as u64 + 1)).negative, 0);
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("it can be written");
    file
}

#[test]
fn options_come_from_the_file_unless_they_are_given() {
    let file = config("max-request-bytes = \"1KiB\"\njoin-ttl = \"30s\"\nby = \"method\"\nmax-pairs = 7\n");
    let path = file.path().to_str().expect("its name is text");
    let meter = Meter::start(&["--config", path]);
    assert_eq!(send(&meter, 0..20), 413, "the limit of the file");
    drop(meter);

    let meter = Meter::start(&["--config", path, "--max-request-bytes", "1MiB"]);
    assert_eq!(send(&meter, 0..20), 200, "the limit of the command line");
    let report: PairsReport = meter.api("/api/v1/pairs");
    assert_eq!(report.pairs[0].method.as_deref(), Some("call"), "still by method");
}

#[test]
fn a_file_that_is_not_understood_is_an_error_that_names_the_place() {
    for (text, expected) in [
        ("join-ttl = \"30s\"\njoin-tll = \"30s\"\n", &["join-tll", "line 2"][..]),
        ("join-ttl = \"soon\"\n", &["join-ttl", "line 1"]),
        ("by = \"planet\"\n", &["planet", "client-node"]),
        ("join-ttl = \"0s\"\n", &["--join-ttl", "1ms to 24h"]),
        ("otlp-grpc = \"localhost\"\n", &["otlp-grpc", "socket address"]),
    ] {
        let file = config(text);
        let path = file.path().to_str().expect("its name is text");
        let ended = Program::start(&[&["meter"], &FREE_PORTS[..], &["--config", path]].concat()).wait();
        let error = ended.err.join("\n");
        assert_eq!((ended.code, ended.out.len()), (Some(1), 0), "{text}: {error}");
        for part in expected {
            assert!(error.contains(part), "{text}: {part:?} is missing: {error}");
        }
    }
    let ended = Program::start(&["meter", "--config", "/nowhere/meter.toml"]).wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.join("\n").contains("/nowhere/meter.toml"), "{ended:?}");
}

#[test]
fn an_address_in_use_is_told_with_its_purpose() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let free = "127.0.0.1:0";
    let ended =
        Program::start(&["meter", "--otlp-grpc", free, "--otlp-http", &address, "--http", free]).wait();
    assert_eq!((ended.code, ended.out.len()), (Some(1), 0), "{ended:?}");
    let error = ended.err.join("\n");
    assert!(error.contains(&format!("cannot listen on {address} for OTLP/HTTP")), "{error}");
    assert_eq!(error.matches("in use").count(), 1, "the reason is given once: {error}");
}
