//! `--calls`: one line per call, in agreement with the document's calls.

use super::{dissect, ends, fixture, json, output};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The captures of a case with a proxy.
fn proxied(case: &str, ends: &[&str]) -> Vec<PathBuf> {
    ends.iter().map(|end| fixture(&format!("../proxies/{case}.{end}.pcapng.zst"))).collect()
}

fn parsed(lines: &str) -> Vec<Value> {
    assert!(lines.is_empty() || lines.ends_with('\n'), "the last line is not whole");
    lines.lines().map(|line| serde_json::from_str(line).expect("one JSON value a line")).collect()
}

/// The document, and the lines written next to it.
fn both(command: &mut Command) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("calls.jsonl");
    let document = json(command.arg("--calls").arg(&path));
    (document, parsed(&fs::read_to_string(path).expect("the lines")))
}

/// The document's sums over all calls, computed again from the lines.
fn sums(lines: &[Value]) -> Value {
    let count = |is: &dyn Fn(&Value) -> bool| lines.iter().filter(|line| is(line)).count() as u64;
    let ns = |value: &Value| value.as_u64().unwrap_or(0);
    let failed = |line: &Value| match line["ended"].as_str().expect("how it ended") {
        "reset" | "connection-closed" => true,
        "complete" => {
            let status = line["status"].as_str();
            status.is_some_and(|status| !["OK", "http_2xx", "http_3xx", "http_4xx"].contains(&status))
        }
        _ => false,
    };
    let (mut statuses, mut causes) = (BTreeMap::new(), BTreeMap::new());
    for line in lines {
        if let Some(status) = line["http_status"].as_u64() {
            *statuses.entry(status.to_string()).or_insert(0) += 1;
        }
        let mut told = BTreeSet::new();
        for finding in line["findings"].as_array().expect("findings") {
            // Whether a proxy opened a connection for a single call is a finding about the connection.
            let of_a_hop = finding.get("hop").is_some() && finding["cause"] == "connection-per-call";
            let cause = (finding["cause"].to_string(), finding["side"].to_string());
            if !of_a_hop && told.insert(cause.clone()) {
                let [calls, possible, cost_ns] = causes.entry(cause).or_insert([0; 3]);
                *(if finding["certainty"] == "shown" { calls } else { possible }) += 1;
                *cost_ns += ns(&finding["cost_ns"]);
            }
        }
    }
    let tells = |line: &Value| line["protocol"] != "tls" && line["protocol"] != "turns";
    serde_json::json!({
        "calls": lines.len(),
        "total_ns": lines.iter().map(|line| ns(&line["duration_ns"])).sum::<u64>(),
        "max_ns": lines.iter().map(|line| ns(&line["duration_ns"])).max(),
        "one_end": {
            "client": count(&|line| line["seen_in"][1].is_null()),
            "server": count(&|line| line["seen_in"][0].is_null()),
        },
        "failed": count(&failed),
        "unfinished": count(&|line| line["ended"] == "capture-ended"),
        "unanswered": count(&|line| line["ending"]["unanswered"] == true),
        "cut_by_snap": count(&|line| line["ended"] == "cut-by-snap"),
        "status_unknown": count(&|line| line["ended"] == "complete" && line["status"].is_null() && tells(line)),
        "http_statuses": statuses,
        "causes": causes.into_iter().map(|((cause, side), sums)| format!("{cause} {side} {sums:?}")).collect::<Vec<_>>(),
    })
}

/// The same sums, from the document.
fn totals(document: &Value) -> Value {
    let totals = &document["totals"];
    let mut causes = BTreeMap::new();
    for sum in totals["causes"].as_array().expect("causes") {
        let numbers = ["calls", "possible", "cost_ns"].map(|key| sum[key].as_u64().expect("a number"));
        causes.insert((sum["cause"].to_string(), sum["side"].to_string()), numbers);
    }
    let causes: Vec<String> =
        causes.into_iter().map(|((cause, side), sums)| format!("{cause} {side} {sums:?}")).collect();
    let mut same = serde_json::json!({ "causes": causes });
    let keys = "calls total_ns max_ns one_end failed unfinished unanswered cut_by_snap status_unknown";
    for key in keys.split(' ') {
        same[key] = totals[key].clone();
    }
    same["http_statuses"] = totals.get("http_statuses").cloned().unwrap_or(serde_json::json!({}));
    same
}

