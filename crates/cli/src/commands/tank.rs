//! `spangap tank`: the ping-pong client.

use super::target::{end_with_parent, export_settings, host_port, payload_size, print_line, think_time};
use crate::Outcome;
use crate::report_page;
use crate::values::{Duration, Size, wrong_usage};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use spangap_bench::contract::{Call, Channels, Nodelay, Stack};
use spangap_bench::method::{self, Descriptors, MethodRequest, OtherMethod, PreparedMethod};
use spangap_bench::otlp::CollectorUrl;
use spangap_bench::programs::Programs;
use spangap_bench::report::{Progress, TankReport};
use spangap_bench::schedule::Schedule;
use spangap_bench::tank::cpus::Cpus;
use spangap_bench::tank::sweep::{Sweep, SweepError};
use spangap_bench::tank::{self, Load, PlannedRun, Stop, TankSettings, Watch};
use std::io::IsTerminal;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Measured time of a run when there are several.
const SWEEP_NS: u64 = 10_000_000_000;

const LOAD: &str = "Load";
const CALLS: &str = "Calls";
const METHOD: &str = "A method other than the ping";
const CONNECTIONS: &str = "Connections";
const RUNS: &str = "Runs";
const CLIENT: &str = "Client process";
const SLOW_AND_SPANS: &str = "Slow calls and spans";
const OUTPUT: &str = "Output";

/// Raw arguments of `spangap tank`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each run is a separate client process. Given several targets, stacks, calls, ways to share channels, TCP_NODELAY \
settings, threads, sizes or loads, every combination is a run. Before each run, a raw ping-pong over loopback under \
the same load shows what this machine is capable of.

The loop is open with --rate and --interval: calls are due at times that do not depend on the calls before. \
It is closed with --inflight: that many calls are in flight at any time.

Every LIST, STACK, CALL, WAY, SETTING, and SIZE of a request takes several values: 1,2,4. Numbers in a LIST may \
also be ranges: 4..64 doubles, 64..4 halves, 1..40000..1 goes up and down, 10..50+10 adds, 1..10000x10 multiplies.

Ctrl-C ends the run and prints the result so far; a second Ctrl-C kills the client.

Examples:
  One call every 10 ms until Ctrl-C:
    spangap tank server:50051
  Does the delay fall as the rate rises? Nagle's algorithm and delayed acknowledgements do that:
    spangap tank server:50051 --stack raw --split-writes --request-bytes 64 \\
      --nodelay off,on --rate 1..40000..1
  How much load can a client drive, stack by stack, with one connection or many?
    spangap tank server:50051 --stack cpp-async,go --channels shared,distinct \\
      --inflight 1..64 --html page.html
  Is B better than A, or is it chance?
    spangap tank server:50051 --channels shared,distinct --inflight 8 --repeat 5 --json > runs.json
    spangap bench compare runs.json --by channels
  Two targets, the client on CPUs of its own:
    spangap tank one:50051 two:50051 --cpus 2-3 --rate 1000 --duration 30s
  Any method of any service, with descriptors from its server reflection:
    spangap tank server:50051 --method shop.v1.Carts/Get --data '{\"id\": 7}' --header 'tenant: blue' --rate 100
  Slow calls by trace id, and every call as a span:
    spangap tank server:50051 --slow 20ms --slow-log slow.jsonl --otlp http://127.0.0.1:4317")]
pub struct TankArgs {
    /// The targets
    #[arg(value_name = "HOST:PORT", value_parser = host_port, required = true)]
    targets: Vec<String>,
    /// What makes the calls: raw, rust, cpp-sync, cpp-async, cpp-callback, go
    #[arg(long, value_name = "STACK", default_value = "rust", value_delimiter = ',')]
    stack: Vec<Stack>,

    /// Closed loop: calls in flight at any time
    #[arg(long, value_name = "LIST", help_heading = LOAD, value_parser = sweep, conflicts_with_all = ["rate", "interval"])]
    inflight: Option<Sweep>,
    /// Open loop: calls per second
    #[arg(long, value_name = "LIST", help_heading = LOAD, value_parser = rates, conflicts_with = "interval")]
    rate: Option<Sweep>,
    /// Open loop: time between two calls; 10ms when neither this nor another load is given
    #[arg(long, value_name = "DURATION", help_heading = LOAD, value_parser = every, value_delimiter = ',')]
    interval: Vec<Schedule>,
    /// Open loop: calls that may wait for their response at once; further due calls are skipped and counted.
    /// With channels per-worker, distinct and local-pool there are as many channels
    #[arg(
        long, value_name = "N", help_heading = LOAD, default_value_t = 1000, conflicts_with = "inflight",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_in_flight: u32,

