//! `spangap dissect` against independent truth: what tshark and the kernels saw, and how the traffic was
//! made.

mod every_call;
mod fixtures;
mod hosts;
mod legs;
mod openings;
mod recordings;
mod rewritten;
mod truth;
mod workers;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the captures.
fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures")
}

/// One end of a fixture, compressed or not.
fn capture(name: &str, end: &str) -> PathBuf {
    let plain = captures().join(format!("{name}.{end}.pcapng"));
    if plain.exists() { plain } else { captures().join(format!("{name}.{end}.pcapng.zst")) }
}

/// The output of `spangap dissect --json`, with all calls listed.
fn dissect(captures: &[&Path], arguments: &[&str]) -> Value {
    let done = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .arg("dissect")
        .args(captures)
        .args(["--json", "--slowest", "10000"])
        .args(arguments)
        .output()
        .expect("the binary starts");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "dissect {captures:?} {arguments:?}: {} {complaint}", done.status);
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{captures:?}: {error}: {complaint}"))
}

/// The calls listed.
fn calls(report: &Value) -> &[Value] {
    report["calls"].as_array().expect("a list of calls")
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(program).exists()))
}

/// Names of all fixtures.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(captures()).expect("the folder of captures");
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() > 60, "captures are missing: {names:?}");
    names
}
