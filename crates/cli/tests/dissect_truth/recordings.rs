//! Host recordings matched with calls: what kept the server's threads from running is known, and must be
//! named.

use crate::hosts::{self, Ending, Hosts};
use crate::legs::call;
use crate::{calls, dissect};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Works for 15 ms of every 60 ms at a higher priority than all others on its CPU, and prints when it begins.
/// No other process of this machine has its name.
const HOG: &str = "import time
open('/proc/self/comm', 'w').write('truth-hog')
print('works', flush=True)
while True:
    until = time.monotonic() + 0.015
    while time.monotonic() < until: pass
    time.sleep(0.045)";
/// CPU of the server and of the programs that disturb it.
const CPU: &str = "1";
/// One test at a time disturbs that CPU: another one's hog would be taken for its own.
static HOGS: Mutex<()> = Mutex::new(());

/// Waits until no other test has a hog.
pub fn alone() -> MutexGuard<'static, ()> {
    HOGS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn missing() -> Option<String> {
    if let Some(why) = hosts::missing() {
        return Some(why);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Some("there is one CPU".into());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("the kernel tells no types (BTF)".into());
    }
    let programs = ["taskset", "chrt", "python3"];
    programs.into_iter().find(|program| !crate::has(program)).map(|program| format!("no program {program}"))
}

