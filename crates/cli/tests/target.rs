//! `spangap target` as a process, with every stack that is installed.

#[path = "meter/client.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod client;
#[path = "meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;

use process::{Meter, PATIENCE, Program};
use serde_json::{Value, json};
use spangap_bench::contract::TargetStack;
use spangap_bench::programs::FOLDER_VARIABLE;
use spangap_bench::usage::{self, Protocol};
use spangap_sockets as sockets;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

fn target(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.arg("target").args(arguments).env_remove(FOLDER_VARIABLE);
    command
}

/// The stacks that this machine can serve; prints the others.
fn stacks() -> Vec<TargetStack> {
    let beside = Path::new(env!("CARGO_BIN_EXE_spangap"));
    let folder = |name: &str| beside.with_file_name(name);
    let there =
        |program: &str| ["clients", "../clients"].iter().any(|name| folder(name).join(program).is_file());
    let is_there = |stack: &TargetStack| match stack {
        TargetStack::Raw | TargetStack::Rust => true,
        TargetStack::Cpp => there("spangap-cpp"),
        TargetStack::Go => there("spangap-go"),
    };
    let (there, missing): (Vec<_>, Vec<_>) = TargetStack::ALL.iter().copied().partition(is_there);
    missing.iter().for_each(|stack| println!("not run: the program of stack {stack} is not built"));
    there
}

fn protocol(stack: TargetStack) -> Protocol {
    if stack == TargetStack::Raw { Protocol::Raw } else { Protocol::Grpc }
}

/// A process that is killed if the test ends first.
struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
    first_line: String,
}

