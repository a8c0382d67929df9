//! Takers of a target's CPUs: who they are, and whether they are to blame.

use super::{Circumstances, CpuReport, Kind, TakerReport, WORTH_MENTION, WORTH_MENTION_AT_ONCE_NS};
use crate::event::{Irq, Tid, Waker};
use crate::thieves::{Thief, ThievesTotals};
use crate::timeline::Taker;
use spangap_model::{Cause, Doing, Taker as Named};
use std::collections::BTreeMap;

/// Merges tasks into their processes. A softirq that is the target's own traffic while the target runs is kept
/// apart from the same softirq while the target waits.
pub(super) fn takers(
    found: &ThievesTotals,
    known: &Circumstances<'_>,
    share: &dyn Fn(u64) -> f64,
) -> Vec<TakerReport> {
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

/// Softirq numbers.
const TIMER: u8 = 1;
const NET_RX: u8 = 3;
const BLOCK: u8 = 4;
const SCHED: u8 = 7;
const HRTIMER: u8 = 8;
const RCU: u8 = 9;

/// Timer interruptions per second of a thread's time, above which they cannot all be ticks: no kernel ticks
/// more than 1,000 times a second.
const MORE_THAN_TICKS: u64 = 1_500;

/// Decides whether a taker is to blame; takers that worked for the target are cleared by whom they woke.
fn judge(taker: &mut TakerReport, found: &ThievesTotals, known: &Circumstances<'_>) {
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
            // A waker by packets is recorded without its interface. Only traffic that the target waits for
            // wakes it.
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
        // A process stands for all its threads.
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
