//! Who kept the threads of a target from running: JSON shape, names, verdict.

pub mod cpus;
mod evidence;
pub mod page;
pub mod picture;
mod takers;
pub mod text;
mod words;

#[cfg(test)]
mod tests;

use crate::event::Tid;
use crate::halted::Halted;
use crate::names::Names;
use crate::probes::cost::Cost;
use crate::thieves::{ThievesTotals, ThreadTimes, Window};
use crate::timeline::Taker;
use serde::Serialize;
use spangap_model::evidence::{Interval, Testimony};
use spangap_model::{Cause, Doing, Taker as Named};
use std::collections::{BTreeMap, BTreeSet};

/// Takers below this share of the time in which a target wanted a CPU are not mentioned ...
pub const WORTH_MENTION: f64 = 0.02;
/// ... unless they took this much at once, in nanoseconds.
pub const WORTH_MENTION_AT_ONCE_NS: u64 = 10_000_000;

/// Who kept the threads of a target from running.
#[derive(Clone, Debug, Serialize)]
pub struct ThievesReport {
    /// The same as evidence, the common form of all instruments.
    pub evidence: Testimony,
    /// The target, in words.
    pub target: String,
    pub pids: Vec<u32>,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Observed threads.
    pub threads: Vec<ThreadReport>,
    /// Time of all threads together, by activity.
    pub did: DidReport,
    /// Time in which they ran or were runnable.
    pub wanted_ns: u64,
    /// Of this, time in which they were kept from running.
    pub denied_ns: u64,
    /// Takers, the largest first.
    pub takers: Vec<TakerReport>,
    /// Causes worth mention, the largest first.
    pub causes: Vec<CauseReport>,
    /// Minimum that a thief takes to be blamed, unless it took much at once.
    pub floor_ns: u64,
    /// Processes that were stopped or frozen before the measurement began.
    pub halted: Vec<Halted>,
    /// The largest taker worth mention.
    pub culprit: Option<CulpritReport>,
    /// Time that the hypervisor took from each CPU, whatever ran there.
    pub steal: Vec<CpuReport>,
    /// Lower bound of the part taken while threads of the target ran there.
    pub steal_at_least_ns: u64,
    /// Upper bound of that part.
    pub steal_at_most_ns: u64,
    /// The worst windows of time.
    pub windows: Vec<WindowReport>,
    pub events: EventsReport,
    /// Measurement overhead.
    pub cost: Option<Cost>,
    pub conclusions: Vec<String>,
    /// Limitations of the figures.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EventsReport {
    pub received: u64,
    pub lost: u64,
    /// Lower bound of the switches that the kernel did not report.
    pub untold: u64,
}

/// Time of threads by activity, in nanoseconds. All of it sums to `sum_ns`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DidReport {
    pub running_ns: u64,
    /// Current on a CPU while an interrupt ran.
    pub interrupted_ns: u64,
    /// Waiting for a CPU.
    pub runnable_ns: u64,
    /// Out of quota.
    pub throttled_ns: u64,
    pub stopped_ns: u64,
    pub blocked_ns: u64,
    /// Unknown: events were lost, or not reported.
    pub unknown_ns: u64,
    /// Before a thread was first observed, and after it was last observed falling asleep.
    pub unseen_ns: u64,
    pub sum_ns: u64,
}

impl DidReport {
    fn new(did: &ThreadTimes) -> DidReport {
        DidReport {
            running_ns: did.ns(Doing::Running),
            interrupted_ns: did.ns(Doing::Interrupted),
            runnable_ns: did.ns(Doing::Runnable),
            throttled_ns: did.ns(Doing::Throttled),
            stopped_ns: did.ns(Doing::Stopped),
            blocked_ns: did.ns(Doing::Blocked),
            unknown_ns: did.ns(Doing::Unknown),
            unseen_ns: did.unseen_ns,
            sum_ns: did.sum_ns(),
        }
    }
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    pub tid: Tid,
    pub name: String,
    /// Its time by activity.
    #[serde(flatten)]
    pub did: DidReport,
}

/// Time on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    pub cpu: u16,
    /// Time in nanoseconds.
    pub ns: u64,
}

