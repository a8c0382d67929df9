//! Who had the CPUs while the threads of a process wanted them: sums over the intervals of its threads.

mod cpu_use;
mod windows;

pub use cpu_use::{CpuUse, CpusUsed, Occupied};
pub use windows::{Piece, Window};

use crate::event::{Tid, Waker, Woken};
use crate::timeline::{Interval, Taker};
use rustc_hash::FxHashMap;
use spangap_model::Doing;
use std::collections::BTreeMap;
use windows::Windows;

/// Who or what kept a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thief {
    /// It had the CPU.
    Taker(Taker),
    /// The thread waited for a CPU, but who had that one is not known (any more).
    Somebody,
    /// The quota of its cgroup was used up.
    Quota,
    /// A signal or a debugger stopped it.
    Stop,
}

/// What a thief took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Nanoseconds of the threads' time.
    pub total_ns: u64,
    /// How often: waits in which it had the CPU, and stretches that it took out of a thread's running.
    pub count: u64,
    /// The most it took in one wait, or in one interruption, nanoseconds.
    pub longest_ns: u64,
    /// Nanoseconds on each CPU; of throttling, where the thread came in afterwards.
    pub cpus: BTreeMap<u16, u64>,
}

/// What one thread did, or all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Nanoseconds, in the order of [`Doing::ALL`].
    ns: [u64; Doing::ALL.len()],
    /// Nanoseconds before it was first seen, or after it was last seen asleep.
    pub unseen_ns: u64,
}

impl Did {
    /// Nanoseconds spent so; unknown ones but for those of [`Did::unseen_ns`].
    pub fn ns(&self, doing: Doing) -> u64 {
        self.ns[doing as usize]
    }

    /// Nanoseconds in which it did not wait for anything but the CPU.
    pub fn wanted_ns(&self) -> u64 {
        self.ns(Doing::Running) + self.denied_ns()
    }

    /// Nanoseconds in which it could have run, had nobody kept it.
    pub fn denied_ns(&self) -> u64 {
        [Doing::Interrupted, Doing::Runnable, Doing::Throttled, Doing::Stopped]
            .iter()
            .map(|doing| self.ns(*doing))
            .sum()
    }

    /// All nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.ns.iter().sum::<u64>() + self.unseen_ns
    }

    fn add(&mut self, other: &Did) {
        for (sum, ns) in self.ns.iter_mut().zip(other.ns) {
            *sum += ns;
        }
        self.unseen_ns += other.unseen_ns;
    }
}

/// A wait, or an interruption, that goes on: who had the CPU how long in it.
#[derive(Default)]
struct Spell {
    doing: Option<Doing>,
    takers: Vec<(Thief, u64)>,
}

/// A thread while it is looked at.
#[derive(Default)]
struct Thread {
    did: Did,
    spell: Spell,
    /// Unknown time that may turn out to be the last.
    last_unknown_ns: u64,
    seen: bool,
}

/// Adds up the intervals of the threads of a target.
pub struct Thieves {
    threads: FxHashMap<Tid, Thread>,
    taken: FxHashMap<(Thief, Doing), Taken>,
    windows: Windows,
    /// Nanoseconds on each CPU in which a thread of the target was its task.
    tasks: BTreeMap<u16, u64>,
    steal: BTreeMap<u16, u64>,
    wakes: BTreeMap<Waker, u64>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What each thread did, by its number.
    pub threads: Vec<(Tid, Did)>,
    /// All of them together.
    pub all: Did,
    /// Who kept them from running, and from what: [`Doing::Runnable`] behind it, nominally running
    /// ([`Doing::Interrupted`]), [`Doing::Throttled`] or [`Doing::Stopped`]. Who took most first.
    pub taken: Vec<(Thief, Doing, Taken)>,
    /// The stretches of time in which a thread was denied most, worst first.
    pub windows: Vec<Window>,
    /// Nanoseconds in which the target's threads were the tasks of each CPU.
    pub tasks: BTreeMap<u16, u64>,
    /// Nanoseconds that the hypervisor took from each CPU, whoever ran there.
    pub steal: BTreeMap<u16, u64>,
    /// How often each waker woke a thread of the target.
    pub wakes: BTreeMap<Waker, u64>,
}

impl Thieves {
    /// Keeps the `windows` worst stretches of time, `window_ns` each unless a wait goes on from one to the
    /// next.
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

    /// Takes the next interval of a thread.
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

    /// A thread of the target was woken. Who does that works with the target, or for it.
    pub fn woken(&mut self, woken: &Woken) {
        *self.wakes.entry(woken.by).or_default() += 1;
    }

    /// The hypervisor took time from a CPU.
    pub fn steal(&mut self, cpu: u16, ns: u64) {
        *self.steal.entry(cpu).or_default() += ns;
    }

    /// The sums.
    pub fn finish(self) -> Found {
        let Thieves { threads, mut taken, windows, tasks, steal, wakes } = self;
        let mut all = Did::default();
        let mut done: Vec<(Tid, Did)> = Vec::with_capacity(threads.len());
        for (tid, mut thread) in threads {
            end(&mut thread.spell, &mut taken);
            thread.did.unseen_ns += thread.last_unknown_ns;
            all.add(&thread.did);
            done.push((tid, thread.did));
        }
        done.sort_unstable_by_key(|(tid, _)| *tid);
        let mut taken: Vec<(Thief, Doing, Taken)> =
            taken.into_iter().map(|((thief, doing), taken)| (thief, doing, taken)).collect();
        taken.sort_unstable_by_key(|(thief, doing, taken)| {
            (std::cmp::Reverse(taken.total_ns), *thief, *doing)
        });
        Found { threads: done, all, taken, windows: windows.finish(), tasks, steal, wakes }
    }
}

/// A wait or an interruption is over.
fn end(spell: &mut Spell, taken: &mut FxHashMap<(Thief, Doing), Taken>) {
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
            let Taken { total_ns, count, longest_ns, .. } = found.expect("a thief").2;
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
