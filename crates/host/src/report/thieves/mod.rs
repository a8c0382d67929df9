//! Who kept the threads of a target from running: the shape in JSON, with names and a verdict.

pub mod cpus;
mod evidence;
pub mod page;
pub mod picture;
pub mod text;
mod words;

#[cfg(test)]
mod tests;

use crate::event::{Irq, Tid, Waker};
use crate::halted::Halted;
use crate::names::Names;
use crate::probes::cost::Cost;
use crate::thieves::{Did, Found, Thief, Window};
use crate::timeline::Taker;
use serde::Serialize;
use spangap_model::evidence::{Interval, Testimony};
use spangap_model::{Cause, Doing, Taker as Named};
use std::collections::{BTreeMap, BTreeSet};

/// What takes less than this share of the time in which a target wanted a CPU is not worth mention.
pub const WORTH_MENTION: f64 = 0.02;
/// But what takes this much at once is, nanoseconds.
pub const WORTH_MENTION_AT_ONCE_NS: u64 = 10_000_000;

/// Who kept the threads of a target from running.
#[derive(Clone, Debug, Serialize)]
pub struct ThievesReport {
    /// The same as values that every instrument speaks in.
    pub evidence: Testimony,
    /// Whose threads, in words.
    pub target: String,
    /// Their processes.
    pub pids: Vec<u32>,
    /// For how long it was looked, nanoseconds.
    pub duration_ns: u64,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// Threads that were seen.
    pub threads: Vec<ThreadReport>,
    /// What all threads did together.
    pub did: DidReport,
    /// Nanoseconds in which they ran or could have run.
    pub wanted_ns: u64,
    /// Of which they were kept from running.
    pub denied_ns: u64,
    /// Who kept them from it; who took most first.
    pub takers: Vec<TakerReport>,
    /// What is worth mention, by cause, most first.
    pub causes: Vec<CauseReport>,
    /// What a thief took at least to be blamed, unless it took much at once, nanoseconds.
    pub floor_ns: u64,
    /// Processes that were stopped or frozen before the looking began.
    pub halted: Vec<Halted>,
    /// Who took most of what is worth mention.
    pub culprit: Option<CulpritReport>,
    /// What the hypervisor took from CPUs, whoever ran there.
    pub steal: Vec<CpuReport>,
    /// At least this much of it while threads of the target were the tasks there, nanoseconds.
    pub steal_at_least_ns: u64,
    /// And at most this much.
    pub steal_at_most_ns: u64,
    /// The worst stretches of time.
    pub windows: Vec<WindowReport>,
    /// What was looked at.
    pub events: EventsReport,
    /// What the looking cost.
    pub cost: Option<Cost>,
    /// What it means.
    pub conclusions: Vec<String>,
    /// What these figures cannot tell.
    pub notes: Vec<String>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EventsReport {
    /// Events.
    pub received: u64,
    /// And those that were lost.
    pub lost: u64,
    /// Switches at least that the kernel did not tell of.
    pub untold: u64,
}

/// What threads did, nanoseconds. All of it sums to `sum_ns`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DidReport {
    /// Ran.
    pub running_ns: u64,
    /// Were the tasks of their CPUs, but an interrupt ran.
    pub interrupted_ns: u64,
    /// Waited for a CPU.
    pub runnable_ns: u64,
    /// Were out of quota.
    pub throttled_ns: u64,
    /// Were stopped.
    pub stopped_ns: u64,
    /// Waited for something else.
    pub blocked_ns: u64,
    /// Not known: events were lost, or not told.
    pub unknown_ns: u64,
    /// Before a thread was first seen, and after it was last seen falling asleep.
    pub unseen_ns: u64,
    /// All.
    pub sum_ns: u64,
}

impl DidReport {
    fn new(did: &Did) -> DidReport {
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
    /// Its number.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// What it did.
    #[serde(flatten)]
    pub did: DidReport,
}

/// Nanoseconds on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    /// Which.
    pub cpu: u16,
    /// Nanoseconds.
    pub ns: u64,
}

/// What a taker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process that is none of the target's.
    Task,
    /// The target's own: another thread of it.
    OwnTask,
    /// Nobody: the CPU was idle, and woke up, or the thread was moved there.
    Idle,
    /// This very program.
    Spangap,
    /// A softirq.
    Softirq,
    /// A softirq for the target's own traffic: packets of the loopback in its own running, and packets for its sockets.
    OwnSoftirq,
    /// An interrupt handler.
    Hardirq,
    /// An interrupt for what the target asked of a device: it mostly wakes the target.
    OwnHardirq,
    /// The kernel's own work on each CPU: ticks, timers, load balancing, RCU, calls between CPUs.
    Housekeeping,
    /// A process that works with the target: it wakes its threads as often as it is in their way, and never for long.
    Peer,
    /// The quota of the target's cgroup.
    Quota,
    /// A signal, or a debugger.
    Stop,
    /// Not known who.
    Unknown,
}

