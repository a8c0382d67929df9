//! `spangap host check` on the real machine: each trap that a test can set is found, and is not found before
//! it is set.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for any condition.
const PATIENCE: Duration = Duration::from_secs(120);

fn spangap() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spangap"))
}

fn run(arguments: &[&str]) -> Output {
    let short: &[&str] = if arguments.contains(&"--for") { &[] } else { &["--for", "50ms"] };
    spangap().args(["host", "check"]).args(short).args(arguments).output().unwrap()
}

fn check(pid: u32) -> Value {
    let ended = run(&["--json", "--pid", &pid.to_string()]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn finding<'a>(report: &'a Value, trap: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["trap"] == trap).unwrap_or_else(|| panic!("no {trap}"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come true");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// A child process that is killed when the test ends.
struct Program {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    told: Option<ChildStdin>,
}

impl Program {
    fn start(command: &mut Command) -> Option<Program> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (said, told) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take());
        Some(Program { child, said, told })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints; empty once it has ended.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.told.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.told.take());
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python(script: &str) -> Option<Program> {
    Program::start(Command::new("python3").args(["-c", script]))
}

/// A cgroup that is removed when the test ends.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_quota_that_stops_a_process_is_found() {
    let v1 = Path::new("/sys/fs/cgroup/cpu").join(format!("spangap-check-{}", std::process::id()));
    let v2 = Path::new("/sys/fs/cgroup").join(format!("spangap-check-{}", std::process::id()));
    let is_v1 = Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
        || Path::new("/sys/fs/cgroup/cpu/cpu.shares").exists();
    let group = Group(if is_v1 { v1 } else { v2 });
    if fs::create_dir(&group.0).is_err() {
        return println!("not run: this user may not make a cgroup with a CPU controller");
    }
    let limit = |name: &str, text: &str| fs::write(group.0.join(name), text);
    let limited = if is_v1 {
        limit("cpu.cfs_period_us", "20000").and_then(|()| limit("cpu.cfs_quota_us", "2000"))
    } else {
        limit("cpu.max", "2000 20000")
    };
    if let Err(error) = limited {
        return println!("not run: no quota can be set here: {error}");
    }
    let Some(busy) = Program::start(Command::new("sh").args(["-c", "while :; do :; done"])) else {
        return println!("not run: no sh here");
    };
    let before = check(busy.pid());
    assert_eq!(finding(&before, "cpu-quota")["verdict"], "fine", "{before}");

    fs::write(group.0.join("cgroup.procs"), busy.pid().to_string()).unwrap();
    let stat = group.0.join("cpu.stat");
    until("throttling", || {
        let text = fs::read_to_string(&stat).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("nr_throttled ")).any(|count| count.trim() != "0")
    });
    let ended = spangap()
        .args(["host", "check", "--json", "--for", "500ms", "--fail-on", "cpu-quota", "--pid"])
        .arg(busy.pid().to_string())
        .output()
        .unwrap();
    let after: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let quota = finding(&after, "cpu-quota");
    assert_eq!(
        (quota["verdict"].as_str(), quota["severity"].as_str()),
        (Some("trap"), Some("high")),
        "{quota}"
    );
    assert_eq!(ended.status.code(), Some(3), "--fail-on cpu-quota");
    let evidence = quota["evidence"].to_string();
    assert!(evidence.contains(stat.to_str().unwrap()) && evidence.contains("nr_throttled +"), "{evidence}");
    assert!(evidence.contains("0.10 CPUs"), "{evidence}");
    drop(busy);
    until("an empty cgroup", || fs::read_to_string(group.0.join("cgroup.procs")).unwrap().is_empty());
}

#[test]
fn connections_without_nodelay_are_found() {
    let script = "
import socket, sys
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname()); a, _ = l.accept()
for on in (1, 0):
    for s in (a, c): s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, on)
    print(c.getsockname()[1], flush=True); sys.stdin.readline()
";
    let Some(mut program) = python(script) else { return println!("not run: no python3 here") };
    let port = program.line();
    let before = check(program.pid());
    let nodelay = finding(&before, "tcp-nodelay");
    if nodelay["verdict"] == "cannot-tell" {
        return println!("not run: this user may not look into sockets: {}", nodelay["summary"]);
    }
    assert_eq!(nodelay["verdict"], "fine", "{nodelay}");
    program.tell("off");
    assert_eq!(program.line(), port);
    let after = check(program.pid());
    let nodelay = finding(&after, "tcp-nodelay");
    assert_eq!(nodelay["summary"], "off on 2 of 2 connections");
    assert_eq!(nodelay["severity"], "medium");
    assert!(nodelay["evidence"].to_string().contains(&format!(":{port}")), "{nodelay}");
    assert!(nodelay["fix"].to_string().contains("sockets set"), "{nodelay}");
}

