//! The stream of CPU intervals: which thread ran on which CPU, what interrupted it, and what the sockets of
//! some processes did.
//!
//! The programs write events into one ring per CPU (`ring.rs`). Nothing wakes this side; it polls often enough
//! that at a million events per second and CPU no ring fills beyond a half. The program counts events
//! without room, and reports them as [`What::Lost`] at their place in time.

mod attach;
mod decode;
mod load;
mod order;
mod ports;
mod rest;
mod ring;
mod stacks;
mod steal;
mod watched;

use crate::event::{Event, What};
use crate::kernel::ProbeError;
use crate::names::{Names, TaskName};
use crate::probes::cost::{Cost, Watch};
use attach::Attachments;
use decode::{RingEntry, decode};
use order::Order;
use rest::Rest;
use ring::Rings;
use spangap_machine::facts::stat;
use stacks::Stacks;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use steal::Steal;
use watched::WatchedProcesses;

/// Name of the probe in errors.
const PROBE: &str = "intervals";

/// Settings of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Processes whose sockets are followed; if empty, sockets are ignored unless `more_later`.
    pub tgids: Vec<u32>,
    /// Whether [`Intervals::watch`] may name other processes while the stream runs.
    pub more_later: bool,
    /// Capacity of one CPU's ring in events, rounded to a power of two. 0: as many as fit into 64 MiB for all
    /// CPUs, at most 262144.
    pub ring_events: usize,
    /// Whether the sleeps of these processes' threads are recorded.
    pub waits: Waits,
}

/// Whether to record why threads of the watched processes sleep, and what wakes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    #[default]
    No,
    /// In addition to all other events.
    Also,
    /// Instead of all other events.
    Only,
}

/// Counts of events delivered and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events delivered, including those that report losses and stolen time.
    pub events: u64,
    /// Events for which a ring had no room.
    pub lost: u64,
    /// Program runs that the kernel skipped because the same program was already running on that CPU:
    /// unobserved events at an unknown time. Known at the end.
    pub missed: u64,
    /// Events delivered after a later one; zero if the argument in `order.rs` holds.
    pub late: u64,
    /// Ring entries that could not be decoded; zero if both sides are of the same version.
    pub unknown: u64,
    /// Highest fill level of a ring, out of [`Intervals::ring_events`].
    pub fullest: usize,
}

/// A running stream.
pub struct Intervals {
    // Dropped first: a detached program writes no more.
    attachments: Attachments,
    rings: Rings,
    cpus: Vec<Cpu>,
    order: Order,
    names: Names,
    counts: Counts,
    cost: Option<Watch>,
    lacks: Vec<String>,
    stacks: Option<Stacks>,
    steal: Option<Steal>,
    steal_looked: (Instant, u64),
    rest: Rest,
    watched: WatchedProcesses,
    ring_events: usize,
    looks_every: Duration,
    /// Highest fill level of a ring at the last poll.
    fullest_now: usize,
    looked: Instant,
    began_ns: u64,
}

/// Read position in one CPU's ring.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    next: u64,
    last_ns: u64,
    lost: u64,
    /// A thread whose name has arrived, but not yet its cgroup.
    named: Option<(u32, u32, [u8; 16])>,
}

/// Totals of a finished stream.
#[derive(Debug)]
pub struct Ended {
    /// When the programs were detached, in nanoseconds of CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// Event counts.
    pub counts: Counts,
    /// Names of everything that occurred.
    pub names: Names,
}

