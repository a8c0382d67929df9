//! Calls to methods other than the pings, as tank makes them for services that it has no code for.

use crate::process::Meter;
use crate::{reported, runs, tank, target, the_run};

const SHORT: [&str; 6] = ["--inflight", "2", "--duration", "200ms", "--warmup", "20ms"];
const PING: [&str; 2] = ["--method", "spangap.ping.v1.Ping/Ping"];
const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/proto/spangap/ping/v1/ping.proto");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/proto");

/// Targets of every library that is built here; each has its own reflection service.
fn targets() -> Vec<(crate::Program, String)> {
    let mut targets = vec![target(&[])];
    let built = spangap_bench::programs::Programs::of(env!("CARGO_BIN_EXE_spangap").into());
    for stack in [spangap_bench::contract::TargetStack::Go, spangap_bench::contract::TargetStack::Cpp] {
        match built.target(stack) {
            Ok(_) => targets.push(target(&["--stack", stack.name()])),
            Err(missing) => println!("not run: {missing}"),
        }
    }
    targets
}

#[test]
fn methods_are_called_through_every_librarys_reflection() {
    for (_target, address) in targets() {
        let data = ["--data", r#"{"thinkNs": "2000000", "payload": "AAEC"}"#, "--header", "tenant: blue"];
        let report = reported(&address, &[&PING[..], &data, &SHORT].concat());
        let run = the_run(&report);
        assert!(run["ok"].as_u64() > Some(0) && run["errors"] == serde_json::json!({}), "{run}");
        assert_eq!(run["method"], "spangap.ping.v1.Ping/Ping");
        // The request arrived as written: the target thought for that long.
        let fastest = run["spectrum"][0][1].as_u64();
        assert!(fastest >= Some(2_000_000), "{fastest:?}");
    }
}

#[test]
fn a_streaming_call_lasts_until_its_last_answer() {
    for (_target, address) in targets() {
        let list = r#"[{"thinkNs": 1000000}, {"thinkNs": 3000000}, {}]"#;
        let arguments =
            [&["--method", "spangap.ping.v1.Ping/PingStream", "--data", list], &SHORT[..]].concat();
        let report = reported(&address, &arguments);
        let run = the_run(&report);
        assert!(run["ok"].as_u64() > Some(0) && run["errors"] == serde_json::json!({}), "{run}");
        assert!(run["spectrum"][0][1].as_u64() >= Some(3_000_000), "{run}");
    }
}

#[test]
fn without_reflection_files_work_and_the_error_says_so() {
    let meter = Meter::start(&[]);
    let address = meter.otlp_grpc.to_string();
    let ended = tank(&address, &["--method", "opentelemetry.proto.collector.trace.v1.TraceService/Export"]);
    let [line] = ended.err.as_slice() else { panic!("one line, not {ended:?}") };
    let begin = format!("spangap: {address} has no server reflection");
    assert!(ended.code == Some(1) && line.starts_with(&begin), "{ended:?}");
    assert!(line.contains("--descriptor FILE") && line.contains("--proto FILE"), "{line}");

    // The meter does not serve pings, and its answer is reported.
    let proto = ["--proto", PROTO, "--proto-path", FOLDER];
    let ended = tank(&address, &[&PING[..], &proto, &SHORT].concat());
    assert!(ended.err.iter().any(|line| line.contains("no call of spangap.ping.v1.Ping/Ping")), "{ended:?}");
    let (_target, address) = target(&[]);
    let report = reported(&address, &[&PING[..], &proto, &SHORT].concat());
    assert!(the_run(&report)["ok"].as_u64() > Some(0), "{report}");
}

#[test]
fn errors_are_reported_before_any_run() {
    let (_target, address) = target(&[]);
    let refused = |arguments: &[&str], part: &str| {
        let ended = tank(&address, arguments);
        assert_ne!(ended.code, Some(0), "{ended:?}");
        assert!(ended.err.iter().any(|line| line.contains(part)), "{part}: {ended:?}");
    };
    refused(
        &[&PING[..], &["--data", r#"{"thinkMs": 5}"#]].concat(),
        "unrecognized field name 'thinkMs' at byte 9",
    );
    refused(&["--method", "spangap.ping.v1.Ping/Pong"], "it has Ping, PingStream, Usage");
    refused(&["--method", "shop.v1.Carts/Get"], "spangap.ping.v1.Ping");
    refused(&["--method", "Ping"], "expected package.Service/Method");
    refused(&[&PING[..], &["--stack", "raw"]].concat(), "--method is for --stack rust");
    refused(&[&PING[..], &["--think", "5ms"]].concat(), "cannot be used with");
    refused(&["--data", "{}"], "--method");
    refused(&[&PING[..], &["--data", "@/nowhere"]].concat(), "cannot read the request /nowhere");
}

#[test]
fn calls_of_other_methods_are_logged_and_traced_like_pings() {
    let (_target, address) = target(&[]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("its name is text");
    let slow = ["--slow", "0us", "--slow-log", path];
    let report = reported(&address, &[&PING[..], &slow, &SHORT].concat());
    let written = report["slow_log"]["written"].as_u64();
    assert!(written > Some(0) && written == runs(&report)[0]["ok"].as_u64(), "{report}");
    let text = std::fs::read_to_string(path).expect("the log is there");
    let first: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["trace_id"].as_str().map(str::len), Some(32), "{first}");
}
