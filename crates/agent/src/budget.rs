//! The agent's own CPU time and memory. Above its budget it drops instruments, and restores them once they
//! would fit again.

use crate::comeback::{Comeback, Pace, TooMuch, counters};
use crate::health::Health;
use crate::packets::unix_ns;
use crate::sensors::Sensors;
use crate::settings::{Say, Settings, resident_bytes};
use rustix::time::{ClockId, clock_gettime};
use spangap_fleet::v1;
use spangap_machine::freed::Freed;
use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Interval between checks.
const EVERY: Duration = Duration::from_secs(1);
/// Number of consecutive checks over the limit of CPU or memory before an instrument is dropped; a slice may
/// exceed it for a moment.
const LOOKS: usize = 15;

/// Checks for ever.
pub(crate) async fn watch(
    settings: &Arc<Settings>,
    sensors: &Arc<Sensors>,
    say: &Say,
    told: watch::Sender<Arc<Health>>,
) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = (Instant::now(), cpu_seconds(), counters());
    let mut overruns = Overruns::default();
    let mut comeback = Comeback::default();
    let mut taken_back = 0;
    let mut freed = Freed::default();
    loop {
        ticks.tick().await;
        let now = (Instant::now(), cpu_seconds(), counters());
        let passed = now.0.duration_since(last.0).as_secs_f64().max(1e-3);
        let probes = sensors.events().map_or(0.0, |events| events.state().probes_share)
            + sensors.packets().map_or(0.0, |packets| packets.probe_share());
        let own = (now.1 - last.1) / passed;
        let pace = Pace {
            switches: (now.2.switches - last.2.switches).max(0.0) / passed,
            packets: (now.2.packets - last.2.packets).max(0.0) / passed,
        };
        last = now;
        let cpu_share = (own + probes) / cpus;
        let memory_bytes = memory_bytes(settings, &mut freed);
        if let Some((too_much, why)) = overruns.look(settings, cpu_share, pace, memory_bytes)
            && let Some((what, told, more)) = sensors.give_up_next(too_much, &why)
        {
            let too_much = match too_much {
                TooMuch::Memory { .. } => TooMuch::Memory { of_limit: what.share_of_memory(settings) },
                cpu => cpu,
            };
            freed.give_back();
            comeback.gave_up(too_much, more);
            say(&format!("given up: {told}; {}", comeback.words()));
            overruns = Overruns::default();
        }
        let (cpu_mean, pace_mean) = overruns.means();
        let memory = memory_bytes as f64 / settings.memory_bytes as f64;
        if comeback.look(cpu_mean / settings.cpu_share, memory, pace_mean) {
            // Restoring takes a while; the stream to the meter continues meanwhile.
            let (sensors, settings, to) = (sensors.clone(), settings.clone(), say.clone());
            let back = tokio::task::spawn_blocking(move || sensors.take_back_last(&settings, &to)).await;
            let back = back.unwrap_or_else(|_| Err("it panicked".into()));
            comeback.took_back(back.is_ok());
            taken_back += u64::from(back.is_ok());
            match back {
                Ok(what) => say(&format!("taken back: {what}")),
                Err(why) => say(&format!("not taken back: {why}; {}", comeback.words())),
            }
            overruns = Overruns::default();
        }
        let health = v1::Health {
            unix_ns: unix_ns(),
            rings: sensors.rings(),
            memory_bytes,
            memory_limit_bytes: settings.memory_bytes,
            cpu_share,
            cpu_limit: settings.cpu_share,
            given_up: sensors.given_up(),
            taken_back,
        };
        told.send_modify(|last| {
            *last = Arc::new(Health {
                missed_in_a_row: last.missed_until(&health.rings),
                told: health,
                meter: last.meter.clone(),
                packets_reduced_to: sensors.packets().and_then(|packets| packets.reduced_to()),
                own_share: own / cpus,
                probes_share: probes / cpus,
                own_seconds: now.1,
            });
        });
    }
}

/// Recent usage.
#[derive(Debug, Default)]
struct Overruns {
    /// CPU, and the host's activity at that time.
    looks: VecDeque<(f64, Pace)>,
    /// Consecutive checks with too much memory.
    memory: usize,
}

impl Overruns {
    /// Records the current usage. Returns a reason if it has been too high for longer than a slice takes.
    fn look(
        &mut self,
        settings: &Settings,
        cpu_share: f64,
        pace: Pace,
        memory_bytes: u64,
    ) -> Option<(TooMuch, String)> {
        self.looks.push_back((cpu_share, pace));
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        self.memory = if memory_bytes > settings.memory_bytes { self.memory + 1 } else { 0 };
        let (mean, pace) = self.means();
        if self.looks.len() == LOOKS && mean > settings.cpu_share {
            let (taken, allowed) = (mean * 100.0, settings.cpu_share * 100.0);
            let why = format!("it used {taken:.1} % of all CPUs; {allowed:.1} % are allowed");
            return Some((TooMuch::Cpu { of_limit: mean / settings.cpu_share, pace }, why));
        }
        let (taken, allowed) = (memory_bytes >> 20, settings.memory_bytes >> 20);
        (self.memory >= LOOKS).then(|| {
            let why = format!("it used {taken} MiB of memory; {allowed} MiB are allowed");
            (TooMuch::Memory { of_limit: 1.0 }, why)
        })
    }

