//! `spangap tank` and `spangap target` as processes.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

fn spangap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.args(arguments);
    command
}

/// A process that is killed if the test ends first.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut child = spangap(arguments).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Running { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("standard output is text");
        line.trim_end().to_owned()
    }

    /// A target on a free port, and its address.
    fn target(arguments: &[&str]) -> (Running, String) {
        let mut target = Running::start(&[&["target", "--listen", "127.0.0.1:0"], arguments].concat());
        let line = target.line();
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("no address in {line:?}"));
        let address = address.to_owned();
        (target, address)
    }

    /// Sends a signal and waits for the end; returns the exit status and the remaining output.
    fn end(mut self, signal: &str) -> (ExitStatus, String) {
        let status = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("standard output is text");
        (self.child.wait().expect("it can be waited for"), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output(arguments: &[&str]) -> Output {
    spangap(arguments).output().expect("the binary starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_run_reports_in_json_and_the_target_ends_on_a_signal() {
    for signal in ["INT", "TERM"] {
        let (target, address) = Running::target(&[]);
        let arguments =
            ["tank", &address, "--rate", "500", "--duration", "200ms", "--warmup", "100ms", "--json"];
        let output = output(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "progress is for terminals");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        let run = &report["runs"][0];
        assert_eq!(run["stack"], "rust");
        assert_eq!((run["scheduled"].as_u64(), run["ok"].as_u64()), (Some(100), Some(100)), "{report}");
        assert_eq!(run["errors"], serde_json::json!({}));
        assert_eq!(run["connections"], 1);
        assert!(run["latency"]["p99_ns"].as_u64() > Some(0), "{report}");
        assert_eq!(run["latency"]["p9999_ns"], Value::Null, "100 calls have no p99.99");
        assert!(run["cpu_client_s"].as_f64() > Some(0.0), "{report}");
        assert!(run["context_switches"].as_u64() > Some(0), "{report}");
        assert!(report["noise"]["timer_lateness"]["max_ns"].is_u64(), "{report}");
        assert!(report["warnings"].is_array(), "{report}");

        let (status, rest) = target.end(signal);
        assert_eq!(status.code(), Some(0), "after SIG{signal}");
        assert_eq!(rest, "served 150 calls (OK 150)\n");
    }
}

#[test]
fn interrupting_a_tank_prints_the_result_so_far() {
    let (_target, address) = Running::target(&[]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("its name is text");
    let arguments =
        ["tank", &address, "--rate", "1000", "--warmup", "0ms", "--slow", "0us", "--slow-log", path];
    let tank = Running::start(&arguments);
    // Every call is logged as slow, so once the log has a line, calls are being made.
    let begun = Instant::now();
    while log.as_file().metadata().expect("the file is there").len() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no call in a minute");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    let (status, table) = tank.end("INT");
    assert_eq!(status.code(), Some(0), "{table}");
    for part in ["calls due", " OK (", "p99.99 ", "needs 1", "latency", "lateness", "of CPU", "slow log"] {
        assert!(table.contains(part), "{part:?} is missing:\n{table}");
    }
}

#[test]
fn a_target_reports_in_json() {
    let mut target = Running::start(&["target", "--listen", "127.0.0.1:0", "--json"]);
    let ready: Value = serde_json::from_str(&target.line()).expect("a JSON line");
    let address = ready["listening"].as_str().expect("an address").to_owned();
    let run = output(&["tank", &address, "--interval", "1ms", "--duration", "20ms", "--warmup", "0ms"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let (status, rest) = target.end("INT");
    assert_eq!(status.code(), Some(0));
    let served: Value = serde_json::from_str(&rest).expect("a JSON line");
    assert_eq!((&served["calls"], &served["by_status"]["OK"]), (&Value::from(20), &Value::from(20)));
}

#[test]
fn an_absent_target_is_one_clear_line() {
    let free =
        TcpListener::bind("127.0.0.1:0").expect("loopback has a free port").local_addr().expect("bound");
    let output = output(&["tank", &free.to_string(), "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("spangap: cannot connect to {free}: Connection refused (os error 111)\n");
    assert_eq!((stderr(&output), output.stdout.len()), (expected, 0));
}

#[test]
fn a_run_in_which_no_call_succeeds_fails_and_still_reports() {
    let (_target, address) = Running::target(&["--think", "1m"]);
    let arguments =
        ["tank", &address, "--duration", "50ms", "--warmup", "0ms", "--timeout", "10ms", "--json"];
    let output = output(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("spangap: no call succeeded"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(report["runs"][0]["errors"], serde_json::json!({"DEADLINE_EXCEEDED": 5}));
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = output(&["target", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("spangap: cannot listen on {address}: Address already in use (os error 98)\n");
    assert_eq!(stderr(&output), expected);
}

#[test]
fn wrong_usage_exits_with_2_and_names_what_was_expected() {
    let cases: [(&[&str], &str); 26] = [
        (&["tank"], "HOST:PORT"),
        (&["tank", "localhost"], "expected HOST:PORT"),
        (&["tank", "h:1", "--interval", "0ms"], "expected at least 1ns"),
        (&["tank", "h:1", "--interval", "10"], "expected a number and a unit"),
        (&["tank", "h:1", "--rate", "0"], "expected at least 1 call per second"),
        (&["tank", "h:1", "--rate", "10", "--interval", "1ms"], "cannot be used with"),
        (&["tank", "h:1", "--duration", "0s"], "expected more than 0"),
        (&["tank", "h:1", "--nodelay", "maybe"], "on, off"),
        (&["tank", "h:1", "--request-bytes", "1GiB"], "expected at most"),
        (&["tank", "h:1", "--otlp", "localhost:4317"], "expected http://HOST:PORT"),
        (&["tank", "h:1", "--stack", "tonic"], "expected raw, rust, cpp-sync"),
        (&["tank", "h:1", "--channels", "own"], "local-pool, pool:N"),
        (&["tank", "h:1", "--inflight", "0"], "expected at least 1"),
        (&["tank", "h:1", "--inflight", "8+2"], "expected A..B before it"),
        (&["tank", "h:1", "--inflight", "1..1000000"], "expected at most 65536"),
        (&["tank", "h:1", "--inflight", "4", "--rate", "10"], "cannot be used with"),
        (&["tank", "h:1", "--inflight", "4", "--max-in-flight", "10"], "cannot be used with"),
        (&["tank", "h:1", "--cpus", "all"], "expected one such as 0,2-3, or node:N"),
        (&["tank", "h:1", "--cpus", "node:999"], "cannot read the CPUs of NUMA node 999"),
        (&["tank", "h:1", "--channels", "local-pool"], "stack rust has no subchannel pools"),
        (&["tank", "h:1", "--split-writes"], "--split-writes is for --stack raw"),
        (&["tank", "h:1", "--otlp", "http://h:4317", "--trace", "off"], "--otlp needs the trace contexts"),
        (&["bench", "compare", "a.json"], "expected a second one, or --by FIELD"),
        (&["bench", "compare", "a.json", "b.json", "--by", "stack"], "expected a single file"),
        (&["target", "--think", "2m"], "expected at most 1m"),
        (&["target", "--service-name", "alone"], "--otlp"),
    ];
    for (arguments, expected) in cases {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}