impl Kind {
    /// What it is the cause of, where it is anybody's fault.
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
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Who it is; of tasks the process. `None` for what is none: a quota, a stop signal, somebody not known.
    #[serde(skip)]
    pub taker: Option<Named>,
    /// Process, of tasks.
    pub pid: Option<u32>,
    /// Cgroup, of tasks.
    pub cgroup: Option<String>,
    /// What it is the cause of.
    pub cause: Option<&'static str>,
    /// Nanoseconds of the threads' time.
    pub total_ns: u64,
    /// As a share of what they wanted.
    pub share: f64,
    /// Waits in which it had the CPU, and interruptions.
    pub count: u64,
    /// The most in one of these, nanoseconds.
    pub longest_ns: u64,
    /// How often it woke a thread of the target.
    pub woke: u64,
    /// Whether it is to blame: it took what was not its own, and enough of it to matter.
    pub blamed: bool,
    /// While a thread was runnable behind it, nanoseconds.
    pub while_runnable_ns: u64,
    /// While a thread nominally ran, nanoseconds.
    pub while_running_ns: u64,
    /// Where.
    pub cpus: Vec<CpuReport>,
}

/// What a cause cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CauseReport {
    /// Its name.
    pub cause: &'static str,
    /// Nanoseconds; of `steal` at least these.
    pub ns: u64,
    /// As a share of what was wanted.
    pub share: f64,
}

/// Who took most.
#[derive(Clone, Debug, Serialize)]
pub struct CulpritReport {
    /// Its name.
    pub name: String,
    /// What it is the cause of.
    pub cause: &'static str,
    /// Nanoseconds.
    pub total_ns: u64,
    /// As a share of what was wanted.
    pub share: f64,
}

/// A stretch of time of one thread.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    /// Whose.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// Nanoseconds from the begin of the looking.
    pub from_ns: u64,
    /// The same in nanoseconds since 1970, to lay it beside logs.
    pub from_unix_ns: Option<i64>,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Nanoseconds in which it was kept from running.
    pub denied_ns: u64,
    /// What it did.
    pub pieces: Vec<PieceReport>,
}

/// What a thread did for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PieceReport {
    /// Nanoseconds from the begin of the window.
    pub from_ns: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// What, by the name of [`Doing`].
    pub doing: &'static str,
    /// Who had the CPU, where that was somebody else.
    pub who: Option<String>,
    /// The same as a value.
    #[serde(skip)]
    pub taker: Option<Named>,
}

/// What is known besides the sums.
pub struct Circumstances<'a> {
    /// Whose threads, in words.
    pub target: String,
    /// Whether a thread is one of them.
    pub is_own: &'a dyn Fn(Tid) -> bool,
    /// The process that looks.
    pub spangap: u32,
    /// Names of everything.
    pub names: &'a Names,
    /// When the looking began and ended, nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
    /// Nanoseconds in which a CPU is known to have been idle.
    pub idle_ns: &'a dyn Fn(u16) -> u64,
    /// A moment of CLOCK_MONOTONIC in nanoseconds since 1970.
    pub unix_ns: &'a dyn Fn(u64) -> Option<i64>,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// What was looked at.
    pub events: EventsReport,
    /// What the looking cost.
    pub cost: Option<Cost>,
    /// What this kernel cannot tell.
    pub lacks: Vec<String>,
    /// Processes of the target that were stopped or frozen before the looking began.
    pub halted: Vec<Halted>,
}

impl Circumstances<'_> {
    /// Stolen time, if it is worth mention. It is counted in ticks of 10 ms, so that less than two are none.
    fn worthy_steal(&self, at_least_ns: u64, share: &dyn Fn(u64) -> f64) -> Option<u64> {
        const TWO_TICKS_NS: u64 = 20_000_000;
        let enough = share(at_least_ns) >= WORTH_MENTION && at_least_ns >= self.floor_ns().max(TWO_TICKS_NS);
        enough.then_some(at_least_ns)
    }

    /// What a thief took at least, nanoseconds.
    fn floor_ns(&self) -> u64 {
        (self.ended_ns - self.began_ns) / FLOOR
    }
}

