//! `spangap client` as a process.

use spangap_bench::contract::{ClientMessage, Phase};
use spangap_bench::distribution::Distribution;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const SPANGAP: &str = env!("CARGO_BIN_EXE_spangap");

/// A process with its standard output; killed when dropped.
struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(arguments: &[String]) -> Process {
        let mut command = Command::new(SPANGAP);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, output }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn message(&mut self) -> Option<ClientMessage> {
        self.output.next().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn flags(target: &str) -> Vec<String> {
    let flags = "client --stack=rust --call=unary --channels=shared --schedule=200/1000000000 --in-flight=10000 \
        --threads=1 --request-bytes=0 --response-bytes=target --think-ns=target --nodelay=on --split-writes=off \
        --timeout-ns=60000000000 --warmup-ns=0 --duration-ns=0 --calls=0 --trace=off --records=none \
        --slow-ns=1000000000 --record-file=";
    flags.split_whitespace().map(String::from).chain([format!("--target={target}")]).collect()
}

#[test]
fn a_stall_of_the_client_shows_in_latency_and_not_in_from_send() {
    const STALL_NS: u64 = 500_000_000;
    let target = ["target", "--listen=127.0.0.1:0"].map(String::from);
    let mut target = Process::start(&target);
    let listening = target.output.next().unwrap().unwrap();
    let mut client = Process::start(&flags(listening.strip_prefix("listening on ").unwrap()));
    client.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    while !matches!(client.message().unwrap(), ClientMessage::Phase { phase: Phase::Measured, .. }) {}

    let stalled_ns = spangap_bench::clock::monotonic_ns();
    client.signal(rustix::process::Signal::STOP);
    spangap_bench::clock::sleep_until(stalled_ns + STALL_NS);
    client.signal(rustix::process::Signal::CONT);
    let (mut latency, mut from_send, mut lateness) = <(Distribution, Distribution, Distribution)>::default();
    let (mut due, mut ok) = (0, 0);
    while let Some(message) = client.message() {
        if let ClientMessage::Interval(interval) = message {
            // Another second, so that the delayed calls have ended.
            drop(client.child.stdin.take());
            interval.latency.add_to(&mut latency);
            interval.from_send.add_to(&mut from_send);
            interval.lateness.add_to(&mut lateness);
            (due, ok) = (due + interval.due, ok + interval.ok);
        }
    }
    assert!(client.child.wait().unwrap().success());
    assert_eq!(due, ok);
    let over_half = |distribution: &Distribution| {
        distribution.buckets().filter(|(ns, _)| *ns >= STALL_NS / 2).map(|(_, count)| count).sum::<u64>()
    };
    // 100 calls came due during the stop; those due in its first half were late by at least half of it.
    let (latency, from_send, lateness) = (over_half(&latency), over_half(&from_send), over_half(&lateness));
    assert!(lateness >= 48, "{lateness} calls were late");
    assert!(latency >= lateness, "{latency} of the {lateness} late calls show in the latency");
    assert!(from_send < lateness, "{from_send} calls took long from their send, {lateness} were late");
}

#[test]
fn exit_codes() {
    let run = |flags: &[String]| {
        let output = Command::new(SPANGAP).args(flags).stdin(Stdio::null()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let good = flags("127.0.0.1:1");
    let (code, out, err) = run(&good);
    assert_eq!(code, Some(1), "{err}");
    let failed: ClientMessage = serde_json::from_str(&out).unwrap();
    let ClientMessage::Failed { error } = failed else { panic!("{out}") };
    assert!(error.starts_with("cannot connect to 127.0.0.1:1: "), "{error}");

    let without = |name: &str| good.iter().filter(|flag| !flag.contains(name)).cloned().collect::<Vec<_>>();
    let with = |flag: &str| {
        let name = flag.split_inclusive('=').next().unwrap();
        without(name).into_iter().chain([flag.to_owned()]).collect::<Vec<_>>()
    };
    for (flags, named) in [
        (without("--call="), "--call is missing"),
        (with("--colour=red"), "--colour is not known"),
        (with("--nodelay=maybe"), "--nodelay=maybe"),
        (with("--channels=local-pool"), "no subchannel pool"),
        (with("--stack=go"), "--stack=go"),
    ] {
        let (code, out, err) = run(&flags);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(named), "{err}");
    }
}
