//! Clients and targets as processes.

use serde_json::Value;
use spangap_bench::contract::{
    Call, Channels, ClientMessage, ClientSettings, Interval, Nodelay, Pace, Phase, Records, Stack,
    TargetStack,
};
use spangap_bench::distribution::Distribution;
use spangap_bench::ping::UsageResponse;
use spangap_bench::programs::{ProgramOutput, Programs, RunningProgram};
use spangap_bench::usage::{Protocol, ask};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for any one step; far more than it needs on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const SECOND_NS: u64 = 1_000_000_000;

fn programs() -> Programs {
    Programs::of(PathBuf::from(env!("CARGO_BIN_EXE_spangap")))
}

/// The client program of the stack. If it was not built, prints so and returns `None`.
pub fn client_program(stack: Stack) -> Option<PathBuf> {
    programs().client(stack).map_err(|missing| println!("not run: {missing}")).ok()
}

/// The targets that a stack is tested against.
pub fn targets_of(stack: Stack) -> &'static [TargetStack] {
    match stack {
        Stack::Raw => &[TargetStack::Raw],
        Stack::Rust => &[TargetStack::Rust],
        Stack::CppSync | Stack::CppAsync | Stack::CppCallback => &[TargetStack::Cpp, TargetStack::Rust],
        Stack::Go => &[TargetStack::Go, TargetStack::Rust],
    }
}

/// Runs the check against every target that was built, if the client was.
pub fn with_each_target(stack: Stack, check: impl Fn(TargetStack)) {
    if client_program(stack).is_none() {
        return;
    }
    for &target in targets_of(stack) {
        match programs().target(target) {
            Ok(_) => check(target),
            Err(missing) => println!("not run: {missing}"),
        }
    }
}

/// A serving target.
pub struct Target {
    running: RunningProgram,
    pub stack: TargetStack,
    pub address: SocketAddr,
}

impl Target {
    pub fn start(stack: TargetStack, arguments: &[&str]) -> Target {
        Target::start_on(stack, "127.0.0.1:0", arguments)
    }

    pub fn start_on(stack: TargetStack, listen: &str, arguments: &[&str]) -> Target {
        let fixed = ["--stack", stack.name(), "--listen", listen, "--json", "--with-parent"];
        let arguments: Vec<String> = fixed.iter().chain(arguments).map(|part| (*part).to_owned()).collect();
        let running = RunningProgram::start(env!("CARGO_BIN_EXE_spangap").as_ref(), "target", &arguments)
            .expect("the binary starts");
        let ProgramOutput::Line(line) = running.listen(PATIENCE) else {
            panic!("{stack}: no address in time")
        };
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let address = said["listening"].as_str().and_then(|address| address.parse().ok());
        Target { running, stack, address: address.unwrap_or_else(|| panic!("no address in {line}")) }
    }

    pub fn usage(&self) -> UsageResponse {
        let protocol = if self.stack == TargetStack::Raw { Protocol::Raw } else { Protocol::Grpc };
        let usage = ask(protocol, &self.address.to_string(), PATIENCE);
        usage.unwrap_or_else(|error| panic!("{error}")).expect("our targets have the method")
    }

    /// Ends it with SIGINT, and returns its summary.
    pub fn end(mut self) -> Value {
        let pid = rustix::process::Pid::from_raw(self.running.pid() as i32).expect("it has an id");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut last = None;
        while let ProgramOutput::Line(line) = self.running.listen(PATIENCE) {
            last = Some(line);
        }
        assert!(self.running.wait().expect("it has ended").success());
        let last = last.expect("it reports");
        serde_json::from_str(&last).unwrap_or_else(|error| panic!("{last}: {error}"))
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.running.end_now();
    }
}

/// Settings of a short closed loop.
pub fn settings(stack: Stack, target: &impl ToString) -> ClientSettings {
    ClientSettings {
        stack,
        target: target.to_string(),
        call: Call::Unary,
        channels: Channels::Shared,
        pace: Pace::Closed,
        in_flight: 1,
        threads: 1,
        request_bytes: 0,
        response_bytes: None,
        think_ns: None,
        nodelay: Nodelay::On,
        split_writes: false,
        timeout: PATIENCE,
        warmup_ns: 0,
        duration_ns: 60 * SECOND_NS,
        calls: 0,
        trace: false,
        records: Records::None,
        slow_ns: u64::MAX >> 1,
        record_file: PathBuf::new(),
        attempts: 1,
        call_file: None,
    }
}

/// A client program, and its messages so far.
pub struct Client {
    running: RunningProgram,
    pub said: Vec<ClientMessage>,
}

/// All messages of a client, from beginning to end.
pub struct Run {
    pub said: Vec<ClientMessage>,
    pub code: Option<i32>,
}