impl ThievesReport {
    /// With names, causes and words.
    pub fn new(found: &Found, known: &Circumstances<'_>) -> ThievesReport {
        let names = known.names;
        let wanted_ns = found.all.wanted_ns();
        let share = |ns: u64| ns as f64 / wanted_ns.max(1) as f64;
        let takers = takers(found, known, &share);
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
    /// Whether it is to blame, and took enough of it.
    pub fn is_worth_mention(&self) -> bool {
        self.blamed
    }
}

fn cpus(cpus: &BTreeMap<u16, u64>) -> Vec<CpuReport> {
    cpus.iter().map(|(cpu, ns)| CpuReport { cpu: *cpu, ns: *ns }).collect()
}

/// How much of the stolen time fell into the time in which threads of the target were the tasks of their CPUs. The
/// kernel counts it by CPU and in ticks, so there are only bounds: what does not fit into the time of others has hit the
/// target. An idle CPU wants nothing, and nothing is stolen from it.
fn steal_bounds(found: &Found, known: &Circumstances<'_>) -> (u64, u64) {
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

/// Tasks by their processes, and what one softirq took while the target ran apart from what it took while it waited,
/// if the first is its own traffic.
fn takers(found: &Found, known: &Circumstances<'_>, share: &dyn Fn(u64) -> f64) -> Vec<TakerReport> {
    let mut takers: BTreeMap<(Kind, String), TakerReport> = BTreeMap::new();
    for (thief, doing, taken) in &found.taken {
        let who = identify(*thief, *doing, known);
        let taker = takers.entry((who.kind, who.name.clone())).or_insert(who);
        taker.total_ns += taken.total_ns;
        taker.count += taken.count;
        taker.longest_ns = taker.longest_ns.max(taken.longest_ns);
        match doing {
            Doing::Runnable => taker.while_runnable_ns += taken.total_ns,
            Doing::Interrupted => taker.while_running_ns += taken.total_ns,
            _ => {}
        }
        for (&cpu, &ns) in &taken.cpus {
            match taker.cpus.iter_mut().find(|one| one.cpu == cpu) {
                Some(one) => one.ns += ns,
                None => taker.cpus.push(CpuReport { cpu, ns }),
            }
        }
    }
    let mut takers: Vec<TakerReport> = takers.into_values().collect();
    for taker in &mut takers {
        taker.share = share(taker.total_ns);
        taker.cpus.sort_by_key(|one| one.cpu);
        judge(taker, found, known);
    }
    takers.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    takers
}

/// Numbers of softirqs.
const TIMER: u8 = 1;
const NET_RX: u8 = 3;
const BLOCK: u8 = 4;
const SCHED: u8 = 7;
const HRTIMER: u8 = 8;
const RCU: u8 = 9;

/// Interruptions by the timer in a second of a thread's time, from which on they are more than ticks: no kernel ticks
/// more often than 1,000 times a second.
const MORE_THAN_TICKS: u64 = 1_500;

/// A thief took at least this share of the time that was looked at. Without this floor, whoever takes next to nothing of
/// an idle process takes a large share of it.
const FLOOR: u64 = 1_000;

/// Says whether a taker is to blame, after who it woke has cleared those that worked for the target.
fn judge(taker: &mut TakerReport, found: &Found, known: &Circumstances<'_>) {
    let names = known.names;
    let woke = |is_it: &dyn Fn(&Waker) -> bool| -> u64 {
        found.wakes.iter().filter(|(by, _)| is_it(by)).map(|(_, count)| count).sum()
    };
    let of_pid = |tid: Tid| names.tgid(tid).filter(|pid| *pid != 0).unwrap_or(tid);
    taker.woke = match (taker.kind, taker.pid) {
        (Kind::Task, Some(pid)) => woke(&|by| match by {
            Waker::Task(tid) | Waker::Softirq { vector: NET_RX, during: tid } => of_pid(*tid) == pid,
            _ => false,
        }),
        (Kind::Hardirq | Kind::Housekeeping, _) => {
            let is_it = |irq: &Irq| taker.taker == Some(names.named(&Taker::Hardirq(*irq)));
            woke(&|by| matches!(by, Waker::Hardirq(irq) if is_it(irq)))
        }
        (Kind::Softirq, _) => match &taker.taker {
            // Who wakes by packets is told without the interface. Nothing but what the target waits for wakes it.
            Some(Named::Softirq { vector, device })
                if vector == "NET_RX" && device.as_deref() == Some("lo") =>
            {
                woke(&|by| matches!(by, Waker::Softirq { vector: NET_RX, .. }))
            }
            Some(Named::Softirq { vector, device: None }) if vector == "BLOCK" => {
                woke(&|by| matches!(by, Waker::Softirq { vector: BLOCK, .. }))
            }
            _ => 0,
        },
        _ => 0,
    };
    let mostly_wakes = taker.woke > 0 && taker.woke.saturating_mul(2) >= taker.count;
    let cleared = match taker.kind {
        Kind::Task if mostly_wakes && taker.longest_ns < WORTH_MENTION_AT_ONCE_NS => Some(Kind::Peer),
        Kind::Softirq if mostly_wakes => Some(Kind::OwnSoftirq),
        Kind::Hardirq if mostly_wakes => Some(Kind::OwnHardirq),
        Kind::Housekeeping if taker.taker == Some(Named::Timer) => {
            let others = u128::from(taker.count.saturating_sub(taker.woke)) * 1_000_000_000;
            let ticks = u128::from(found.all.wanted_ns()) * u128::from(MORE_THAN_TICKS);
            (others > ticks).then_some(Kind::Hardirq)
        }
        _ => None,
    };
    if let Some(kind) = cleared {
        taker.kind = kind;
        taker.cause = kind.cause().map(Cause::name);
    }
    let enough = taker.share >= WORTH_MENTION && taker.total_ns >= known.floor_ns();
    taker.blamed = taker.cause.is_some() && (enough || taker.longest_ns >= WORTH_MENTION_AT_ONCE_NS);
}

fn identity(kind: Kind, name: impl Into<String>) -> TakerReport {
    TakerReport {
        kind,
        name: name.into(),
        taker: None,
        pid: None,
        cgroup: None,
        cause: kind.cause().map(Cause::name),
        total_ns: 0,
        share: 0.0,
        count: 0,
        longest_ns: 0,
        woke: 0,
        blamed: false,
        while_runnable_ns: 0,
        while_running_ns: 0,
        cpus: Vec::new(),
    }
}

fn identify(thief: Thief, doing: Doing, known: &Circumstances<'_>) -> TakerReport {
    let names = known.names;
    let named = |taker: Taker| match taker {
        // Its process stands for all of its threads.
        Taker::Task(tid) if tid != 0 => {
            names.named(&Taker::Task(names.tgid(tid).filter(|pid| *pid != 0).unwrap_or(tid)))
        }
        taker => names.named(&taker),
    };
    let taker = match thief {
        Thief::Taker(taker) => Some(named(taker)),
        Thief::Quota | Thief::Stop | Thief::Somebody => None,
    };
    TakerReport { taker, ..unnamed(thief, doing, known) }
}

fn unnamed(thief: Thief, doing: Doing, known: &Circumstances<'_>) -> TakerReport {
    let names = known.names;
    match thief {
        Thief::Quota => identity(Kind::Quota, "CPU quota"),
        Thief::Stop => identity(Kind::Stop, "stop signal or debugger"),
        Thief::Somebody => identity(Kind::Unknown, "not known who"),
        Thief::Taker(Taker::Task(0)) => identity(Kind::Idle, "idle CPU"),
        Thief::Taker(Taker::Task(tid)) => {
            let pid = names.tgid(tid).filter(|pid| *pid != 0).unwrap_or(tid);
            let task = names.task(pid).or_else(|| names.task(tid));
            let comm = task.map_or("", |task| &task.comm);
            let (kind, name) = match pid {
                _ if (known.is_own)(tid) => (Kind::OwnTask, format!("{comm} (pid {pid}), its own threads")),
                pid if pid == known.spangap => (Kind::Spangap, format!("{comm} (pid {pid}), this program")),
                _ if comm.is_empty() => (Kind::Task, format!("pid {pid}")),
                _ => (Kind::Task, format!("{comm} (pid {pid})")),
            };
            let cgroup = task.and_then(|task| names.cgroup(task.cgroup_id)).map(str::to_owned);
            TakerReport { pid: Some(pid), cgroup, ..identity(kind, name) }
        }
        Thief::Taker(taker @ Taker::Softirq { vector: TIMER | SCHED | HRTIMER | RCU, .. }) => {
            identity(Kind::Housekeeping, names.taker(&taker))
        }
        Thief::Taker(taker @ Taker::Softirq { own: true, .. }) => {
            identity(Kind::OwnSoftirq, format!("{}, its own traffic", names.taker(&taker)))
        }
        Thief::Taker(taker @ Taker::Softirq { device, .. }) => {
            let name = names.taker(&taker);
            let loopback = names.device(device).is_some_and(|device| device.name == "lo");
            match doing {
                Doing::Interrupted if loopback => {
                    identity(Kind::OwnSoftirq, format!("{name}, its own traffic"))
                }
                _ => identity(Kind::Softirq, name),
            }
        }
        Thief::Taker(taker @ Taker::Hardirq(Irq::Timer | Irq::Call)) => {
            identity(Kind::Housekeeping, names.taker(&taker))
        }
        Thief::Taker(taker @ Taker::Hardirq(_)) => identity(Kind::Hardirq, names.taker(&taker)),
    }
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
