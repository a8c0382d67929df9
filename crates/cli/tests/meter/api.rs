//! The API's errors, health checks, many concurrent readers, and the configuration file.

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
fn errors_name_what_was_expected() {
    let meter = Meter::start(&[]);
    assert_eq!(send(&meter, 0..10), 200);
    let cases = [
        ("/api/v1/pairs?window=soon", 400, "window=soon: expected a number and a unit, such as 90s"),
        ("/api/v1/pairs?window=15", 400, "window=15: expected a number and a unit"),
        ("/api/v1/pairs?from=x", 400, "from=x: expected a whole number from 0"),
        ("/api/v1/pairs?top=-1", 400, "top=-1: expected a whole number from 0"),
        ("/api/v1/pairs?sort=beauty", 400, "sort=beauty: expected one of lost, beyond, waited, pair, calls"),
        ("/api/v1/pairs?top=1&top=2", 400, "top is given more than once"),
        ("/api/v1/pairs?from=20&to=10", 400, "from 20 lies after to 10"),
        ("/api/v1/pair", 400, "expected client=SERVICE and server=SERVICE"),
        ("/api/v1/pair?server=cart", 400, "expected client=SERVICE"),
        ("/api/v1/pair?client=web&server=nobody", 404, "web -> nobody"),
        ("/api/v1/worst?limit=-1", 400, "limit=-1: expected a whole number from 0"),
        ("/api/v1/call", 400, "trace_id is missing: expected 32 hex digits"),
        ("/api/v1/call?trace_id=00", 400, "trace_id=00: expected 32 hex digits"),
        (
            "/api/v1/call?trace_id=00000000000000000000000000000001&client_span_id=é",
            400,
            "client_span_id=é: expected 16 hex digits",
        ),
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
    // The same figures over every transport.
    assert_eq!(meter.pair("web", "cart", 10).calls, 10);
    let over_time: PairOverTime = meter.api("/api/v1/pair?client=web&server=cart&window=1h");
    assert_eq!(over_time.total.calls, 10);
    assert_eq!(over_time.points.iter().map(|point| point.gap.count).sum::<u64>(), 10);
    let worst: WorstReport = meter.api("/api/v1/worst?limit=3");
    assert_eq!(worst.calls.len(), 3);
    let call: CallReport = meter.api("/api/v1/call?trace_id=0000000000000000000000000000000A");
    assert_eq!(call.call, worst.calls[0]);
}

/// A misspelt parameter must not be ignored.
#[test]
fn unknown_parameters_are_refused() {
    let meter = Meter::start(&[]);
    let pair = "client=web&server=cart";
    let misspelt = [
        (
            "/api/v1/pairs?windw=1h".to_owned(),
            "\"windw\": did you mean \"window\"? /api/v1/pairs takes window, from",
        ),
        ("/api/v1/timeline?step=3".into(), "did you mean \"steps\"?"),
        (format!("/api/v1/pair?{pair}&form=60"), "did you mean \"from\"?"),
        (format!("/api/v1/pair?{pair}&limit=3"), "unknown parameter \"limit\""),
        ("/api/v1/worst?min_gap=3".into(), "did you mean \"min_gap_ns\"?"),
        (format!("/api/v1/explain?{pair}&window=1h"), "unknown parameter \"window\""),
        ("/api/v1/call?traceid=1".into(), "did you mean \"trace_id\"?"),
        ("/api/v1/changes?sinc=1".into(), "did you mean \"since\"?"),
        ("/api/v1/cases?stat=open".into(), "did you mean \"state\"?"),
        ("/api/v1/cases?state=shut".into(), "state=shut: expected one of open, explained"),
    ];
    for (path, expected) in misspelt {
        let error = meter.api_error(&path, 400);
        assert!(error.contains(expected), "{path}: {error}");
    }
    let without = ["annotations", "coverage", "page", "agents", "session", "cases/1", "cases/1/experiment"];
    for path in without.into_iter().chain(["traces/0af7651916cd43dd8448eb211c80319c"]) {
        let error = meter.api_error(&format!("/api/v1/{path}?pretty=1"), 400);
        assert_eq!(error, format!("unknown parameter \"pretty\": /api/v1/{path} takes none"));
    }
    // Other programs choose the parameters of these paths.
    for path in
        ["/?utm=1", "/metrics?name%5B%5D=up", "/healthz?probe=1", "/readyz?probe=1", "/api/services?limit=9"]
    {
        assert_eq!(meter.get(path).status, 200, "{path}");
    }
}

#[test]
fn all_endpoints_answer_concurrently() {
    let meter = Meter::start(&[]);
    // The first calls have the largest gaps, so they stay among the worst.
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
fn command_line_options_override_the_file() {
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
fn errors_in_the_configuration_file_name_the_place() {
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
fn an_address_in_use_is_reported_with_its_purpose() {
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
