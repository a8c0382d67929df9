//! `spangap capture`: the last packets of an interface, kept until somebody wants them.

mod trigger;
mod written;

use crate::Outcome;
use crate::values::{Duration, Size, wrong_usage};
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use spangap_bench::process::Used;
use spangap_model::duration::format_ns;
use spangap_wire::source::{filter, ring};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use trigger::{SlowLogTail, Trigger};
use written::{Files, Reason, Written};

const EXAMPLES: &str = "\
Examples:
  spangap capture --interface eth0 --filter 'tcp port 50051' --write client.pcapng
      keep the last 256 MiB; Ctrl-C (or SIGTERM) writes them and exits, `kill -USR1` writes them and goes on
  spangap capture --interface eth0 --filter 'tcp port 50051' --trigger slow-log:slow.jsonl --write slow.pcapng
      next to `spangap tank ... --slow 20ms --slow-log slow.jsonl`: wait for a slow call, write, exit
  spangap capture --interface any --trigger slow-log:slow.jsonl --trace-id 4bf92f3577b34da6a3ce929d0e0e4736 --write it.pcapng
      wait until this trace shows up

Filters are a subset of tcpdump's: tcp, udp, ip, ip6, [src|dst] host ADDRESS, net ADDRESS/BITS, port N,
portrange A-B, with and, or (equal precedence, left to right, as in tcpdump), not and parentheses.

Packets are kept whole by default: after a stall, several responses leave in one segment, and the last bytes
of the calls are at its end. The ring bounds the memory. A smaller --snap fits more packets of bulk transfers
into it; dissect reports what was cut off. Needs CAP_NET_RAW. The files are readable by their owner only,
because they contain the traffic itself.";

/// Keep the latest packets of an interface, and write them on demand or when a call was slow
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CaptureArgs {
    /// Interface to listen on; `any` is all of them
    #[arg(long, short, value_name = "IF")]
    interface: String,
    /// Which packets to keep [default: all]
    #[arg(long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    filter: String,
    /// Memory for packets; the oldest are overwritten
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    ring: Size,
    /// Bytes kept of each packet; the default keeps all of them
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    snap: Size,
    /// Write when a line is added to this file: the slow log of `spangap tank`
    #[arg(long, value_name = "slow-log:FILE")]
    trigger: Option<Trigger>,
    /// Only a line with this trace id, 32 hexadecimal digits
    #[arg(long, value_name = "HEX", requires = "trigger")]
    trace_id: Option<String>,
    /// How long to continue after a line, so that the file has the end of the story
    #[arg(long, value_name = "DURATION", default_value = "1s", requires = "trigger")]
    after: Duration,
    /// Exit after this many lines; from the second on, files are named FILE-2, FILE-3
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trigger", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    times: u32,
    /// Where to write, as pcapng
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    /// Print what was done as one JSON document
    #[arg(long)]
    json: bool,
}

/// Smaller rings keep too few packets to be useful.
const MIN_RING: u64 = 1 << 20;
const MAX_RING: u64 = 64 << 30;
const MIN_SNAP: u64 = 64;
const MAX_SNAP: u64 = 262_144;
/// What was done, for scripts.
#[derive(Debug, Serialize)]
struct Report<'a> {
    interface: &'a str,
    filter: &'a str,
    ring_bytes: u64,
    snap_bytes: u64,
    /// Packets that passed the filter, including dropped ones.
    received: u64,
    /// Packets that found no room.
    dropped: u64,
    written: &'a [Written],
    /// Lines of the log that were not slow calls.
    malformed_lines: u64,
    /// CPU time of this process, without the kernel's time for copying packets into the ring.
    cpu_ns: u64,
    wall_ns: u64,
}

/// Signals received so far.
#[derive(Default)]
struct SignalRequests {
    writes: AtomicU32,
    ends: AtomicU32,
}

