//! Results of a measurement, as values.

use super::buckets::Histogram;
use super::layout::Throttled;
use crate::probes::cost::Cost;
use serde::Serialize;

/// Why a thread was off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Blocked,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Runnable after it was blocked, stopped or created.
    Woken,
    /// Runnable without interruption: it was preempted, or yielded.
    Preempted,
    /// Its cgroup's CPU quota was used up, or it waited for a CPU after that.
    Throttled,
}

impl Kind {
    /// All kinds, in the program's order.
    pub const ALL: [Kind; 5] = [Kind::Blocked, Kind::Stopped, Kind::Woken, Kind::Preempted, Kind::Throttled];

    /// Name in text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Blocked => "blocked",
            Kind::Stopped => "stopped",
            Kind::Woken => "woken",
            Kind::Preempted => "preempted",
            Kind::Throttled => "throttled",
        }
    }

    /// Whether the thread is runnable.
    pub fn runnable(self) -> bool {
        matches!(self, Kind::Woken | Kind::Preempted)
    }
}

/// Waits still in progress at the end of the measurement. They are in no histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub waits: u64,
    /// Total time so far, in nanoseconds.
    pub sum_ns: u64,
    /// Longest time so far, in nanoseconds.
    pub max_ns: u64,
}

/// How waits are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    #[default]
    Process,
    Thread,
    /// By cgroup, descendants excluded.
    Cgroup,
}

/// Waits of a process, a thread or a cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its id; 0 for the group of all that found no room.
    pub id: u64,
    /// Process id, for a process or thread.
    pub tgid: u32,
    /// Name; for a cgroup its path. Empty if the cgroup is gone.
    pub name: String,
    /// Completed waits, by [`Kind`].
    pub waits: [Histogram; Kind::ALL.len()],
    /// Waits in progress, by the kind that they started as.
    pub open: [Open; Kind::ALL.len()],
}

impl Group {
    /// Waits of one kind.
    pub fn of(&self, kind: Kind) -> &Histogram {
        &self.waits[kind as usize]
    }

    /// Total of completed waits, in nanoseconds.
    pub fn off_cpu_ns(&self) -> u64 {
        self.waits.iter().map(|waits| waits.sum_ns).sum()
    }

    /// Total time in which threads were runnable, in nanoseconds.
    pub fn runnable_ns(&self) -> u64 {
        Kind::ALL.into_iter().filter(|kind| kind.runnable()).map(|kind| self.of(kind).sum_ns).sum()
    }
}

/// Waits that were not counted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Switches at which the kernel skipped the program.
    pub switches: u64,
    /// Waits that began before their thread was first observed: those in progress when the measurement began.
    pub begun_before: u64,
    /// Waits whose entry was overwritten by another thread.
    pub collisions: u64,
    /// Waits during which the clocks of two CPUs contradicted each other.
    pub clocks: u64,
    /// Threads whose group found no room. Their waits are counted in a group of their own.
    pub without_group: u64,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Length of the measurement, in nanoseconds.
    pub elapsed_ns: u64,
    /// Kind of groups.
    pub by: GroupBy,
    /// Groups, in no particular order.
    pub groups: Vec<Group>,
    /// Watched threads that never ran; all that is known of them is that they waited the whole time.
    pub never_ran: u64,
    /// Waits that were not counted.
    pub lost: Lost,
    /// How precisely waits for CPU quota are known.
    pub throttled: Throttled,
    /// Cost of the program.
    pub cost: Option<Cost>,
    /// Why the cost is unknown, if the kernel refused.
    pub cost_refused: Option<String>,
}

impl Measurement {
    /// Sum over all groups.
    pub fn total(&self) -> [Histogram; Kind::ALL.len()] {
        let mut total: [Histogram; Kind::ALL.len()] = Default::default();
        for group in &self.groups {
            for (sum, waits) in total.iter_mut().zip(&group.waits) {
                sum.add(waits);
            }
        }
        total
    }
}