impl Client {
    pub fn start(settings: &ClientSettings) -> Client {
        let program = client_program(settings.stack).expect("it was there a moment ago");
        let running =
            RunningProgram::start(&program, "client", &settings.to_flags()).expect("the program starts");
        Client { running, said: Vec::new() }
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Reads messages until one is wanted.
    pub fn hear(&mut self, what: &str, wanted: impl Fn(&ClientMessage) -> bool) -> ClientMessage {
        loop {
            match self.next() {
                Some(message) if wanted(&message) => return message,
                Some(_) => {}
                None => panic!("the client ended without: {what}; it said {:#?}", self.said),
            }
        }
    }

    /// The next message; `None` at the end.
    fn next(&mut self) -> Option<ClientMessage> {
        match self.running.listen(PATIENCE) {
            ProgramOutput::Line(line) => {
                let message: ClientMessage =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                self.said.push(message.clone());
                Some(message)
            }
            ProgramOutput::End(None) => None,
            other => panic!("the client says nothing more: {other:?}; it said {:#?}", self.said),
        }
    }

    /// Waits until it is connected, and returns the number of channels.
    pub fn ready(&mut self) -> u32 {
        match self.hear("ready", |message| !matches!(message, ClientMessage::Connection(_))) {
            ClientMessage::Ready { channels, .. } => channels,
            other => panic!("expected ready: {other:?}"),
        }
    }

    pub fn go(&mut self) {
        self.running.say("go").expect("it reads");
    }

    /// Closes its life line.
    pub fn let_go(&mut self) {
        self.running.let_go();
    }

    /// Waits for the end, and keeps the life line open.
    pub fn finish(mut self) -> Run {
        while self.next().is_some() {}
        Run { said: self.said, code: self.running.wait().expect("it has ended").code() }
    }
}

/// Runs a client from ready to end.
pub fn run(settings: &ClientSettings) -> Run {
    let mut client = Client::start(settings);
    client.ready();
    client.go();
    client.finish()
}

/// Sums over a phase.
#[derive(Default)]
pub struct Sums {
    pub due: u64,
    pub skipped: u64,
    pub ok: u64,
    pub errors: BTreeMap<String, u64>,
    pub slow: u64,
    pub records_dropped: u64,
    pub duration_ns: u64,
    pub latency: Distribution,
    pub from_send: Distribution,
    pub lateness: Distribution,
}

impl Sums {
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    fn add(&mut self, interval: &Interval) {
        self.due += interval.due;
        self.skipped += interval.skipped;
        self.ok += interval.ok;
        for (name, failures) in &interval.errors {
            assert!(failures.count > 0 && !failures.last.is_empty(), "{name}: {failures:?}");
            *self.errors.entry(name.clone()).or_default() += failures.count;
        }
        self.slow += interval.slow;
        self.records_dropped += interval.records_dropped;
        self.duration_ns += interval.duration_ns;
        for (sum, part) in [
            (&mut self.latency, &interval.latency),
            (&mut self.from_send, &interval.from_send),
            (&mut self.lateness, &interval.lateness),
        ] {
            let values: Vec<u64> = part.buckets.iter().map(|(ns, _)| *ns).collect();
            assert!(values.is_sorted_by(|a, b| a < b), "buckets ascend: {values:?}");
            let about: u128 =
                part.buckets.iter().map(|(ns, count)| u128::from(*ns) * u128::from(*count)).sum();
            let count: u64 = part.buckets.iter().map(|(_, count)| *count).sum();
            // Every value is within a thousandth of its bucket's, plus rounding.
            let slack = about / 1_000 + u128::from(count);
            assert!(about.abs_diff(part.sum.into()) <= slack, "sum {} of {:?}", part.sum, part.buckets);
            let highest = values.last().copied().unwrap_or(0);
            assert!(
                part.max.abs_diff(highest) <= highest / 1_000 + 1,
                "max {} of {:?}",
                part.max,
                part.buckets
            );
            part.add_to(sum);
        }
    }
}

impl Run {
    /// Sums over the intervals of a phase, with each histogram checked for consistency.
    pub fn sums(&self, phase: Phase) -> Sums {
        let mut sums = Sums::default();
        for message in &self.said {
            if let ClientMessage::Interval(interval) = message
                && interval.phase == phase
            {
                sums.add(interval);
            }
        }
        assert_eq!(sums.due, sums.skipped + sums.ok + sums.failed(), "every call due has an end");
        assert_eq!(sums.from_send.count(), sums.ok);
        sums
    }

    /// Names of the events and phases in order, without intervals and connections.
    pub fn order(&self) -> Vec<String> {
        let name = |message: &ClientMessage| match message {
            ClientMessage::Ready { .. } => Some("ready".to_owned()),
            ClientMessage::Failed { .. } => Some("failed".to_owned()),
            ClientMessage::Phase { phase, .. } => Some(format!("{phase:?}").to_lowercase()),
            ClientMessage::End { reason } => Some(reason.clone()),
            ClientMessage::Interval(_) | ClientMessage::Connection(_) => None,
        };
        self.said.iter().filter_map(name).collect()
    }

    /// Checks that the run went from beginning to end by itself.
    pub fn is_done(&self, phases: &[&str]) {
        assert_eq!(self.code, Some(0));
        assert_eq!(self.order(), [&["ready"], phases, &["drain", "drained", "done"]].concat());
    }
}
