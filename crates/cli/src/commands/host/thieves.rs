//! `spangap host thieves`: who had the CPUs while the threads of a process wanted them.

use crate::Outcome;
use crate::report_page::Report;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use crate::whole_file;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use spangap_bench::tank::cpus::Cpus;
use spangap_host::event::{Event, Tid, What};
use spangap_host::halted::{self, Halted};
use spangap_host::names::Names;
use spangap_host::probes::cost::Cost;
use spangap_host::probes::intervals::{Intervals, Settings, Waits};
use spangap_host::probes::offcpu::Cgroup;
use spangap_host::recording::{Reading, Recording, Relation};
use spangap_host::report::thieves::cpus::{self, CpuCircumstances, CpusReport};
use spangap_host::report::thieves::page::ThievesPage;
use spangap_host::report::thieves::{Circumstances, EventsReport, ThievesReport, picture, text};
use spangap_host::thieves::{CpuUse, Thieves};
use spangap_host::timeline::{Taker, Timeline};
use spangap_machine::Host;
use spangap_model::Cause;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host thieves --pid $(pidof envoy)
      who had the CPU while envoy's threads wanted it: tasks, softirqs by device, interrupts, its quota, stops
  spangap host thieves --cgroup /kubepods/burstable/pod42 --duration 30s --json
      a pod, as one JSON document
  spangap host thieves --cpus 2-3
      who used these CPUs, whoever wanted them
  spangap host thieves --recording web.rec --html thieves.html
      the same from a recording (spangap host record), with the worst stretches drawn
  spangap host thieves --pid 4242 --fail-on run-queue,cpu-quota; [ $? = 3 ] && echo denied
      exit with 3 if one of these took a significant amount of time

An amount is significant if it is at least 2 % of the time in which the target wanted a CPU and 1 ms per
second observed, or 10 ms at once. Nobody is blamed for the target's own work: its threads, interrupts for its
own packets and requests, ticks and timers, and programs that work with it (they wake its threads as often as
they get in their way). Needs root (CAP_BPF and CAP_PERFMON) and a kernel with type information (BTF).";

/// Show who had the CPUs while the threads of a process wanted them
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("target").args(["pid", "cgroup", "cpus"])))]
#[command(group(clap::ArgGroup::new("looked-at").required(true).multiple(true).args(["pid", "cgroup", "cpus", "recording"])))]
pub struct ThievesArgs {
    /// A process; may be repeated
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// All processes of a cgroup and of those below: its path below the hierarchy's root, or in /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// CPUs, whoever wanted them: a list such as 0,2-3, or node:N
    #[arg(long, value_name = "CPUS")]
    cpus: Option<Cpus>,
    /// For how long; Ctrl-C ends it early, with what was seen up to then
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    duration: Duration,
    /// Analyse a recording of `spangap host record` instead of this host: the processes it was made for, unless others are
    /// named
    #[arg(long, value_name = "FILE", conflicts_with = "duration")]
    recording: Option<PathBuf>,
    /// How many of the worst stretches of time to show
    #[arg(long, value_name = "N", default_value_t = 3)]
    windows: usize,
    /// Their length, unless one wait is longer
    #[arg(long, value_name = "DURATION", default_value = "10ms")]
    window: Duration,
    /// Exit with code 3 if one of these took a significant amount of time
    #[arg(long, value_name = "CAUSE", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Write a page with the worst stretches of time drawn
    #[arg(long, value_name = "FILE", conflicts_with = "cpus")]
    html: Option<PathBuf>,
    /// Write the worst stretches of time as a picture
    #[arg(long, value_name = "FILE", conflicts_with = "cpus")]
    svg: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Others ran while the target could have run
    RunQueue,
    /// Its quota was used up
    CpuQuota,
    /// Interrupts ran on its CPU
    SoftirqOnCpu,
    /// It was stopped
    Stopped,
    /// The hypervisor took the CPU
    Steal,
}