/// The rings are polled so often that the events of one CPU between two polls fill at most a quarter of its
/// ring; half of it after a quiet time.
const EVENTS_PER_S_OF_A_CPU: u64 = 1_000_000;
/// Lower bound of the polling interval, so that tiny rings do not cost more CPU than they save.
const LOOKS_EVERY_AT_LEAST: Duration = Duration::from_millis(1);
/// Polling interval of stolen time, on machines that report it and on others.
const STEAL_EVERY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl Intervals {
    /// Loads and attaches the programs. Events from now on will be delivered.
    pub fn start(settings: &Settings) -> Result<Intervals, ProbeError> {
        let loaded = load::load(settings)?;
        let began_ns = monotonic_ns();
        // Read once the programs run, so that no thread can start unnoticed in between.
        let names = Names::of_this_host();
        let quarter = (loaded.ring_events / 4) as u64;
        let now = Instant::now();
        let stacks = loaded.stacks.map(Stacks::new);
        let mut lacks = loaded.lacks;
        lacks.extend(stacks.as_ref().and_then(Stacks::why_nameless));
        let steal = Steal::open(Path::new(stat::PATH)).ok();
        Ok(Intervals {
            cpus: vec![Cpu { last_ns: began_ns, ..Cpu::default() }; loaded.rings.cpus()],
            order: Order::new(loaded.rings.cpus()),
            names,
            counts: Counts::default(),
            cost: Watch::new(loaded.attachments.programs()).ok(),
            lacks,
            stacks,
            steal,
            steal_looked: (now, began_ns),
            rest: Rest::default(),
            watched: loaded.watched,
            ring_events: loaded.ring_events,
            looks_every: Duration::from_nanos(quarter * 1_000_000_000 / EVENTS_PER_S_OF_A_CPU)
                .max(LOOKS_EVERY_AT_LEAST),
            fullest_now: 0,
            looked: now,
            began_ns,
            attachments: loaded.attachments,
            rings: loaded.rings,
        })
    }

    /// Start of the recording, in nanoseconds of CLOCK_MONOTONIC.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Time up to which everything has been delivered, in nanoseconds of CLOCK_MONOTONIC.
    pub fn settled_ns(&self) -> u64 {
        self.rest.settled_ns(self.order.settled_ns())
    }

    /// Lets the programs rest, detached from the kernel, or has them record again. The stream says of a rest that what happened in
    /// it is not known: [`What::Lost`] with a count of 0.
    ///
    /// # Errors
    /// A program cannot be attached again.
    pub fn rest(&mut self, resting: bool) -> Result<(), ProbeError> {
        if resting == self.rest.is_on() {
            return Ok(());
        }
        let written = self.written();
        if let Some(cost) = &mut self.cost {
            // They do not run while they rest.
            cost.begin_anew(written);
        }
        if resting {
            self.rings.set_shift(self.rest.begin(monotonic_ns()));
            self.attachments.detach();
            return Ok(());
        }
        self.rings.forget_interrupts();
        self.attachments.attach()?;
        self.rings.set_shift(self.rest.next_shift());
        self.rest.ended(monotonic_ns());
        self.look()
    }

    /// Waits for the next poll, at most for `patience`, drains the rings, and delivers what is settled: in one
    /// order of time over all CPUs and all calls.
    pub fn poll(&mut self, patience: Duration, on: &mut dyn FnMut(&Event)) -> Result<(), ProbeError> {
        let began = Instant::now();
        let due = (self.looked + self.looks_every * self.rests()).min(began + patience);
        let mut now = began;
        while now < due {
            std::thread::park_timeout(due - now);
            now = Instant::now();
        }
        self.looked = now;
        self.look()?;
        let written = self.written();
        if let Some(cost) = &mut self.cost {
            cost.look(written);
        }
        self.counts.events += self.order.settled(on);
        self.counts.late = self.order.late();
        Ok(())
    }

    /// Each poll takes a moment from whoever runs on that CPU: while rings fill slowly, every other one is left out. A sudden
    /// [`EVENTS_PER_S_OF_A_CPU`] then fills half of a ring.
    fn rests(&self) -> u32 {
        if self.fullest_now * 8 <= self.ring_events { 2 } else { 1 }
    }

    /// Follows the sockets of these processes from now on, and no others. Requires [`Settings::more_later`].
    pub fn watch(&mut self, tgids: &BTreeSet<u32>) -> Result<(), ProbeError> {
        self.watched.set(tgids)
    }

    /// Names of everything so far.
    pub fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Event counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of possible CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Capacity of one CPU's ring, in events.
    pub fn ring_events(&self) -> usize {
        self.ring_events
    }

    /// What this kernel cannot report, in sentences.
    pub fn lacks(&self) -> &[String] {
        &self.lacks
    }

    /// Sampled cost of the programs.
    pub fn cost(&mut self) -> Option<Cost> {
        let written = self.written();
        self.cost.as_mut()?.cost(written)
    }

    /// Events that the programs have written so far, read or not, and those for which they found no room.
    pub fn written(&self) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.rings.head(cpu) + self.rings.lost(cpu)).sum()
    }

    /// Detaches the programs and delivers all remaining events.
    pub fn stop(mut self, on: &mut dyn FnMut(&Event)) -> Result<Ended, ProbeError> {
        if self.rest.is_on() {
            self.rest.next_shift();
            self.rest.ended(monotonic_ns());
        }
        let ended_ns = monotonic_ns();
        self.look()?;
        for (cpu, state) in self.cpus.iter_mut().enumerate() {
            // No event follows this moment.
            if let Some(count) = self.rings.lost(cpu).checked_sub(state.lost).filter(|&count| count > 0) {
                let what = What::Lost { count, since_ns: state.last_ns.min(ended_ns) };
                self.order.push(Event { time_ns: ended_ns, cpu: cpu as u16, what });
                state.lost += count;
            }
        }
        self.counts.lost = self.cpus.iter().map(|cpu| cpu.lost).sum();
        // Detaching takes a while, during which more events arrive and may be lost; earlier events still being
        // written are among them.
        self.attachments.detach();
        self.counts.missed = self.cost.as_ref().and_then(|cost| cost.missed().ok()).unwrap_or(0);
        self.drain(ended_ns, false);
        self.counts.events += self.order.until(ended_ns, on);
        self.counts.late = self.order.late();
        Ok(Ended { ended_ns, counts: self.counts, names: self.names })
    }

    /// Drains the rings, and does everything else that is due.
    fn look(&mut self) -> Result<(), ProbeError> {
        let looked_ns = monotonic_ns();
        self.drain(looked_ns, true);
        if let Some((time_ns, what)) = self.rest.piece(looked_ns) {
            (0..self.cpus.len()).for_each(|cpu| self.order.push(Event { time_ns, cpu: cpu as u16, what }));
        }
        self.counts.lost = (0..self.cpus.len()).map(|cpu| self.rings.lost(cpu)).sum();
        self.look_at_steal(looked_ns)
    }

    /// Takes all valid entries out of the rings.
    fn drain(&mut self, looked_ns: u64, tells_losses: bool) {
        self.fullest_now = 0;
        for cpu in 0..self.cpus.len() {
            let softirq_began = self.rings.softirq_began(cpu);
            let head = self.rings.head(cpu);
            let state = &mut self.cpus[cpu];
            self.fullest_now = self.fullest_now.max((head - state.next) as usize);
            while state.next < head {
                let Some(raw) = self.rings.event(cpu, state.next) else { break };
                state.next += 1;
                let told = decode(cpu as u16, &raw);
                if raw.lost > 0 && tells_losses {
                    let count = u64::from(raw.lost);
                    state.lost += count;
                    let what = What::Lost { count, since_ns: state.last_ns };
                    // Names carry no time.
                    let time_ns = if matches!(told, RingEntry::Event(_)) { raw.time_ns } else { looked_ns };
                    self.order.push(Event { time_ns, cpu: cpu as u16, what });
                }
                match told {
                    RingEntry::Event(event) => {
                        if let (What::Woken(woken), Some(stacks)) = (event.what, &self.stacks)
                            && let Some(stack) = woken.sleep.stack
                            && !self.names.has_stack(stack)
                        {
                            self.names.told_stack(stack, stacks.functions(stack));
                        }
                        state.last_ns = event.time_ns;
                        // The first events arrive while programs are still being attached.
                        if event.time_ns >= self.began_ns && !self.rest.covers(event.time_ns) {
                            self.order.push(event);
                        }
                    }
                    RingEntry::Name { tid, tgid, comm } => state.named = Some((tid, tgid, comm)),
                    RingEntry::Group { time_ns, tid, cgroup } => {
                        // A thread whose name found no room, although this entry did, is named again later.
                        if let Some((named, tgid, comm)) = state.named.take()
                            && named == tid
                        {
                            self.names.told_task(time_ns, tid, TaskName::new(&comm, tgid, cgroup));
                        }
                    }
                    RingEntry::Device { id, network, name } => self.names.told_device(id, network, &name),
                    RingEntry::Unknown(_) => self.counts.unknown += 1,
                }
            }
            let next = state.next;
            self.rings.release(cpu, next);
            if next == head {
                self.order.complete(cpu, looked_ns, softirq_began);
            }
        }
        self.counts.fullest = self.counts.fullest.max(self.fullest_now);
    }

    fn look_at_steal(&mut self, now_ns: u64) -> Result<(), ProbeError> {
        let Some(steal) = &mut self.steal else { return Ok(()) };
        let every = STEAL_EVERY[usize::from(!steal.is_known_here())];
        let (looked, since_ns) = self.steal_looked;
        if looked.elapsed() < every {
            return Ok(());
        }
        self.steal_looked = (Instant::now(), now_ns);
        let order = &mut self.order;
        steal
            .look(&mut |grown| {
                let what = What::Steal { ns: grown.ns, since_ns };
                order.push(Event { time_ns: now_ns, cpu: grown.cpu, what });
            })
            .map_err(|source| ProbeError::Io { what: "read /proc/stat".into(), source })
    }
}

/// Now, on the clock of the events.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
