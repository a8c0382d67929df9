//! Threads created during a recording, and their creators.
//!
//! A server that starts a thread for each connection accepts the connection on another one. Until the new
//! thread exists, the call is in the hands of its creator, and a creator that is stopped, throttled or kept
//! from the CPU delays the call. The stream of events does not name the creator: it is the thread of the same
//! process that ran when the new one became runnable.

use crate::event::{Event, Left, Tid, What};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// Maximum number of births kept: those of the threads created first.
const MOST: usize = 200_000;
/// Task changes remembered per CPU: a new thread may wait for a while before it first runs.
const REMEMBERED: usize = 64;

/// A thread that was created.
#[derive(Clone, Debug)]
struct Birth {
    /// When it became runnable.
    at_ns: u64,
    /// Threads that were running then, on any CPU.
    beside: Vec<Tid>,
}

/// Detects new threads among those that are switched to.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Threads that have run or slept before.
    known: FxHashSet<Tid>,
    /// Tasks of each CPU, with the start of their turns.
    turns: Vec<VecDeque<(u64, Tid)>>,
    births: FxHashMap<Tid, Vec<Birth>>,
    kept: usize,
}

impl Births {
    /// Processes one event; events come in order of time.
    pub(super) fn on(&mut self, event: &Event) {
        match event.what {
            // A thread that slept existed before.
            What::Woken(woken) => {
                self.known.insert(woken.tid);
            }
            What::Switch { prev, left, next, waited_ns, .. } => {
                let cpu = usize::from(event.cpu);
                while self.turns.len() <= cpu {
                    self.turns.push(VecDeque::new());
                }
                let entered = self.turns[cpu].back().is_some_and(|(_, task)| *task == prev);
                match left {
                    Left::Ended => {
                        self.known.remove(&prev);
                    }
                    // It is known since its turn began.
                    _ if entered => {}
                    _ => {
                        self.known.insert(prev);
                    }
                }
                if next != 0 && self.known.insert(next) {
                    self.born(next, event.time_ns.saturating_sub(waited_ns));
                }
                let turns = &mut self.turns[cpu];
                if turns.is_empty() {
                    turns.push_back((0, prev));
                }
                if turns.len() >= REMEMBERED {
                    turns.pop_front();
                }
                turns.push_back((event.time_ns, next));
            }
            _ => {}
        }
    }

    fn born(&mut self, tid: Tid, at_ns: u64) {
        if self.kept >= MOST {
            return;
        }
        let task = |turns: &VecDeque<(u64, Tid)>| {
            let turn = turns.iter().rev().find(|(since_ns, _)| *since_ns < at_ns)?;
            Some(turn.1).filter(|task| *task != 0)
        };
        let beside = self.turns.iter().filter_map(task).collect();
        self.births.entry(tid).or_default().push(Birth { at_ns, beside });
        self.kept += 1;
    }

    /// When a thread that was active at some moment had been created, and by which thread; `None` if it
    /// existed before the recording, or if its creator is uncertain.
    pub(super) fn before(
        &self,
        tid: Tid,
        ns: u64,
        process_of: &dyn Fn(Tid) -> Option<u32>,
    ) -> Option<(Tid, u64)> {
        let birth = self.births.get(&tid)?.iter().rev().find(|birth| birth.at_ns <= ns)?;
        let process = process_of(tid)?;
        let mut creators = birth.beside.iter().filter(|other| process_of(**other) == Some(process));
        let creator = creators.next().filter(|creator| **creator != tid)?;
        creators.next().is_none().then_some((*creator, birth.at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Sleep, Waker, Woken};

    fn switch(time_ns: u64, cpu: u16, prev: Tid, left: Left, next: Tid, waited_ns: u64) -> Event {
        Event { time_ns, cpu, what: What::Switch { prev, left, next, waited_ns, throttled: false } }
    }

    /// Threads 10 to 19 belong to one process, 20 to 29 to another.
    fn process_of(tid: Tid) -> Option<u32> {
        Some(tid / 10 * 10)
    }

    fn births(events: &[Event]) -> Births {
        let mut births = Births::default();
        events.iter().for_each(|event| births.on(event));
        births
    }

    #[test]
    fn the_creator_is_the_one_thread_of_the_process_that_ran_when_the_new_one_became_runnable() {
        // 10 runs on CPU 0 from 100 to 900, 20 on CPU 1. 11 is runnable from 500 on, and gets CPU 0.
        let begun = [switch(100, 0, 0, Left::Runnable, 10, 0), switch(150, 1, 0, Left::Runnable, 20, 0)];
        let new = switch(900, 0, 10, Left::Blocked, 11, 400);
        let of = births(&[begun[0], begun[1], new]);
        assert_eq!(of.before(11, 1_000, &process_of), Some((10, 500)));
        assert_eq!(of.before(11, 400, &process_of), None, "that was another thread of this number");
        // Either of two threads of the process may be the creator.
        let sibling = switch(200, 1, 20, Left::Blocked, 12, 0);
        assert_eq!(births(&[begun[0], begun[1], sibling, new]).before(11, 1_000, &process_of), None);
    }

    #[test]
    fn a_thread_that_slept_is_not_new_and_one_with_a_number_that_has_become_free_is() {
        let sleep = Sleep { stack: None, uninterruptible: false, as_for_a_lock: false };
        let woken = Woken { tid: 11, since_ns: 50, sleep, by: Waker::Task(10) };
        let woken = Event { time_ns: 500, cpu: 0, what: What::Woken(woken) };
        let begun = switch(100, 0, 0, Left::Runnable, 10, 0);
        let new = switch(900, 0, 10, Left::Blocked, 11, 400);
        assert_eq!(births(&[begun, woken, new]).before(11, 1_000, &process_of), None);
        let ended = [switch(1_000, 0, 11, Left::Ended, 10, 0), switch(2_000, 0, 10, Left::Blocked, 11, 300)];
        let of = births(&[begun, woken, new, ended[0], ended[1]]);
        assert_eq!(of.before(11, 3_000, &process_of), Some((10, 1_700)));
    }
}