impl Serving {
    fn start(stack: TargetStack, more: &[&str]) -> Serving {
        let arguments = [&["--stack", stack.name(), "--listen", "127.0.0.1:0"], more].concat();
        let mut child = target(&arguments).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).expect("standard output is text");
        let address = match serde_json::from_str::<Value>(&first_line) {
            Ok(ready) => ready["listening"].as_str().and_then(|address| address.parse().ok()),
            Err(_) => first_line.trim_end().strip_prefix("listening on ").and_then(|text| text.parse().ok()),
        };
        let address = address.unwrap_or_else(|| panic!("{stack}: no address in {first_line:?}"));
        Serving { child, stdout, address, first_line }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }

    /// Sends a signal and waits for the end; returns the exit status and the remaining output.
    fn end(mut self, signal: &str) -> (ExitStatus, String) {
        self.signal(signal);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("standard output is text");
        (self.child.wait().expect("it can be waited for"), rest)
    }

    /// The serving process: this one, or the program that it has started.
    fn server(&self, stack: TargetStack) -> u32 {
        let asked = usage::ask(protocol(stack), &self.address.to_string(), PATIENCE);
        asked.expect("it answers").expect("it is one of ours").pid
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process is gone, or is a zombie that nobody has reaped.
fn wait_until_gone(pid: u32) {
    let begun = Instant::now();
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if state == Some('Z') {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "process {pid} is still there: {stat}");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

#[test]
fn every_stack_listens_serves_and_ends_on_a_signal_with_nothing_left_behind() {
    for stack in stacks() {
        for signal in ["INT", "TERM"] {
            let serving = Serving::start(stack, &["--json"]);
            let ready: Value = serde_json::from_str(&serving.first_line).expect("a JSON line");
            assert_eq!(ready["stack"], stack.name());
            assert!(ready["library"].as_str().is_some_and(|library| !library.is_empty()), "{ready}");
            let server = serving.server(stack);
            let is_a_program = matches!(stack, TargetStack::Cpp | TargetStack::Go);
            assert_eq!(server != serving.child.id(), is_a_program, "{stack}");
            let (status, rest) = serving.end(signal);
            assert_eq!(status.code(), Some(0), "{stack} after SIG{signal}: {rest}");
            let report: Value =
                serde_json::from_str(&rest).unwrap_or_else(|error| panic!("{rest:?}: {error}"));
            let expected = json!({
                "calls": 0, "by_status": {}, "malformed_traceparent": 0, "records_dropped": 0, "cut_off": false,
            });
            assert_eq!(report, expected, "{stack}: to ask for the usage is no call");
            wait_until_gone(server);
        }
    }
}

#[test]
fn a_target_that_is_killed_leaves_no_process_behind() {
    for stack in stacks() {
        let serving = Serving::start(stack, &[]);
        let server = serving.server(stack);
        let (status, _) = serving.end("KILL");
        assert_eq!(status.code(), None);
        wait_until_gone(server);
    }
}

#[test]
fn a_dead_program_is_reported() {
    for stack in stacks().into_iter().filter(|stack| matches!(stack, TargetStack::Cpp | TargetStack::Go)) {
        let arguments = ["--stack", stack.name(), "--listen", "127.0.0.1:0"];
        let mut child = target(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("standard output is text");
        let address = line.trim_end().strip_prefix("listening on ").expect("an address");
        let server =
            usage::ask(Protocol::Grpc, address, PATIENCE).expect("it answers").expect("one of ours").pid;
        let killed = Command::new("kill").args(["-s", "KILL", &server.to_string()]).status();
        assert!(killed.expect("kill is there").success());
        let mut errors = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("text");
        assert_eq!(child.wait().expect("it can be waited for").code(), Some(1));
        assert!(errors.contains("exited on its own (signal: 9"), "{stack}: {errors}");
    }
}

#[test]
fn all_stacks_print_the_same_lines() {
    for stack in stacks() {
        let serving = Serving::start(stack, &[]);
        assert_eq!(serving.first_line, format!("listening on {}\n", serving.address));
        serving.server(stack);
        let (status, rest) = serving.end("INT");
        assert_eq!((status.code(), rest.as_str()), (Some(0), "served 0 calls\n"), "{stack}");
    }
}

#[test]
fn accepted_sockets_have_the_requested_nodelay() {
    for stack in stacks() {
        for (nodelay, expected) in [("on", true), ("off", false), ("default", true)] {
            if (stack, nodelay) == (TargetStack::Cpp, "off") {
                continue;
            }
            let serving = Serving::start(stack, &["--nodelay", nodelay]);
            let caller = TcpStream::connect(serving.address).expect("it listens");
            let caller_end = caller.local_addr().expect("it is connected");
            let server = serving.server(stack);
            let begun = Instant::now();
            // Accepted before the last answer, but its options may not be set yet.
            loop {
                let sockets = sockets::look(server, &[caller_end]).expect("it runs");
                match sockets.first().map(|socket| socket.nodelay) {
                    Some(Some(found)) if found == expected => break,
                    Some(None) => {
                        println!("not run: the kernel does not lend descriptors here");
                        break;
                    }
                    other => assert!(begun.elapsed() < PATIENCE, "{stack} {nodelay}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn every_call_of_every_stack_has_its_server_span() {
    for stack in stacks() {
        let meter = Meter::start(&[]);
        let url = format!("http://{}", meter.otlp_grpc);
        let serving = Serving::start(stack, &["--json", "--otlp", &url]);
        let caller = if stack == TargetStack::Raw { "raw" } else { "rust" };
        let address = serving.address.to_string();
        let arguments = ["tank", &address, "--stack", caller, "--call", "unary,stream", "--inflight", "3"];
        let times = ["--duration", "200ms", "--warmup", "0ms", "--json", "--otlp", &url];
        let tank = Program::start(&[&arguments[..], &times].concat()).wait();
        let report: Value = serde_json::from_str(&tank.out.concat()).unwrap_or_else(|_| panic!("{tank:?}"));
        let count = |of: &Value, key: &str| of["spans"][key].as_u64().expect("a number");
        let made = count(&report, "recorded");
        assert!(made > 0, "{stack}: {report}");

        let (status, rest) = serving.end("INT");
        assert_eq!(status.code(), Some(0), "{stack}: {rest}");
        let served: Value = serde_json::from_str(&rest).expect("a JSON line");
        assert_eq!((&served["calls"], count(&served, "recorded")), (&json!(made), made), "{stack}");
        assert_eq!(served["by_status"], json!({"OK": made}), "{stack}");
        let exported = count(&report, "exported") + count(&served, "exported");
        // A machine that pauses can hold up an export beyond its deadline; nothing else may be missing.
        let late = count(&report, "dropped_unsent") + count(&served, "dropped_unsent");
        assert_eq!(exported + late, 2 * made, "{stack}: {report} {served}");
        if late > 0 {
            let received = meter.coverage().spans.received;
            assert!(
                (exported..=2 * made).contains(&received),
                "{stack}: {received} of {exported} and {late} late"
            );
            println!(
                "not run: pairs of {stack}: {late} spans did not reach the meter in time, the machine paused"
            );
            continue;
        }
        let row = meter.pair("tank", "target", made);
        assert_eq!(row.calls + row.negative, made, "{stack}");
        let spans = meter.coverage().spans;
        assert_eq!((spans.received, spans.joined), (2 * made, 2 * made), "{stack}: {spans:?}");
    }
}

#[test]
fn every_stack_reports_an_address_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("bound").to_string();
    for stack in stacks() {
        let output =
            target(&["--stack", stack.name(), "--listen", &address]).output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stack}: {errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("spangap: cannot listen on {address}: ")), "{stack}: {errors}");
    }
}

#[test]
fn a_missing_program_is_reported_with_a_remedy() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    for (stack, program) in [("cpp", "spangap-cpp"), ("go", "spangap-go")] {
        let mut command = target(&["--stack", stack]);
        let output = command.env(FOLDER_VARIABLE, empty.path()).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        for part in [&format!("stack {stack} is not available")[..], program, "make clients"] {
            assert!(errors.contains(part), "{errors}");
        }
    }
}

/// A folder with a shell script of this name.
fn script(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it can be written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it can be made a program");
    (folder, path)
}

#[test]
fn contract_violations_are_reported() {
    let listening = r#"echo '{"event":"listening","address":"127.0.0.1:1","library":"none"}'"#;
    for (text, expected) in [
        ("exit 7", "exited on its own (exit status: 7)"),
        (r#"echo '{"event":"failed","error":"no luck"}'; exit 1"#, "spangap: no luck"),
        (&format!("echo hello; {listening}; exit 0"), r#"spangap-go says "hello", not understood"#),
        (&format!("{listening}; exit 3"), "exited on its own (exit status: 3)"),
    ] {
        let (folder, _) = script("spangap-go", text);
        let mut command = target(&["--stack", "go"]);
        let output = command.env(FOLDER_VARIABLE, folder.path()).output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}: {errors}");
        assert!(errors.contains(expected), "{text}: {errors}");
    }
}

#[test]
fn unsupported_settings_of_a_stack_are_wrong_usage() {
    let cases: [(&[&str], &str); 14] = [
        (&["--stack", "go", "--workers", "2"], "only the stack rust has a queue before its handler"),
        (&["--stack", "raw", "--large-response", "1MiB/2"], "only the stack rust answers with two sizes"),
        (&["--workers", "0"], "0 is not in 1.."),
        (&["--large-response", "1MiB"], "expected SIZE/N, such as 3MiB/50"),
        (&["--large-response", "1MiB/0"], "expected a whole number of at least 1 behind the slash"),
        (&["--large-response", "1GiB/2"], "expected at most 67108864 bytes"),
        (&["--large-response", "few/2"], "is not a size"),
        (&["--stack", "raw", "--max-streams", "5"], "the raw protocol has no streams"),
        (&["--stack", "raw", "--threads", "2"], "a thread of its own"),
        (&["--stack", "cpp", "--nodelay", "off"], "sets it on every connection"),
        (&["--stack", "java"], "expected rust, raw, cpp, go"),
        (&["--nodelay", "maybe"], "expected on, off, default"),
        (&["--think", "2m"], "expected at most 1m"),
        (&["--service-name", "alone"], "--otlp"),
    ];
    for (arguments, expected) in cases {
        let output = target(arguments).output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}
