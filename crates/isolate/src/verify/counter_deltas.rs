//! What happened on each CPU between two readings of a machine. No clock is needed: a CPU's ticks measure the
//! time.

use crate::topology::{CpuLoad, Topology};
use std::collections::BTreeMap;

/// The time of iowait may decrease, as the kernel's documentation says; up to this many ticks that is normal.
const IDLE_SLACK_TICKS: u64 = 10;
/// Ticks per second (`USER_HZ`).
pub const TICKS_PER_S: f64 = 100.0;

/// Reason for a missing difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is only one reading.
    #[error("a copy stands still")]
    StandsStill,
    /// The CPU is missing from a reading.
    #[error("it was switched on or off in between")]
    CpuCameOrWent,
    /// The set of CPUs has changed.
    #[error("CPUs were switched on or off in between")]
    CpusCameOrWent,
    /// A counter has decreased.
    #[error("a counter went backwards")]
    Backwards,
    /// The interrupt is missing from a reading, or its number now belongs to another one.
    #[error("it did not exist before")]
    New,
}

/// What happened between two readings.
#[derive(Clone, Debug)]
pub struct CounterDeltas {
    /// Whether there is only one reading, of a copy: nothing runs there, and no kernel interprets its values.
    pub stands_still: bool,
    /// Differences for each CPU in either reading.
    pub cpus: BTreeMap<u32, Result<CpuLoad, Unknown>>,
    /// Arrivals of each interrupt of the later reading, by CPU.
    pub irqs: BTreeMap<u32, Result<BTreeMap<u32, u64>, Unknown>>,
    /// Packets that each interface received, if both readings report it.
    pub packets: BTreeMap<String, u64>,
}

impl CounterDeltas {
    /// Computes the differences; without an earlier reading nothing is known.
    pub fn new(before: Option<&Topology>, after: &Topology) -> CounterDeltas {
        let Some(before) = before else {
            return CounterDeltas {
                stands_still: true,
                cpus: after.load.iter().map(|load| (load.cpu, Err(Unknown::StandsStill))).collect(),
                irqs: after.irqs.iter().map(|irq| (irq.number, Err(Unknown::StandsStill))).collect(),
                packets: BTreeMap::new(),
            };
        };
        let by_cpu = |topology: &Topology| -> BTreeMap<u32, CpuLoad> {
            topology.load.iter().map(|load| (load.cpu, *load)).collect()
        };
        let (earlier, later) = (by_cpu(before), by_cpu(after));
        let all = earlier.keys().chain(later.keys());
        let cpus = all.map(|cpu| {
            let both = earlier.get(cpu).zip(later.get(cpu)).ok_or(Unknown::CpuCameOrWent);
            (*cpu, both.and_then(|(earlier, later)| difference(earlier, later).ok_or(Unknown::Backwards)))
        });
        let irqs = after.irqs.iter().map(|irq| (irq.number, counts(before, after, irq.number)));
        let packets = after.interfaces.iter().filter_map(|interface| {
            let earlier = before.interface(&interface.name)?.rx_packets?;
            Some((interface.name.clone(), interface.rx_packets?.checked_sub(earlier)?))
        });
        CounterDeltas {
            stands_still: false,
            cpus: cpus.collect(),
            irqs: irqs.collect(),
            packets: packets.collect(),
        }
    }

    /// Load of a CPU; one that occurs in neither reading went on or offline.
    pub fn cpu(&self, cpu: u32) -> Result<CpuLoad, Unknown> {
        self.cpus.get(&cpu).copied().unwrap_or(Err(Unknown::CpuCameOrWent))
    }

    /// Seconds between the readings, from the CPU with the most ticks.
    pub fn seconds(&self) -> Option<f64> {
        let most = self.cpus.values().filter_map(|load| load.as_ref().ok()).map(total_ticks).max()?;
        (most > 0).then_some(most as f64 / TICKS_PER_S)
    }
}

/// All ticks of a CPU.
pub fn total_ticks(load: &CpuLoad) -> u64 {
    [load.tasks_ticks, load.softirq_ticks, load.irq_ticks, load.steal_ticks, load.idle_ticks]
        .into_iter()
        .fold(0, u64::saturating_add)
}

fn difference(earlier: &CpuLoad, later: &CpuLoad) -> Option<CpuLoad> {
    let idle_ticks = match later.idle_ticks.checked_sub(earlier.idle_ticks) {
        Some(ticks) => ticks,
        None if earlier.idle_ticks - later.idle_ticks <= IDLE_SLACK_TICKS => 0,
        None => return None,
    };
    Some(CpuLoad {
        cpu: later.cpu,
        tasks_ticks: later.tasks_ticks.checked_sub(earlier.tasks_ticks)?,
        softirq_ticks: later.softirq_ticks.checked_sub(earlier.softirq_ticks)?,
        irq_ticks: later.irq_ticks.checked_sub(earlier.irq_ticks)?,
        steal_ticks: later.steal_ticks.checked_sub(earlier.steal_ticks)?,
        idle_ticks,
        net_rx: later.net_rx.checked_sub(earlier.net_rx)?,
        net_tx: later.net_tx.checked_sub(earlier.net_tx)?,
        backlog_dropped: later.backlog_dropped.checked_sub(earlier.backlog_dropped)?,
        time_squeeze: later.time_squeeze.checked_sub(earlier.time_squeeze)?,
    })
}

fn counts(before: &Topology, after: &Topology, number: u32) -> Result<BTreeMap<u32, u64>, Unknown> {
    let find = |topology: &Topology| topology.irqs.iter().find(|irq| irq.number == number).cloned();
    let (earlier, later) = find(before).zip(find(after)).ok_or(Unknown::New)?;
    if earlier.name != later.name {
        return Err(Unknown::New);
    }
    let same_cpus = before.cpus.iter().map(|cpu| cpu.number).eq(after.cpus.iter().map(|cpu| cpu.number));
    if !same_cpus || earlier.counts.len() != later.counts.len() || later.counts.len() != after.cpus.len() {
        return Err(Unknown::CpusCameOrWent);
    }
    let counts = after.cpus.iter().zip(earlier.counts.iter().zip(&later.counts));
    counts
        .map(|(cpu, (earlier, later))| {
            later.checked_sub(*earlier).map(|count| (cpu.number, count)).ok_or(Unknown::Backwards)
        })
        .collect()
}