    /// Kind of call: unary, stream (bidirectional streams, each with one ping in flight; in raw the same as unary)
    #[arg(long, value_name = "CALL", help_heading = CALLS, default_value = "unary", value_delimiter = ',')]
    call: Vec<Call>,
    /// Payload of a request
    #[arg(
        long, value_name = "SIZE", help_heading = CALLS, default_value = "0", value_parser = payload_size,
        value_delimiter = ','
    )]
    request_bytes: Vec<Size>,
    /// Payload of a response [default: the target's setting]
    #[arg(long, value_name = "SIZE", help_heading = CALLS, value_parser = payload_size)]
    response_bytes: Option<Size>,
    /// Time the target takes for a call [default: the target's setting]
    #[arg(long, value_name = "DURATION", help_heading = CALLS, value_parser = think_time)]
    think: Option<Duration>,
    /// Time after which a call is given up, as DEADLINE_EXCEEDED
    #[arg(long, value_name = "DURATION", help_heading = CALLS, default_value = "10s", value_parser = some_time)]
    timeout: Duration,
    /// Attempts per call in all: a call that ends with UNAVAILABLE is retried at once, under the same span (stack rust,
    /// call unary)
    #[arg(
        long, value_name = "N", help_heading = CALLS, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    attempts: u32,

    /// Call this method of any service instead of the ping: package.Service/Method (stack rust)
    #[arg(
        long, value_name = "METHOD", help_heading = METHOD,
        conflicts_with_all = ["request_bytes", "response_bytes", "think", "split_writes"]
    )]
    method: Option<String>,
    /// Its request as JSON, or @FILE; a list of messages for a method whose client streams
    #[arg(long, value_name = "JSON|@FILE", help_heading = METHOD, default_value = "{}", requires = "method")]
    data: String,
    /// Metadata of each call; may be repeated. Values of keys that end in -bin are base64
    #[arg(long, value_name = "KEY: VALUE", help_heading = METHOD, requires = "method")]
    header: Vec<String>,
    /// Descriptors of the service, as protoc --include_imports --descriptor_set_out writes them; the first target's
    /// server reflection unless given
    #[arg(long, value_name = "FILE", help_heading = METHOD, requires = "method", conflicts_with = "proto")]
    descriptor: Option<PathBuf>,
    /// The same from its .proto source
    #[arg(long, value_name = "FILE", help_heading = METHOD, requires = "method")]
    proto: Option<PathBuf>,
    /// Folder of the source and its imports; may be repeated [default: the source's own folder]
    #[arg(long, value_name = "FOLDER", help_heading = METHOD, requires = "proto")]
    proto_path: Vec<PathBuf>,

    /// How calls share channels: shared, per-worker (equal arguments), distinct (different arguments), local-pool
    /// (a subchannel pool each), pool:N, per-call (each call opens a connection and closes it; stack rust)
    #[arg(long, value_name = "WAY", help_heading = CONNECTIONS, default_value = "shared", value_delimiter = ',')]
    channels: Vec<Channels>,
    /// TCP_NODELAY of the client's sockets: default (what the library does), on, off. The report states what the kernel
    /// shows
    #[arg(
        long, value_name = "SETTING", help_heading = CONNECTIONS, default_value = "default", value_delimiter = ','
    )]
    nodelay: Vec<Nodelay>,
    /// Write each request in two parts, header and rest (stack raw)
    #[arg(long, help_heading = CONNECTIONS)]
    split_writes: bool,

    /// Measured time of a run [default: until Ctrl-C for a single run, 10s each for several]
    #[arg(long, value_name = "DURATION", help_heading = RUNS, value_parser = some_time)]
    duration: Option<Duration>,
    /// Time before it, in which calls are made and traced but neither counted nor logged as slow
    #[arg(long, value_name = "DURATION", help_heading = RUNS, default_value = "1s")]
    warmup: Duration,
    /// Make all runs this many times, in turn
    #[arg(
        long, value_name = "N", help_heading = RUNS, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    repeat: u32,

    /// CPUs of the client: a list such as 0,2-3, or node:N
    #[arg(long, value_name = "CPUS", help_heading = CLIENT)]
    cpus: Option<Cpus>,
    /// Threads of the client; cpp-sync has one per call in flight instead
    #[arg(long, value_name = "LIST", help_heading = CLIENT, default_value = "1", value_parser = threads)]
    threads: Sweep,

    /// A call that takes longer, from its send, is slow
    #[arg(long, value_name = "DURATION", help_heading = SLOW_AND_SPANS, default_value = "20ms")]
    slow: Duration,
    /// Write slow calls into this file, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = SLOW_AND_SPANS)]
    slow_log: Option<PathBuf>,
    /// Send a CLIENT span for every call to this OTLP/gRPC receiver, http://HOST:PORT; OTEL_RESOURCE_ATTRIBUTES adds to its
    /// resource, OTEL_EXPORTER_OTLP_HEADERS has its token
    #[arg(long, value_name = "URL", help_heading = SLOW_AND_SPANS)]
    otlp: Option<CollectorUrl>,
    /// service.name of the spans
    #[arg(long, value_name = "NAME", help_heading = SLOW_AND_SPANS, default_value = "tank", requires = "otlp")]
    service_name: String,
    /// Whether every call carries a trace context; on unless given when --slow-log or --otlp need it, else off
    #[arg(long, value_name = "on|off", help_heading = SLOW_AND_SPANS, hide_possible_values = true)]
    trace: Option<Switch>,

    /// Print the result as one JSON document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Write the result as a page with its pictures, for any browser, offline
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    html: Option<PathBuf>,
    /// Do without the raw ping-pong under the same load before each run, for callers that only want the calls
    #[arg(long, hide = true)]
    no_floor: bool,
    /// End with the process that started this one
    #[arg(long, hide = true)]
    with_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl TankArgs {
    /// Finds the method to call instead of the ping, and encodes its request.
    fn prepare_method(&self) -> anyhow::Result<Option<PreparedMethod>> {
        let Some(name) = self.method.clone() else { return Ok(None) };
        let (json, json_from) = match self.data.strip_prefix('@') {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                (text.with_context(|| format!("cannot read the request {file}"))?, file.to_owned())
            }
            None => (self.data.clone(), "--data".to_owned()),
        };
        let descriptors = match (&self.descriptor, &self.proto) {
            (Some(file), _) => Descriptors::Set(file.clone()),
            (None, Some(file)) => Descriptors::Proto { file: file.clone(), folders: self.proto_path.clone() },
            (None, None) => Descriptors::Reflection,
        };
        let request = MethodRequest {
            target: self.targets[0].clone(),
            name,
            json,
            json_from,
            descriptors,
            headers: self.header.clone(),
            timeout: self.timeout.std(),
        };
        Ok(Some(method::prepare(&request)?))
    }

    fn settings(self, method: Option<OtherMethod>) -> Result<TankSettings, clap::Error> {
        let default = Schedule::every(10_000_000).expect("10 ms are more than 0");
        let load = match (&self.inflight, &self.rate, self.interval) {
            (Some(in_flight), _, _) => Load::Closed(numbers(in_flight)),
            (None, Some(rates), _) => {
                let schedule = |&rate| Schedule::new(rate, 1_000_000_000).expect("no sweep has a 0");
                open(rates.values().iter().map(schedule).collect(), self.max_in_flight)
            }
            (None, None, intervals) if intervals.is_empty() => open(vec![default], self.max_in_flight),
            (None, None, intervals) => open(intervals, self.max_in_flight),
        };
        let mut settings = TankSettings {
            targets: self.targets,
            stacks: self.stack,
            calls: self.call,
            channels: self.channels,
            nodelay: self.nodelay,
            threads: numbers(&self.threads),
            request_bytes: self.request_bytes.into_iter().map(Size::bytes).collect(),
            method,
            load,
            response_bytes: self.response_bytes.map(Size::bytes),
            think_ns: self.think.map(Duration::ns),
            split_writes: self.split_writes,
            attempts: self.attempts,
            cpus: self.cpus,
            duration_ns: self.duration.map(Duration::ns),
            warmup_ns: self.warmup.ns(),
            timeout: self.timeout.std(),
            slow_ns: self.slow.ns(),
            slow_log: self.slow_log,
            export: export_settings(self.otlp, self.service_name),
            trace: self.trace.map(|trace| trace == Switch::On),
            repeat: self.repeat,
            floor: !self.no_floor,
        };
        if settings.runs() > 1 {
            settings.duration_ns.get_or_insert(SWEEP_NS);
        }
        if settings.export.is_some() && !settings.traced() {
            return Err(wrong_usage("--otlp needs the trace contexts that --trace off leaves out"));
        }
        let plan = settings.plan();
        let why = plan.iter().map(PlannedRun::impossible).collect::<Option<Vec<_>>>();
        match why.as_deref() {
            Some([why, ..]) => Err(wrong_usage(why)),
            _ => Ok(settings),
        }
    }
}

