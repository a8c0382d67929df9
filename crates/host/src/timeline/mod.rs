//! Events -> what each watched thread did, without a hole: intervals that follow one another to the nanosecond.
//!
//! A thread that is let in tells how long it had been on a run queue, so that the time off its CPU splits into what
//! it waited for itself and what it waited for a CPU. The latter is laid against what that CPU did meanwhile.
//!
//! What cannot be known is [`Doing::Unknown`], or a taker of `None`, and nothing else is:
//! - On which CPU's queue a thread waited when it moved between CPUs while it waited: all of the wait is laid against
//!   the CPU that let it in.
//! - When the quota was there again: a wait that was also for quota is [`Doing::Throttled`] from its begin to its end.
//! - What a thread did before it was first seen, unless it ran: it may not have been there yet. And what one that left
//!   its CPU to wait or to stop does at the end: it may be runnable again.
//! - Where events of any CPU were lost: a thread may have run there unseen, so that how it spent a stay off its CPUs
//!   with a loss in it is known only where it was certainly runnable. What was told before the loss was known stays.
//! - Whether a task was interrupted by a softirq that was told neither before the loss nor after. Hardirqs nested in an
//!   interrupt that was, where they were lost: their time is the outer one's.
//! - Interrupts that have not ended at the end: their time is their task's.

mod cpu;
mod occupancy;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use crate::event::{Event, Irq, Left, Tid, What};
pub use occupancy::{Occupancy, OnStretch};

use cpu::Cpu;
use rustc_hash::FxHashMap;
use spangap_model::Doing;
use std::collections::VecDeque;

/// Whether most packets of a softirq are own ones.
fn mostly(own: u32, packets: u32) -> bool {
    own > 0 && own.saturating_mul(2) >= packets
}

/// Who had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Taker {
    /// A thread; 0 is the idle task.
    Task(Tid),
    /// A softirq, of packets of a device (0 for none).
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// Interface.
        device: u32,
        /// Whether most of its packets were for TCP connections of the processes whose sockets are followed.
        own: bool,
    },
    /// An interrupt handler.
    Hardirq(Irq),
}

/// What a thread did from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Begin, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End: the next interval of the thread begins here.
    pub to_ns: u64,
    /// What.
    pub doing: Doing,
    /// Who had the CPU that it ran on, or waited for; `None` where nobody else, or not known.
    pub taker: Option<Taker>,
    pub cpu: Option<u16>,
}

impl Interval {
    pub fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// Stretches of loss that are kept apart; older ones become one.
const LOSSES: usize = 64;

/// A thread, as far as it has been told.
struct Thread {
    /// Its intervals have been told up to here.
    told_ns: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Running there since `told_ns`, or told of it so far.
    On(u16),
    /// It left its CPU at `told_ns`.
    Off(Left),
    /// Not seen before, or out of sight since `told_ns`.
    Unseen,
}

/// Turns events into intervals of the watched threads.
///
/// Memory: 24 bytes for each stretch of the CPUs' past, of which at most 32 Ki are kept of each CPU, and some for each
/// watched thread.
pub struct Timeline<W> {
    began_ns: u64,
    watched: W,
    cpus: Vec<Cpu>,
    threads: FxHashMap<Tid, Thread>,
    /// Begin and end of what was lost, of any CPU.
    losses: VecDeque<(u64, u64)>,
    untold: u64,
}

impl<W: FnMut(Tid) -> bool> Timeline<W> {
    /// Of events from `began_ns` on. `watched` says whose intervals are wanted; it is asked again and again about those
    /// that are not, as a thread may become one that is.
    pub fn new(began_ns: u64, watched: W) -> Timeline<W> {
        Timeline {
            began_ns,
            watched,
            cpus: Vec::new(),
            threads: FxHashMap::default(),
            losses: VecDeque::new(),
            untold: 0,
        }
    }

