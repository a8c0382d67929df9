//! The agent's instruments: those that work here, and those that were dropped.

use crate::AgentError;
use crate::comeback::TooMuch;
use crate::events::{Events, part_of_the_time};
use crate::inventory::{self, Scope};
use crate::packets::Packets;
use crate::settings::{Say, Settings};
use crate::shifts::{LEAST, smaller};
use rustix::time::{ClockId, clock_gettime};
use spangap_fleet::v1;
use spangap_host::probes::intervals::Waits;
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Minimum interval between searches for processes, addresses and containers.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A search may take at most one part in this many of a CPU,
const LOOK_SHARE: u32 = 500;
/// but runs at least this often: nothing is recorded of an unknown process.
const LOOK_EVERY_AT_LEAST: Duration = Duration::from_secs(60);

/// Instruments to drop, in this order, when the agent exceeds its budget.
pub(crate) const GIVES_UP: [GivesUp; 4] =
    [GivesUp::Reasons, GivesUp::AllTheTime, GivesUp::Events, GivesUp::Packets];

/// See [`GIVES_UP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesUp {
    /// Why threads sleep and who wakes them: a kernel stack for each sleep.
    Reasons,
    /// Events of the host at some times. By and by, as far as necessary.
    AllTheTime,
    /// All events of the host.
    Events,
    /// The ring of packets.
    Packets,
}

impl GivesUp {
    fn words(self) -> &'static str {
        match self {
            GivesUp::Reasons => "why threads sleep and who wakes them",
            GivesUp::AllTheTime => "events of the host at all times",
            GivesUp::Events => "events of the host",
            GivesUp::Packets => "packets",
        }
    }

    /// Its share of the memory limit.
    pub fn share_of_memory(self, settings: &Settings) -> f64 {
        let shares = settings.shares();
        let bytes = match self {
            // Kernel stacks are in maps that stay, and the rings stay as large.
            GivesUp::Reasons | GivesUp::AllTheTime => 0,
            GivesUp::Events => shares.events + shares.event_rings,
            GivesUp::Packets => shares.packets + shares.openings,
        };
        bytes as f64 / settings.memory_bytes as f64
    }
}

/// The instruments.
pub(crate) struct Sensors {
    packets: Mutex<Option<Arc<Packets>>>,
    /// Shared with the thread that searches for processes.
    events: Arc<Mutex<Option<Arc<Events>>>>,
    lacks: Vec<String>,
    given_up: Mutex<Vec<(GivesUp, String)>>,
    /// Share of the time in which events are recorded.
    share: Mutex<f64>,
    inventory: Arc<Mutex<v1::Inventory>>,
    looks: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
    mask_key: RandomState,
    scope: Scope,
}

