//! What tank sees of stacks that have their own ways with connections and sockets.

use crate::{report, says, tank, target, the_run};
use serde_json::Value;

/// A report, or nothing when the stack's program is not built here.
fn reported_if_built(address: &str, arguments: &[&str]) -> Option<Value> {
    let ended = tank(address, arguments);
    if let Some(why) = ended.err.iter().find(|line| line.contains("is not available")) {
        println!("not run: {why}");
        return None;
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    Some(report(&ended))
}

const SHORT: [&str; 4] = ["--duration", "200ms", "--warmup", "50ms"];

#[test]
fn channels_that_share_a_connection_are_told() {
    let (_target, address) = target(&[]);
    for (channels, connections) in [("per-worker", 1), ("distinct", 4), ("local-pool", 4)] {
        let arguments =
            [&["--stack", "cpp-async", "--channels", channels, "--inflight", "4"], &SHORT[..]].concat();
        let Some(report) = reported_if_built(&address, &arguments) else { return };
        let run = the_run(&report);
        assert_eq!((&run["channels_made"], &run["connections"]), (&4.into(), &connections.into()), "{run}");
        assert_eq!(says(&run["warnings"], "4 channels share 1 connection"), connections == 1, "{run}");
    }
}

#[test]
fn nodelay_is_set_on_the_live_socket_where_the_stack_cannot() {
    let (_target, address) = target(&[]);
    for (nodelay, off, forced) in [("off", 1, true), ("on", 0, false), ("stack", 0, false)] {
        let arguments =
            [&["--stack", "cpp-sync", "--nodelay", nodelay, "--inflight", "1"], &SHORT[..]].concat();
        let Some(report) = reported_if_built(&address, &arguments) else { return };
        let sockets = &the_run(&report)["sockets"];
        if sockets["nodelay_off"].is_null() {
            return println!("not run: this user may not look into the sockets of other processes");
        }
        assert_eq!(
            (&sockets["nodelay_off"], &sockets["nodelay_forced"]),
            (&off.into(), &forced.into()),
            "{sockets}"
        );
    }
}

#[test]
fn calls_that_wait_for_a_stream_are_told() {
    let (_target, address) = target(&["--max-streams", "2", "--think", "5ms"]);
    let report = crate::reported(&address, &[&["--inflight", "6"], &SHORT[..]].concat());
    let run = the_run(&report);
    assert_eq!(run["streams"]["limit_per_connection"], 2, "{run}");
    assert_eq!(run["streams"]["queued_by_limit"], 4, "{run}");
    assert_eq!(run["streams"]["target_peak_in_progress"], 2, "{run}");
    assert!(says(&run["warnings"], "4 calls wait for a stream"), "{run}");
    let two = crate::reported(&address, &[&["--inflight", "4", "--channels", "pool:2"], &SHORT[..]].concat());
    assert_eq!(the_run(&two)["streams"]["queued_by_limit"], 0, "{two}");
}

#[test]
fn raw_has_its_own_target() {
    let (_target, address) = target(&["--stack", "raw"]);
    let report = crate::reported(&address, &[&["--stack", "raw", "--inflight", "2"], &SHORT[..]].concat());
    let run = the_run(&report);
    assert!(run["ok"].as_u64() > Some(0) && run["streams"].is_null(), "{run}");
    assert!(run["cpu_target_s"].as_f64().is_some(), "{run}");
    assert_eq!(run["target_stack"], "raw");
    assert_eq!(run["target_library"], run["library"], "one program, one library");
}

#[test]
fn a_write_is_split_when_there_is_something_to_split() {
    let (_target, address) = target(&["--stack", "raw"]);
    for (bytes, alone) in [("0", true), ("64", false)] {
        let arguments = ["--stack", "raw", "--split-writes", "--request-bytes", bytes, "--inflight", "1"];
        let report = crate::reported(&address, &[&arguments, &SHORT[..]].concat());
        let run = the_run(&report);
        assert_eq!(says(&run["warnings"], "header alone"), alone, "{run}");
        assert_eq!(run["split_writes"], true);
    }
}
