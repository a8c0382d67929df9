//! What tank finds in real traffic: the cause of the story first, and nothing innocent.

use crate::{reported, target};
use serde_json::Value;

/// Open loops of requests that are written in two parts, without TCP_NODELAY and with it.
const SPLIT: [&str; 13] = [
    "--stack",
    "raw",
    "--split-writes",
    "--request-bytes",
    "64",
    "--nodelay",
    "off,on",
    "--rate",
    "20",
    "--duration",
    "2s",
    "--warmup",
    "1s",
];

fn findings(report: &Value) -> Vec<(&str, &str)> {
    let found = report["findings"].as_array().expect("a list").iter();
    found.map(|one| (one["cause"].as_str().expect("text"), one["standing"].as_str().expect("text"))).collect()
}

fn sockets_can_be_seen(report: &Value) -> bool {
    let seen = report["runs"][0]["sockets"]["nodelay_off"].is_u64();
    if !seen {
        println!("not run: this user may not look into the sockets of other processes");
    }
    seen
}

#[test]
fn nagle_is_the_first_finding() {
    let (_target, address) = target(&["--stack", "raw"]);
    let report = reported(&address, &SPLIT);
    if !sockets_can_be_seen(&report) {
        return;
    }
    assert_eq!(findings(&report).first(), Some(&("nagle-delayed-ack", "shown")), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a sentence");
    assert!(
        verdict.starts_with("Nagle's algorithm and delayed ACKs hold the calls up: at 20/s"),
        "{verdict}"
    );
}

#[test]
fn a_slow_target_is_not_nagle() {
    let (_target, address) = target(&["--stack", "raw", "--think", "42ms"]);
    let mut whole: Vec<&str> = SPLIT.to_vec();
    // In one write: nothing is held back, the target is slow.
    whole.retain(|flag| *flag != "--split-writes");
    let report = reported(&address, &whole);
    assert!(findings(&report).iter().all(|(cause, _)| *cause != "nagle-delayed-ack"), "{report:#}");
}

#[test]
fn the_stream_limit_is_reported_with_figures() {
    let (_target, address) = target(&["--max-streams", "2", "--think", "20ms"]);
    let report = reported(&address, &["--inflight", "6", "--duration", "500ms", "--warmup", "50ms"]);
    assert_eq!(findings(&report).first(), Some(&("stream-limit", "shown")), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a sentence");
    assert!(
        verdict.starts_with("4 of 6 calls wait for a stream at any time: the target allows 2"),
        "{verdict}"
    );
    let evidence = report["findings"][0]["rests_on"].to_string();
    assert!(
        evidence.contains("6 calls in flight over 1 connection with the announced limit of 2 streams each"),
        "{evidence}"
    );
}

#[test]
fn a_check_succeeds_or_names_the_reason() {
    let (_target, address) = target(&["--max-streams", "2", "--think", "20ms"]);
    let report = reported(&address, &["--inflight", "6", "--duration", "300ms", "--warmup", "0ms"]);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), report.to_string()).expect("the report is written");
    let path = file.path().to_str().expect("its name is text");
    let bench = |arguments: &[&str]| crate::Program::start(&[&["bench"], arguments].concat()).wait();
    let shown = bench(&["check", path, "--shows", "stream-limit"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out[0].starts_with("stream-limit: 4 of 6 calls wait"), "{shown:?}");
    let not = bench(&["check", path, "--shows", "nagle-delayed-ack"]);
    let why =
        format!("spangap: {path} does not show nagle-delayed-ack: instead, the runs show: 4 of 6 calls wait");
    assert!(not.code == Some(1) && not.err[0].starts_with(&why), "{not:?}");
    let p50 = bench(&["figure", path, "p50"]);
    assert_eq!(p50.out[0].parse::<u64>().ok(), report["runs"][0]["latency"]["p50_ns"].as_u64(), "{p50:?}");
    let none = bench(&["figure", path, "p99.9"]);
    assert!(none.code == Some(1) && none.err[0].contains("has p99.9"), "{none:?}");
}
