//! `spangap host offcpu`: how long threads were off their CPU, and why.

use crate::Outcome;
use crate::args::Duration;
use crate::signals::{self, ASKED};
use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use spangap_host::probes::offcpu::{By, Cgroup, Of, Offcpu, Room, Settings};
use spangap_host::report::{offcpu, offcpu_text};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host offcpu --pid $(pidof memcached)
      the process for 5 s: blocked, and runnable but without a CPU (woken, preempted), each as a histogram
  spangap host offcpu --cgroup system.slice/db.service --by thread --duration 30s
      every thread of a cgroup and of all below it
  spangap host offcpu --by cgroup --json | jq '.groups[] | {name, runnable_ns}'
      the whole machine, for scripts

blocked    it waited for something: a lock, a timer, a packet
woken      it could run after that, and waited for a CPU
preempted  it could have gone on running: another one was let in, or it let others in
throttled  the CPU quota of its cgroup was used up
stopped    a signal or a debugger had stopped it

A wait counts when it ends. Those that had not ended at the end are told apart, as `not ended`.
Needs CAP_BPF and CAP_PERFMON, and a kernel with type information.";

/// Show how long threads were off their CPU, blocked and runnable apart
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OffcpuArgs {
    /// The process to look at; can be given several times [default: everybody]
    #[arg(long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Vec<u32>,
    /// The cgroup to look at, with all below it: a directory, or its path below the mount point; can be given several times
    #[arg(long, value_name = "CGROUP")]
    cgroup: Vec<String>,
    /// What is shown together
    #[arg(long, value_name = "WHAT", default_value = "process")]
    by: ByArg,
    /// For how long; Ctrl-C ends it before, with what was seen until then
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    duration: Duration,
    /// Show so many at most: those kept longest from running
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    Process,
    Thread,
    Cgroup,
}

/// How long Ctrl-C may go unnoticed.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// Measures until the time is over or Ctrl-C is pressed, and prints what was found.
pub fn run(args: OffcpuArgs) -> anyhow::Result<Outcome> {
    let (of, words) = of(&args)?;
    let by = match args.by {
        ByArg::Process => By::Process,
        ByArg::Thread => By::Thread,
        ByArg::Cgroup => By::Cgroup,
    };
    let stop = signals::flag(ASKED)?;
    let mut room = Room::default();
    let mut probe = Offcpu::start(&mut room, Settings { of, by })?;
    let began = Instant::now();
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    while !stop.load(Relaxed) {
        let Some(left) = args.duration.std().checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        else {
            break;
        };
        bar.set_message(format!("measuring {words}: {:.0} s left; Ctrl-C ends it", left.as_secs_f64()));
        bar.tick();
        std::thread::park_timeout(left.min(POLL));
        probe.look();
    }
    bar.finish_and_clear();
    let report = offcpu::OffcpuReport::new(&probe.stop()?, words);
    let output = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => offcpu_text::text(&report, args.top),
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Whose waits, also in words.
fn of(args: &OffcpuArgs) -> anyhow::Result<(Of, String)> {
    if !args.pid.is_empty() {
        let tgids = super::processes::processes("--pid", &args.pid)?;
        let list: Vec<_> = tgids.iter().map(u32::to_string).collect();
        let what = if list.len() == 1 { "process" } else { "processes" };
        return Ok((Of::Processes(tgids), format!("{what} {}", list.join(", "))));
    }
    if args.cgroup.is_empty() {
        return Ok((Of::Everything, "everybody".into()));
    }
    let cgroups = args.cgroup.iter().map(|name| Cgroup::find(name)).collect::<Result<Vec<_>, _>>()?;
    let list: Vec<_> = cgroups.iter().map(|cgroup| cgroup.path.display().to_string()).collect();
    Ok((Of::Cgroups(cgroups), list.join(", ")))
}
