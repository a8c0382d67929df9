//! `spangap hunt` over real captures: what is named, what is only placed, and what is said where nothing can be.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures");

fn hunt(arguments: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spangap")).arg("hunt").args(arguments).output().expect("it starts")
}

/// The captures of both ends, compressed or not.
fn both(name: &str) -> Vec<String> {
    let plain = |end: &str| format!("{CAPTURES}/{name}.{end}.pcapng");
    let stored = |path: String| if Path::new(&path).exists() { path } else { path + ".zst" };
    ["client", "server"].map(|end| stored(plain(end))).to_vec()
}

fn verdict(arguments: Vec<String>) -> Value {
    let output = hunt(&[arguments, vec!["--json".into()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn a_cause_that_owns_most_of_the_time_is_named_with_its_remedy() {
    for (name, culprit, side) in [
        ("nagle-client", "nagle-delayed-ack", "client"),
        ("receive-window-server", "receive-window", "server"),
        ("flow-control-slow-reader", "flow-control", "client"),
    ] {
        let hunt = verdict(both(name));
        assert_eq!(hunt["verdict"], "one", "{name}: {hunt:#}");
        assert_eq!(
            (&hunt["culprits"][0]["cause"], &hunt["culprits"][0]["side"]),
            (&culprit.into(), &side.into())
        );
        let share = &hunt["culprits"][0]["share"];
        assert!(
            share["low"].as_f64() <= share["mid"].as_f64() && share["mid"].as_f64() <= share["high"].as_f64()
        );
        assert!(hunt["culprits"][0]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()));
    }
}

#[test]
fn calls_at_an_ordinary_pace_convict_nobody() {
    for name in ["rust-unary", "cpp-callback-one", "go-one", "reordered", "nagle-off-one-write"] {
        let hunt = verdict(both(name));
        assert_eq!(hunt["culprits"].as_array().map(Vec::len), Some(0), "{name}: {hunt:#}");
    }
}

#[test]
fn a_folder_is_read_whatever_is_in_it_and_one_without_captures_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = hunt(&[folder.path().display().to_string()]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&empty.stderr).contains("expected captures of one end or both"),
        "{empty:?}"
    );
    for (file, name) in both("nagle-client").iter().zip(["a", "b"]) {
        std::fs::copy(file, folder.path().join(name)).expect("a copy");
    }
    std::fs::write(folder.path().join("notes.txt"), "slow since Monday").expect("a file");
    let output = hunt(&[folder.path().display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("One culprit: nagle-delayed-ack (client)\n"), "{text}");
    assert!(text.contains("Seen: 12 of 12 calls") && text.contains("Remedy"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("notes.txt: not looked at"), "{output:?}");
}

#[test]
fn the_slowest_calls_are_written_as_a_trace_and_never_over_what_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("calls.perfetto-trace").display().to_string();
    let output = hunt(&[both("nagle-client"), vec!["--perfetto".into(), trace.clone()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&trace).expect("it was written");
    // Packets of a trace: field 1, with lengths. What is in them, the tests of `gather` read by Perfetto's own description.
    assert_eq!(bytes[0], 0x0a);
    let has = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    assert!(has("packets at its tap") && has("nagle-delayed-ack (client)") && has("bound_ns"));
    let read = both("nagle-client");
    let refused = hunt(&[read.clone(), vec!["--perfetto".into(), read[0].clone()]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--perfetto"), "{refused:?}");
}