/// Records a process until ended with SIGINT; returns once it records.
pub fn record(pid: u32, file: &Path) -> Ending {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .args(["host", "record", "--pid", &pid.to_string(), "--write"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("recording"), "host record says {line:?}");
    std::thread::spawn(move || said.lines().for_each(drop));
    Ending(child)
}

pub fn hog() -> Ending {
    let mut child = Command::new("taskset")
        .args(["-c", CPU, "chrt", "-f", "10", "python3", "-c", HOG])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("taskset starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "works\n");
    Ending(child)
}

/// Captures, and a recording of the server during the calls, alone or with a hog on its CPU.
fn recorded(folder: &Path, disturbed: bool) -> ([PathBuf; 2], PathBuf) {
    let recording = folder.join("server.rec");
    let hosts = Hosts::new(0, 0);
    hosts.line_on("0");
    let files = hosts.captured_of(folder, &[], |hosts, address, pid| {
        let pid_text = pid.to_string();
        let set = |program: &str, how: &[&str]| {
            let output = Command::new(program).args(how).arg(&pid_text).output();
            assert!(output.unwrap_or_else(|error| panic!("{program}: {error}")).status.success());
        };
        set("taskset", &["-a", "-p", "-c", CPU]);
        // Below the hog and above everything ordinary: a compiler that also wants this CPU delays no call.
        set("chrt", &["-a", "-f", "-p", "5"]);
        let recorder = record(pid, &recording);
        let hog = disturbed.then(hog);
        call(hosts, address, 1, 1_500);
        drop(hog);
        recorder.end("INT");
    });
    hosts.end();
    (files, recording)
}

/// All split legs of the listed calls; the sum of each is checked.
fn split(report: &Value) -> Vec<&Value> {
    let mut legs = Vec::new();
    for leg in calls(report).iter().flat_map(|call| call["legs"].as_array().expect("legs")) {
        let Some(parts) = leg["host"]["parts"].as_array() else { continue };
        let sum: u64 = parts.iter().map(|part| part["ns"].as_u64().expect("a number")).sum();
        assert_eq!(Some(sum as i64), leg["ns"].as_i64(), "{leg}");
        legs.push(leg);
    }
    legs
}

/// Time of the parts that satisfy the condition, over all legs.
fn ns(legs: &[&Value], is: impl Fn(&Value) -> bool) -> u64 {
    let parts = legs.iter().flat_map(|leg| leg["host"]["parts"].as_array().expect("parts"));
    parts.filter(|part| is(part)).map(|part| part["ns"].as_u64().expect("a number")).sum()
}

/// Made-up SERVER spans: within the server's end of each call, starting a little after the request and ending
/// a little before the response.
fn spans_inside(report: &Value) -> Value {
    let spans: Vec<Value> = calls(report)
        .iter()
        .filter_map(|call| {
            let legs = call["legs"].as_array()?;
            let server = legs.iter().position(|leg| leg["leg"] == SERVER)?;
            let ns = |leg: &Value| leg["ns"].as_i64();
            let request_ns: i64 = legs[..server].iter().filter_map(ns).sum();
            let (begin, ns) = (call["start_unix_ns"].as_i64()? + request_ns, ns(&legs[server])?);
            Some(serde_json::json!({
                "traceId": call["trace_id"], "spanId": "00000000000000aa", "parentSpanId": call["span_id"],
                "name": "Ping", "kind": 2,
                "startTimeUnixNano": (begin + ns / 3).to_string(),
                "endTimeUnixNano": (begin + ns - ns / 4).to_string(),
            }))
        })
        .collect();
    serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
}

/// The server's end as a single leg.
const SERVER: &str = "server_host_in+server_app+server_host_out";

/// Time of one call's parts by activity and taker, over the legs of the server.
fn by_doing(call: &Value) -> std::collections::BTreeMap<(String, String), i64> {
    let mut sums = std::collections::BTreeMap::new();
    let legs = call["legs"].as_array().expect("legs").iter();
    for leg in legs.filter(|leg| leg["leg"].as_str().is_some_and(|name| name.starts_with("server_"))) {
        for part in leg["host"]["parts"].as_array().into_iter().flatten() {
            let key = [&part["doing"], &part["behind"]].map(|text| text.as_str().unwrap_or("").to_owned());
            *sums.entry(key.into()).or_insert(0) += part["ns"].as_i64().expect("a number");
        }
    }
    sums
}

/// What the thread of a call did does not depend on the number of legs that the server's time is split into.
fn the_same_time_in_more_legs(merged: &Value, split: &Value) {
    let mut compared = 0;
    for call in calls(merged).iter().filter(|call| call["trace_id"].is_string()) {
        let same = |other: &&Value| other["trace_id"] == call["trace_id"];
        let Some(other) = calls(split).iter().find(same) else { continue };
        let names: Vec<&str> =
            other["legs"].as_array().expect("legs").iter().filter_map(|leg| leg["leg"].as_str()).collect();
        assert!(
            ["server_host_in", "server_app", "server_host_out"].iter().all(|leg| names.contains(leg)),
            "{names:?}"
        );
        let (one, three) = (by_doing(call), by_doing(other));
        let off = |key: &(String, String)| {
            one.get(key).copied().unwrap_or(0).abs_diff(three.get(key).copied().unwrap_or(0))
        };
        let total_off: u64 = one.keys().chain(three.keys()).map(off).sum();
        compared += usize::from(total_off <= 10_000);
    }
    // If a span begins before its request was read, the read belongs to another leg.
    assert!(compared * 10 > calls(merged).len() * 9, "{compared} of {} calls are alike", calls(merged).len());
}

/// A single test: a hog would also disturb the server that should be left alone.
#[test]
fn a_hog_on_the_servers_cpu_is_named_only_where_it_delays() {
    if let Some(why) = missing() {
        return println!("not run: {why}");
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (files, recording) = recorded(folder.path(), true);
    let report =
        dissect(&[&files[0], &files[1]], &["--same-clock", "--host", recording.to_str().expect("text")]);
    let legs = split(&report);
    assert!(legs.len() > 1_000, "{} legs split, {:#}", legs.len(), report["caveats"]);
    let behind_hog = |part: &Value| {
        part["doing"] == "runnable" && part["behind"].as_str().is_some_and(|who| who.contains("truth-hog"))
    };
    let all = ns(&legs, |_| true);
    let (hog, unknown) = (ns(&legs, behind_hog), ns(&legs, |part| part["doing"] == "unknown"));
    assert!(unknown * 20 < all, "{unknown} of {all} ns are unknown");
    // Calls that met the hog waited for the rest of its 15 ms; it has a quarter of the time.
    let slow: Vec<&&Value> =
        legs.iter().filter(|leg| leg["ns"].as_i64().is_some_and(|ns| ns > 8_000_000)).collect();
    assert!(slow.len() >= 3, "{} legs over 8 ms", slow.len());
    let slow: Vec<&Value> = slow.into_iter().copied().collect();
    let (of_slow, by_hog) = (ns(&slow, |_| true), ns(&slow, behind_hog));
    assert!(by_hog * 10 > of_slow * 6, "{by_hog} of {of_slow} ns behind the hog: {:#}", slow[0]);
    assert!(hog > 0);
    let findings = calls(&report).iter().flat_map(|call| call["findings"].as_array().expect("findings"));
    let run_queue: Vec<&Value> = findings.filter(|finding| finding["cause"] == "run-queue").collect();
    assert!(run_queue.len() >= 3, "{run_queue:?}");
    assert!(run_queue.iter().all(|finding| finding["side"] == "server"), "{run_queue:?}");

    let spans = folder.path().join("spans.json");
    std::fs::write(&spans, spans_inside(&report).to_string()).expect("written");
    let arguments = ["--same-clock", "--host", recording.to_str().expect("text"), "--spans"];
    let with_spans =
        dissect(&[&files[0], &files[1]], &[&arguments[..], &[spans.to_str().expect("text")]].concat());
    the_same_time_in_more_legs(&report, &with_spans);

    let (files, recording) = recorded(folder.path(), false);
    let report =
        dissect(&[&files[0], &files[1]], &["--same-clock", "--host", recording.to_str().expect("text")]);
    let legs = split(&report);
    assert!(legs.len() > 1_000, "{} legs split, {:#}", legs.len(), report["caveats"]);
    let behind_hog = ns(&legs, |part| part["behind"].as_str().is_some_and(|who| who.contains("truth-hog")));
    assert_eq!(behind_hog, 0);
}
