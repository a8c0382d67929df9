//! Who had the CPUs while the threads of a process wanted them: sums over the intervals of its threads.

mod cpu_use;
mod windows;

pub use cpu_use::{CpuTime, CpuUse, CpusUsed};
pub use windows::{Piece, Window};

use crate::event::{Tid, Waker, Woken};
use crate::timeline::{Interval, Taker};
use rustc_hash::FxHashMap;
use spangap_model::Doing;
use std::collections::BTreeMap;
use windows::Windows;

/// What kept a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thief {
    /// A taker had the CPU.
    Taker(Taker),
    /// The thread waited for a CPU whose user is not, or no longer, known.
    Somebody,
    /// Its cgroup's quota was used up.
    Quota,
    /// A signal or a debugger stopped it.
    Stop,
}

/// Time that a thief took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenTime {
    /// Total time taken from the threads, in nanoseconds.
    pub total_ns: u64,
    /// Waits in which it had the CPU, and interruptions of a running thread.
    pub count: u64,
    /// Longest wait or interruption, in nanoseconds.
    pub longest_ns: u64,
    /// Time taken on each CPU, in nanoseconds; for throttling, on the CPU where the thread resumed.
    pub cpus: BTreeMap<u16, u64>,
}

/// Time by activity, of one thread or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Nanoseconds, in the order of [`Doing::ALL`].
    ns: [u64; Doing::ALL.len()],
    /// Time before it was first observed, or after it was last observed asleep, in nanoseconds.
    pub unseen_ns: u64,
}

impl ThreadTimes {
    /// Time spent on one activity, in nanoseconds; unknown time excludes [`ThreadTimes::unseen_ns`].
    pub fn ns(&self, doing: Doing) -> u64 {
        self.ns[doing as usize]
    }

    /// Time in which it waited for nothing but a CPU, in nanoseconds.
    pub fn wanted_ns(&self) -> u64 {
        self.ns(Doing::Running) + self.denied_ns()
    }

    /// Time in which it was kept from running, in nanoseconds.
    pub fn denied_ns(&self) -> u64 {
        [Doing::Interrupted, Doing::Runnable, Doing::Throttled, Doing::Stopped]
            .iter()
            .map(|doing| self.ns(*doing))
            .sum()
    }

    /// Sum of all, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.ns.iter().sum::<u64>() + self.unseen_ns
    }

    fn add(&mut self, other: &ThreadTimes) {
        for (sum, ns) in self.ns.iter_mut().zip(other.ns) {
            *sum += ns;
        }
        self.unseen_ns += other.unseen_ns;
    }
}

/// A wait or interruption in progress: who had the CPU for how long in it.
#[derive(Default)]
struct Spell {
    doing: Option<Doing>,
    takers: Vec<(Thief, u64)>,
}

/// A thread under observation.
#[derive(Default)]
struct Thread {
    did: ThreadTimes,
    spell: Spell,
    /// Unknown time that may turn out to be the last.
    last_unknown_ns: u64,
    seen: bool,
}

/// Tallies the intervals of a target's threads.
pub struct Thieves {
    threads: FxHashMap<Tid, Thread>,
    taken: FxHashMap<(Thief, Doing), TakenTime>,
    windows: Windows,
    /// Time on each CPU in which a thread of the target was current, in nanoseconds.
    tasks: BTreeMap<u16, u64>,
    steal: BTreeMap<u16, u64>,
    wakes: BTreeMap<Waker, u64>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThievesTotals {
    /// Time of each thread by activity.
    pub threads: Vec<(Tid, ThreadTimes)>,
    /// Time of all threads together.
    pub all: ThreadTimes,
    /// Time taken, by thief and by the thread's state: [`Doing::Runnable`] behind it, nominally running
    /// ([`Doing::Interrupted`]), [`Doing::Throttled`] or [`Doing::Stopped`]. The largest first.
    pub taken: Vec<(Thief, Doing, TakenTime)>,
    /// The windows in which a thread was denied most, worst first.
    pub windows: Vec<Window>,
    /// Time in which the target's threads were current on each CPU, in nanoseconds.
    pub tasks: BTreeMap<u16, u64>,
    /// Time that the hypervisor took from each CPU, whatever ran there, in nanoseconds.
    pub steal: BTreeMap<u16, u64>,
    /// How often each waker woke a thread of the target.
    pub wakes: BTreeMap<Waker, u64>,
}

impl Thieves {
    /// Tallies with the `windows` worst windows of time, `window_ns` each unless a wait spans several.
    pub fn new(windows: usize, window_ns: u64) -> Thieves {
        Thieves {
            threads: FxHashMap::default(),
            taken: FxHashMap::default(),
            windows: Windows::new(windows, window_ns),
            tasks: BTreeMap::new(),
            steal: BTreeMap::new(),
            wakes: BTreeMap::new(),
        }
    }