    /// Takes the next event in order of time, and tells what has become certain by it. The intervals of a thread follow
    /// one another from the begin on without a hole, and none is empty.
    pub fn on(&mut self, event: &Event, each: &mut dyn FnMut(Tid, &Interval)) {
        let at = usize::from(event.cpu);
        while self.cpus.len() <= at {
            self.cpus.push(Cpu::new(self.began_ns));
        }
        let time_ns = event.time_ns.max(self.cpus[at].seen_ns);
        match event.what {
            What::Switch { prev, left, next, waited_ns, throttled } => {
                match self.cpus[at].task {
                    None => self.cpus[at].learn(prev),
                    Some(task) if task != prev => {
                        self.untold += 1;
                        self.lose(event.cpu, self.cpus[at].seen_ns, time_ns, each);
                        self.cpus[at].learn(prev);
                    }
                    Some(_) => {}
                }
                self.cpus[at].go_on(time_ns);
                if self.is_watched(prev) {
                    self.leave(prev, event.cpu, time_ns, left, each);
                }
                self.cpus[at].switch(next, time_ns);
                if self.is_watched(next) {
                    self.come_in(next, event.cpu, time_ns, waited_ns, throttled, each);
                }
            }
            What::Softirq { vector, device, packets, own, began_ns } => {
                let own = mostly(own, packets);
                self.cpus[at].interrupt(Taker::Softirq { vector, device, own }, began_ns, time_ns);
                // Softirqs do not nest, and hardirqs do not enclose them.
                self.settle(event.cpu, each);
            }
            What::Hardirq { irq, began_ns } => {
                self.cpus[at].interrupt(Taker::Hardirq(irq), began_ns, time_ns);
                if self.cpus[at].is_overdue() {
                    self.settle(event.cpu, each);
                }
            }
            What::Lost { since_ns, .. } => {
                let since_ns = since_ns.clamp(self.began_ns, time_ns);
                self.lose(event.cpu, since_ns, time_ns, each);
                self.remember_loss(since_ns, time_ns);
            }
            What::Woken(_) | What::Arrived(_) | What::Read { .. } | What::Wrote { .. } => {}
            // Looked up from outside: it says nothing about the CPU's task.
            What::Steal { .. } => return,
        }
        self.cpus[at].seen_ns = time_ns;
    }

    /// Switches that nobody told of, not even as a loss, so far: a CPU was left by another task than had come in. There
    /// are kernels that do not let certain threads be traced.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Tells the rest, up to `end_ns` for every thread that has not ended before. A thread's intervals end with it.
    pub fn finish(mut self, end_ns: u64, each: &mut dyn FnMut(Tid, &Interval)) {
        let end_ns = self.cpus.iter().map(|cpu| cpu.seen_ns).fold(end_ns, u64::max);
        let mut threads: Vec<(Tid, Thread)> = std::mem::take(&mut self.threads).into_iter().collect();
        threads.sort_unstable_by_key(|(tid, _)| *tid);
        for (tid, mut thread) in threads {
            match thread.state {
                State::On(cpu) => {
                    self.cpus[usize::from(cpu)].go_on(end_ns);
                    self.ran(tid, &mut thread, cpu, end_ns, each);
                }
                State::Off(Left::Ended) => {}
                State::Off(_) | State::Unseen => self.was_off(tid, &mut thread, end_ns, false, each),
            }
        }
    }

    fn is_watched(&mut self, tid: Tid) -> bool {
        tid != 0 && (self.threads.contains_key(&tid) || (self.watched)(tid))
    }

    fn thread(&mut self, tid: Tid) -> Thread {
        self.threads.remove(&tid).unwrap_or(Thread { told_ns: self.began_ns, state: State::Unseen })
    }

    /// A thread leaves its CPU.
    fn leave(&mut self, tid: Tid, cpu: u16, time_ns: u64, left: Left, each: &mut dyn FnMut(Tid, &Interval)) {
        let mut thread = self.thread(tid);
        match thread.state {
            // It has been let in elsewhere already: that is the later news.
            State::On(other) if other != cpu => {}
            State::On(_) | State::Off(_) | State::Unseen => {
                if thread.state != State::On(cpu) {
                    // How it came in was not seen.
                    let since_ns = self.cpus[usize::from(cpu)].since_ns;
                    self.was_off(tid, &mut thread, since_ns, false, each);
                }
                self.ran(tid, &mut thread, cpu, time_ns, each);
                thread.state = State::Off(left);
            }
        }
        self.threads.insert(tid, thread);
    }

    /// A thread is let in.
    fn come_in(
        &mut self,
        tid: Tid,
        cpu: u16,
        time_ns: u64,
        waited_ns: u64,
        throttled: bool,
        each: &mut dyn FnMut(Tid, &Interval),
    ) {
        if let Some(Thread { state: State::On(old), .. }) = self.threads.get(&tid) {
            // It left its old CPU unseen, after that was last heard of.
            let old = *old;
            self.lose(old, self.cpus[usize::from(old)].seen_ns, time_ns, each);
        }
        let mut thread = self.thread(tid);
        let mut waited_from_ns = time_ns.saturating_sub(waited_ns).max(thread.told_ns);
        let mut throttled = throttled;
        if let State::Off(left @ (Left::Runnable | Left::Throttled)) = thread.state
            && self.first_loss(thread.told_ns, waited_from_ns).is_none()
        {
            // It did nothing but wait, whatever the clocks of the run queues say.
            waited_from_ns = thread.told_ns;
            throttled |= left == Left::Throttled;
        }
        self.was_off(tid, &mut thread, waited_from_ns, true, each);
        if throttled {
            tell(tid, &mut thread, time_ns, Doing::Throttled, None, Some(cpu), each);
        } else {
            self.cpus[usize::from(cpu)].past(thread.told_ns, time_ns, |_, to_ns, taker| {
                tell(tid, &mut thread, to_ns, Doing::Runnable, taker, Some(cpu), each);
            });
        }
        thread.told_ns = thread.told_ns.max(time_ns);
        thread.state = State::On(cpu);
        self.threads.insert(tid, thread);
    }

