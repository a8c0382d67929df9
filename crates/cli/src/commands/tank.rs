//! `spangap tank`: the ping-pong client.

use super::target::{end_with_parent, export_settings, host_port, payload_size, print_line, stop_signal};
use crate::Outcome;
use crate::args::{Duration, Size};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use spangap_bench::otlp::CollectorUrl;
use spangap_bench::schedule::Schedule;
use spangap_bench::tank::{self, TankSettings};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Raw arguments of `spangap tank`.
#[derive(Args, Debug)]
#[command(after_help = "\
The loop is open: calls are due at times that do not depend on the calls before.
Ctrl-C ends the run and prints the result so far.

Examples:
  spangap tank 127.0.0.1:50051
  spangap tank 127.0.0.1:50051 --rate 1000 --duration 30s --json
  spangap tank server:50051 --slow 20ms --slow-log slow.jsonl --otlp http://127.0.0.1:4317")]
pub struct TankArgs {
    /// The target
    #[arg(value_name = "HOST:PORT", value_parser = host_port)]
    target: String,
    /// Time between two calls
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = every)]
    interval: Schedule,
    /// Calls per second, instead of an interval
    #[arg(long, value_name = "N", value_parser = per_second, conflicts_with = "interval")]
    rate: Option<Schedule>,
    /// Measured time; until Ctrl-C unless given
    #[arg(long, value_name = "DURATION", value_parser = some_time)]
    duration: Option<Duration>,
    /// Time before it, in which calls are made and traced but neither counted nor logged as slow
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    warmup: Duration,
    /// Payload of a request
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = payload_size)]
    request_bytes: Size,
    /// TCP_NODELAY of the tank's socket
    #[arg(long, value_name = "on|off", default_value = "on")]
    nodelay: Switch,
    /// Time after which a call is given up, as DEADLINE_EXCEEDED
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = some_time)]
    timeout: Duration,
    /// Calls that may wait for their response at once; those due beyond are not made, and counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_in_flight: u32,
    /// A call that takes longer, from its send, is slow
    #[arg(long, value_name = "DURATION", default_value = "20ms")]
    slow: Duration,
    /// Write slow calls into this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    slow_log: Option<PathBuf>,
    /// Send a CLIENT span for every call to this OTLP/gRPC receiver, http://HOST:PORT
    #[arg(long, value_name = "URL")]
    otlp: Option<CollectorUrl>,
    /// service.name of the spans
    #[arg(long, value_name = "NAME", default_value = "tank", requires = "otlp")]
    service_name: String,
    /// Print the result as one JSON document
    #[arg(long)]
    json: bool,
    /// End with the process that started this one
    #[arg(long, hide = true)]
    with_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Calls until the time is over or the user has seen enough.
pub fn run(args: TankArgs) -> anyhow::Result<Outcome> {
    end_with_parent(args.with_parent)?;
    // One thread makes all calls: between two, a call would wait for the other to wake.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the thread that makes the calls")?;
    let settings = TankSettings {
        target: args.target,
        schedule: args.rate.unwrap_or(args.interval),
        duration_ns: args.duration.map(Duration::ns),
        warmup_ns: args.warmup.ns(),
        request_bytes: args.request_bytes.bytes(),
        nodelay: args.nodelay == Switch::On,
        timeout: args.timeout.std(),
        max_in_flight: args.max_in_flight as usize,
        slow_ns: args.slow.ns(),
        slow_log: args.slow_log,
        export: export_settings(args.otlp, args.service_name),
    };
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    let report = runtime.block_on(async {
        let stop = stop_signal()?;
        let each_second = |progress| {
            if !clear.is_empty() {
                eprint!("{clear}{progress}");
            }
        };
        let notice = move |notice| eprintln!("{clear}spangap: {notice}");
        anyhow::Ok(tank::run(settings, stop, each_second, notice).await?)
    })?;
    eprint!("{clear}");
    print_line(if args.json { serde_json::to_string(&report)? } else { report.to_string() }.trim_end())?;
    if report.runs.iter().all(|run| run.ok == 0 && run.calls > 0) {
        bail!("no call succeeded: does a spangap target listen there? ({})", report.target);
    }
    Ok(Outcome::Done)
}

fn every(text: &str) -> Result<Schedule, String> {
    Schedule::every(text.parse::<Duration>()?.ns()).map_err(|error| error.to_string())
}

fn per_second(text: &str) -> Result<Schedule, String> {
    let rate = text.parse().map_err(|_| "expected a whole number of calls per second, such as 1000")?;
    Schedule::per_second(rate).map_err(|error| error.to_string())
}

fn some_time(text: &str) -> Result<Duration, String> {
    match text.parse::<Duration>()? {
        Duration(0) => Err("expected more than 0".into()),
        time => Ok(time),
    }
}
