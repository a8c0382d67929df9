//! What tank says of real traffic: the story first, and nobody who is innocent.

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
fn nagle_against_delayed_acks_is_said_first() {
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
fn a_target_that_takes_as_long_by_itself_is_not_nagle() {
    let (_target, address) = target(&["--stack", "raw", "--think", "42ms"]);
    let mut whole: Vec<&str> = SPLIT.to_vec();
    // In one write: nothing is held, the target is slow.
    whole.retain(|flag| *flag != "--split-writes");
    let report = reported(&address, &whole);
    assert!(findings(&report).iter().all(|(cause, _)| *cause != "nagle-delayed-ack"), "{report:#}");
}

#[test]
fn the_limit_of_streams_is_said_with_its_figures() {
    let (_target, address) = target(&["--max-streams", "2", "--think", "20ms"]);
    let report = reported(&address, &["--inflight", "6", "--duration", "500ms", "--warmup", "50ms"]);
    assert_eq!(findings(&report).first(), Some(&("stream-limit", "shown")), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a sentence");
    assert!(
        verdict.starts_with("4 of 6 calls wait for a stream at any time: the target allows 2"),
        "{verdict}"
    );
    let evidence = report["findings"][0]["rests_on"].to_string();
    assert!(evidence.contains("6 calls in flight over 1 connection of at most 2 streams"), "{evidence}");
}