/// Kind of taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process outside the target.
    Task,
    /// Another thread of the target.
    OwnTask,
    /// Nobody: the CPU was idle and woke up, or the thread was migrated there.
    Idle,
    /// This tool itself.
    Spangap,
    Softirq,
    /// A softirq for the target's own traffic: loopback packets processed while it runs, and packets for its
    /// sockets.
    OwnSoftirq,
    /// An interrupt handler.
    Hardirq,
    /// An interrupt for a request of the target to a device: it usually wakes the target.
    OwnHardirq,
    /// The kernel's own work on each CPU: ticks, timers, load balancing, RCU, calls between CPUs.
    Housekeeping,
    /// A process that cooperates with the target: it wakes the target's threads as often as it delays them, and
    /// never delays them for long.
    Peer,
    /// The CPU quota of the target's cgroup.
    Quota,
    /// A stop signal, or a debugger.
    Stop,
    Unknown,
}

impl Kind {
    /// The cause it amounts to, if anybody is to blame.
    pub fn cause(self) -> Option<Cause> {
        match self {
            Kind::Task | Kind::Unknown => Some(Cause::RunQueue),
            Kind::Softirq | Kind::Hardirq => Some(Cause::SoftirqOnCpu),
            Kind::Quota => Some(Cause::CpuQuota),
            Kind::Stop => Some(Cause::Stopped),
            Kind::OwnTask
            | Kind::Idle
            | Kind::Spangap
            | Kind::OwnSoftirq
            | Kind::OwnHardirq
            | Kind::Housekeeping
            | Kind::Peer => None,
        }
    }
}

/// Who kept threads from running.
#[derive(Clone, Debug, Serialize)]
pub struct TakerReport {
    pub kind: Kind,
    pub name: String,
    /// The taker itself, for tasks the process. `None` for a quota, a stop signal, or an unknown taker.
    #[serde(skip)]
    pub taker: Option<Named>,
    /// Process id, for tasks.
    pub pid: Option<u32>,
    /// Cgroup, for tasks.
    pub cgroup: Option<String>,
    /// Cause that it amounts to.
    pub cause: Option<&'static str>,
    /// Time taken from the threads.
    pub total_ns: u64,
    /// Share of the time that they wanted.
    pub share: f64,
    /// Waits in which it had the CPU, and interruptions.
    pub count: u64,
    /// Longest of these.
    pub longest_ns: u64,
    /// How often it woke a thread of the target.
    pub woke: u64,
    /// Whether it is to blame: it acted on its own behalf, and took enough to matter.
    pub blamed: bool,
    /// Time taken from runnable threads.
    pub while_runnable_ns: u64,
    /// Time taken by interrupting running threads.
    pub while_running_ns: u64,
    /// Time taken on each CPU.
    pub cpus: Vec<CpuReport>,
}

/// Cost of a cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CauseReport {
    pub cause: &'static str,
    /// Time taken; for `steal` the lower bound.
    pub ns: u64,
    /// Share of the wanted time.
    pub share: f64,
}

/// The largest taker.
#[derive(Clone, Debug, Serialize)]
pub struct CulpritReport {
    pub name: String,
    /// Cause that it amounts to.
    pub cause: &'static str,
    /// Time taken.
    pub total_ns: u64,
    /// Share of the wanted time.
    pub share: f64,
}

/// A window of one thread's time.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    pub tid: Tid,
    /// Thread name.
    pub name: String,
    /// Start, relative to the start of the measurement.
    pub from_ns: u64,
    /// Start in nanoseconds since 1970, for comparison with logs.
    pub from_unix_ns: Option<i64>,
    /// Length.
    pub duration_ns: u64,
    /// Time in which it was kept from running.
    pub denied_ns: u64,
    /// Its activities, in order.
    pub pieces: Vec<PieceReport>,
}

/// One activity of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PieceReport {
    /// Start, relative to the window.
    pub from_ns: u64,
    /// Length.
    pub ns: u64,
    /// Activity, by the name of [`Doing`].
    pub doing: &'static str,
    /// Who had the CPU, if that was another.
    pub who: Option<String>,
    /// The same as a value.
    #[serde(skip)]
    pub taker: Option<Named>,
}