#[test]
fn a_listener_that_overflows_is_found() {
    let script = "
import socket, sys
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(1)
print('quiet', flush=True); sys.stdin.readline()
held = []
for _ in range(8):
    s = socket.socket(); s.setblocking(False); s.connect_ex(l.getsockname()); held.append(s)
def overflows():
    names, figures = [line.split() for line in open('/proc/net/netstat') if line.startswith('TcpExt:')]
    return int(figures[names.index('ListenOverflows')])
while overflows() == 0: pass
print('full', flush=True); sys.stdin.readline()
";
    let inside = format!("ip link set lo up && exec python3 -c \"{script}\"");
    let Some(mut program) = Program::start(Command::new("unshare").args(["--net", "sh", "-c", &inside]))
    else {
        return println!("not run: no unshare here");
    };
    if program.line() != "quiet" {
        return println!("not run: this user may not make a network namespace, or there is no ip or python3");
    }
    let before = check(program.pid());
    assert_eq!(finding(&before, "listen-overflow")["summary"], "no overflow ever");
    program.tell("now");
    assert_eq!(program.line(), "full");
    let after = check(program.pid());
    let overflow = finding(&after, "listen-overflow");
    assert_eq!(
        (overflow["verdict"].as_str(), overflow["severity"].as_str()),
        (Some("trap"), Some("high")),
        "{overflow}"
    );
    let evidence = overflow["evidence"].to_string();
    assert!(evidence.contains(&format!("/proc/{}/net/netstat", program.pid())), "{evidence}");
    assert!(evidence.contains("2 connections waiting to be accepted, at most 2"), "{evidence}");
}

/// A veth pair that is removed when the test ends.
struct Veth(String);

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn packets_steered_onto_the_cpu_of_a_process_are_found() {
    let name = format!("sgc{}", std::process::id());
    let peer = format!("{name}p");
    let arguments = ["link", "add", &name, "type", "veth", "peer", "name", &peer];
    let made = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
    if !made.is_ok_and(|made: ExitStatus| made.success()) {
        return println!("not run: this user may not make interfaces, or there is no ip here");
    }
    let veth = Veth(name);
    let pinned =
        Program::start(Command::new("taskset").args(["-c", "0", "sh", "-c", "echo ready; read word"]));
    let Some(mut pinned) = pinned else { return println!("not run: no taskset here") };
    assert_eq!(pinned.line(), "ready");
    // Other tests steer packets, too, so only findings about this interface count.
    let mask = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", veth.0);
    let steered = |report: &Value| finding(report, "packet-steering")["evidence"].to_string().contains(&mask);
    assert!(!steered(&check(pinned.pid())), "before");
    fs::write(&mask, "2").unwrap();
    assert!(!steered(&check(pinned.pid())), "to another CPU");
    fs::write(&mask, "1").unwrap();
    let after = check(pinned.pid());
    assert!(steered(&after), "{after}");
    let steering = finding(&after, "packet-steering");
    assert_eq!(steering["verdict"], "trap");
    assert!(steering["fix"].to_string().contains(&format!("> {mask}")), "{steering}");
    drop(veth);
}

#[test]
fn saved_readings_are_judged_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.txt");
    let file = file.to_str().unwrap();
    let pid = std::process::id().to_string();
    let text = |ended: Output| {
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let findings = |text: &str| {
        let report: Value = serde_json::from_str(text).unwrap();
        let mut findings = report["findings"].as_array().unwrap().clone();
        // The file contains no sockets.
        let of_sockets = ["tcp-nodelay", "unsent-data", "listen-overflow"];
        findings.retain(|finding| !of_sockets.iter().any(|trap| finding["trap"] == *trap));
        (report["looked_ns"].clone(), findings)
    };
    let live = findings(&text(run(&["--json", "--pid", &pid, "--save", file])));
    let again = findings(&text(run(&["--json", "--pid", &pid, "--root", file])));
    assert_eq!(live, again);
    let shown = text(run(&["--pid", &pid, "--root", file]));
    assert!(shown.contains(&format!("({pid})")) && shown.contains("looked at for"), "{shown}");
}

#[test]
fn ctrl_c_ends_the_wait_with_a_result() {
    let mut command = spangap();
    command.args(["host", "check", "--json", "--for", "1h"]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // Bit 1 of the mask is SIGINT.
    until("a handler of SIGINT", || {
        let text = fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    });
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.is_ok_and(|sent| sent.success()), "kill -INT {}", child.id());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(finding(&report, "cpu-quota")["verdict"], "cannot-tell", "no process is named");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, expected) in [
        (&["--pid", "4194305"][..], "--pid 4194305: there is no such process"),
        (&["--root", "/nowhere"], "--root /nowhere: there is no proc inside"),
        (&["--fail-on", "nonsense"], "expected trap, high, medium, low, cannot-tell, or the name of a trap"),
        (&["--for", "soon"], "is not a duration"),
    ] {
        let ended = run(arguments);
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn without_root_unreadable_files_are_named_and_the_rest_is_judged() {
    if !is_root() {
        return println!("not run: becoming another user needs root");
    }
    // A place where other users may not run it.
    let folder = tempfile::Builder::new().prefix("spangap-check").tempdir().unwrap();
    let copy = folder.path().join("spangap");
    // Copied by a process of its own: see `tests/without_rights.rs`.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_spangap")).arg(&copy).status();
    assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
    for path in [folder.path(), &copy] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    let pid = std::process::id().to_string();
    let ended = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["host", "check", "--json", "--for", "50ms", "--pid", &pid])
        .output();
    let Ok(ended) = ended else { return println!("not run: no setpriv here") };
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    if error.starts_with("setpriv:") {
        return println!("not run: nobody may not start a program here: {error}");
    }
    assert!(ended.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let nodelay = finding(&report, "tcp-nodelay");
    assert_eq!(nodelay["verdict"], "cannot-tell", "{nodelay}");
    assert!(!nodelay["summary"].as_str().unwrap().is_empty());
    assert_ne!(finding(&report, "clock-source")["verdict"], "cannot-tell");
    assert_ne!(finding(&report, "run-queue-wait")["verdict"], "cannot-tell");
}
