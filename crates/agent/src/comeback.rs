//! When to restore a dropped instrument. The agent's usage grew with the activity of the host; the instrument
//! is restored once the activity has been low enough for long enough that it would fit well. Each premature
//! restoration lengthens the next wait.

use spangap_machine::facts::{net_dev, stat};
use spangap_machine::read_here;

/// Number of consecutive checks at which it has to fit.
const CALM: u32 = 60;
/// Upper limit after repeated drops.
const MAX_WAIT: u32 = 64 * CALM;
/// Maximum expected usage as a fraction of the limit: at the limit itself it would be dropped and restored
/// alternately.
const WELL_WITHIN: f64 = 0.7;

/// Activity of this host per second: the cost of instruments is proportional to events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Context switches on all CPUs.
    pub switches: f64,
    /// Packets received on all interfaces.
    pub packets: f64,
}

impl Pace {
    /// Ratio to the activity at another time: the larger of both ratios.
    fn beside(self, then: Pace) -> f64 {
        (self.switches / then.switches.max(1.0)).max(self.packets / then.packets.max(1.0))
    }
}

/// Counters of this host since its boot.
pub(crate) fn counters() -> Pace {
    let switches = read_here(stat::PATH, stat::switches).unwrap_or_default();
    let packets = read_here(&format!("/proc/net/{}", net_dev::NAME), net_dev::rx_packets).unwrap_or_default();
    Pace { switches: switches as f64, packets: packets.values().sum::<u64>() as f64 }
}

/// The excess that caused a drop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TooMuch {
    /// CPU as a fraction of the limit, and the activity at that time.
    Cpu { of_limit: f64, pace: Pace },
    /// Memory. The instrument's share of it, as a fraction of the limit.
    Memory { of_limit: f64 },
}

/// Dropped instruments, and when to restore the last of them.
#[derive(Debug)]
pub(crate) struct Comeback {
    given_up: Vec<TooMuch>,
    /// Consecutive checks at which it would have fitted.
    calm: u32,
    /// Number of such checks required.
    wait: u32,
    /// Checks since the last restoration.
    since_back: u32,
}

impl Default for Comeback {
    fn default() -> Comeback {
        Comeback { given_up: Vec::new(), calm: 0, wait: CALM, since_back: u32::MAX }
    }
}

impl Comeback {
    /// Records a drop, or that more was dropped of the last one.
    pub fn gave_up(&mut self, why: TooMuch, more: bool) {
        self.calm = 0;
        if more {
            // All of it comes back at once, if the host does as little as before the first part was dropped.
            return;
        }
        // An instrument dropped soon after its restoration was restored too early.
        self.wait = if self.since_back < 4 * self.wait { MAX_WAIT.min(2 * self.wait) } else { CALM };
        self.given_up.push(why);
    }

    /// The last one was restored, or cannot be.
    pub fn took_back(&mut self, is_back: bool) {
        self.calm = 0;
        if is_back {
            self.given_up.pop();
            self.since_back = 0;
        } else {
            self.wait = MAX_WAIT.min(2 * self.wait);
        }
    }

    /// Whether to restore the last one. `cpu` and `memory` are the current usage as fractions of the limits.
    pub fn look(&mut self, cpu: f64, memory: f64, pace: Pace) -> bool {
        self.since_back = self.since_back.saturating_add(1);
        let Some(last) = self.given_up.last() else { return false };
        let fits = match *last {
            // Attributes all of the agent's usage to the instrument, to be conservative.
            TooMuch::Cpu { of_limit, pace: then } => {
                cpu.max(of_limit * pace.beside(then)) < WELL_WITHIN && memory <= 1.0
            }
            TooMuch::Memory { of_limit } => memory + of_limit <= 1.0 && cpu < WELL_WITHIN,
        };
        self.calm = if fits { self.calm + 1 } else { 0 };
        self.calm >= self.wait
    }

    /// When the last one will be restored, in words.
    pub fn words(&self) -> String {
        format!("it comes back when it would have fitted for {} s", self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Pace = Pace { switches: 100_000.0, packets: 20_000.0 };
    const QUIET: Pace = Pace { switches: 5_000.0, packets: 1_000.0 };

    /// Number of checks until it may be restored, at most `most`.
    fn until_back(comeback: &mut Comeback, cpu: f64, pace: Pace, most: u32) -> Option<u32> {
        (1..=most).find(|_| comeback.look(cpu, 0.5, pace))
    }

    #[test]
    fn a_dropped_instrument_is_restored_only_after_the_load() {
        let mut comeback = Comeback::default();
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 1_000), None, "nothing was given up");
        comeback.gave_up(TooMuch::Cpu { of_limit: 1.5, pace: BUSY }, false);
        comeback.gave_up(TooMuch::Cpu { of_limit: 1.1, pace: BUSY }, true);
        // Cheap now, because the instrument is dropped; the load continues.
        assert_eq!(until_back(&mut comeback, 0.1, BUSY, 10_000), None);
        // Half of the packets, but the same number of switches.
        assert_eq!(until_back(&mut comeback, 0.1, Pace { packets: 10_000.0, ..BUSY }, 10_000), None);
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 10_000), Some(CALM));
        comeback.took_back(true);
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 1_000), None, "it is back");
    }

    #[test]
    fn intermittent_load_lengthens_each_wait() {
        let mut comeback = Comeback::default();
        let mut waited = Vec::new();
        for _ in 0..9 {
            comeback.gave_up(TooMuch::Cpu { of_limit: 1.5, pace: BUSY }, false);
            waited.push(until_back(&mut comeback, 0.1, QUIET, 100_000).expect("it comes back"));
            comeback.took_back(true);
        }
        assert_eq!(waited[..4], [CALM, 2 * CALM, 4 * CALM, 8 * CALM]);
        assert_eq!(waited[8], MAX_WAIT);
        // An instrument that ran well for long was not restored too early.
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 4 * MAX_WAIT), None);
        comeback.gave_up(TooMuch::Cpu { of_limit: 1.5, pace: BUSY }, false);
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 100_000), Some(CALM));
    }

    #[test]
    fn the_last_is_restored_first_and_failures_lengthen_the_wait() {
        let mut comeback = Comeback::default();
        comeback.gave_up(TooMuch::Cpu { of_limit: 1.1, pace: BUSY }, false);
        comeback.gave_up(TooMuch::Memory { of_limit: 0.4 }, false);
        assert!((0..1_000).all(|_| !comeback.look(0.1, 0.7, QUIET)), "no room for it");
        assert_eq!(until_back(&mut comeback, 0.1, BUSY, 1_000), Some(CALM), "CPU was not why");
        comeback.took_back(false);
        assert_eq!(until_back(&mut comeback, 0.1, QUIET, 1_000), Some(2 * CALM));
        comeback.took_back(true);
        assert_eq!(until_back(&mut comeback, 0.1, BUSY, 10_000), None, "the other one waits for less load");
        assert!(until_back(&mut comeback, 0.1, QUIET, 10_000).is_some());
    }

    #[test]
    fn this_host_has_counters() {
        let before = counters();
        assert!(before.switches > 0.0, "{before:?}");
        std::thread::yield_now();
        assert!(counters().switches >= before.switches);
    }
}