/// Captures until told to stop, or until the trigger has fired the requested number of times.
pub fn run(args: CaptureArgs) -> anyhow::Result<Outcome> {
    let (ring_bytes, snap_bytes) = (args.ring.bytes(), args.snap.bytes());
    if !(MIN_RING..=MAX_RING).contains(&ring_bytes) {
        return Err(wrong_usage("--ring: expected 1MiB to 64GiB").into());
    }
    if !(MIN_SNAP..=MAX_SNAP).contains(&snap_bytes) {
        return Err(wrong_usage("--snap: expected 64 to 262144 bytes").into());
    }
    let trace_id = args.trace_id.as_deref().map(trigger::trace_id).transpose().map_err(wrong_usage)?;
    let interface = ring::Interface::find(&args.interface)?;
    let program = filter::compile(&args.filter, snap_bytes as u32, interface.once)
        .map_err(|error| wrong_usage(format!("--filter: {error}")))?;
    let told = Arc::new(SignalRequests::default());
    listen(told.clone())?;
    let mut tail =
        args.trigger.as_ref().map(|trigger| SlowLogTail::open(trigger.path(), trace_id)).transpose()?;
    let mut files = Files::new(args.write.clone(), args.filter.clone(), snap_bytes as u32);
    files.try_out()?;
    let mut ring = ring::Ring::open(&interface, &program, snap_bytes as u32, ring_bytes)?;
    let (used, began) = (Used::so_far(), Instant::now());
    eprintln!("{}", opening(&args, &ring));

    let mut seen_writes = 0;
    let mut fired: Option<(trigger::Slow, Instant)> = None;
    let mut fired_times = 0;
    let mut pause_ms = 0;
    let mut told_to_end = false;
    let gone = loop {
        if let Err(error) = ring.wait(pause_ms) {
            break Some(error);
        }
        let filled = ring.advance();
        pause_ms = ring.pause_ms(filled, pause_ms);
        if told.writes.load(Relaxed) != seen_writes {
            seen_writes = told.writes.load(Relaxed);
            match files.write(&mut ring, Reason::Signal) {
                Ok(written) => say(written),
                // The packets are still in the ring, and may find room at the next request.
                Err(error) => eprintln!("spangap: {error:#}; the packets are kept, and the capture goes on"),
            }
        }
        if told.ends.load(Relaxed) > 0 {
            told_to_end = true;
            break None;
        }
        let Some(tail) = &mut tail else { continue };
        match &fired {
            Some((slow, at)) if at.elapsed() >= args.after.std() => {
                say(files.write(&mut ring, Reason::SlowCall(slow.clone()))?);
                fired = None;
                fired_times += 1;
                if fired_times == args.times {
                    break None;
                }
            }
            Some(_) => {}
            None => fired = tail.next()?.map(|slow| (slow, Instant::now())),
        }
        tail.complaints().iter().for_each(|complaint| eprintln!("spangap: {complaint}"));
    };
    // A user who ends it early still gets what there is: of a slow call whose end was awaited, or of
    // everything.
    match fired {
        Some((slow, _)) => say(files.write(&mut ring, Reason::SlowCall(slow))?),
        None if told_to_end || args.trigger.is_none() => say(files.write(&mut ring, Reason::End)?),
        None => {}
    }
    let counts = ring.counts().context("cannot read the counts of the ring")?;
    let report = Report {
        interface: &interface.name,
        filter: &args.filter,
        ring_bytes,
        snap_bytes,
        received: counts.received,
        dropped: counts.dropped,
        written: files.written(),
        malformed_lines: tail.as_ref().map_or(0, |tail| tail.malformed),
        cpu_ns: Used::so_far().since(used).cpu_ns,
        wall_ns: began.elapsed().as_nanos() as u64,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        eprintln!("{}", closing(&report, tail.is_some()));
    }
    match gone {
        Some(error) => Err(anyhow!(error).context(format!("{} is gone", interface.name))),
        None => Ok(Outcome::Done),
    }
}

fn opening(args: &CaptureArgs, ring: &ring::Ring) -> String {
    let filter = if args.filter.is_empty() { "all packets".into() } else { format!("`{}`", args.filter) };
    let kept = ring.kept_bytes_at_most() >> 20;
    let until = match &args.trigger {
        Some(trigger) => format!("waiting for a line in {}, ", trigger.path().display()),
        None => String::new(),
    };
    format!(
        "capturing {filter} on {}, keeping the last {kept} MiB; {until}Ctrl-C writes and exits, `kill -USR1 {}` \
         writes and continues",
        args.interface,
        std::process::id()
    )
}

fn say(written: &Written) {
    eprintln!("{written}");
}

fn closing(report: &Report<'_>, waited: bool) -> String {
    let Report { received, dropped, cpu_ns, wall_ns, .. } = report;
    let mut text = format!("{received} packets received, {dropped} dropped for lack of room; ");
    text += &format!(
        "{} of CPU in {}, not counting the kernel's copies",
        format_ns(*cpu_ns),
        format_ns(*wall_ns)
    );
    if report.written.is_empty() {
        text += if waited {
            "; there was no slow call, and nothing was written"
        } else {
            "; nothing was written"
        };
    }
    if report.malformed_lines > 0 {
        text += &format!("; lines of the log that are not slow calls: {}", report.malformed_lines);
    }
    text
}

/// Counts SIGUSR1 as a request to write, SIGINT and SIGTERM as requests to end.
fn listen(told: Arc<SignalRequests>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    // Registered here and now, so that a signal before the thread runs counts, too.
    let entered = runtime.enter();
    let register = |kind| signal(kind).context("cannot wait for signals");
    let mut write = register(SignalKind::user_defined1())?;
    let (mut interrupt, mut terminate) =
        (register(SignalKind::interrupt())?, register(SignalKind::terminate())?);
    drop(entered);
    let wait = async move {
        loop {
            tokio::select! {
                Some(()) = write.recv() => { told.writes.fetch_add(1, Relaxed); }
                Some(()) = interrupt.recv() => { told.ends.fetch_add(1, Relaxed); }
                Some(()) = terminate.recv() => { told.ends.fetch_add(1, Relaxed); }
                else => return,
            }
        }
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || runtime.block_on(wait)).context("cannot start a thread")?;
    Ok(())
}

/// A write error, with its place.
fn cannot_write(path: &std::path::Path) -> impl Fn(io::Error) -> anyhow::Error {
    move |error| anyhow!("cannot write {}: {error}", path.display())
}