    /// Processes the next interval of a thread.
    pub fn on(&mut self, tid: Tid, interval: &Interval) {
        let thread = self.threads.entry(tid).or_default();
        let ns = interval.ns();
        if thread.spell.doing.is_some_and(|doing| doing != interval.doing) {
            end(&mut thread.spell, &mut self.taken);
        }
        if interval.doing == Doing::Unknown {
            thread.last_unknown_ns += ns;
            self.windows.on(tid, interval);
            return;
        }
        let unknown_ns = std::mem::take(&mut thread.last_unknown_ns);
        if thread.seen {
            thread.did.ns[Doing::Unknown as usize] += unknown_ns;
        } else {
            thread.did.unseen_ns += unknown_ns;
            thread.seen = true;
        }
        thread.did.ns[interval.doing as usize] += ns;
        let thief = match (interval.doing, interval.taker) {
            (Doing::Interrupted | Doing::Runnable, Some(taker)) => Some(Thief::Taker(taker)),
            (Doing::Interrupted | Doing::Runnable, None) => Some(Thief::Somebody),
            (Doing::Throttled, _) => Some(Thief::Quota),
            (Doing::Stopped, _) => Some(Thief::Stop),
            _ => None,
        };
        if let Some(thief) = thief {
            thread.spell.doing = Some(interval.doing);
            match thread.spell.takers.iter_mut().find(|taker| taker.0 == thief) {
                Some((_, sum_ns)) => *sum_ns += ns,
                None => thread.spell.takers.push((thief, ns)),
            }
            if let Some(cpu) = interval.cpu {
                *self.taken.entry((thief, interval.doing)).or_default().cpus.entry(cpu).or_default() += ns;
            }
        }
        if let (Doing::Running | Doing::Interrupted, Some(cpu)) = (interval.doing, interval.cpu) {
            *self.tasks.entry(cpu).or_default() += ns;
        }
        self.windows.on(tid, interval);
    }

    /// Counts a wake-up of a target's thread. Its waker cooperates with the target, or works for it.
    pub fn woken(&mut self, woken: &Woken) {
        *self.wakes.entry(woken.by).or_default() += 1;
    }

    /// Counts time that the hypervisor took from a CPU.
    pub fn steal(&mut self, cpu: u16, ns: u64) {
        *self.steal.entry(cpu).or_default() += ns;
    }

