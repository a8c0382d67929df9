//! `spangap host check`: known traps on this host.

use crate::Outcome;
use crate::args::{Duration, wrong_usage};
use crate::commands::dissect::interrupt;
use anyhow::Context;
use clap::Args;
use spangap_host::check::{self, Counters, Finding, Host, Kept, Look, Severity, TcpSocket, Verdict};
use spangap_host::report::check::CheckReport;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host check --pid 4242
      the traps on the way of process 4242: interrupts on its CPUs, quota, steal, full queues, TCP_NODELAY, ...
  spangap host check --pid $(pidof server) --for 10s --json
      as one JSON document, with counters watched for 10 s
  spangap host check --pid 4242 --save host.txt; spangap host check --pid 4242 --root host.txt
      keeps what was read, to be judged again elsewhere
  spangap host check --pid 4242 --fail-on high,cpu-quota
      exit code 3 if there is a trap of weight high, or any throttling

Reads /proc, /sys and the state of the kubelet, twice; changes nothing, and loads nothing into the kernel. What would mend
a trap is printed as a command and never executed. Without root most is seen; what is not says so.";

/// Look for known traps on this host, without eBPF
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The process whose calls are slow; can be given several times [default: the machine as a whole]
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Look at a copy: a folder with proc and sys inside (or before/proc, ... and after/proc, ...), or a file of --save
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
    /// For how long counters are watched; Ctrl-C ends it before
    #[arg(long = "for", value_name = "DURATION", default_value = "1s")]
    watch: Duration,
    /// Keep everything that was read in one text file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Exit with 3 if this is found: trap (any), high, medium, low (at least), cannot-tell, or names of traps
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What makes the exit code 3.
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
    fn is_met(&self, finding: &Finding) -> bool {
        match (self, finding.verdict) {
            (FailOn::Trap, Verdict::Trap(_)) | (FailOn::CannotTell, Verdict::CannotTell) => true,
            (FailOn::AtLeast(least), Verdict::Trap(severity)) => severity <= *least,
            (FailOn::Named(name), Verdict::Trap(_)) => finding.trap == *name,
            _ => false,
        }
    }
}

/// How long Ctrl-C may go unnoticed.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);
/// Divides the two readings in a file of `--save`.
const SECOND_READING: &str = "##### second reading\n";

/// Reads twice, judges, and prints.
pub fn run(args: CheckArgs) -> anyhow::Result<Outcome> {
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    let (before, host) = hosts(&args)?;
    let counters = match &before {
        Some(before) => Some(Counters::read(before, &pids)),
        // A copy that was made once stands still.
        None if args.root != Path::new("/") => None,
        None => Some(Counters::read(&host, &pids)),
    };
    let first = host.seen();
    if args.root == Path::new("/") {
        wait(&args)?;
    }
    let again = Host::below("/");
    let second = if args.root == Path::new("/") { &again } else { &host };
    let mut look = Look::read(second, counters, &pids).map_err(|error| gone(error, &pids))?;
    if args.root == Path::new("/") {
        look.sockets = Some(sockets(&pids));
    }
    if let Some(path) = &args.save {
        let first = before.map_or(first, |before| before.seen());
        let text = format!("{}{SECOND_READING}{}", first.text(), second.seen().text());
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let findings = check::findings(&look);
    let report = CheckReport::new(&look, &findings);
    let output = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        report.text(width())
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    let found = args.fail_on.iter().any(|what| findings.iter().any(|finding| what.is_met(finding)));
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

/// The machine at the second reading, and at the first where that is another copy.
fn hosts(args: &CheckArgs) -> anyhow::Result<(Option<Host>, Host)> {
    let root = &args.root;
    if root.is_file() {
        let text = fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
        let parse = |text: &str| Kept::parse(text).with_context(|| format!("cannot read {}", root.display()));
        return Ok(match text.split_once(SECOND_READING) {
            Some((first, second)) => (Some(Host::kept(parse(first)?)), Host::kept(parse(second)?)),
            None => (None, Host::kept(parse(&text)?)),
        });
    }
    let (before, after) = (root.join("before"), root.join("after"));
    if before.join("proc").is_dir() && after.join("proc").is_dir() {
        return Ok((Some(Host::below(before)), Host::below(after)));
    }
    if !root.join("proc").is_dir() {
        return Err(wrong_usage(format!("--root {}: there is no proc inside", root.display())).into());
    }
    Ok((None, Host::below(root)))
}

/// Waits for the time to pass, or for Ctrl-C.
fn wait(args: &CheckArgs) -> anyhow::Result<()> {
    let stop = interrupt::flag()?;
    let began = Instant::now();
    while !stop.load(Relaxed) {
        let Some(left) = args.watch.std().checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            break;
        };
        std::thread::park_timeout(left.min(NOTICED_WITHIN));
    }
    Ok(())
}

/// Says which process is not there.
fn gone(error: check::FactError, pids: &[u32]) -> anyhow::Error {
    let named = |pid: &&u32| error.to_string().contains(&format!("/proc/{pid}/"));
    match pids.iter().find(named).filter(|_| error.is_absent()) {
        Some(pid) => anyhow::anyhow!("there is no process {pid}, or it has ended: {error}"),
        None => error.into(),
    }
}

/// The connections of the processes.
fn sockets(pids: &[u32]) -> check::Sockets {
    let mut all = Vec::new();
    for &pid in pids {
        let sockets = spangap_sockets::look(pid, &[]).map_err(|error| error.to_string())?;
        all.extend(sockets.into_iter().map(|socket| TcpSocket {
            pid,
            local: socket.local,
            peer: socket.peer,
            nodelay: socket.nodelay,
            unsent_bytes: None,
            unacknowledged: None,
        }));
    }
    Ok(all)
}

/// Columns of the terminal; 100 when the output goes elsewhere.
fn width() -> usize {
    const ELSEWHERE: usize = 100;
    if !io::stdout().is_terminal() {
        return ELSEWHERE;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(ELSEWHERE, |size| usize::from(size.ws_col)).clamp(80, 160)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_the_exit_code_3() {
        assert_eq!("trap".parse(), Ok(FailOn::Trap));
        assert_eq!("medium".parse(), Ok(FailOn::AtLeast(Severity::Medium)));
        assert_eq!("cpu-quota".parse(), Ok(FailOn::Named("cpu-quota")));
        assert!("nonsense".parse::<FailOn>().unwrap_err().contains("steal"));
    }
}
