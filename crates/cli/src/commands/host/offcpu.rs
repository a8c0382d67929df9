//! `spangap host offcpu`: how long threads were off their CPU, and why.

use crate::Outcome;
use crate::signals::{self, ASKED};
use crate::values::Duration;
use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use spangap_host::halted;
use spangap_host::probes::intervals::{Intervals, Settings, Waits};
use spangap_host::probes::offcpu::{self as probe, Cgroup, GroupBy, Offcpu, Room, Subjects};
use spangap_host::report::offcpu;
use spangap_host::report::waits::ReasonsReport;
use spangap_host::waits::{self, WaitSums};
use spangap_machine::Host;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host offcpu --pid $(pidof memcached)
      the process for 5 s: blocked, and runnable but without a CPU (woken, preempted), each as a histogram
  spangap host offcpu --cgroup system.slice/db.service --by thread --duration 30s
      every thread of a cgroup and of the cgroups below it
  spangap host offcpu --by cgroup --json | jq '.groups[] | {name, runnable_ns}'
      the whole machine, for scripts

blocked    waiting for something: a lock, a timer, a packet
woken      runnable again after that, waiting for a CPU
preempted  runnable all along: another thread was let in, or it yielded
throttled  out of CPU quota: its cgroup had used it up
stopped    stopped by a signal or a debugger

With --pid or --cgroup it also shows why threads slept (lock, fsync, page-fault, pipe-read, poll, ...), told
by the kernel function they slept in, and who woke them: for a lock, whoever released it. Waiting for work is
not reported as a problem.

A wait is counted when it ends. Waits still open at the end are listed separately, as `not ended`.
Needs CAP_BPF and CAP_PERFMON, and a kernel with type information.";

/// Show how long threads were off their CPU, blocked and runnable apart
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OffcpuArgs {
    /// The process to look at; may be repeated [default: everybody]
    #[arg(long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Vec<u32>,
    /// The cgroup to look at, with all below it: a directory, or its path below the mount point; can be given several times
    #[arg(long, value_name = "CGROUP")]
    cgroup: Vec<String>,
    /// How to group the threads
    #[arg(long, value_name = "WHAT", default_value = "process")]
    by: ByArg,
    /// For how long; Ctrl-C ends it early, with what was seen up to then
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    duration: Duration,
    /// Leave out why the threads of --pid or --cgroup slept and who woke them, which costs more than the histograms
    #[arg(long)]
    no_reasons: bool,
    /// Show at most this many: those kept from running longest
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

/// Polling interval for Ctrl-C.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// Measures until the time is over or Ctrl-C is pressed, and prints the result.
pub fn run(args: OffcpuArgs) -> anyhow::Result<Outcome> {
    let (of, words) = of(&args)?;
    let pids = processes(&of);
    let by = match args.by {
        ByArg::Process => GroupBy::Process,
        ByArg::Thread => GroupBy::Thread,
        ByArg::Cgroup => GroupBy::Cgroup,
    };
    let stop = signals::flag(ASKED)?;
    let host = Host::below("/");
    let mut halted = halted::halted(&host, &pids);
    let mut room = Room::default();
    let mut probe = Offcpu::start(&mut room, probe::Settings { of, by })?;
    let mut reasons = Reasons::start(if args.no_reasons { &[] } else { &pids });
    let began = Instant::now();
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    while !stop.load(Relaxed) {
        let Some(left) = args.duration.std().checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        else {
            break;
        };
        bar.set_message(format!("measuring {words}: {:.0} s left; Ctrl-C ends it", left.as_secs_f64()));
        bar.tick();
        reasons.wait(left.min(POLL))?;
        probe.look();
    }
    bar.finish_and_clear();
    let mut report = offcpu::OffcpuReport::new(&probe.stop()?, words);
    halted::still(&host, &mut halted, report.duration_ns);
    report.halted = halted;
    report.reasons = reasons.finish(&host, &pids, report.duration_ns)?;
    let output = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => offcpu::text::text(&report, args.top),
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Processes whose reasons are recorded: the named ones, or those currently in the named cgroups.
fn processes(of: &Subjects) -> Vec<u32> {
    match of {
        Subjects::Everything => Vec::new(),
        Subjects::Processes(tgids) => tgids.clone(),
        Subjects::Cgroups(cgroups) => cgroups.iter().flat_map(Cgroup::processes).collect(),
    }
}

/// The stream of sleeps and wake-ups, in addition to the histograms.
enum Reasons {
    /// Not requested.
    None,
    /// Unavailable, for this reason.
    Not(String),
    Of(Box<Intervals>, WaitSums),
}

impl Reasons {
    fn start(pids: &[u32]) -> Reasons {
        if pids.is_empty() {
            return Reasons::None;
        }
        let settings = Settings { tgids: pids.to_vec(), waits: Waits::Only, ..Settings::default() };
        match Intervals::start(&settings) {
            Ok(intervals) => Reasons::Of(Box::new(intervals), WaitSums::default()),
            Err(error) => Reasons::Not(format!("why threads slept is not known: {error}")),
        }
    }

    /// Processes events until the wait is over.
    fn wait(&mut self, patience: std::time::Duration) -> anyhow::Result<()> {
        match self {
            Reasons::Of(intervals, sums) => intervals.poll(patience, &mut |event| sums.on(event))?,
            Reasons::None | Reasons::Not(_) => std::thread::park_timeout(patience),
        }
        Ok(())
    }

    fn finish(self, host: &Host, pids: &[u32], duration_ns: u64) -> anyhow::Result<Option<ReasonsReport>> {
        let (sums, lost, cost, notes) = match self {
            Reasons::None => return Ok(None),
            Reasons::Not(why) => (Vec::new(), 0, None, vec![why]),
            Reasons::Of(mut intervals, mut sums) => {
                let (cost, lacks) = (intervals.cost(), intervals.lacks().to_vec());
                let ended = intervals.stop(&mut |event| sums.on(event))?;
                (sums.finish(&ended.names, pids), ended.counts.lost + ended.counts.missed, cost, lacks)
            }
        };
        let asleep = waits::asleep(host, pids);
        Ok(Some(ReasonsReport::new(&sums, &asleep, duration_ns, lost, cost, notes)))
    }
}

/// The measured threads, also in words.
fn of(args: &OffcpuArgs) -> anyhow::Result<(Subjects, String)> {
    if !args.pid.is_empty() {
        let tgids = super::processes::of_the_kernel("--pid", &args.pid)?;
        let list: Vec<_> = tgids.iter().map(u32::to_string).collect();
        let what = if list.len() == 1 { "process" } else { "processes" };
        return Ok((Subjects::Processes(tgids), format!("{what} {}", list.join(", "))));
    }
    if args.cgroup.is_empty() {
        return Ok((Subjects::Everything, "everybody".into()));
    }
    let cgroups = args.cgroup.iter().map(|name| Cgroup::find(name)).collect::<Result<Vec<_>, _>>()?;
    let list: Vec<_> = cgroups.iter().map(|cgroup| cgroup.path.display().to_string()).collect();
    Ok((Subjects::Cgroups(cgroups), list.join(", ")))
}
