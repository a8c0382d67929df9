//! `spangap host check`: known traps on this host.

use crate::Outcome;
use crate::output::width;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use crate::whole_file;
use anyhow::Context;
use clap::Args;
use spangap_host::check::{
    self, AcceptQueue, Connection, Counters, Inspection, Severity, TcpSockets, TrapFinding, TrapVerdict,
};
use spangap_host::report::check::CheckReport;
use spangap_machine::{Host, parse_readings, write_readings};
use spangap_sockets::{Asked, State, list};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host check --pid 4242
      the traps that affect process 4242: interrupts on its CPUs, quota, steal, full queues, TCP_NODELAY, ...
  spangap host check --pid $(pidof server) --for 10s --json
      as one JSON document, with counters watched for 10 s
  spangap host check --pid 4242 --save host.txt; spangap host check --pid 4242 --root host.txt
      save what was read, and check it again elsewhere
  spangap host check --pid 4242 --fail-on high,cpu-quota
      exit with 3 on any trap of weight high, or any throttling

Reads /proc, /sys and the kubelet's state twice; changes nothing, and loads nothing into the kernel. It prints
the command that would fix a trap and never runs it. Most checks work without root; those that do not say so.";

/// Look for known traps on this host, without eBPF
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The process whose calls are slow; may be repeated [default: the machine as a whole]
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Check a copy: a folder with proc and sys inside (or before/proc, ... and after/proc, ...), or a file of --save
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
    /// How long to watch counters; Ctrl-C ends it early
    #[arg(long = "for", value_name = "DURATION", default_value = "1s")]
    watch: Duration,
    /// Save everything that was read to one text file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Exit with 3 if this is found: trap (any), high, medium, low (at least), cannot-tell, or names of traps
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Conditions for exit code 3.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FailOn {
    Trap,
    AtLeast(Severity),
    CannotTell,
    Named(&'static str),
}

impl std::str::FromStr for FailOn {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let severity = Severity::ALL.into_iter().find(|severity| severity.name() == text);
        let named = || check::names().find(|name| *name == text).map(FailOn::Named);
        match text {
            "trap" => Ok(FailOn::Trap),
            "cannot-tell" => Ok(FailOn::CannotTell),
            _ => severity.map(FailOn::AtLeast).or_else(named).ok_or_else(|| {
                let names: Vec<&str> = check::names().collect();
                format!(
                    "expected trap, high, medium, low, cannot-tell, or the name of a trap: {}",
                    names.join(", ")
                )
            }),
        }
    }
}

impl FailOn {
    fn is_met(&self, finding: &TrapFinding) -> bool {
        match (self, finding.verdict) {
            (FailOn::Trap, TrapVerdict::Trap(_)) | (FailOn::CannotTell, TrapVerdict::CannotTell) => true,
            (FailOn::AtLeast(least), TrapVerdict::Trap(severity)) => severity <= *least,
            (FailOn::Named(name), TrapVerdict::Trap(_)) => finding.trap == *name,
            _ => false,
        }
    }
}

/// Polling interval for Ctrl-C.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);

/// Reads twice, judges, and prints.
pub fn run(args: CheckArgs) -> anyhow::Result<Outcome> {
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    // From here on, Ctrl-C only ends the wait.
    let stop = signals::flag(ASKED)?;
    let live = args.root == Path::new("/");
    let (before, host) = hosts(&args)?;
    let counters = match &before {
        Some(before) => Some(Counters::read(before, &pids)),
        // A single copy does not change.
        None if !live => None,
        None => Some(Counters::read(&host, &pids)),
    };
    if let Some(counters) = &counters {
        all_there(counters, &pids)?;
    }
    let first = before.as_ref().unwrap_or(&host).seen();
    if live {
        wait(args.watch, &stop);
    }
    let again = Host::below("/").at_one_moment();
    let second = if live { &again } else { &host };
    let mut look = Inspection::read(second, counters, &pids).map_err(|error| match live {
        true => anyhow::Error::from(error).context("a process ended while it was being examined"),
        false => wrong_usage(format!("--pid: {error}")).into(),
    })?;
    if live {
        look.sockets = Some(sockets(&pids));
    }
    if let Some(path) = &args.save {
        whole_file::write(path, write_readings(&first, &second.seen()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let findings = check::findings(&look);
    let report = CheckReport::new(&look, &findings);
    let output = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        report.text(width(100, 160))
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    let found = args.fail_on.iter().any(|what| findings.iter().any(|finding| what.is_met(finding)));
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

/// The machine at the second reading, and at the first if that is a separate copy.
fn hosts(args: &CheckArgs) -> anyhow::Result<(Option<Host>, Host)> {
    let root = &args.root;
    if root.is_file() {
        let text = fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
        let readings = parse_readings(&text).with_context(|| format!("cannot read {}", root.display()))?;
        return Ok((readings.0.map(Host::kept), Host::kept(readings.1)));
    }
    let (before, after) = (root.join("before"), root.join("after"));
    if before.join("proc").is_dir() && after.join("proc").is_dir() {
        return Ok((Some(Host::below(before)), Host::below(after)));
    }
    if !root.join("proc").is_dir() {
        return Err(wrong_usage(format!("--root {}: there is no proc inside", root.display())).into());
    }
    Ok((None, Host::below(root).at_one_moment()))
}

/// Waits for the time to pass, or for Ctrl-C.
fn wait(watch: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while !stop.load(Relaxed) {
        let Some(left) = watch.std().checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            break;
        };
        std::thread::park_timeout(left.min(NOTICED_WITHIN));
    }
}

/// Checks that every requested process exists at the first reading.
fn all_there(counters: &Counters, pids: &[u32]) -> anyhow::Result<()> {
    for pid in pids {
        match counters.processes.get(pid) {
            Some(Err(error)) if error.is_absent() => {
                return Err(wrong_usage(format!("--pid {pid}: there is no such process: {error}")).into());
            }
            Some(Err(error)) => return Err(error.clone().into()),
            _ => {}
        }
    }
    Ok(())
}

/// TCP sockets of the processes.
fn sockets(pids: &[u32]) -> check::Sockets {
    if pids.is_empty() {
        return Ok(TcpSockets::default());
    }
    let asked = Asked { pids: pids.to_vec(), listening: true, ..Asked::default() };
    let listing = list(&asked).map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let mut all = TcpSockets::default();
    for socket in &listing.sockets {
        let port = socket.local.port();
        let pid = socket.owners.iter().map(|owner| owner.pid).find(|pid| pids.contains(pid));
        match (socket.peer, socket.info.accept_backlog_connections, pid) {
            (None, Some(limit), _) => all.listening.push(AcceptQueue { port, limit }),
            (Some(peer), _, Some(pid)) if socket.state == State::Established => {
                all.connections.push(Connection {
                    pid,
                    local: socket.local,
                    peer,
                    nodelay: socket.nodelay,
                    unsent_bytes: socket.info.notsent_bytes,
                    unacknowledged: socket.info.unacked_segments,
                })
            }
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_exit_code_3() {
        assert_eq!("trap".parse(), Ok(FailOn::Trap));
        assert_eq!("medium".parse(), Ok(FailOn::AtLeast(Severity::Medium)));
        assert_eq!("cpu-quota".parse(), Ok(FailOn::Named("cpu-quota")));
        assert!("nonsense".parse::<FailOn>().unwrap_err().contains("steal"));
    }
}
