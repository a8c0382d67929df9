//! `spangap target`: the ping-pong server.

use crate::Outcome;
use crate::values::{Duration, Size, wrong_usage};
use anyhow::Context;
use clap::Args;
use spangap_bench::contract::{Nodelay, TargetStack};
use spangap_bench::otlp::{CollectorUrl, ExportSettings};
use spangap_bench::programs::Programs;
use spangap_bench::target::{Failing, LargeResponse, Target, TargetReport, TargetSettings};
use std::io::Write;
use std::sync::Arc;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Raw arguments of `spangap target`.
#[derive(Args, Debug)]
#[command(after_help = "\
Serves spangap.ping.v1.Ping, grpc.health.v1.Health and reflection until Ctrl-C; with the stack raw, length-prefixed \
frames over TCP instead. Prints `listening on HOST:PORT` to standard output once it listens.

Examples:
  For a tank on this host:
    spangap target
  For tanks on other hosts, each call taking 2 ms and leaving a span:
    spangap target --listen 0.0.0.0:50051 --think 2ms --otlp http://127.0.0.1:4317
  Another stack; calls beyond 100 on a connection wait in the client:
    spangap target --stack go --threads 2 --max-streams 100
  Two calls at a time, the others in a queue; every 50th response of 3 MiB:
    spangap target --think 10ms --workers 2 --large-response 3MiB/50
  Two attempts of every tenth call fail; a tank with --attempts 3 makes a third:
    spangap target --think 5ms --fail UNAVAILABLE:2/10
  For a tank of the stack raw, with Nagle's algorithm at work:
    spangap target --stack raw --nodelay off
  Any gRPC client will do:
    grpcurl -plaintext -d '{\"think_ns\": 1000000}' 127.0.0.1:50051 spangap.ping.v1.Ping/Ping")]
pub struct TargetArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50051", value_parser = host_port)]
    listen: String,
    /// What serves: rust, raw, cpp, go
    #[arg(long, value_name = "STACK", default_value = "rust")]
    stack: TargetStack,
    /// Payload of a response, unless the request asks for another size
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = payload_size)]
    response_bytes: Size,
    /// Time between a request and its response, unless the request asks for another
    #[arg(long, value_name = "DURATION", default_value = "0us", value_parser = think_time)]
    think: Duration,
    /// Concurrent calls allowed on one connection [default: the library's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_streams: Option<u32>,
    /// Threads that serve [default: 1; in the stack raw, one per connection]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Calls handled at a time; further calls queue before their SERVER span begins. Stack rust only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// The last of every N responses has this payload, unless the request asks for a size. Stack rust only
    #[arg(long, value_name = "SIZE/N", value_parser = large_response)]
    large_response: Option<LargeResponse>,
    /// TCP_NODELAY of accepted connections: default (what the library does), on, off
    #[arg(long, value_name = "SETTING", default_value = "default")]
    nodelay: Nodelay,
    /// Bytes that a client may send ahead, on a connection and on each call (HTTP/2 flow control; stack rust)
    /// [default: the library's window]
    #[arg(long, value_name = "SIZE", value_parser = window)]
    window: Option<u32>,
    /// One in CALLS single pings fails with STATUS, after its think time, in its first ATTEMPTS attempts: UNAVAILABLE:2/10
    /// (stack rust)
    #[arg(long, value_name = "STATUS:ATTEMPTS/CALLS")]
    fail: Option<Failing>,
    /// Send a SERVER span for every call to this OTLP/gRPC receiver, http://HOST:PORT; OTEL_RESOURCE_ATTRIBUTES adds to its
    /// resource, OTEL_EXPORTER_OTLP_HEADERS has its token
    #[arg(long, value_name = "URL")]
    otlp: Option<CollectorUrl>,
    /// service.name of the spans
    #[arg(long, value_name = "NAME", default_value = "target", requires = "otlp")]
    service_name: String,
    /// Print JSON Lines: {"listening":"HOST:PORT","stack":...,"library":...}, and at the end what was served
    #[arg(long)]
    json: bool,
    /// Exit when the process that started this one does
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Serves until stopped.
pub fn run(args: TargetArgs) -> anyhow::Result<Outcome> {
    end_with_parent(args.with_parent)?;
    let json = args.json;
    let settings = args.settings();
    settings.check().map_err(wrong_usage)?;
    let runtime = match (settings.stack, settings.threads) {
        (TargetStack::Rust, Some(threads @ 2..)) => {
            runtime::Builder::new_multi_thread().worker_threads(threads as usize).enable_all().build()
        }
        _ => runtime::Builder::new_current_thread().enable_all().build(),
    };
    let runtime = runtime.context("cannot start the threads that serve")?;
    let programs = Programs::of_this_binary().context("cannot find the programs of the stacks")?;
    let report = runtime.block_on(async {
        let stop = stop_signal()?;
        let notice = Arc::new(|notice| eprintln!("spangap: {notice}"));
        let target = Target::bind(settings, &programs, notice).await?;
        let listening = target.listening();
        print_line(&match json {
            true => serde_json::to_string(listening)?,
            false => Readiness::line(&listening.listening),
        })?;
        anyhow::Ok(target.serve(stop).await?)
    })?;
    print_line(&if json { serde_json::to_string(&report)? } else { in_words(&report) })?;
    Ok(Outcome::Done)
}