    /// Mean CPU and pace of the recent checks.
    fn means(&self) -> (f64, Pace) {
        let number = self.looks.len().max(1) as f64;
        let mean = |of: fn(&(f64, Pace)) -> f64| self.looks.iter().map(of).sum::<f64>() / number;
        let pace = Pace { switches: mean(|look| look.1.switches), packets: mean(|look| look.1.packets) };
        (mean(|look| look.0), pace)
    }
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Memory in use: what was freed is given back first, as the allocator keeps most of what a slice took.
fn memory_bytes(settings: &Settings, freed: &mut Freed) -> u64 {
    freed.give_back_if_grown();
    let held = held_bytes();
    if held <= settings.memory_bytes {
        return held;
    }
    // Whatever it was at the last check: a slice that took it may have ended since.
    freed.give_back();
    held_bytes()
}

/// Memory of this process, its rings and the kernel's memory for its probes.
fn held_bytes() -> u64 {
    let resident = resident_bytes();
    let infos = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let texts = infos.filter_map(|info| fs::read_to_string(info.path()).ok());
    resident + texts.map(|text| map_bytes(&text)).sum::<u64>()
}

/// Memory of an eBPF map, from the kernel's description of its descriptor. A map that this process maps is
/// part of its resident memory.
fn map_bytes(info: &str) -> u64 {
    const MAPPABLE: u64 = 1 << 10;
    let field = |name: &str| info.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
    let flags =
        field("map_flags:").and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let bytes = field("memlock:").and_then(|text| text.parse().ok()).unwrap_or(0);
    if flags.is_none_or(|flags| flags & MAPPABLE != 0) { 0 } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sample;

    #[test]
    fn a_brief_excess_is_tolerated_and_a_lasting_one_drops_an_instrument() {
        let settings = sample(100 << 20);
        let mut overruns = Overruns::default();
        let mut look = |cpu_share: f64, mib: u64, times: usize| {
            (0..times).find_map(|_| overruns.look(&settings, cpu_share, Pace::default(), mib << 20))
        };
        assert_eq!(look(0.01, 90, 100), None);
        // Slices, each of which takes some seconds.
        for _ in 0..20 {
            assert_eq!((look(0.05, 120, 2), look(0.01, 90, 20)), (None, None));
        }
        assert_eq!(look(0.01, 100, 100), None, "all that is allowed");
        let (_, why) = look(0.01, 101, LOOKS).expect("it lasts");
        assert_eq!(why, "it used 101 MiB of memory; 100 MiB are allowed");
        let (too_much, why) = look(0.03, 90, 3 * LOOKS).expect("it lasts");
        assert!(why.ends_with("% of all CPUs; 2.0 % are allowed"), "{why}");
        assert!(matches!(too_much, TooMuch::Cpu { of_limit, .. } if of_limit > 1.0), "{too_much:?}");
    }

    #[test]
    fn a_mapped_map_is_not_counted_twice() {
        let info = |flags: &str| {
            format!("pos:\t0\nflags:\t02000002\nmap_type:\t2\nmap_flags:\t{flags}\nmemlock:\t1048576\n")
        };
        assert_eq!(map_bytes(&info("0x0")), 1 << 20);
        assert_eq!(map_bytes(&info("0x400")), 0);
        assert_eq!(map_bytes("pos:\t0\nflags:\t02\n"), 0);
        assert!(held_bytes() > 1 << 20);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn freed_memory_is_not_what_an_instrument_is_dropped_for() {
        const PIECE: usize = 4 << 10;
        let mut freed = Freed::default();
        freed.give_back();
        let before = held_bytes();
        let mut pieces: Vec<Vec<u8>> = (0..(256 << 20) / PIECE).map(|_| vec![1; PIECE]).collect();
        let settings = sample(before + (128 << 20));
        assert!(memory_bytes(&settings, &mut freed) > settings.memory_bytes, "all of it is in use");
        // One in the middle and one at the end, below which the allocator's heap could not shrink by itself.
        let kept = (pieces.swap_remove(pieces.len() / 2), pieces.pop());
        drop(pieces);
        assert!(held_bytes() > settings.memory_bytes, "the allocator keeps it");
        assert!(memory_bytes(&settings, &mut freed) < settings.memory_bytes);
        drop(kept);
    }
}
