//! The lines of `dissect --calls`, compared with independent counts: tshark's, and those of servers' logs.

use crate::truth::tap;
use crate::{capture, captures, has};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

fn lines(captures: &[PathBuf]) -> Vec<Value> {
    let done = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .arg("dissect")
        .args(captures)
        .args(["--slowest", "1", "--calls", "-"])
        .output()
        .expect("the binary starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("one JSON value a line")).collect()
}

#[test]
fn lines_match_the_streams_that_tshark_counts() {
    if !has("tshark") {
        println!("not run: needs tshark");
        return;
    }
    for name in ["go-unary", "rust-unary", "python-unary", "cpp-async-unary", "many-connections"] {
        let client = capture(name, "client");
        let port = |end: &Value| -> u16 {
            end.as_str().and_then(|end| end.rsplit(':').next()?.parse().ok()).expect("a port")
        };
        let lines = lines(&[client.clone(), capture(name, "server")]);
        let of_lines: BTreeSet<(u16, u32)> = lines
            .iter()
            .map(|line| (port(&line["client"]), line["stream_id"].as_u64().expect("one") as u32))
            .collect();
        let of_tshark = tap(&client, port(&lines[0]["server"]));
        let of_tshark: BTreeSet<(u16, u32)> =
            of_tshark.into_iter().filter(|(_, seen)| seen.request.is_some()).map(|(call, _)| call).collect();
        assert_eq!(of_lines.len(), lines.len(), "{name}: a call is there twice");
        assert_eq!(of_lines, of_tshark, "{name}");
    }
}

#[test]
fn lines_match_the_calls_that_servers_logged() {
    let proxies = captures().join("../proxies");
    for name in ["nginx-retry", "nginx-alike", "nginx-pool", "haproxy-request-id"] {
        let about = std::fs::read(proxies.join(format!("{name}.json"))).expect("the truth");
        let about: Value = serde_json::from_slice(&about).expect("JSON");
        let ends = ["client", "in", "out", "server"];
        let lines = lines(&ends.map(|end| proxies.join(format!("{name}.{end}.pcapng.zst"))));
        let count = |calls: &mut dyn Iterator<Item = (String, u64)>| {
            let mut counts: BTreeMap<(String, u64), usize> = BTreeMap::new();
            calls.for_each(|call| *counts.entry(call).or_default() += 1);
            counts
        };
        let path = |method: &str| method.split_once(' ').map_or(method, |(_, path)| path).to_owned();
        // What a proxy forwards is a hop of the call, without a line of its own.
        let outer = lines
            .iter()
            .filter(|line| line["client"].as_str().is_some_and(|end| end.starts_with("10.81.0.1:")));
        let of_lines = count(&mut outer.map(|line| {
            (
                path(line["method"].as_str().expect("a method")),
                line["http_status"].as_u64().expect("a status"),
            )
        }));
        let logged = about["calls"].as_array().expect("calls").iter();
        let of_log = count(&mut logged.map(|call| {
            let status =
                call["status"].as_u64().or_else(|| call["attempts"].as_array()?.last()?["status"].as_u64());
            (call["path"].as_str().expect("a path").to_owned(), status.expect("a status"))
        }));
        assert_eq!(of_lines, of_log, "{name}");
    }
}
