//! Events -> what each watched thread did, without gaps: intervals that follow one another to the nanosecond.
//!
//! When a thread gets a CPU, the event says how long it had been on a run queue, so the time off its CPU
//! splits into its own waiting and waiting for a CPU. The latter is matched with what that CPU did meanwhile.
//!
//! What cannot be known is [`Doing::Unknown`], or a taker of `None`, and nothing else is:
//! - On which CPU's queue a thread waited if it moved between CPUs during the wait: the whole wait is matched
//!   with the CPU that it finally got.
//! - When the quota was available again: a wait that was also for quota is [`Doing::Throttled`] from start to
//!   end.
//! - What a thread did before it was first seen, unless it ran: it may not have existed yet. And what a
//!   thread that left its CPU to wait or to stop does at the end: it may be runnable again.
//! - Where events of any CPU were lost: a thread may have run there unseen, so how it spent a time off its
//!   CPUs that contains a loss is known only where it was certainly runnable. What was reported before the
//!   loss was known stays.
//! - Whether a task was interrupted by a softirq that was reported neither before the loss nor after.
//!   Hardirqs nested in a reported interrupt, if they were lost: their time counts as the outer one's.
//! - Interrupts that have not ended at the end: their time counts as their task's.

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

/// Whether most packets of a softirq are for watched processes.
fn mostly(own: u32, packets: u32) -> bool {
    own > 0 && own.saturating_mul(2) >= packets
}

/// Who had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Taker {
    /// A thread; 0 is the idle task.
    Task(Tid),
    /// A softirq, for packets of a device (0 for none).
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
    /// Start, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End: the thread's next interval begins here.
    pub to_ns: u64,
    /// What.
    pub doing: Doing,
    /// Who had the CPU that it ran on, or waited for; `None` if nobody else had it, or if unknown.
    pub taker: Option<Taker>,
    pub cpu: Option<u16>,
}

impl Interval {
    pub fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// Maximum number of separate losses; older ones are merged.
const LOSSES: usize = 64;

/// A thread, as far as it has been reported.
struct Thread {
    /// Its intervals have been reported up to here.
    told_ns: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Running there since `told_ns`, or reported up to then.
    On(u16),
    /// It left its CPU at `told_ns`.
    Off(Left),
    /// Not seen before, or out of sight since `told_ns`.
    Unseen,
}

/// Turns events into intervals of the watched threads.
///
/// Memory: 24 bytes for each interval of the CPUs' past, of which at most 32 Ki are kept per CPU, and some
/// for each watched thread.
pub struct Timeline<W> {
    began_ns: u64,
    watched: W,
    cpus: Vec<Cpu>,
    threads: FxHashMap<Tid, Thread>,
    /// Start and end of each loss on any CPU.
    losses: VecDeque<(u64, u64)>,
    untold: u64,
}

impl<W: FnMut(Tid) -> bool> Timeline<W> {
    /// For events from `began_ns` on. `watched` says whose intervals are wanted; it is asked repeatedly about
    /// the others, because a thread may become watched.
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

    /// Takes the next event in order of time, and reports what has become certain. The intervals of a thread
    /// follow one another without gaps from its first one on, and none is empty.
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
            // Read from outside: it says nothing about the CPU's task.
            What::Steal { .. } => return,
        }
        self.cpus[at].seen_ns = time_ns;
    }

    /// Number of switches so far that no event reports, not even as a loss: a CPU was left by another task
    /// than had entered. Some kernels do not let certain threads be traced.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Reports the rest, up to `end_ns` for every thread that has not ended before. A thread's intervals end
    /// with it.
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
            // It has already entered another CPU, which is the later event.
            State::On(other) if other != cpu => {}
            State::On(_) | State::Off(_) | State::Unseen => {
                if thread.state != State::On(cpu) {
                    // Its entry was not seen.
                    let since_ns = self.cpus[usize::from(cpu)].since_ns;
                    self.was_off(tid, &mut thread, since_ns, false, each);
                }
                self.ran(tid, &mut thread, cpu, time_ns, each);
                thread.state = State::Off(left);
            }
        }
        self.threads.insert(tid, thread);
    }

    /// A thread gets a CPU.
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
            // It left its old CPU unseen, after that CPU's last event.
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

    /// Reports a thread's time off its CPUs until it was last runnable (`waited`), or seen again.
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
            // Only if the end of the wait was not seen may a loss contain it.
            State::Off(Left::Runnable) => (Doing::Runnable, loss.unwrap_or(to_ns)),
            State::Off(Left::Throttled) => (Doing::Throttled, loss.unwrap_or(to_ns)),
            State::Off(Left::Blocked) if waited && loss.is_none() => (Doing::Blocked, to_ns),
            State::Off(Left::Stopped) if waited && loss.is_none() => (Doing::Stopped, to_ns),
            _ => (Doing::Unknown, to_ns),
        };
        tell(tid, thread, until_ns, doing, None, None, each);
        tell(tid, thread, to_ns, Doing::Unknown, None, None, each);
    }

    /// Reports a thread's time on a CPU.
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

    /// What a CPU did so far is final: its task's part of it is reported.
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
        // A rest of the recorder is a loss of each CPU, in pieces.
        if let Some(last) = self.losses.back_mut().filter(|last| from_ns <= last.1 && to_ns >= last.0) {
            *last = (last.0.min(from_ns), last.1.max(to_ns));
            return;
        }
        self.losses.push_back((from_ns, to_ns));
        if self.losses.len() > LOSSES {
            let oldest = self.losses.pop_front();
            if let (Some(oldest), Some(next)) = (oldest, self.losses.front_mut()) {
                *next = (oldest.0.min(next.0), oldest.1.max(next.1));
            }
        }
    }

    /// Start of the first loss in a time range, if there is one. A thread may come and go in no time.
    fn first_loss(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let within = self.losses.iter().filter(|loss| loss.0 <= to_ns && loss.1 >= from_ns);
        within.map(|loss| loss.0.max(from_ns)).min()
    }
}

/// Reports a thread up to a moment.
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
