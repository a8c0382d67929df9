//! Users of given CPUs, whichever threads wanted them.

use crate::event::{Event, What};
use crate::timeline::{Occupancy, Taker};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// One taker's time on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Total, in nanoseconds.
    pub total_ns: u64,
    /// Runs of a task, however often interrupted; runs of an interrupt.
    pub count: u64,
    /// Longest run without its interruptions, in nanoseconds.
    pub longest_ns: u64,
}

/// Users of some CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpusUsed {
    /// Time of each user on each CPU; `None` for an unknown one.
    pub used: BTreeMap<(u16, Option<Taker>), CpuTime>,
    /// Time that the hypervisor took from each CPU, whatever ran there, in nanoseconds.
    pub steal: BTreeMap<u16, u64>,
}

/// Tallies the users of some CPUs.
pub struct CpuUse {
    occupancy: Occupancy,
    sums: Sums,
}

struct Sums {
    wanted: Option<Vec<u16>>,
    /// By CPU; `None` for an unknown user.
    used: FxHashMap<(u16, Option<Taker>), CpuTime>,
    /// The run in progress.
    stays: BTreeMap<u16, (Option<Taker>, u64)>,
    steal: BTreeMap<u16, u64>,
}

impl CpuUse {
    /// Tallies these CPUs, or all, from `began_ns` on.
    pub fn new(began_ns: u64, cpus: Option<Vec<u16>>) -> CpuUse {
        let sums =
            Sums { wanted: cpus, used: FxHashMap::default(), stays: BTreeMap::new(), steal: BTreeMap::new() };
        CpuUse { occupancy: Occupancy::new(began_ns), sums }
    }

    /// Processes the next event.
    pub fn on(&mut self, event: &Event) {
        let CpuUse { occupancy, sums } = self;
        if sums.wanted.as_ref().is_some_and(|cpus| !cpus.contains(&event.cpu)) {
            return;
        }
        if let What::Steal { ns, .. } = event.what {
            *sums.steal.entry(event.cpu).or_default() += ns;
        }
        occupancy.on(event, &mut |cpu, from_ns, to_ns, taker| sums.add(cpu, to_ns - from_ns, taker));
    }

    /// Returns the totals.
    pub fn finish(self, end_ns: u64) -> CpusUsed {
        let CpuUse { occupancy, mut sums } = self;
        occupancy.finish(end_ns, &mut |cpu, from_ns, to_ns, taker| sums.add(cpu, to_ns - from_ns, taker));
        let cpus: Vec<u16> = sums.stays.keys().copied().collect();
        for cpu in cpus {
            sums.end_stay(cpu);
        }
        CpusUsed { used: sums.used.into_iter().collect(), steal: sums.steal }
    }
}

impl Sums {
    fn add(&mut self, cpu: u16, ns: u64, taker: Option<Taker>) {
        let used = self.used.entry((cpu, taker)).or_default();
        used.total_ns += ns;
        if matches!(taker, Some(Taker::Softirq { .. } | Taker::Hardirq(_))) {
            used.count += 1;
            used.longest_ns = used.longest_ns.max(ns);
            return;
        }
        match self.stays.get_mut(&cpu) {
            Some((stay, sum_ns)) if *stay == taker => *sum_ns += ns,
            _ => {
                self.end_stay(cpu);
                self.stays.insert(cpu, (taker, ns));
            }
        }
    }

    fn end_stay(&mut self, cpu: u16) {
        if let Some((taker, ns)) = self.stays.remove(&cpu) {
            let used = self.used.entry((cpu, taker)).or_default();
            used.count += 1;
            used.longest_ns = used.longest_ns.max(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Irq, Left};

    #[test]
    fn every_nanosecond_of_the_cpus_has_a_user() {
        let mut cpu_use = CpuUse::new(0, Some(vec![1]));
        let switch = |time_ns, cpu, prev, next| Event {
            time_ns,
            cpu,
            what: What::Switch { prev, left: Left::Blocked, next, waited_ns: 0, throttled: false },
        };
        let irq =
            |began_ns, time_ns| Event { time_ns, cpu: 1, what: What::Hardirq { irq: Irq::Timer, began_ns } };
        for event in [
            switch(10, 1, 3, 4),
            switch(11, 0, 8, 9),
            irq(15, 17),
            switch(30, 1, 4, 0),
            irq(40, 45),
            switch(50, 1, 0, 6),
            Event { time_ns: 50, cpu: 1, what: What::Steal { ns: 6, since_ns: 0 } },
            Event { time_ns: 60, cpu: 1, what: What::Lost { count: 1, since_ns: 55 } },
        ] {
            cpu_use.on(&event);
        }
        let CpusUsed { used, steal } = cpu_use.finish(100);
        let of = |taker| used[&(1, taker)];
        let occupied = |total_ns, count, longest_ns| CpuTime { total_ns, count, longest_ns };
        assert_eq!(of(Some(Taker::Task(3))), occupied(10, 1, 10));
        assert_eq!(of(Some(Taker::Task(4))), occupied(18, 1, 18));
        assert_eq!(of(Some(Taker::Hardirq(Irq::Timer))), occupied(7, 2, 5));
        assert_eq!(of(Some(Taker::Task(0))).total_ns, 15);
        assert_eq!(of(None).total_ns, 50);
        assert_eq!(used.values().map(|used| used.total_ns).sum::<u64>(), 100);
        assert_eq!(used.len(), 5);
        assert_eq!(steal[&1], 6);
    }
}
