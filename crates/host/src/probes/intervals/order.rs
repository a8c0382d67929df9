//! Events of all CPUs -> one order of time.
//!
//! A program reserves its ring entry before it reads the clock. An event that is in no ring at a given moment
//! will therefore carry a later time, so every event older than that moment, and older than every entry
//! reserved but not yet valid, can be delivered. Events of a softirq may carry its beginning instead: while one runs,
//! only what is older than that can be delivered.

use crate::event::Event;

/// Upper bound of the time until other CPUs see a store, in nanoseconds.
const VISIBLE_AFTER_NS: u64 = 10_000;

/// Holds events back until no older one can arrive.
#[derive(Debug, Default)]
pub(super) struct Order {
    waiting: Vec<Event>,
    /// For each CPU: everything older than this is in `waiting`, or was delivered.
    complete_ns: Vec<u64>,
    handed_over_ns: u64,
    late: u64,
}

impl Order {
    pub fn new(cpus: usize) -> Order {
        Order { complete_ns: vec![0; cpus], ..Order::default() }
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.waiting.push(event);
    }

    /// Declares that all events of `cpu` present at `looked_ns` have been pushed. A softirq that ran then had begun at
    /// `softirq_began`.
    pub fn complete(&mut self, cpu: usize, looked_ns: u64, softirq_began: Option<u64>) {
        let complete_ns = looked_ns.saturating_sub(VISIBLE_AFTER_NS).min(softirq_began.unwrap_or(u64::MAX));
        self.complete_ns[cpu] = self.complete_ns[cpu].max(complete_ns);
    }

    /// Time up to which events have been delivered, for good.
    pub fn settled_ns(&self) -> u64 {
        self.complete_ns.iter().copied().min().unwrap_or(0)
    }

    /// Delivers all settled events, and returns their number.
    pub fn settled(&mut self, on: &mut dyn FnMut(&Event)) -> u64 {
        self.before(self.settled_ns(), on)
    }

    /// Delivers all events up to and including a moment.
    pub fn until(&mut self, end_ns: u64, on: &mut dyn FnMut(&Event)) -> u64 {
        self.before(end_ns.saturating_add(1), on)
    }

    fn before(&mut self, horizon_ns: u64, on: &mut dyn FnMut(&Event)) -> u64 {
        // Nearly sorted runs, one per CPU, which the standard library's sort merges. The sort is stable: a loss
        // stays before the event that reported it.
        self.waiting.sort_by_key(|event| event.time_ns);
        let end = self.waiting.partition_point(|event| event.time_ns < horizon_ns);
        let Some(last) = end.checked_sub(1) else { return 0 };
        self.late += self.waiting[..end].partition_point(|event| event.time_ns < self.handed_over_ns) as u64;
        self.handed_over_ns = self.handed_over_ns.max(self.waiting[last].time_ns);
        self.waiting[..end].iter().for_each(on);
        self.waiting.drain(..end);
        end as u64
    }

    /// Events that arrived after a later one had been delivered; zero by the argument above.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Irq, What};

    fn at(time_ns: u64, cpu: u16) -> Event {
        Event { time_ns, cpu, what: What::Hardirq { irq: Irq::Timer, began_ns: time_ns - 1 } }
    }

    fn times(order: &mut Order) -> Vec<u64> {
        let mut times = Vec::new();
        order.settled(&mut |event| times.push(event.time_ns));
        times
    }

    #[test]
    fn nothing_is_delivered_before_all_cpus_were_polled() {
        let mut order = Order::new(2);
        [at(100, 0), at(300, 0)].into_iter().for_each(|event| order.push(event));
        order.complete(0, 400 + VISIBLE_AFTER_NS, None);
        assert!(times(&mut order).is_empty());
        [at(200, 1), at(350, 1)].into_iter().for_each(|event| order.push(event));
        order.complete(1, 310 + VISIBLE_AFTER_NS, None);
        assert_eq!(times(&mut order), [100, 200, 300]);
        // CPU 1 had reserved an entry that was not valid yet: nothing after 310 is settled.
        order.complete(0, 1000 + VISIBLE_AFTER_NS, None);
        assert!(times(&mut order).is_empty());
        order.push(at(320, 1));
        order.complete(1, 1000 + VISIBLE_AFTER_NS, None);
        assert_eq!(times(&mut order), [320, 350]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn a_softirq_may_still_write_what_is_as_old_as_its_beginning() {
        let mut order = Order::new(1);
        [at(100, 0), at(300, 0)].into_iter().for_each(|event| order.push(event));
        order.complete(0, 1000 + VISIBLE_AFTER_NS, Some(250));
        assert_eq!(times(&mut order), [100]);
        order.push(at(250, 0));
        // The next one has set its mark, but not read the clock yet.
        order.complete(0, 2000 + VISIBLE_AFTER_NS, Some(240));
        assert!(times(&mut order).is_empty());
        order.complete(0, 3000 + VISIBLE_AFTER_NS, None);
        assert_eq!(times(&mut order), [250, 300]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn late_events_are_counted() {
        let mut order = Order::new(1);
        order.push(at(500, 0));
        order.complete(0, 600 + VISIBLE_AFTER_NS, None);
        assert_eq!(times(&mut order), [500]);
        [at(400, 0), at(550, 0)].into_iter().for_each(|event| order.push(event));
        order.complete(0, 700 + VISIBLE_AFTER_NS, None);
        assert_eq!(times(&mut order), [400, 550]);
        assert_eq!(order.late(), 1);
    }
}