fn open(schedules: Vec<Schedule>, max_in_flight: u32) -> Load {
    Load::Open { schedules, max_in_flight }
}

/// The parsers below guarantee that these numbers are small enough.
fn numbers(sweep: &Sweep) -> Vec<u32> {
    sweep.values().iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect()
}

/// The progress line, on a terminal.
struct Terminal {
    clear: &'static str,
    run: String,
}

impl Terminal {
    fn line(&self, text: &str) {
        if !self.clear.is_empty() {
            eprint!("{}{text}", self.clear);
        }
    }
}

impl Watch for Terminal {
    fn calibrates(&mut self, what: &str) {
        self.line(&format!("measuring this machine: {what}"));
    }

    fn begins(&mut self, number: usize, of: usize, planned: &PlannedRun) {
        self.run = if of > 1 { format!("{number} of {of}: {planned}: ") } else { String::new() };
        self.line(&self.run);
    }

    fn second(&mut self, progress: &Progress) {
        self.line(&format!("{}{progress}", self.run));
    }
}

/// Makes the runs until all are done or the user stops.
pub fn run(args: TankArgs) -> anyhow::Result<Outcome> {
    end_with_parent(args.with_parent)?;
    let (json, html) = (args.json, args.html.clone());
    let prepared = args.prepare_method()?;
    let settings = args.settings(prepared.as_ref().map(|prepared| prepared.method.clone()))?;
    if let Some(path) = &html {
        // Fails now rather than after the runs. An existing file is kept until there is a new result.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let programs = Programs::of_this_binary().context("cannot find this program's own file")?;
    let stop = Stop::default();
    listen_for_signals(stop.clone())?;
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    let mut terminal = Terminal { clear, run: String::new() };
    let notice = move |notice| eprintln!("{clear}spangap: {notice}");
    let report = tank::run(&settings, &programs, &stop, &mut terminal, notice);
    eprint!("{clear}");
    let report = report?;
    print_line(if json { serde_json::to_string(&report)? } else { report.to_string() }.trim_end())?;
    if let Some(path) = html {
        report_page::write_tank(&path, &report)?;
    }
    judge(&report)
}

/// Runs without a single successful call are a failure.
fn judge(report: &TankReport) -> anyhow::Result<Outcome> {
    if !report.runs.is_empty() && report.runs.iter().all(|run| run.ok == 0 && run.calls > 0) {
        let run = &report.runs[0];
        if let Some(method) = &run.asked.method {
            let why = run.error_reasons.iter().next();
            let why = why.map_or_else(String::new, |(status, reason)| format!(": {status}: {reason}"));
            bail!("no call of {method} at {} succeeded{why}", run.asked.target);
        }
        bail!("no call succeeded: does a spangap target listen there? ({})", run.asked.target);
    }
    Ok(Outcome::Done)
}

/// Counts SIGINT and SIGTERM on a dedicated thread; from now on they no longer kill this process.
fn listen_for_signals(stop: Stop) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the thread that listens for signals")?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen for signals");
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    let listen = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => stop.ask(),
                    _ = terminate.recv() => stop.ask(),
                }
            }
        })
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(listen);
    thread.map(drop).context("cannot start the thread that listens for signals")
}

fn every(text: &str) -> Result<Schedule, String> {
    Schedule::every(text.parse::<Duration>()?.ns()).map_err(|error| error.to_string())
}

fn sweep(text: &str) -> Result<Sweep, String> {
    at_most(text, 65_536)
}

fn threads(text: &str) -> Result<Sweep, String> {
    at_most(text, 1_024)
}

fn rates(text: &str) -> Result<Sweep, String> {
    match text.parse::<Sweep>() {
        Err(SweepError::Zero) => Err(Schedule::per_second(0).expect_err("0 is no rate").to_string()),
        _ => at_most(text, 1_000_000_000),
    }
}

fn at_most(text: &str, most: u64) -> Result<Sweep, String> {
    let sweep: Sweep = text.parse().map_err(|error: SweepError| error.to_string())?;
    match sweep.values().iter().find(|&&value| value > most) {
        Some(value) => Err(format!("{value} is too many: expected at most {most}")),
        None => Ok(sweep),
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match text.parse::<Duration>()? {
        Duration(0) => Err("expected more than 0".into()),
        time => Ok(time),
    }
}