    /// Returns the totals.
    pub fn finish(self) -> ThievesTotals {
        let Thieves { threads, mut taken, windows, tasks, steal, wakes } = self;
        let mut all = ThreadTimes::default();
        let mut done: Vec<(Tid, ThreadTimes)> = Vec::with_capacity(threads.len());
        for (tid, mut thread) in threads {
            end(&mut thread.spell, &mut taken);
            thread.did.unseen_ns += thread.last_unknown_ns;
            all.add(&thread.did);
            done.push((tid, thread.did));
        }
        done.sort_unstable_by_key(|(tid, _)| *tid);
        let mut taken: Vec<(Thief, Doing, TakenTime)> =
            taken.into_iter().map(|((thief, doing), taken)| (thief, doing, taken)).collect();
        taken.sort_unstable_by_key(|(thief, doing, taken)| {
            (std::cmp::Reverse(taken.total_ns), *thief, *doing)
        });
        ThievesTotals { threads: done, all, taken, windows: windows.finish(), tasks, steal, wakes }
    }
}

/// Closes a wait or an interruption.
fn end(spell: &mut Spell, taken: &mut FxHashMap<(Thief, Doing), TakenTime>) {
    let Some(doing) = spell.doing.take() else { return };
    for (thief, ns) in spell.takers.drain(..) {
        let taken = taken.entry((thief, doing)).or_default();
        taken.total_ns += ns;
        taken.count += 1;
        taken.longest_ns = taken.longest_ns.max(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET_RX: Taker = Taker::Softirq { vector: 3, device: 2, own: false };

    fn intervals(from: &[(u64, Doing, Option<Taker>)]) -> Vec<Interval> {
        let mut from_ns = 0;
        let next = |(to_ns, doing, taker): &(u64, Doing, Option<Taker>)| {
            let cpu = (!matches!(doing, Doing::Blocked | Doing::Stopped | Doing::Unknown)).then_some(1);
            let interval = Interval { from_ns, to_ns: *to_ns, doing: *doing, taker: *taker, cpu };
            from_ns = *to_ns;
            interval
        };
        from.iter().map(next).collect()
    }

    #[test]
    fn sums_are_exact_and_a_wait_counts_once_for_each_who_had_the_cpu() {
        let mut thieves = Thieves::new(3, 1000);
        let told = intervals(&[
            (10, Doing::Unknown, None),
            (20, Doing::Running, None),
            (23, Doing::Interrupted, Some(NET_RX)),
            (24, Doing::Interrupted, Some(Taker::Hardirq(crate::event::Irq::Timer))),
            (26, Doing::Interrupted, Some(NET_RX)),
            (30, Doing::Running, None),
            (40, Doing::Runnable, Some(Taker::Task(7))),
            (41, Doing::Runnable, Some(NET_RX)),
            (50, Doing::Runnable, Some(Taker::Task(7))),
            (60, Doing::Running, None),
            (65, Doing::Blocked, None),
            (80, Doing::Stopped, None),
            (81, Doing::Runnable, None),
            (90, Doing::Throttled, None),
            (95, Doing::Unknown, None),
            (96, Doing::Running, None),
            (100, Doing::Unknown, None),
        ]);
        for interval in &told {
            thieves.on(5, interval);
        }
        thieves.steal(1, 4);
        let found = thieves.finish();
        let all = found.all;
        assert_eq!(found.threads, [(5, all)]);
        assert_eq!(all.sum_ns(), 100);
        assert_eq!((all.unseen_ns, all.ns(Doing::Unknown), all.ns(Doing::Running)), (14, 5, 25));
        assert_eq!((all.wanted_ns(), all.denied_ns()), (76, 51));
        assert_eq!(found.taken.iter().map(|(_, _, taken)| taken.total_ns).sum::<u64>(), all.denied_ns());
        let of = |thief, doing| {
            let found = found.taken.iter().find(|taken| (taken.0, taken.1) == (thief, doing));
            let TakenTime { total_ns, count, longest_ns, .. } = found.expect("a thief").2;
            (total_ns, count, longest_ns)
        };
        let net = Thief::Taker(NET_RX);
        assert_eq!(of(Thief::Taker(Taker::Task(7)), Doing::Runnable), (19, 1, 19));
        assert_eq!(of(net, Doing::Interrupted), (5, 1, 5));
        assert_eq!(of(net, Doing::Runnable), (1, 1, 1));
        assert_eq!(of(Thief::Stop, Doing::Stopped), (15, 1, 15));
        assert_eq!(of(Thief::Quota, Doing::Throttled), (9, 1, 9));
        assert_eq!(of(Thief::Somebody, Doing::Runnable), (1, 1, 1));
        assert_eq!(found.taken[0].0, Thief::Taker(Taker::Task(7)));
        assert_eq!(found.taken[0].2.cpus, BTreeMap::from([(1, 19)]));
        assert_eq!(found.tasks, BTreeMap::from([(1, 31)]));
        assert_eq!(found.steal, BTreeMap::from([(1, 4)]));
    }
}
