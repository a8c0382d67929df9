//! What a thread runs between two sleeps on the same kernel stack, such as page faults one after the other: each costs the
//! thread CPU time as well, to make room, to start the read and to map the page. As long as that is shorter than the sleeps
//! around it, it belongs to them. Whoever works in between, for longer, works for the call.

use super::Key;
use crate::event::{Sleep, Waker};
use crate::timeline::Taker;
use spangap_model::Doing;
use std::collections::BTreeMap;

/// The last sleep of a thread, and what it has run since.
#[derive(Default)]
pub struct SinceSleep {
    sleep: Option<Sleep>,
    slept_ns: u64,
    ran_ns: u64,
    /// By window, and by who had its CPU meanwhile.
    ran: Vec<(usize, Option<Taker>, u64)>,
}

impl SinceSleep {
    /// The thread runs for so long ...
    pub fn runs(&mut self, ns: u64) {
        self.ran_ns += ns;
    }

    /// ... of which so much is in a window.
    pub fn runs_in(&mut self, window: usize, taker: Option<Taker>, ns: u64) {
        if self.sleep.is_some() {
            self.ran.push((window, taker, ns));
        }
    }

    /// The thread has slept for so long. What it ran before becomes part of the sleeps around it, if these are of one kind and
    /// one of them is at least as long.
    pub fn sleeps(&mut self, wait: Option<(Sleep, Waker)>, ns: u64, parts: &mut [BTreeMap<Key, u64>]) {
        // Sleeps that signals may end are for somebody else: a peer, a timer, another thread.
        let wait = wait.filter(|(sleep, _)| sleep.uninterruptible && sleep.stack.is_some());
        let is_between = wait.is_some() && self.sleep == wait.map(|(sleep, _)| sleep);
        if is_between && self.ran_ns <= self.slept_ns.max(ns) {
            for (window, taker, ns) in self.ran.drain(..) {
                let Some(parts) = parts.get_mut(window) else { continue };
                if let Some(plain) = parts.get_mut(&(Doing::Running, taker, None, false)) {
                    *plain = plain.saturating_sub(ns);
                    *parts.entry((Doing::Running, taker, wait, false)).or_insert(0) += ns;
                }
            }
        }
        *self = SinceSleep { sleep: wait.map(|(sleep, _)| sleep), slept_ns: ns, ..SinceSleep::default() };
    }
}