/// Releases the lock before the instrument ends, so that nobody waits for it.
fn take<T>(of: &Mutex<Option<T>>) -> Option<T> {
    lock(of).take()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sensors {
    /// Starts all instruments that work here.
    pub fn start(settings: &Settings, say: &Say) -> Result<Sensors, AgentError> {
        let scope = Scope::here(settings.whole_node);
        let mut lacks = Vec::new();
        let packets = match Packets::start(settings, say.clone()) {
            Ok(packets) => Some(Arc::new(packets)),
            // A setting that cannot be satisfied is an error; a missing permission only disables the
            // instrument.
            Err(error) if !settings.interfaces.is_empty() => return Err(error.into()),
            Err(error) => {
                lacks.push(format!("no packets: {error}"));
                None
            }
        };
        let pids = pids(settings, scope);
        let events = match Events::start(settings, &pids, Waits::Also, say.clone()) {
            Ok(events) => Some(Arc::new(events)),
            Err(error) => {
                lacks.push(format!("no events of the host: {error}"));
                None
            }
        };
        if packets.is_none() && events.is_none() {
            return Err(AgentError::NoInstrument(lacks));
        }
        lacks.extend(packets.iter().flat_map(|packets| packets.lacks.clone()));
        lacks.extend(events.iter().flat_map(|events| events.lacks.clone()));
        let inventory = Arc::new(Mutex::new(inventory::look(scope)));
        let sensors = Sensors {
            packets: Mutex::new(packets),
            events: Arc::new(Mutex::new(events)),
            lacks,
            given_up: Mutex::default(),
            share: Mutex::new(1.0),
            inventory,
            looks: Mutex::default(),
            mask_key: RandomState::new(),
            scope,
        };
        sensors.keep_looking(settings, scope)?;
        Ok(sensors)
    }

    /// Searches for processes, addresses and containers from now on.
    fn keep_looking(&self, settings: &Settings, scope: Scope) -> Result<(), AgentError> {
        let (stop, stopped) = channel::<()>();
        let (settings, inventory, events) = (settings.clone(), self.inventory.clone(), self.events.clone());
        let thread = thread::Builder::new().name("inventory".into()).spawn(move || {
            let mut pause = LOOK_EVERY;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                let began = cpu_time();
                *lock(&inventory) = inventory::look(scope);
                let events = lock(&events).clone();
                if let Some(events) = events {
                    events.watch(pids(&settings, scope));
                }
                pause = pause_after(cpu_time().saturating_sub(began));
            }
        });
        let thread = thread.map_err(|error| AgentError::Start { what: "start a thread", error })?;
        *lock(&self.looks) = Some((stop, thread));
        Ok(())
    }

    /// The ring of packets, if any.
    pub fn packets(&self) -> Option<Arc<Packets>> {
        lock(&self.packets).clone()
    }

    /// The events of the host, if recorded.
    pub fn events(&self) -> Option<Arc<Events>> {
        lock(&self.events).clone()
    }

    /// What cannot be observed, in sentences.
    pub fn lacks(&self) -> &[String] {
        &self.lacks
    }

    /// Addresses and containers at the last search.
    pub fn inventory(&self) -> v1::Inventory {
        lock(&self.inventory).clone()
    }

    /// The key with which equal values have equal masks during the life of this process.
    pub fn mask_key(&self) -> RandomState {
        self.mask_key.clone()
    }

    /// Whether this network namespace belongs to the agent.
    pub fn has(&self, namespace: u64) -> bool {
        self.scope.has(namespace)
    }

    /// Description of the recordings.
    pub fn instruments(&self) -> Vec<String> {
        let packets = self.packets().map(|packets| format!("packets of {} are kept", packets.what));
        let events = self
            .events()
            .map(|_| "events of the scheduler, of interrupts and of sockets are kept".to_owned());
        packets.into_iter().chain(events).collect()
    }

    /// Names of the recordings.
    pub fn names(&self) -> Vec<String> {
        let packets = self.packets().map(|_| "capture".to_owned());
        packets.into_iter().chain(self.events().map(|_| "host-record".to_owned())).collect()
    }

    /// State of the rings; one that has not started yet is omitted.
    pub fn rings(&self) -> Vec<v1::Ring> {
        let packets = self.packets().map(|packets| packets.ring());
        let rings = packets.into_iter().chain(self.events().map(|events| events.state().ring));
        rings.filter(|ring| !ring.instrument.is_empty()).collect()
    }

    /// Dropped instruments, with the reasons.
    pub fn given_up(&self) -> Vec<String> {
        lock(&self.given_up).iter().map(|(_, why)| why.clone()).collect()
    }

    /// Drops the next of [`GIVES_UP`] that still runs, or more of the last. Returns it with the reason, and whether it is more
    /// of the last.
    pub fn give_up_next(&self, too_much: TooMuch, why: &str) -> Option<(GivesUp, String, bool)> {
        let given_up = |one: GivesUp| lock(&self.given_up).iter().any(|(gone, _)| *gone == one);
        let shorter = match too_much {
            TooMuch::Cpu { of_limit, .. } => smaller(*lock(&self.share), of_limit),
            TooMuch::Memory { .. } => None,
        };
        let next = GIVES_UP.into_iter().find(|one| match one {
            GivesUp::Reasons => self.events().is_some() && !given_up(*one),
            GivesUp::AllTheTime => self.events().is_some() && shorter.is_some(),
            GivesUp::Events => self.events().is_some(),
            GivesUp::Packets => self.packets().is_some(),
        })?;
        let mut told = format!("{}: {why}", next.words());
        match next {
            GivesUp::Reasons => self.events().iter().for_each(|events| events.ask_for(Waits::No)),
            GivesUp::AllTheTime => {
                let share = shorter.unwrap_or(LEAST);
                *lock(&self.share) = share;
                self.events().iter().for_each(|events| events.record_for(share));
                told = format!("{told}; {}", part_of_the_time(share));
            }
            GivesUp::Events => take(&self.events).iter().for_each(|events| events.stop()),
            GivesUp::Packets => take(&self.packets).iter().for_each(|packets| packets.stop()),
        }
        let more = given_up(next);
        let mut list = lock(&self.given_up);
        list.retain(|(gone, _)| *gone != next);
        list.push((next, told.clone()));
        Some((next, told, more))
    }

    /// Restores the instrument dropped last, without its earlier recording. Returns its name.
    ///
    /// # Errors
    /// Why this fails, in words; it stays dropped.
    pub fn take_back_last(&self, settings: &Settings, say: &Say) -> Result<&'static str, String> {
        let last = lock(&self.given_up).last().map(|(last, _)| *last).ok_or("nothing was given up")?;
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", last.words());
        match last {
            GivesUp::Reasons => self.events().iter().for_each(|events| events.ask_for(Waits::Also)),
            GivesUp::AllTheTime => {
                *lock(&self.share) = 1.0;
                self.events().iter().for_each(|events| events.record_for(1.0));
            }
            GivesUp::Events => {
                let waits = match lock(&self.given_up).iter().any(|(gone, _)| *gone == GivesUp::Reasons) {
                    true => Waits::No,
                    false => Waits::Also,
                };
                let events = Events::start(settings, &pids(settings, self.scope), waits, say.clone());
                let events = events.map_err(|error| failed(&error))?;
                events.record_for(*lock(&self.share));
                *lock(&self.events) = Some(Arc::new(events));
            }
            GivesUp::Packets => {
                let packets = Packets::start(settings, say.clone()).map_err(|error| failed(&error))?;
                *lock(&self.packets) = Some(Arc::new(packets));
            }
        }
        lock(&self.given_up).pop();
        Ok(last.words())
    }

    /// Unloads all probes and frees all memory.
    pub fn stop(&self) {
        if let Some((stop, thread)) = lock(&self.looks).take() {
            drop(stop);
            // A thread that panicked has printed it.
            let _ended = thread.join();
        }
        take(&self.events).iter().for_each(|events| events.stop());
        take(&self.packets).iter().for_each(|packets| packets.stop());
    }
}