impl TargetArgs {
    fn settings(self) -> TargetSettings {
        TargetSettings {
            stack: self.stack,
            listen: self.listen,
            response_bytes: self.response_bytes.bytes(),
            think_ns: self.think.ns(),
            max_streams: self.max_streams,
            threads: self.threads,
            workers: self.workers,
            large_response: self.large_response,
            nodelay: self.nodelay,
            window: self.window,
            fail: self.fail,
            export: export_settings(self.otlp, self.service_name),
        }
    }
}

/// The line that announces the listening address.
pub struct Readiness;

impl Readiness {
    const WORDS: &str = "listening on ";

    fn line(address: &impl std::fmt::Display) -> String {
        format!("{}{address}", Self::WORDS)
    }

    /// The address in that line; `None` for any other line.
    pub fn address(line: &str) -> Option<String> {
        line.trim_end().strip_prefix(Self::WORDS).map(String::from)
    }
}

/// Makes the system end this process when its parent ends, for whatever reason.
pub fn end_with_parent(wanted: bool) -> anyhow::Result<()> {
    if wanted {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .context("cannot tie the process to its parent")?;
    }
    Ok(())
}

fn in_words(report: &TargetReport) -> String {
    let statuses: Vec<_> = report.by_status.iter().map(|(name, calls)| format!("{name} {calls}")).collect();
    let mut words = format!("served {} calls", report.calls);
    if !statuses.is_empty() {
        words += &format!(" ({})", statuses.join(", "));
    }
    if let Some(spans) = &report.spans {
        words += &format!(", {spans}");
    }
    if report.malformed_traceparent > 0 {
        words += &format!(", {} with a malformed traceparent", report.malformed_traceparent);
    }
    if report.records_dropped > 0 {
        words += &format!(", {} without a span because their records found no room", report.records_dropped);
    }
    if report.cut_off {
        words += ", some calls were still under way and are cut off";
    }
    words
}

/// Ready when the user or the system asks the process to end. From this call on, the signals no longer kill it.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Destination of spans, if any.
pub fn export_settings(url: Option<CollectorUrl>, service_name: String) -> Option<ExportSettings> {
    url.map(|url| ExportSettings { url, service_name })
}

/// Prints one line and flushes it.
pub fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// `HOST:PORT` with a port of 0 to 65535.
pub fn host_port(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) if !text.contains("://") => Ok(text.to_owned()),
        Some(Ok(_)) => Err("a URL: expected HOST:PORT alone, such as 127.0.0.1:50051".into()),
        _ => Err("expected HOST:PORT, such as 127.0.0.1:50051".into()),
    }
}

/// A size that either side accepts.
pub fn payload_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        0..=spangap_bench::ping::MAX_PAYLOAD_BYTES => Ok(size),
        _ => Err(format!("expected at most {} bytes", spangap_bench::ping::MAX_PAYLOAD_BYTES)),
    }
}

/// `SIZE/N`: every N-th response has this payload.
fn large_response(text: &str) -> Result<LargeResponse, String> {
    let (size, every) = text.split_once('/').ok_or("expected SIZE/N, such as 3MiB/50")?;
    let every = every.parse().ok().filter(|every| *every > 0);
    let every = every.ok_or("expected a whole number of at least 1 behind the slash, as in 3MiB/50")?;
    Ok(LargeResponse { bytes: payload_size(size)?.bytes(), every })
}

/// An HTTP/2 window.
fn window(text: &str) -> Result<u32, String> {
    u32::try_from(text.parse::<Size>()?.bytes()).map_err(|_| "expected at most 2147483647 bytes".into())
}

/// A think time that targets accept.
pub fn think_time(text: &str) -> Result<Duration, String> {
    let time: Duration = text.parse()?;
    match time.ns() {
        0..=spangap_bench::ping::MAX_THINK_NS => Ok(time),
        _ => Err("expected at most 1m".into()),
    }
}
