//! The client program of the stack `rust`, from `go` to `end`, against a real server over loopback.

mod failures;
mod loops;
mod records;
mod server;

use server::Server;
use spangap_bench::client::{self, Failed};
use spangap_bench::contract::message::{Connection, Failures};
use spangap_bench::contract::{ClientMessage, ClientSettings, Interval, Phase};
use spangap_bench::distribution::Distribution;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, PipeReader, PipeWriter, Write, pipe};
use std::net::SocketAddr;
use std::thread::JoinHandle;

const MILLISECOND: u64 = 1_000_000;

/// One call at a time, in a closed loop, until stopped.
fn settings(target: SocketAddr) -> ClientSettings {
    let flags = [
        "--stack=rust",
        &format!("--target={target}"),
        "--call=unary",
        "--channels=shared",
        "--schedule=closed",
        "--in-flight=1",
        "--threads=1",
        "--request-bytes=0",
        "--response-bytes=target",
        "--think-ns=target",
        "--nodelay=on",
        "--split-writes=off",
        "--timeout-ns=60000000000",
        "--warmup-ns=0",
        "--duration-ns=0",
        "--calls=0",
        "--trace=on",
        "--records=none",
        "--slow-ns=60000000000",
        "--record-file=",
    ];
    ClientSettings::from_flags(&flags.map(String::from)).expect("these are all flags")
}

/// A client that runs.
struct Client {
    life_line: Option<PipeWriter>,
    output: Lines<BufReader<PipeReader>>,
    run: JoinHandle<Result<(), Failed>>,
    told: Told,
}

/// Everything that a client has reported.
#[derive(Default)]
struct Told {
    connections: Vec<Connection>,
    channels: Option<u32>,
    failed: Option<String>,
    phases: Vec<Phase>,
    intervals: Vec<Interval>,
    end: Option<String>,
}

/// Sum of all intervals of a phase.
#[derive(Default)]
struct Sum {
    due: u64,
    skipped: u64,
    ok: u64,
    slow: u64,
    errors: BTreeMap<String, Failures>,
    latency: Distribution,
    from_send: Distribution,
    lateness: Distribution,
}

impl Client {
    /// Starts it; it waits for `go`.
    fn start(settings: &ClientSettings) -> Client {
        client::check(settings).expect("tonic can do this");
        let ((life_line_end, life_line), (output, output_end)) = (pipe().unwrap(), pipe().unwrap());
        let settings = settings.clone();
        let run = std::thread::spawn(move || client::run(&settings, life_line_end, output_end));
        let output = BufReader::new(output).lines();
        Client { life_line: Some(life_line), output, run, told: Told::default() }
    }

    /// Starts it, and sends `go`.
    fn go(settings: &ClientSettings) -> Client {
        let mut client = Client::start(settings);
        client.life_line.as_mut().unwrap().write_all(b"go\n").unwrap();
        client
    }

    /// Reads messages until one satisfies the condition.
    fn until(&mut self, is: impl Fn(&ClientMessage) -> bool) {
        loop {
            let line = self.output.next().expect("the client has more to say").unwrap();
            let message = serde_json::from_str(&line).unwrap();
            let found = is(&message);
            self.told.hear(message);
            if found {
                return;
            }
        }
    }

    fn until_interval(&mut self, is: impl Fn(&Interval) -> bool) {
        self.until(|message| matches!(message, ClientMessage::Interval(interval) if is(interval)));
    }

    fn until_phase(&mut self, wanted: Phase) {
        self.until(|message| matches!(message, ClientMessage::Phase { phase, .. } if *phase == wanted));
    }

    /// Closes the life line.
    fn stop(mut self) -> Told {
        self.life_line = None;
        self.rest()
    }

    /// Reads messages to the end, and checks what must hold for every run.
    fn rest(mut self) -> Told {
        for line in self.output {
            self.told.hear(serde_json::from_str(&line.unwrap()).unwrap());
            if self.told.end.is_some() || self.told.failed.is_some() {
                // Closing it also ends its reader, and so the output.
                self.life_line = None;
            }
        }
        let outcome = self.run.join().expect("the client does not panic");
        let told = self.told;
        assert_eq!(outcome.err().map(|Failed(why)| why), told.failed);
        assert_eq!(told.end.is_some(), told.failed.is_none());
        assert!(told.phases.is_sorted(), "{:?}", told.phases);
        for phase in [Phase::Warmup, Phase::Measured] {
            let sum = told.sum(phase);
            let errors: u64 = sum.errors.values().map(|failures| failures.count).sum();
            assert_eq!(sum.due, sum.skipped + sum.ok + errors, "{phase:?} {:?}", sum.errors);
            assert_eq!(sum.from_send.count(), sum.ok);
            assert!(sum.latency.count() == sum.ok || sum.latency.count() == 0);
            assert!(sum.lateness.count() == sum.due - sum.skipped || sum.lateness.count() == 0);
            let announced = told.phases.contains(&phase);
            assert!(announced || sum.due == 0, "calls in a phase that never was: {phase:?}");
        }
        assert!(told.intervals.last().is_none_or(|last| last.in_flight == 0));
        told
    }
}

impl Told {
    fn hear(&mut self, message: ClientMessage) {
        assert_eq!((&self.failed, &self.end), (&None, &None), "nothing is said after that: {message:?}");
        match message {
            ClientMessage::Ready { stack, library, channels } => {
                assert_eq!(stack, "rust");
                assert!(library.starts_with("tonic 0."), "{library}");
                self.channels = Some(channels);
            }
            ClientMessage::Failed { error } => self.failed = Some(error),
            ClientMessage::Connection(connection) => self.connections.push(connection),
            ClientMessage::Phase { phase, .. } => self.phases.push(phase),
            ClientMessage::Interval(interval) => self.intervals.push(*interval),
            ClientMessage::End { reason } => self.end = Some(reason),
        }
    }

    fn sum(&self, phase: Phase) -> Sum {
        let mut sum = Sum::default();
        for interval in self.intervals.iter().filter(|interval| interval.phase == phase) {
            sum.due += interval.due;
            sum.skipped += interval.skipped;
            sum.ok += interval.ok;
            sum.slow += interval.slow;
            for (name, failures) in &interval.errors {
                let so_far = sum.errors.entry(name.clone()).or_default();
                *so_far = Failures { count: so_far.count + failures.count, last: failures.last.clone() };
            }
            interval.latency.add_to(&mut sum.latency);
            interval.from_send.add_to(&mut sum.from_send);
            interval.lateness.add_to(&mut sum.lateness);
        }
        sum
    }
}

impl Sum {
    fn error_counts(&self) -> BTreeMap<&str, u64> {
        self.errors.iter().map(|(name, failures)| (name.as_str(), failures.count)).collect()
    }
}