/// Minimum share of the elapsed time that a thief takes. Without it, whoever uses next to nothing would take a
/// large share of an almost idle process's time.
const FLOOR: u64 = 1_000;

/// Facts beyond the sums.
pub struct Circumstances<'a> {
    /// The target, in words.
    pub target: String,
    /// Whether a thread belongs to the target.
    pub is_own: &'a dyn Fn(Tid) -> bool,
    /// Process id of this tool.
    pub spangap: u32,
    /// Names of all objects.
    pub names: &'a Names,
    /// Start of the measurement, in nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// End of the measurement, in nanoseconds of CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// Known idle time of a CPU, in nanoseconds.
    pub idle_ns: &'a dyn Fn(u16) -> u64,
    /// Converts a moment of CLOCK_MONOTONIC to nanoseconds since 1970.
    pub unix_ns: &'a dyn Fn(u64) -> Option<i64>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    pub events: EventsReport,
    /// Measurement overhead.
    pub cost: Option<Cost>,
    /// What this kernel cannot report.
    pub lacks: Vec<String>,
    /// Processes of the target that were stopped or frozen before the measurement began.
    pub halted: Vec<Halted>,
}

impl Circumstances<'_> {
    /// Steal time, if it is worth mention. It is counted in ticks of 10 ms, so less than two ticks are ignored.
    fn worthy_steal(&self, at_least_ns: u64, share: &dyn Fn(u64) -> f64) -> Option<u64> {
        const TWO_TICKS_NS: u64 = 20_000_000;
        let enough = share(at_least_ns) >= WORTH_MENTION && at_least_ns >= self.floor_ns().max(TWO_TICKS_NS);
        enough.then_some(at_least_ns)
    }

    /// Minimum that a thief takes to be blamed, in nanoseconds.
    fn floor_ns(&self) -> u64 {
        (self.ended_ns - self.began_ns) / FLOOR
    }
}

impl ThievesReport {
    /// Adds names, causes and conclusions.
    pub fn new(found: &ThievesTotals, known: &Circumstances<'_>) -> ThievesReport {
        let names = known.names;
        let wanted_ns = found.all.wanted_ns();
        let share = |ns: u64| ns as f64 / wanted_ns.max(1) as f64;
        let takers = takers::takers(found, known, &share);
        let steal: Vec<CpuReport> = cpus(&found.steal);
        let (steal_at_least_ns, steal_at_most_ns) = steal_bounds(found, known);
        let threads: Vec<ThreadReport> = found
            .threads
            .iter()
            .map(|(tid, did)| ThreadReport {
                tid: *tid,
                name: names.task(*tid).map_or_else(String::new, |task| task.comm.clone()),
                did: DidReport::new(did),
            })
            .collect();
        let pids: BTreeSet<u32> = threads.iter().filter_map(|thread| names.tgid(thread.tid)).collect();
        let mut report = ThievesReport {
            evidence: Testimony::default(),
            target: known.target.clone(),
            pids: pids.into_iter().collect(),
            duration_ns: known.ended_ns - known.began_ns,
            interrupted: known.interrupted,
            threads,
            did: DidReport::new(&found.all),
            wanted_ns,
            denied_ns: found.all.denied_ns(),
            floor_ns: known.floor_ns(),
            halted: known.halted.clone(),
            causes: causes(&takers, known.worthy_steal(steal_at_least_ns, &share), &known.halted, &share),
            culprit: None,
            takers,
            steal,
            steal_at_least_ns,
            steal_at_most_ns,
            windows: found.windows.iter().map(|window| window_report(window, known)).collect(),
            events: known.events,
            cost: known.cost,
            conclusions: Vec::new(),
            notes: Vec::new(),
        };
        report.culprit = report.find_culprit(&share);
        report.conclusions = words::conclusions(&report);
        report.notes = words::notes(&report, &known.lacks);
        let ends = (known.unix_ns)(known.began_ns).zip((known.unix_ns)(known.ended_ns));
        let when = ends.map(|(from_unix_ns, to_unix_ns)| Interval { from_unix_ns, to_unix_ns });
        report.evidence = evidence::evidence(&report, when);
        report
    }