/// Time by leg, from the lines.
fn legs(lines: &[Value]) -> BTreeMap<String, i64> {
    let mut legs = BTreeMap::new();
    for line in lines {
        let mut sum = 0;
        for leg in line["legs"].as_array().expect("legs") {
            let ns = leg["ns"].as_i64().expect("nanoseconds");
            *legs.entry(leg["leg"].as_str().expect("a name").to_owned()).or_insert(0) += ns;
            sum += ns;
        }
        assert_eq!(Some(sum), line["duration_ns"].as_i64(), "{line:#}");
    }
    legs
}

/// Checks that the lines are the document's calls, and sum to its totals.
fn hold(name: &str, document: &Value, lines: &[Value], one_clock: bool) {
    let mut shown = document["calls"].as_array().expect("calls").clone();
    shown.iter_mut().for_each(|call| drop(call.as_object_mut().expect("a call").remove("ladder")));
    let in_order = |calls: &[Value]| -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        calls.iter().for_each(|call| *times.entry(call.to_string()).or_insert(0) += 1);
        times
    };
    assert!(in_order(&shown) == in_order(lines), "{name}: other calls than those of the document");
    assert_eq!(document["matching_calls"], lines.len(), "{name}");
    assert_eq!(sums(lines), totals(document), "{name}");
    let mut of_lines = legs(lines);
    for sum in document["totals"]["legs"].as_array().expect("legs") {
        let ns = of_lines.remove(sum["leg"].as_str().expect("a name")).unwrap_or(0);
        let (total, bound) = (sum["total_ns"].as_i64(), sum["bound_ns"].as_i64().expect("a bound"));
        // Between two clocks, the bound of the sum is narrower than that of its parts.
        let off = if one_clock { 0 } else { bound };
        assert!(total.is_some_and(|total| total.abs_diff(ns) as i64 <= off), "{name}: {sum}: {ns}");
    }
    assert!(of_lines.is_empty(), "{name}: {of_lines:?}");
}

#[test]
fn every_call_has_a_line_and_lines_sum_to_the_document() {
    let mut cases: Vec<(String, Vec<PathBuf>)> = [
        "go-unary",
        "rust-stream",
        "nagle-client",
        "endings-node",
        "black-hole",
        "still-open",
        "late-answer",
        "go-snap-96",
        "connection-per-call",
        "stream-limit",
        "timeout-http1",
        "server-ends",
        "many-connections",
    ]
    .map(|case| (case.to_owned(), ends(case).to_vec()))
    .into();
    let all = ["client", "in", "out", "server"];
    for case in ["nginx-retry", "nginx-pool", "haproxy-request-id"] {
        cases.push((case.into(), proxied(case, &all)));
        cases.push((case.into(), proxied(case, &["any"])));
    }
    for (name, captures) in cases {
        for arguments in [&["--slowest", "10000"][..], &["--slowest", "10000", "--same-clock"]] {
            let (document, lines) = both(dissect().args(&captures).args(arguments));
            hold(&name, &document, &lines, arguments.len() > 2 || captures.len() == 1);
        }
    }
}