    /// Tells of a thread off its CPUs until it was runnable for the last time (`waited`), or seen again.
    fn was_off(
        &self,
        tid: Tid,
        thread: &mut Thread,
        to_ns: u64,
        waited: bool,
        each: &mut dyn FnMut(Tid, &Interval),
    ) {
        if to_ns <= thread.told_ns {
            return;
        }
        let loss = self.first_loss(thread.told_ns, to_ns);
        let (doing, until_ns) = match thread.state {
            // Only an end of the wait that is not seen can be a loss's.
            State::Off(Left::Runnable) => (Doing::Runnable, loss.unwrap_or(to_ns)),
            State::Off(Left::Throttled) => (Doing::Throttled, loss.unwrap_or(to_ns)),
            State::Off(Left::Blocked) if waited && loss.is_none() => (Doing::Blocked, to_ns),
            State::Off(Left::Stopped) if waited && loss.is_none() => (Doing::Stopped, to_ns),
            _ => (Doing::Unknown, to_ns),
        };
        tell(tid, thread, until_ns, doing, None, None, each);
        tell(tid, thread, to_ns, Doing::Unknown, None, None, each);
    }

    /// Tells of a thread on a CPU.
    fn ran(&self, tid: Tid, thread: &mut Thread, cpu: u16, to_ns: u64, each: &mut dyn FnMut(Tid, &Interval)) {
        self.cpus[usize::from(cpu)].past(thread.told_ns, to_ns, |_, to_ns, taker| match taker {
            Some(Taker::Task(task)) if task == tid => {
                tell(tid, thread, to_ns, Doing::Running, None, Some(cpu), each);
            }
            Some(Taker::Softirq { .. } | Taker::Hardirq(_)) => {
                tell(tid, thread, to_ns, Doing::Interrupted, taker, Some(cpu), each);
            }
            Some(Taker::Task(_)) | None => {
                tell(tid, thread, to_ns, Doing::Unknown, None, Some(cpu), each);
            }
        });
    }

    /// What a CPU did so far will not change any more: its task's share of it is told.
    fn settle(&mut self, cpu: u16, each: &mut dyn FnMut(Tid, &Interval)) {
        let at = usize::from(cpu);
        let to_ns = self.cpus[at].settle();
        let Some(tid) = self.cpus[at].task else { return };
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        if thread.state == State::On(cpu) {
            self.ran(tid, &mut thread, cpu, to_ns, each);
        }
        self.threads.insert(tid, thread);
    }

    /// What a CPU did between two moments was not seen.
    fn lose(&mut self, cpu: u16, from_ns: u64, to_ns: u64, each: &mut dyn FnMut(Tid, &Interval)) {
        let at = usize::from(cpu);
        let from_ns = from_ns.max(self.cpus[at].seen_ns).min(to_ns);
        let task = self.cpus[at].task;
        self.cpus[at].lose(from_ns, to_ns);
        let Some(tid) = task else { return };
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        if thread.state == State::On(cpu) {
            self.ran(tid, &mut thread, cpu, from_ns, each);
            thread.state = State::Unseen;
        }
        self.threads.insert(tid, thread);
    }

    fn remember_loss(&mut self, from_ns: u64, to_ns: u64) {
        self.losses.push_back((from_ns, to_ns));
        if self.losses.len() > LOSSES {
            let oldest = self.losses.pop_front();
            if let (Some(oldest), Some(next)) = (oldest, self.losses.front_mut()) {
                *next = (oldest.0.min(next.0), oldest.1.max(next.1));
            }
        }
    }

    /// Begin of the first loss in a stretch of time, if there is one. A thread may come and go in no time.
    fn first_loss(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let within = self.losses.iter().filter(|loss| loss.0 <= to_ns && loss.1 >= from_ns);
        within.map(|loss| loss.0.max(from_ns)).min()
    }
}

/// Tells of a thread up to a moment.
fn tell(
    tid: Tid,
    thread: &mut Thread,
    to_ns: u64,
    doing: Doing,
    taker: Option<Taker>,
    cpu: Option<u16>,
    each: &mut dyn FnMut(Tid, &Interval),
) {
    if to_ns > thread.told_ns {
        each(tid, &Interval { from_ns: thread.told_ns, to_ns, doing, taker, cpu });
        thread.told_ns = to_ns;
    }
}