    fn find_culprit(&self, share: &dyn Fn(u64) -> f64) -> Option<CulpritReport> {
        let taker = self.takers.iter().find(|taker| taker.is_worth_mention());
        let taker = taker.and_then(|taker| {
            let cause = taker.cause?;
            let (name, total_ns) = (taker.name.clone(), taker.total_ns);
            Some(CulpritReport { name, cause, total_ns, share: taker.share })
        });
        let halted =
            self.halted.iter().filter_map(|halted| halted.whole_look_ns.map(|ns| (halted, ns))).next();
        if let (None, Some((halted, total_ns))) = (&taker, halted) {
            let cause = Cause::Stopped.name();
            return Some(CulpritReport { name: halted.words(), cause, total_ns, share: 1.0 });
        }
        let steal_ns = self.steal_at_least_ns;
        let blamed = self.causes.iter().any(|cause| cause.cause == Cause::Steal.name());
        if blamed && taker.as_ref().is_none_or(|taker| taker.total_ns < steal_ns) {
            let (name, cause) = ("the hypervisor".into(), Cause::Steal.name());
            return Some(CulpritReport { name, cause, total_ns: steal_ns, share: share(steal_ns) });
        }
        taker
    }
}

impl TakerReport {
    /// Whether it is to blame, and took enough to be mentioned.
    pub fn is_worth_mention(&self) -> bool {
        self.blamed
    }
}

fn cpus(cpus: &BTreeMap<u16, u64>) -> Vec<CpuReport> {
    cpus.iter().map(|(cpu, ns)| CpuReport { cpu: *cpu, ns: *ns }).collect()
}

/// Bounds on the steal time that hit threads of the target. The kernel counts steal by CPU and in ticks, so
/// only bounds are possible: whatever does not fit into other tasks' time has hit the target. An idle CPU wants
/// nothing, so nothing is stolen from it.
fn steal_bounds(found: &ThievesTotals, known: &Circumstances<'_>) -> (u64, u64) {
    let (mut at_least, mut at_most) = (0, 0);
    for (&cpu, &steal_ns) in &found.steal {
        let own_ns = found.tasks.get(&cpu).copied().unwrap_or(0);
        let busy_ns = (known.ended_ns - known.began_ns).saturating_sub((known.idle_ns)(cpu));
        at_least += steal_ns.saturating_sub(busy_ns.saturating_sub(own_ns)).min(own_ns);
        at_most += steal_ns.min(own_ns);
    }
    (at_least, at_most)
}

fn causes(
    takers: &[TakerReport],
    steal_ns: Option<u64>,
    halted: &[Halted],
    share: &dyn Fn(u64) -> f64,
) -> Vec<CauseReport> {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for taker in takers.iter().filter(|taker| taker.is_worth_mention()) {
        if let Some(cause) = taker.cause {
            *sums.entry(cause).or_default() += taker.total_ns;
        }
    }
    if let Some(steal_ns) = steal_ns {
        sums.insert(Cause::Steal.name(), steal_ns);
    }
    for ns in halted.iter().filter_map(|halted| halted.whole_look_ns) {
        *sums.entry(Cause::Stopped.name()).or_default() += ns;
    }
    let report = |(cause, ns): (&'static str, u64)| CauseReport { cause, ns, share: share(ns).min(1.0) };
    let mut causes: Vec<CauseReport> = sums.into_iter().map(report).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
    causes
}

fn window_report(window: &Window, known: &Circumstances<'_>) -> WindowReport {
    let who = |taker: Taker| match taker {
        Taker::Task(0) => "idle CPU".into(),
        taker => known.names.taker(&taker),
    };
    let pieces = window.pieces.iter().map(|piece| PieceReport {
        from_ns: piece.from_ns - window.from_ns,
        ns: piece.to_ns - piece.from_ns,
        doing: piece.doing.name(),
        who: piece.taker.map(who),
        taker: piece.taker.map(|taker| known.names.named(&taker)),
    });
    WindowReport {
        tid: window.tid,
        name: known.names.task(window.tid).map_or_else(String::new, |task| task.comm.clone()),
        from_ns: window.from_ns.saturating_sub(known.began_ns),
        from_unix_ns: (known.unix_ns)(window.from_ns),
        duration_ns: window.to_ns - window.from_ns,
        denied_ns: window.denied_ns,
        pieces: pieces.collect(),
    }
}
