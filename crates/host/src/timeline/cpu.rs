//! The recent past of one CPU: who had it, without gaps, in bounded memory.

use super::Taker;
use crate::event::Tid;
use std::collections::VecDeque;

/// Maximum number of past intervals per CPU, 24 bytes each. Earlier takers are forgotten.
const KEPT: usize = 1 << 15;
/// Maximum number of intervals that may wait for an enclosing softirq to end. A softirq is interrupted by
/// fewer hardirqs than that.
const UNSETTLED: usize = 1 << 10;

#[derive(Clone, Copy)]
struct Stretch {
    /// It ends where the next one begins.
    from_ns: u64,
    /// `None`: not known.
    taker: Option<Taker>,
}

/// One CPU's past and present.
pub(super) struct Cpu {
    stretches: VecDeque<Stretch>,
    /// End of the last interval.
    to_ns: u64,
    /// Its task; `None` if unknown.
    pub task: Option<Tid>,
    /// Since when it has had this task; if the task is unknown, since when it has been the same.
    pub since_ns: u64,
    /// Time of its last event: `task` had it at least until then.
    pub seen_ns: u64,
    /// Interrupts that have yet to be reported began no earlier than this.
    settled_ns: u64,
    /// Stretches since then.
    unsettled: usize,
}

impl Cpu {
    /// A CPU about which nothing is known except when the observation began.
    pub fn new(began_ns: u64) -> Cpu {
        Cpu {
            stretches: VecDeque::new(),
            to_ns: began_ns,
            task: None,
            since_ns: began_ns,
            seen_ns: began_ns,
            settled_ns: began_ns,
            unsettled: 0,
        }
    }

    /// Its task, known or not, continues until `to_ns`.
    pub fn go_on(&mut self, to_ns: u64) {
        self.push(self.task.map(Taker::Task), to_ns);
    }

    /// Another task comes in.
    pub fn switch(&mut self, next: Tid, time_ns: u64) {
        self.go_on(time_ns);
        self.task = Some(next);
        self.since_ns = time_ns;
        self.settle();
    }

    /// An interrupt has ended. Those nested in it have been reported before, and keep their time.
    pub fn interrupt(&mut self, taker: Taker, began_ns: u64, end_ns: u64) {
        let began_ns = began_ns.max(self.settled_ns);
        if began_ns >= self.to_ns {
            self.go_on(began_ns);
        } else {
            self.relabel(began_ns, Some(taker));
        }
        self.push(Some(taker), end_ns);
        if self.task.is_none() {
            // An interrupt does not outlast a task's turn.
            self.since_ns = self.since_ns.min(began_ns);
        }
    }

    /// Everything reported so far is final; returns where that ends.
    pub fn settle(&mut self) -> u64 {
        self.settled_ns = self.to_ns;
        self.unsettled = 0;
        self.to_ns
    }

    /// Whether too much is waiting to be settled.
    pub fn is_overdue(&self) -> bool {
        self.unsettled > UNSETTLED
    }

    /// Stretches kept.
    #[cfg(test)]
    pub fn stretches(&self) -> usize {
        self.stretches.len()
    }

    /// The identity of its task becomes known.
    pub fn learn(&mut self, task: Tid) {
        debug_assert!(self.task.is_none());
        self.task = Some(task);
        self.relabel(self.since_ns, Some(Taker::Task(task)));
    }

    /// What it did between two moments was not seen, and its task since then is unknown.
    pub fn lose(&mut self, from_ns: u64, to_ns: u64) {
        self.go_on(from_ns);
        // A softirq may have begun before, and its end may be among the losses.
        self.relabel(self.settled_ns, None);
        self.settle();
        self.task = None;
        self.push(None, to_ns);
        self.since_ns = self.to_ns;
    }

    /// Who had it between two moments, in order and without gaps; `None` where that is unknown.
    pub fn past(&self, from_ns: u64, to_ns: u64, mut each: impl FnMut(u64, u64, Option<Taker>)) {
        // Most queries look back only a little.
        let mut first = self.stretches.len();
        while first > 0 && self.stretches[first - 1].from_ns > from_ns {
            first -= 1;
        }
        first = first.saturating_sub(1);
        let mut at = from_ns;
        let mut tell = |until: u64, taker| {
            let until = until.min(to_ns);
            if until > at {
                each(at, until, taker);
                at = until;
            }
        };
        tell(self.stretches.get(first).map_or(to_ns, |oldest| oldest.from_ns), None);
        for index in first..self.stretches.len() {
            let end = self.stretches.get(index + 1).map_or(self.to_ns, |next| next.from_ns);
            tell(end, self.stretches[index].taker);
        }
        tell(to_ns, None);
    }

    fn push(&mut self, taker: Option<Taker>, to_ns: u64) {
        if to_ns <= self.to_ns {
            return;
        }
        if self.stretches.back().is_none_or(|last| last.taker != taker) {
            if self.stretches.len() == KEPT {
                self.stretches.pop_front();
            }
            self.stretches.push_back(Stretch { from_ns: self.to_ns, taker });
            self.unsettled += 1;
        }
        self.to_ns = to_ns;
    }

    /// What was taken for the task's time from `from_ns` on belonged to another taker.
    fn relabel(&mut self, from_ns: u64, taker: Option<Taker>) {
        let is_task = |stretch: &Stretch| matches!(stretch.taker, None | Some(Taker::Task(_)));
        let mut at = self.stretches.len();
        while at > 0 && self.stretches[at - 1].from_ns >= from_ns {
            at -= 1;
            if is_task(&self.stretches[at]) {
                self.stretches[at].taker = taker;
            }
        }
        let end_ns = self.stretches.get(at).map_or(self.to_ns, |next| next.from_ns);
        if at > 0 && end_ns > from_ns && is_task(&self.stretches[at - 1]) {
            self.stretches.insert(at, Stretch { from_ns, taker });
        }
    }
}