impl FailOn {
    fn cause(self) -> Cause {
        match self {
            FailOn::RunQueue => Cause::RunQueue,
            FailOn::CpuQuota => Cause::CpuQuota,
            FailOn::SoftirqOnCpu => Cause::SoftirqOnCpu,
            FailOn::Stopped => Cause::Stopped,
            FailOn::Steal => Cause::Steal,
        }
    }
}

/// Polling interval for Ctrl-C.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// The threads to observe.
enum Target {
    Pids(Vec<u32>),
    /// Path below the hierarchy's root.
    Cgroup(String),
}

impl Target {
    fn is(&self, names: &Names, tgid: u32, cgroup_id: u64) -> bool {
        match self {
            Target::Pids(pids) => pids.contains(&tgid),
            Target::Cgroup(wanted) => names.cgroup(cgroup_id).is_some_and(|path| is_within(path, wanted)),
        }
    }

    fn words(&self, names: &Names) -> String {
        match self {
            Target::Pids(pids) => {
                let name = |pid: &u32| {
                    let task = names.task(*pid);
                    task.map_or_else(|| format!("pid {pid}"), |task| format!("{} (pid {pid})", task.comm))
                };
                pids.iter().map(name).collect::<Vec<_>>().join(", ")
            }
            Target::Cgroup(path) => format!("cgroup {path}"),
        }
    }

    /// Current processes of the target.
    fn processes(&self) -> Vec<u32> {
        match self {
            Target::Pids(pids) => pids.clone(),
            Target::Cgroup(path) => {
                let found = MOUNTS.iter().find_map(|mount| Cgroup::find(&format!("{mount}{path}")).ok());
                found.map_or_else(Vec::new, |cgroup| cgroup.processes())
            }
        }
    }

    /// Whether it may still run.
    fn is_there(&self) -> bool {
        match self {
            Target::Pids(pids) => pids.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()),
            Target::Cgroup(_) => true,
        }
    }
}