#[test]
fn display_limits_do_not_limit_the_lines_but_filters_do() {
    let captures = ends("stream-limit");
    let (document, lines) = both(dissect().args(&captures).args(["--slowest", "1", "--ladders", "0"]));
    assert_eq!((document["calls"].as_array().map(Vec::len), lines.len()), (Some(1), 800));
    let over = lines[400]["duration_ns"].as_u64().expect("nanoseconds");
    let (document, long) = both(dissect().args(&captures).args(["--over", &format!("{over}ns")]));
    assert!(long.len() < 800 && long.iter().all(|line| line["duration_ns"].as_u64() >= Some(over)));
    assert_eq!(document["matching_calls"], long.len());
    let expected: Vec<&Value> =
        lines.iter().filter(|line| line["duration_ns"].as_u64() >= Some(over)).collect();
    assert_eq!(long.iter().collect::<Vec<_>>(), expected);

    let (_, lines) = both(dissect().args(ends("go-unary")));
    let id = lines[7]["trace_id"].as_str().expect("a trace id").to_owned();
    let (_, traced) = both(dissect().args(ends("go-unary")).args(["--trace-id", &id]));
    let expected: Vec<&Value> = lines.iter().filter(|line| line["trace_id"] == id.as_str()).collect();
    assert_eq!(traced.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn standard_output_contains_only_the_lines() {
    let [client, server] = ends("go-unary");
    let (_, expected) = both(dissect().args([&client, &server]));
    let (code, from_files, stderr) = output(dissect().args([&client, &server]).args(["--calls", "-"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(parsed(&from_files), expected);
    let stdin = Stdio::from(File::open(&client).expect("the fixture"));
    let (code, piped, stderr) = output(dissect().arg("-").arg(&server).args(["--calls", "-"]).stdin(stdin));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(piped, from_files);
    let (code, _, stderr) = output(dissect().arg(&client).args(["--json", "--calls", "-"]));
    assert!(code == 2 && stderr.contains("expected --calls FILE"), "{code} {stderr}");
}

#[test]
fn four_captures_may_all_be_pipes() {
    let files = proxied("nginx-retry", &["client", "in", "out", "server"]);
    let from_files = json(dissect().args(&files));
    let folder = tempfile::tempdir().expect("a folder");
    let pipes: Vec<PathBuf> = (0..4).map(|nth| folder.path().join(nth.to_string())).collect();
    assert!(Command::new("mkfifo").args(&pipes).status().expect("mkfifo runs").success());
    let writers: Vec<_> = files
        .into_iter()
        .zip(pipes.clone())
        .map(|(file, pipe)| thread::spawn(move || fs::copy(file, pipe)))
        .collect();
    let from_pipes = json(dissect().args(&pipes));
    for writer in writers {
        writer.join().expect("no panic").expect("all of it is read");
    }
    for key in ["totals", "hops", "calls"] {
        assert_eq!(from_pipes[key], from_files[key], "{key}");
    }
    assert_eq!(from_pipes["captures"][2]["file"], pipes[2].to_string_lossy().as_ref());
}

#[test]
fn a_capture_is_never_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("client.pcapng");
    let bytes = fs::read(&ends("go-unary")[0]).expect("the fixture");
    fs::write(&capture, &bytes).expect("written");
    for flag in ["--calls", "--html"] {
        let (code, _, stderr) = output(dissect().arg(&capture).arg(flag).arg(&capture));
        assert!(code == 2 && stderr.contains("is one of the captures"), "{code} {stderr}");
        assert!(fs::read(&capture).expect("still there") == bytes, "{flag}");
    }
    let lines = folder.path().join("calls.jsonl");
    fs::write(&lines, "of yesterday\n").expect("written");
    let (code, ..) = output(dissect().arg(folder.path().join("none.pcap")).arg("--calls").arg(&lines));
    assert_eq!((code, fs::read_to_string(&lines).expect("there").as_str()), (1, "of yesterday\n"));
    let nowhere = folder.path().join("no/such/calls.jsonl");
    let (code, stdout, stderr) = output(dissect().arg(&capture).arg("--calls").arg(&nowhere));
    assert!(code == 1 && stdout.is_empty() && stderr.contains("cannot write the calls"), "{stderr}");
}

#[test]
fn a_full_disk_leaves_complete_lines_and_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("calls.jsonl");
    // The kernel refuses writes beyond 600 blocks, as it does on a full disk.
    let limited = |command: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 600; exec \"$0\" \"$@\""]).arg(command.get_program());
        shell.args(command.get_args());
        shell
    };
    let mut command = dissect();
    command.args(ends("stream-limit")).args(["--json", "--ladders", "0", "--calls"]).arg(&lines);
    let (code, stdout, stderr) = output(limited(&command).stdin(Stdio::null()));
    assert_eq!(code, 1, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("the document is printed");
    assert_eq!(document["matching_calls"], 800);
    let written = parsed(&fs::read_to_string(&lines).expect("the lines")).len();
    assert!(written > 0 && written < 800, "{written}");
    let said = format!("cannot write the calls ({}): {written} of 800 were written", lines.display());
    assert!(stderr.contains(&said), "{said}: {stderr}");

    let mut command = dissect();
    command.args(ends("go-unary")).args(["--calls", "/dev/full"]);
    let (code, stdout, stderr) = output(&mut command);
    assert!(code == 1 && stdout.contains("Where the time of all calls went"), "{stdout}");
    assert!(stderr.contains("0 of 158 were written") && stderr.contains("No space left"), "{stderr}");

    // A pipe is copied to disk, too.
    let mut command = dissect();
    command.args(["-", "--calls", "-"]);
    let stdin = Stdio::from(File::open(unpacked("flow-control", folder.path())).expect("just written"));
    let (code, stdout, stderr) = output(limited(&command).stdin(stdin));
    assert!(code == 1 && stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("cannot copy what comes from the pipe (-) to a temporary file in"), "{stderr}");
}

/// The client's capture of a case, decompressed: larger than a pipe's buffer.
fn unpacked(case: &str, folder: &Path) -> PathBuf {
    let packed = File::open(&ends(case)[0]).expect("the fixture");
    let path = folder.join("unpacked.pcapng");
    let unpacked = Command::new("zstd").arg("-dc").stdin(packed).output().expect("zstd runs");
    assert!(unpacked.status.success() && unpacked.stdout.len() > 200_000);
    fs::write(&path, unpacked.stdout).expect("written");
    path
}

#[test]
fn a_closed_pipe_ends_it_silently() {
    let mut child = dissect()
        .args(ends("stream-limit"))
        .args(["--calls", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spangap runs");
    let mut first = [0; 100];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("some of it");
    let done = child.wait_with_output().expect("it ends");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
}

/// Waits until the process has an unnamed file of this size open.
fn wait_for_copy(child: &Child, bytes: u64) {
    let begun = Instant::now();
    let has = || {
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).ok()?;
        open.flatten().find(|entry| {
            let nameless =
                fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains(" (deleted)"));
            nameless && fs::metadata(entry.path()).is_ok_and(|file| file.len() == bytes)
        })
    };
    while has().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the pipe is not copied");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_signal_leaves_the_lines_of_the_calls_read_so_far() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = fs::read(unpacked("stream-limit", folder.path())).expect("just written");
    let half = &bytes[..bytes.len() / 2];
    for signal in [Signal::INT, Signal::TERM] {
        let lines = folder.path().join("calls.jsonl");
        let mut child = dissect()
            .args(["-", "--json", "--slowest", "10000", "--calls"])
            .arg(&lines)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spangap runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(half).expect("it is read");
        wait_for_copy(&child, half.len() as u64);
        kill_process(Pid::from_child(&child), signal).expect("it is sent");
        let done = child.wait_with_output().expect("it ends");
        drop(stdin);
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let document: Value = serde_json::from_slice(&done.stdout).expect("one JSON document");
        let lines = parsed(&fs::read_to_string(&lines).expect("the lines"));
        assert!(document["interrupted"] == true && lines.len() > 100, "{}", lines.len());
        hold("half of stream-limit", &document, &lines, true);
    }
}
