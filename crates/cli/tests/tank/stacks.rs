//! How tank observes stacks that handle connections and sockets in their own way.

use crate::process::Program;
use crate::{report, says, tank, target, the_run};
use serde_json::Value;

/// A report; `None` if the stack's program is not built here.
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
fn channels_that_share_a_connection_are_reported() {
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
fn nodelay_is_set_on_live_sockets_if_the_stack_cannot() {
    let (_target, address) = target(&[]);
    for (nodelay, off, forced) in [("off", 1, true), ("on", 0, false), ("default", 0, false)] {
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

/// A client program whose library leaves TCP_NODELAY off, whatever the settings say: tonic in place of
/// grpc-go.
fn forgetful_client() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spangap-go");
    let spangap = env!("CARGO_BIN_EXE_spangap");
    let script = format!(
        "#!/bin/sh\nverb=$1\nshift\nfor flag do\n  case $flag in\n    --stack=*) flag=--stack=rust ;;\n    \
         --nodelay=*) flag=--nodelay=off ;;\n  esac\n  set -- \"$@\" \"$flag\"\n  shift\ndone\n\
         exec '{spangap}' \"$verb\" \"$@\"\n"
    );
    std::fs::write(&path, script).expect("the script is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    folder
}

#[test]
fn a_library_without_nodelay_is_measured_as_it_is() {
    let (_target, address) = target(&[]);
    let folder = forgetful_client();
    for (flags, asked, off, forced) in
        [(&[][..], "default", 1, false), (&["--nodelay", "on"][..], "on", 0, true)]
    {
        let arguments =
            [&["tank", &address, "--json", "--stack", "go", "--inflight", "1"], flags, &SHORT[..]];
        let tank = Program::start_with(&arguments.concat(), |command| {
            command.env("SPANGAP_CLIENTS", folder.path());
        });
        let ended = tank.wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = report(&ended);
        let run = the_run(&report);
        assert_eq!(run["nodelay"], asked, "{run}");
        let sockets = &run["sockets"];
        if sockets["nodelay_off"].is_null() {
            return println!("not run: this user may not look into the sockets of other processes");
        }
        assert_eq!(
            (&sockets["nodelay_off"], &sockets["nodelay_forced"]),
            (&off.into(), &forced.into()),
            "{run}"
        );
    }
}

#[test]
fn calls_that_wait_for_a_stream_are_reported() {
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
fn writes_are_split_if_possible() {
    let (_target, address) = target(&["--stack", "raw"]);
    for (bytes, alone) in [("0", true), ("64", false)] {
        let arguments = ["--stack", "raw", "--split-writes", "--request-bytes", bytes, "--inflight", "1"];
        let report = crate::reported(&address, &[&arguments, &SHORT[..]].concat());
        let run = the_run(&report);
        assert_eq!(says(&run["warnings"], "only a header"), alone, "{run}");
        assert_eq!(run["split_writes"], true);
    }
}