fn is_within(path: &str, wanted: &str) -> bool {
    path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Known threads of the target. Shared with the timeline, which queries it continuously.
type SharedThreads = Rc<RefCell<HashSet<Tid>>>;

/// Totals, by kind of target.
enum Sums {
    Target {
        target: Target,
        watched: SharedThreads,
        timeline: Box<Timeline<Asks>>,
        thieves: Box<Thieves>,
        /// Load of the CPUs, whichever threads used them.
        used: Box<CpuUse>,
    },
    Cpus {
        cpus: Vec<u16>,
        used: Box<CpuUse>,
    },
}

type Asks = Box<dyn FnMut(Tid) -> bool>;

impl Sums {
    /// Totals for a target, or for CPUs.
    fn new(target: Result<Target, Vec<u16>>, began_ns: u64, args: &ThievesArgs) -> Sums {
        let target = match target {
            Ok(target) => target,
            Err(cpus) => {
                return Sums::Cpus { used: Box::new(CpuUse::new(began_ns, Some(cpus.clone()))), cpus };
            }
        };
        let watched = SharedThreads::default();
        let asked = watched.clone();
        let asks: Asks = Box::new(move |tid| asked.borrow().contains(&tid));
        let timeline = Box::new(Timeline::new(began_ns, asks));
        let thieves = Box::new(Thieves::new(args.windows, args.window.ns()));
        let used = Box::new(CpuUse::new(began_ns, None));
        Sums::Target { target, watched, timeline, thieves, used }
    }

    /// New names may include threads of the target.
    fn look_at_names(&mut self, names: &Names) {
        if let Sums::Target { target, watched, .. } = self {
            let own = names.tasks().filter(|(_, task)| target.is(names, task.tgid, task.cgroup_id));
            watched.borrow_mut().extend(own.map(|(tid, _)| tid));
        }
    }

    fn on(&mut self, event: &Event) {
        match self {
            Sums::Target { timeline, thieves, used, .. } => {
                used.on(event);
                if let What::Steal { ns, .. } = event.what {
                    thieves.steal(event.cpu, ns);
                }
                if let What::Woken(woken) = &event.what {
                    thieves.woken(woken);
                }
                timeline.on(event, &mut |tid, interval| thieves.on(tid, interval));
            }
            Sums::Cpus { used, .. } => used.on(event),
        }
    }
}

/// Result of an observation.
struct Observation {
    names: Names,
    began_ns: u64,
    ended_ns: u64,
    interrupted: bool,
    events: EventsReport,
    cost: Option<Cost>,
    lacks: Vec<String>,
    halted: Vec<Halted>,
    clocks: Relation,
    /// Process id of this tool, if it was observed.
    spangap: u32,
}

/// Observes until the time is over or Ctrl-C is pressed, or reads a recording, and prints the result.
pub fn run(args: ThievesArgs) -> anyhow::Result<Outcome> {
    if args.window.ns() == 0 {
        return Err(wrong_usage("--window: expected a duration above 0").into());
    }
    let (sums, seen) = match &args.recording {
        Some(path) => recorded(path, &args)?,
        None => live(&args)?,
    };
    finish(sums, seen, &args)
}

fn live(args: &ThievesArgs) -> anyhow::Result<(Sums, Observation)> {
    let stop = signals::flag(ASKED)?;
    let target = match (&args.cgroup, &args.cpus) {
        (Some(path), _) => {
            let path = cgroup(path)?;
            if !MOUNTS.iter().any(|mount| Path::new(&format!("{mount}{path}")).is_dir()) {
                let looked = "/sys/fs/cgroup/cpu and /sys/fs/cgroup";
                return Err(wrong_usage(format!("--cgroup: there is no {path} in {looked}")).into());
            }
            Ok(Target::Cgroup(path))
        }
        (None, Some(cpus)) => Err(online(cpus)?),
        (None, None) => Ok(Target::Pids(super::processes::of_the_kernel("--pid", &args.pid)?)),
    };
    let all = rustix::thread::sched_getaffinity(None);
    match &target {
        Ok(Target::Pids(pids)) => super::own_cpus::from_processes(pids),
        Ok(Target::Cgroup(_)) => super::own_cpus::from_processes(&[]),
        Err(cpus) => super::own_cpus::from_cpus(cpus),
    }
    let host = Host::below("/");
    // Processes whose sockets and wake-ups are followed; for a cgroup its current ones.
    let tgids = target.as_ref().map_or_else(|_| Vec::new(), Target::processes);
    let mut halted = halted::halted(&host, &tgids);
    let waits = if tgids.is_empty() { Waits::No } else { Waits::Also };
    let mut intervals = Intervals::start(&Settings { tgids, waits, ..Settings::default() })?;
    let mut clocks = Relation::default();
    clocks.add(Reading::take());
    let began_ns = intervals.began_ns();
    let mut sums = Sums::new(target, began_ns, args);
    let began = Instant::now();
    if io::stderr().is_terminal() {
        eprintln!("looking for {}; Ctrl-C ends it", spangap_model::duration::format_ns(args.duration.ns()));
    }
    let mut batch: Vec<Event> = Vec::new();
    let mut lacks = intervals.lacks().to_vec();
    while !stop.load(Relaxed) {
        let Some(left) = args.duration.std().checked_sub(began.elapsed()) else { break };
        if let Sums::Target { target, .. } = &sums
            && !target.is_there()
        {
            lacks.push("the target ended during the measurement".into());
            break;
        }
        intervals.poll(left.min(POLL), &mut |event| batch.push(*event))?;
        sums.look_at_names(intervals.names());
        batch.drain(..).for_each(|event| sums.on(&event));
    }
    let interrupted = stop.load(Relaxed);
    show_yourselves(all);
    let cost = intervals.cost();
    let ended = intervals.stop(&mut |event| batch.push(*event))?;
    clocks.add(Reading::take());
    sums.look_at_names(&ended.names);
    batch.drain(..).for_each(|event| sums.on(&event));
    if ended.counts.missed > 0 {
        lacks.push(format!(
            "the kernel skipped {} runs of the programs; what they would have recorded is unknown",
            ended.counts.missed
        ));
    }
    let events = EventsReport { received: ended.counts.events, lost: ended.counts.lost, untold: 0 };
    let (names, ended_ns, spangap) = (ended.names, ended.ended_ns, std::process::id());
    halted::still(&host, &mut halted, ended_ns - began_ns);
    Ok((
        sums,
        Observation { names, began_ns, ended_ns, interrupted, events, cost, lacks, halted, clocks, spangap },
    ))
}

fn recorded(path: &Path, args: &ThievesArgs) -> anyhow::Result<(Sums, Observation)> {
    let mut recording = Recording::open(path)?;
    let names = recording.names().clone();
    let target = match (&args.cgroup, &args.cpus) {
        (Some(path), _) => Ok(Target::Cgroup(cgroup(path)?)),
        (None, Some(cpus)) => Err(cpus.numbers().map(|cpu| cpu as u16).collect()),
        (None, None) if args.pid.is_empty() => Ok(Target::Pids(recording.meta().pids.clone())),
        (None, None) => Ok(Target::Pids(args.pid.clone())),
    };
    if let Ok(target) = &target
        && !names.tasks().any(|(_, task)| target.is(&names, task.tgid, task.cgroup_id))
    {
        let what = target.words(&names);
        return Err(wrong_usage(format!("{what} is not in the recording ({})", path.display())).into());
    }
    let began_ns = recording.meta().began_ns;
    let mut lacks = recording.meta().lacks.clone();
    let mut sums = Sums::new(target, began_ns, args);
    sums.look_at_names(&names);
    let (mut received, mut lost, mut last_ns) = (0, 0, began_ns);
    let read = recording.read(&mut |event| {
        received += 1;
        last_ns = event.time_ns;
        if let What::Lost { count, .. } = event.what {
            lost += count;
        }
        sums.on(event);
    });
    // Events before a damaged or truncated place are worth a report.
    lacks.extend(read.err().or_else(|| recording.cut()).map(|error| error.to_string()));
    let seen = Observation {
        names,
        began_ns,
        ended_ns: recording.end().map_or(last_ns, |end| end.ended_ns).max(last_ns),
        interrupted: false,
        events: EventsReport { received, lost, untold: 0 },
        cost: None,
        lacks,
        halted: recording.meta().halted.clone(),
        clocks: recording.relation().clone(),
        spangap: 0,
    };
    Ok((sums, seen))
}

/// A CPU whose task never changes causes no switch, so its task would be unknown: this thread visits each CPU.
fn show_yourselves(all: rustix::io::Result<rustix::thread::CpuSet>) {
    let (Ok(all), Ok(mine)) = (all, rustix::thread::sched_getaffinity(None)) else { return };
    for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        // A CPU that cannot be visited stays unknown, and the report says so.
        let _ = rustix::thread::sched_setaffinity(None, &one);
    }
    let _ = rustix::thread::sched_setaffinity(None, &mine);
}

