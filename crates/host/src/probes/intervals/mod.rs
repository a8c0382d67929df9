//! The stream of CPU intervals: who ran where, what interrupted it, and what the sockets of some processes did.
//!
//! The programs write events into one ring for each CPU (`ring.rs`); nothing wakes this side, which looks often enough
//! that no ring fills beyond a quarter at a million events per second of one CPU. What finds no room is counted by
//! the program and told as [`What::Lost`] at its place in time.

mod decode;
mod load;
mod order;
mod ports;
mod ring;
mod stacks;
mod steal;
mod watched;

use crate::event::{Event, What};
use crate::kernel::ProbeError;
use crate::names::{Names, TaskName};
use crate::probes::cost::{Cost, Watch};
use decode::{Told, decode};
use libbpf_rs::Link;
use order::Order;
use ring::Rings;
use spangap_machine::facts::stat;
use stacks::Stacks;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use steal::Steal;
use watched::Watched;

/// What is wanted of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Processes whose sockets are followed; none: sockets are not looked at, unless `more_later`.
    pub tgids: Vec<u32>,
    /// Whether [`Intervals::watch`] may name other processes while the stream runs.
    pub more_later: bool,
    /// Events that the ring of one CPU holds; made a power of two. 0: as many as fit into 64 MiB for all CPUs, at most
    /// 262144.
    pub ring_events: usize,
    /// Whether the sleeps of these processes' threads are told.
    pub waits: Waits,
}

/// Whether it is told why threads of the watched processes sleep, and who wakes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// No.
    #[default]
    No,
    /// Beside everything else.
    Also,
    /// And nothing else.
    Only,
}

/// What came out of the rings, and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handed over, those that tell of losses and of stolen time included.
    pub events: u64,
    /// Events that the programs found no room for.
    pub lost: u64,
    /// Runs of the programs that the kernel left out because the same one was running already on that CPU: events that
    /// nobody saw, and whose place is not known. Known at the end.
    pub missed: u64,
    /// Events handed over after a later one: none, if the argument in `order.rs` holds.
    pub late: u64,
    /// Places of the rings that could not be understood: none, if both sides are of one version.
    pub unknown: u64,
    /// Most events that were found in one ring at once, of [`Intervals::ring_events`].
    pub fullest: usize,
}

/// A running stream.
pub struct Intervals {
    // Dropped first: what is not attached writes no more.
    links: Vec<Link>,
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
    watched: Watched,
    ring_events: usize,
    looks_every: Duration,
    looked: Instant,
    began_ns: u64,
}

/// How far one CPU's ring has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    next: u64,
    last_ns: u64,
    lost: u64,
    /// A thread that has been named, but not yet its cgroup.
    named: Option<(u32, u32, [u8; 16])>,
}

/// What a stream leaves behind.
#[derive(Debug)]
pub struct Ended {
    /// When the programs were taken away, nanoseconds of CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// What came.
    pub counts: Counts,
    /// Names of everything that came.
    pub names: Names,
}

