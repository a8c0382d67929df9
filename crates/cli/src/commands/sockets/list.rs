//! `spangap sockets list`.

use super::folder;
use crate::Outcome;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use anyhow::{Context, bail};
use clap::Args;
use spangap_sockets::report::{ListReport, print_list, print_long, print_rates};
use spangap_sockets::{Asked, Listing, list, rates};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

const EXAMPLES: &str = "\
Examples:
  spangap sockets list --pid 812
      every TCP connection of process 812, with what the kernel measured on it
  spangap sockets list --port 50051 --listening
      every socket with port 50051 at either end, of any process, in all network namespaces
  spangap sockets list --pid 812 --json | jq '.sockets[] | select(.nodelay == false) | .peer'
  spangap sockets list --pid 812 --interval 1s
      rates, every second until Ctrl-C; HELD: bytes that only Nagle's algorithm holds back

Columns: RTT smoothed round trip, MIN smallest round trip; RTO retransmission timeout; ATO delay of ACKs; CWND
and UNACKED in segments; NOTSENT bytes not sent yet; SEND-Q bytes not acknowledged; RECV-Q bytes not read (for
a listening socket, its backlog and the waiting connections); RETRANS segments retransmitted. --long and --json
print every value. TCP_NODELAY is read through a duplicate of the process's descriptor; for another user's
process this needs CAP_SYS_PTRACE.";

/// List TCP sockets with what the kernel knows of them
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Sockets of these processes
    #[arg(long, value_name = "PID", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Sockets with this port at either end; without --pid, of any process
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Listening sockets too
    #[arg(long)]
    listening: bool,
    /// Folder of the journals that undo changes
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Every value of every socket
    #[arg(long)]
    long: bool,
    /// Print what happens in each interval of this length, until Ctrl-C
    #[arg(long, value_name = "DURATION", conflicts_with = "long")]
    interval: Option<Duration>,
    /// Exit after this many intervals
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON document; with --interval one line each
    #[arg(long)]
    json: bool,
}

/// Shorter intervals would mostly show the overhead of listing.
const MIN_INTERVAL_NS: u64 = 10_000_000;
/// Polling interval for Ctrl-C.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);

/// Lists the sockets.
pub fn run(args: ListArgs) -> anyhow::Result<Outcome> {
    if args.pid.is_empty() && args.port.is_none() {
        return Err(wrong_usage("expected --pid PID or --port PORT: which sockets?").into());
    }
    let asked = Asked { pids: args.pid, port: args.port, listening: args.listening };
    if let Some(interval) = args.interval {
        if interval.ns() < MIN_INTERVAL_NS {
            return Err(wrong_usage("--interval: expected at least 10ms").into());
        }
        return watch(&asked, interval, args.count, args.json);
    }
    let time = unix_ns()?;
    let mut listing = list(&asked)?;
    mark_open_undos(&mut listing, args.journal)?;
    if listing.sockets.is_empty() && !args.json {
        bail!("no socket matches: {}", what_was_there(&asked)?);
    }
    let nothing = listing.sockets.is_empty();
    let report = ListReport::new(time, asked, listing);
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match (args.json, args.long) {
        (true, _) => serde_json::to_writer_pretty(&mut out, &report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
        (false, true) => print_long(&mut out, &report),
        (false, false) => print_list(&mut out, &report),
    };
    printed.and_then(|()| out.flush()).or_else(super::seen_enough)?;
    if nothing {
        bail!("no socket matches: {}", what_was_there(&report.asked)?);
    }
    Ok(Outcome::Done)
}

fn unix_ns() -> anyhow::Result<u64> {
    let time =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(time.as_nanos() as u64)
}

/// Lists repeatedly, and prints the differences.
fn watch(asked: &Asked, interval: Duration, count: Option<u64>, json: bool) -> anyhow::Result<Outcome> {
    let interrupted = signals::flag(ASKED)?;
    // Nothing is ever sent: only the timeout is used.
    let (_nobody, never) = mpsc::channel::<()>();
    let mut before = (list(asked)?, Instant::now());
    if before.0.sockets.is_empty() {
        bail!("no socket matches: {}", what_was_there(asked)?);
    }
    for _ in 0..count.unwrap_or(u64::MAX) {
        while let left @ 1.. = interval.ns().saturating_sub(before.1.elapsed().as_nanos() as u64) {
            if interrupted.load(Relaxed) {
                return Ok(Outcome::Done);
            }
            let _ = never.recv_timeout(NOTICED_WITHIN.min(std::time::Duration::from_nanos(left)));
        }
        let now = (list(asked)?, Instant::now());
        let elapsed_ns = now.1.duration_since(before.1).as_nanos() as u64;
        let rates = rates(&before.0, &now.0, unix_ns()?, elapsed_ns);
        let mut out = BufWriter::new(io::stdout().lock());
        let printed = match json {
            true => {
                serde_json::to_writer(&mut out, &rates).map_err(io::Error::from).and_then(|()| writeln!(out))
            }
            false => print_rates(&mut out, &rates),
        };
        match printed.and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
            printed => printed.context("cannot print")?,
        }
        before = now;
    }
    Ok(Outcome::Done)
}

/// Marks sockets changed by `sockets set` and not restored yet.
fn mark_open_undos(listing: &mut Listing, folder: Option<PathBuf>) -> anyhow::Result<()> {
    // Without a folder there are no journals.
    let Ok(folder) = folder::of(folder) else { return Ok(()) };
    let (open, errors) = folder.open()?;
    for error in errors {
        let _ = writeln!(io::stderr(), "spangap: {:#}", anyhow::Error::from(error));
    }
    for socket in &mut listing.sockets {
        socket.open_undo = open.get(&socket.inode).cloned();
    }
    Ok(())
}

/// What exists instead of the requested sockets.
fn what_was_there(asked: &Asked) -> anyhow::Result<String> {
    let pids: Vec<_> = asked.pids.iter().map(u32::to_string).collect();
    let who = if pids.is_empty() { "no process".to_owned() } else { format!("process {}", pids.join(", ")) };
    if asked.pids.is_empty() {
        let port = asked.port.unwrap_or(0);
        let listening = list(&Asked { listening: true, ..asked.clone() })?;
        return Ok(match listening.sockets.len() {
            0 => format!("{who} that can be seen has port {port} at either end of a TCP socket"),
            count => format!("port {port} has {count} listening and no connection (--listening shows them)"),
        });
    }
    let all = list(&Asked { pids: asked.pids.clone(), port: None, listening: true })?;
    let connections = all.sockets.iter().filter(|socket| socket.peer.is_some()).count();
    let listening = all.sockets.len() - connections;
    Ok(format!("{who} has {connections} connections and {listening} listening sockets of TCP in all"))
}