/// The report in short, of the processes that a recording was made for.
pub fn in_short(recording: &Path, most_takers: usize) -> anyhow::Result<String> {
    let args = ThievesArgs {
        pid: Vec::new(),
        cgroup: None,
        cpus: None,
        duration: Duration(0),
        recording: None,
        windows: 0,
        window: Duration(0),
        fail_on: Vec::new(),
        html: None,
        svg: None,
        json: false,
    };
    let (sums, seen) = recorded(recording, &args)?;
    match sums {
        Sums::Target { target, watched, timeline, thieves, used } => {
            let report = report_of(target, &watched, *timeline, *thieves, *used, seen);
            Ok(text::in_short(&report, most_takers))
        }
        Sums::Cpus { .. } => bail!("{}: expected a recording of processes", recording.display()),
    }
}

fn report_of(
    target: Target,
    watched: &SharedThreads,
    timeline: Timeline<Asks>,
    mut thieves: Thieves,
    used: CpuUse,
    seen: Observation,
) -> ThievesReport {
    let Observation { names, began_ns, ended_ns, interrupted, events, cost, lacks, halted, clocks, spangap } =
        seen;
    let used = used.finish(ended_ns).used;
    let idle = |cpu| used.get(&(cpu, Some(Taker::Task(0)))).map_or(0, |idle| idle.total_ns);
    let events = EventsReport { untold: timeline.untold(), ..events };
    timeline.finish(ended_ns, &mut |tid, interval| thieves.on(tid, interval));
    let is_own = |tid: Tid| watched.borrow().contains(&tid);
    let target = target.words(&names);
    let known = Circumstances {
        target,
        is_own: &is_own,
        spangap,
        names: &names,
        began_ns,
        ended_ns,
        idle_ns: &idle,
        unix_ns: &|mono_ns| Some(clocks.unix_ns(mono_ns)?.0),
        interrupted,
        events,
        cost,
        lacks,
        halted,
    };
    ThievesReport::new(&thieves.finish(), &known)
}