/// A ring is looked at so often that a quarter of it holds what one CPU makes of events in between.
const EVENTS_PER_S_OF_A_CPU: u64 = 1_000_000;
/// Tiny rings are not worth more of a CPU than this takes.
const LOOKS_EVERY_AT_LEAST: Duration = Duration::from_millis(1);
/// Looks at stolen time, on machines that know it and on others.
const STEAL_EVERY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl Intervals {
    /// Loads and attaches the programs. Events from now on will be handed over.
    pub fn start(settings: &Settings) -> Result<Intervals, ProbeError> {
        let loaded = load::load(settings)?;
        let began_ns = monotonic_ns();
        // Read after the programs run, so that no thread begins unseen in between.
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
            cost: Watch::new(loaded.programs.iter().map(std::os::fd::AsFd::as_fd)).ok(),
            lacks,
            stacks,
            steal,
            steal_looked: (now, began_ns),
            watched: loaded.watched,
            ring_events: loaded.ring_events,
            looks_every: Duration::from_nanos(quarter * 1_000_000_000 / EVENTS_PER_S_OF_A_CPU)
                .max(LOOKS_EVERY_AT_LEAST),
            looked: now,
            began_ns,
            links: loaded.links,
            rings: loaded.rings,
        })
    }

    /// Since when events are told, nanoseconds of CLOCK_MONOTONIC.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Until when everything has been handed over, nanoseconds of CLOCK_MONOTONIC.
    pub fn settled_ns(&self) -> u64 {
        self.order.settled_ns()
    }

    /// Waits until it is time to look at the rings, but not longer than `patience`; looks, and hands over what is
    /// settled: in one order of time, over all CPUs and over all calls.
    pub fn poll(&mut self, patience: Duration, on: &mut dyn FnMut(&Event)) -> Result<(), ProbeError> {
        let began = Instant::now();
        let due = (self.looked + self.looks_every).min(began + patience);
        let mut now = began;
        while now < due {
            std::thread::park_timeout(due - now);
            now = Instant::now();
        }
        self.looked = now;
        self.look()?;
        if let Some(cost) = &mut self.cost {
            cost.look();
        }
        self.counts.events += self.order.settled(on);
        self.counts.late = self.order.late();
        Ok(())
    }

    /// Follows the sockets of these processes from now on, and of no others. Takes [`Settings::more_later`].
    pub fn watch(&mut self, tgids: &BTreeSet<u32>) -> Result<(), ProbeError> {
        self.watched.set(tgids)
    }

    /// Names of what came so far.
    pub fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// What came so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// CPUs that can be there.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Events that the ring of one CPU holds.
    pub fn ring_events(&self) -> usize {
        self.ring_events
    }

    /// What this kernel cannot tell, in sentences.
    pub fn lacks(&self) -> &[String] {
        &self.lacks
    }

    /// What the programs cost, as far as it was sampled.
    pub fn cost(&mut self) -> Option<Cost> {
        self.cost.as_mut()?.cost()
    }

    /// Takes the programs away and hands over the rest, up to now.
    pub fn stop(mut self, on: &mut dyn FnMut(&Event)) -> Result<Ended, ProbeError> {
        let ended_ns = monotonic_ns();
        self.look()?;
        for (cpu, state) in self.cpus.iter_mut().enumerate() {
            // What no event came after.
            if let Some(count) = self.rings.lost(cpu).checked_sub(state.lost).filter(|&count| count > 0) {
                let what = What::Lost { count, since_ns: state.last_ns.min(ended_ns) };
                self.order.push(Event { time_ns: ended_ns, cpu: cpu as u16, what });
                state.lost += count;
            }
        }
        self.counts.lost = self.cpus.iter().map(|cpu| cpu.lost).sum();
        // This takes a while, in which more events come and may be lost; those of before that were still being written
        // are among them.
        self.links.clear();
        self.counts.missed = self.cost.as_ref().and_then(|cost| cost.missed().ok()).unwrap_or(0);
        self.drain(ended_ns, false);
        self.counts.events += self.order.until(ended_ns, on);
        self.counts.late = self.order.late();
        Ok(Ended { ended_ns, counts: self.counts, names: self.names })
    }

    /// Takes what there is, and looks at everything else that is due.
    fn look(&mut self) -> Result<(), ProbeError> {
        let looked_ns = monotonic_ns();
        self.drain(looked_ns, true);
        self.counts.lost = (0..self.cpus.len()).map(|cpu| self.rings.lost(cpu)).sum();
        self.look_at_steal(looked_ns)
    }

    /// Takes everything valid out of the rings.
    fn drain(&mut self, looked_ns: u64, tells_losses: bool) {
        for cpu in 0..self.cpus.len() {
            let head = self.rings.head(cpu);
            let state = &mut self.cpus[cpu];
            self.counts.fullest = self.counts.fullest.max((head - state.next) as usize);
            while state.next < head {
                let Some(raw) = self.rings.event(cpu, state.next) else { break };
                state.next += 1;
                let told = decode(cpu as u16, &raw);
                if raw.lost > 0 && tells_losses {
                    let count = u64::from(raw.lost);
                    state.lost += count;
                    let what = What::Lost { count, since_ns: state.last_ns };
                    // Names have no time.
                    let time_ns = if matches!(told, Told::Event(_)) { raw.time_ns } else { looked_ns };
                    self.order.push(Event { time_ns, cpu: cpu as u16, what });
                }
                match told {
                    Told::Event(event) => {
                        if let (What::Woken(woken), Some(stacks)) = (event.what, &self.stacks)
                            && let Some(stack) = woken.sleep.stack
                            && !self.names.has_stack(stack)
                        {
                            self.names.told_stack(stack, stacks.functions(stack));
                        }
                        state.last_ns = event.time_ns;
                        // The first ones come while programs are still being attached.
                        if event.time_ns >= self.began_ns {
                            self.order.push(event);
                        }
                    }
                    Told::Name { tid, tgid, comm } => state.named = Some((tid, tgid, comm)),
                    Told::Group { time_ns, tid, cgroup } => {
                        // Without its name, which found room where this did not, it is told again.
                        if let Some((named, tgid, comm)) = state.named.take()
                            && named == tid
                        {
                            self.names.told_task(time_ns, tid, TaskName::new(&comm, tgid, cgroup));
                        }
                    }
                    Told::Device { id, network, name } => self.names.told_device(id, network, &name),
                    Told::Unknown(_) => self.counts.unknown += 1,
                }
            }
            let next = state.next;
            self.rings.release(cpu, next);
            if next == head {
                self.order.complete(cpu, looked_ns);
            }
        }
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

/// Now, by the clock of the events.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
