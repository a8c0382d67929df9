//! `spangap capture` as a process, on loopback, with a real tank and target.

use serde_json::Value;
use spangap_wire::source::Capture;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

fn spangap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    spangap(arguments).stdin(Stdio::null()).output().expect("the binary starts")
}

/// A running capture, killed if the test ends first.
struct Capturing {
    child: Child,
    /// `None` once it is closed.
    stderr: Option<BufReader<ChildStderr>>,
}

impl Capturing {
    /// Waits until packets are captured; `None` where this process lacks the rights.
    fn start(arguments: &[&str]) -> Option<Capturing> {
        let mut command = spangap(&[&["capture", "--json"], arguments].concat());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = child.stderr.take().map(BufReader::new);
        let mut capturing = Capturing { child, stderr };
        let line = capturing.line();
        if line.contains("CAP_NET_RAW") {
            println!("not run: capturing needs CAP_NET_RAW");
            return None;
        }
        assert!(line.starts_with("capturing "), "{line}");
        Some(capturing)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let stderr = self.stderr.as_mut().expect("it is piped");
        stderr.read_line(&mut line).expect("standard error is text");
        line
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }

    /// Waits for the end, and returns the report.
    fn report(mut self) -> Value {
        let mut text = String::new();
        self.child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("it is text");
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_str(&text).expect("one JSON document")
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        // If the test passed, it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Target {
    child: Child,
    address: String,
}

impl Target {
    fn start(arguments: &[&str]) -> Target {
        let mut command = spangap(&[&["target", "--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("standard output is text");
        let address = match serde_json::from_str::<Value>(&line) {
            Ok(ready) => ready["listening"].as_str().map(str::to_owned),
            Err(_) => line.trim_end().strip_prefix("listening on ").map(str::to_owned),
        };
        Target { child, address: address.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }

    fn filter(&self) -> String {
        format!("tcp port {}", self.address.rsplit(':').next().expect("a port"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn packets_in(path: &Path) -> u64 {
    let mut capture = Capture::open(path).expect("a capture");
    while capture.next().is_some() {}
    assert_eq!(capture.reading().damaged_places, 0);
    assert_eq!(capture.reading().format, "pcapng");
    capture.reading().packets
}

#[test]
fn a_closed_standard_error_does_not_lose_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("it.pcapng");
    let path = file.to_str().expect("a plain path");
    let Some(mut capturing) =
        Capturing::start(&["--interface", "lo", "--filter", "tcp port 9", "--write", path])
    else {
        return;
    };
    capturing.stderr = None;
    capturing.signal("INT");
    let report = capturing.report();
    assert_eq!(report["written"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(packets_in(&file), report["written"][0]["packets"].as_u64().expect("a count"));
}

#[test]
fn packets_are_written_on_a_signal_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.pcapng");
    let target = Target::start(&[]);
    let (filter, path) = (target.filter(), file.display().to_string());
    let Some(mut capturing) = Capturing::start(&["--interface", "lo", "--filter", &filter, "--write", &path])
    else {
        return;
    };
    let tank = ["tank", &target.address, "--inflight", "1", "--duration", "200ms", "--warmup", "0s"];
    assert!(run(&tank).status.success());
    capturing.signal("USR1");
    let said = capturing.line();
    assert!(said.contains(&path) && said.contains(" packets"), "{said}");
    let first = packets_in(&file);
    assert!(first > 10, "{first}");
    assert!(run(&tank).status.success());
    capturing.signal("INT");
    let report = capturing.report();
    let second = packets_in(&folder.path().join("it-2.pcapng"));
    assert_eq!(report["written"][0]["packets"], first);
    assert_eq!(report["written"][1]["packets"], second);
    assert_eq!(report["written"][1]["reason"], "end");
    assert_eq!(report["dropped"], 0);
    assert_eq!(report["received"], first + second);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "packets are for the owner's eyes");
}

#[test]
fn sigterm_writes_the_ring_as_ctrl_c_does() {
    for (trigger, signal) in [(false, "TERM"), (true, "TERM"), (true, "INT")] {
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("it.pcapng"), folder.path().join("slow.jsonl"));
        let target = Target::start(&[]);
        let (filter, path) = (target.filter(), file.display().to_string());
        let trigger_path = format!("slow-log:{}", log.display());
        let mut arguments = vec!["--interface", "lo", "--filter", &filter, "--write", &path];
        if trigger {
            arguments.extend(["--trigger", &trigger_path]);
        }
        let Some(capturing) = Capturing::start(&arguments) else { return };
        let tank = ["tank", &target.address, "--inflight", "1", "--duration", "200ms", "--warmup", "0s"];
        assert!(run(&tank).status.success());
        capturing.signal(signal);
        let report = capturing.report();
        let packets = packets_in(&file);
        assert!(packets > 10, "{packets} packets, trigger: {trigger}, {signal}");
        assert_eq!(report["written"][0]["packets"], packets);
        assert_eq!(report["written"][0]["reason"], "end");
    }
}

#[test]
fn invalid_lines_of_the_slow_log_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("it.pcapng"), folder.path().join("slow.jsonl"));
    std::fs::write(&log, "an older line\n").unwrap();
    let (path, trigger) = (file.display().to_string(), format!("slow-log:{}", log.display()));
    let arguments = ["--interface", "lo", "--filter", "tcp port 9", "--write", &path, "--trigger", &trigger];
    let Some(mut capturing) = Capturing::start(&arguments) else { return };
    std::fs::write(&log, "an older line\n{\"trace_id\": 7}\n").unwrap();
    // While the capture is still running.
    let said = capturing.line();
    let place = format!("spangap: {}, line 2: column 14: invalid type", log.display());
    assert!(said.starts_with(&place), "{said}");
    capturing.signal("TERM");
    assert_eq!(capturing.report()["malformed_lines"], 1);
}

/// Forty responses that a stopped target had ready leave in one segment when it continues.
#[test]
fn the_default_keeps_the_ends_of_calls_that_leave_in_one_segment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.pcapng");
    let target = Target::start(&["--think", "50ms"]);
    let (filter, path) = (target.filter(), file.display().to_string());
    let Some(capturing) = Capturing::start(&["--interface", "lo", "--filter", &filter, "--write", &path])
    else {
        return;
    };
    let tank = [
        "tank",
        &target.address,
        "--inflight",
        "40",
        "--channels",
        "shared",
        "--duration",
        "1s",
        "--warmup",
        "0s",
    ];
    assert!(run(&tank).status.success());
    capturing.signal("TERM");
    capturing.report();
    let mut capture = Capture::open(&file).expect("a capture");
    let mut longest = 0;
    while let Some(packet) = capture.next() {
        longest = longest.max(packet.wire_len);
    }
    assert!(longest > 600, "{longest} bytes: the responses left one by one");
    assert_eq!(capture.reading().cut, 0);
    let output = run(&["dissect", &path, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["totals"]["calls"].as_u64().unwrap() >= 40);
    assert_eq!(document["totals"]["unfinished"], 0, "{}", document["totals"]);
}

#[test]
fn a_slow_call_has_its_packets_written_and_dissect_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("slow.pcapng"), folder.path().join("slow.jsonl"));
    let (path, log_path) = (file.display().to_string(), log.display().to_string());
    let target = Target::start(&["--think", "30ms"]);
    let (filter, trigger) = (target.filter(), format!("slow-log:{log_path}"));
    let arguments = [
        "--interface",
        "any",
        "--filter",
        &filter,
        "--trigger",
        &trigger,
        "--after",
        "200ms",
        "--write",
        &path,
    ];
    let Some(capturing) = Capturing::start(&arguments) else { return };
    let tank = [
        "tank",
        &target.address,
        "--interval",
        "50ms",
        "--duration",
        "500ms",
        "--warmup",
        "0s",
        "--slow",
        "20ms",
        "--slow-log",
        &log_path,
    ];
    assert!(run(&tank).status.success());
    let report = capturing.report();
    let written = &report["written"][0];
    assert_eq!(written["covers_call"], true, "{report}");
    assert!(packets_in(&file) > 2);
    let trace_id = written["reason"]["slow_call"]["trace_id"].as_str().expect("the call's trace id");
    let dissected = run(&["dissect", &path, "--trace-id", trace_id, "--json"]);
    assert!(dissected.status.success(), "{}", String::from_utf8_lossy(&dissected.stderr));
    let document: Value = serde_json::from_slice(&dissected.stdout).unwrap();
    assert_eq!(document["calls"].as_array().unwrap().len(), 1);
    assert_eq!(document["calls"][0]["trace_id"], trace_id);
    assert!(document["calls"][0]["duration_ns"].as_u64().unwrap() > 20_000_000);
}

#[test]
fn invalid_arguments_are_refused_with_reasons() {
    let error = |arguments: &[&str]| {
        let output = run(&[&["capture", "--write", "/nonexistent/x.pcapng"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = error(&["--interface", "lo", "--filter", "tcp port http"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("column 10: found \"http\"; expected a port number"), "{said}");
    let (code, said) = error(&["--interface", "no-such-if"]);
    assert_eq!(code, Some(1));
    assert!(said.starts_with("spangap: cannot find the interface no-such-if"), "{said}");
    let (code, said) = error(&["--interface", "lo", "--trigger", "cron:x"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("expected slow-log:FILE"), "{said}");
    let (code, said) = error(&["--interface", "lo", "--trigger", "slow-log:x", "--trace-id", "12"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("32 hexadecimal digits"), "{said}");
    assert_eq!(error(&["--interface", "lo", "--ring", "5"]).0, Some(2));
    // A file that cannot be written is reported before any packet is lost.
    let (code, said) = error(&["--interface", "lo"]);
    assert_eq!(code, Some(1));
    assert!(said.starts_with("spangap: cannot write /nonexistent/x.pcapng: No such file"), "{said}");
}