fn finish(sums: Sums, seen: Observation, args: &ThievesArgs) -> anyhow::Result<Outcome> {
    let (text, json, causes) = match sums {
        Sums::Target { target, watched, timeline, thieves, used } => {
            let report = report_of(target, &watched, *timeline, *thieves, *used, seen);
            if let Some(path) = &args.html {
                Report::Thieves { report: &ThievesPage::new(&report) }.write(path)?;
            }
            if let Some(path) = &args.svg {
                whole_file::write(path, picture::svg(&report))
                    .with_context(|| format!("cannot write the picture ({})", path.display()))?;
            }
            let causes: Vec<&str> = report.causes.iter().map(|cause| cause.cause).collect();
            (text::text(&report), serde_json::to_string_pretty(&report)?, causes)
        }
        Sums::Cpus { cpus, used } => {
            let Observation { names, began_ns, ended_ns, interrupted, events, cost, lacks, spangap, .. } =
                seen;
            let used = used.finish(ended_ns);
            let duration_ns = ended_ns - began_ns;
            let names = &names;
            let known =
                CpuCircumstances { cpus, spangap, names, duration_ns, interrupted, events, cost, lacks };
            let report = CpusReport::new(&used, &known);
            (cpus::text(&report), serde_json::to_string_pretty(&report)?, Vec::new())
        }
    };
    let output = if args.json { format!("{json}\n") } else { text };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    let found = args.fail_on.iter().any(|wanted| causes.contains(&wanted.cause().name()));
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

/// The requested CPUs, all of which must be online.
fn online(wanted: &Cpus) -> anyhow::Result<Vec<u16>> {
    Ok(super::stacks::cpus(Some(wanted))?.into_iter().map(|cpu| cpu as u16).collect())
}

/// Mount points of cgroup hierarchies.
const MOUNTS: [&str; 3] = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// The path of a cgroup below the root of its hierarchy.
fn cgroup(given: &str) -> anyhow::Result<String> {
    let below = MOUNTS.iter().find_map(|mount| given.strip_prefix(mount)).unwrap_or(given);
    let path = format!("/{}", below.trim_matches('/'));
    if path == "/" {
        return Err(wrong_usage(format!(
            "--cgroup {given}: this is the root, which holds everything; expected a cgroup \
            below it"
        ))
        .into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_those_below_it() {
        assert!(is_within("/a/b", "/a/b") && is_within("/a/b/c", "/a/b"));
        assert!(!is_within("/a/bc", "/a/b") && !is_within("/a", "/a/b"));
    }

    #[test]
    fn root_is_not_a_cgroup() {
        for all in ["/", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu/"] {
            assert!(cgroup(all).unwrap_err().is::<clap::Error>(), "{all}");
        }
        assert_eq!(cgroup("/sys/fs/cgroup/cpu/a/b/").unwrap(), "/a/b");
        assert_eq!(cgroup("a/b").unwrap(), "/a/b");
    }
}