/// CPU time of this thread: on a busy machine a search takes long, but no more CPU time than on an idle one.
fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// Pause before the next search, after one that took this CPU time.
fn pause_after(took: Duration) -> Duration {
    (took * LOOK_SHARE).clamp(LOOK_EVERY, LOOK_EVERY_AT_LEAST)
}

/// Processes whose sockets are followed.
fn pids(settings: &Settings, scope: Scope) -> BTreeSet<u32> {
    if !settings.pids.is_empty() {
        return settings.pids.iter().copied().collect();
    }
    let mut pids = spangap_sockets::holders(|namespace| scope.has(namespace)).unwrap_or_default();
    pids.remove(&std::process::id());
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comeback::Pace;
    use crate::settings::sample;

    #[test]
    fn events_shrink_before_they_go_and_all_comes_back_in_reverse() {
        let say: Say = Arc::new(|words: &str| eprintln!("{words}"));
        let settings = sample(128 << 20);
        let sensors = match Sensors::start(&settings, &say) {
            Ok(sensors) if sensors.lacks().is_empty() => sensors,
            Ok(sensors) => return eprintln!("not run: {:?}", sensors.lacks()),
            Err(error) => return eprintln!("not run: {error}"),
        };
        let too_much = TooMuch::Cpu { of_limit: 2.0, pace: Pace::default() };
        let mut dropped = Vec::new();
        while let Some((what, told, more)) = sensors.give_up_next(too_much, "it is much") {
            assert!(told.contains("it is much"), "{told}");
            assert_eq!(told.contains("events are recorded for"), what == GivesUp::AllTheTime, "{told}");
            dropped.push((what, more));
            assert!(dropped.len() < 10, "{dropped:?}");
        }
        use GivesUp::{AllTheTime, Events, Packets, Reasons};
        // 40 %, 16 %, and the least.
        let parts = [(AllTheTime, false), (AllTheTime, true), (AllTheTime, true)];
        assert_eq!(dropped[0], (Reasons, false));
        assert_eq!(dropped[1..4], parts);
        assert_eq!(dropped[4..], [(Events, false), (Packets, false)]);
        assert_eq!(sensors.given_up().len(), 4, "{:?}", sensors.given_up());
        assert!(sensors.names().is_empty());
        for what in [Packets, Events, AllTheTime, Reasons] {
            assert_eq!(sensors.take_back_last(&settings, &say), Ok(what.words()));
        }
        assert!(sensors.take_back_last(&settings, &say).is_err());
        assert_eq!((sensors.names().len(), *lock(&sensors.share)), (2, 1.0));
        // Memory is not what a smaller share of the time saves.
        let memory = TooMuch::Memory { of_limit: 1.0 };
        let next = || sensors.give_up_next(memory, "it is much").map(|(what, ..)| what);
        assert_eq!([next(), next(), next(), next()], [Some(Reasons), Some(Events), Some(Packets), None]);
        sensors.stop();
    }

    #[test]
    fn searches_are_cheap_and_find_new_processes_soon() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(ms(2)), LOOK_EVERY);
        assert_eq!(pause_after(ms(40)), ms(20_000));
        assert_eq!(pause_after(ms(4_000)), LOOK_EVERY_AT_LEAST, "ten thousand processes");
        // A second of waiting takes no CPU time.
        let began = cpu_time();
        std::thread::park_timeout(ms(300));
        assert!(pause_after(cpu_time() - began) < ms(60_000));
    }
}
