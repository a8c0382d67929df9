//! What a measurement found, as values.

use super::buckets::Histogram;
use super::layout::Throttled;
use crate::probes::cost::Cost;
use serde::Serialize;

/// Why a thread was off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It waited for something.
    Blocked,
    /// A signal or a debugger had stopped it.
    Stopped,
    /// It could run, after it had been blocked, stopped or just been made.
    Woken,
    /// It could have gone on running: another one was let in, or it let others in.
    Preempted,
    /// The CPU quota of its cgroup was used up, or it waited for a CPU after that.
    Throttled,
}

impl Kind {
    /// All, in the program's order.
    pub const ALL: [Kind; 5] = [Kind::Blocked, Kind::Stopped, Kind::Woken, Kind::Preempted, Kind::Throttled];

    /// As it is called in text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Blocked => "blocked",
            Kind::Stopped => "stopped",
            Kind::Woken => "woken",
            Kind::Preempted => "preempted",
            Kind::Throttled => "throttled",
        }
    }

    /// Whether a thread wants the CPU and may have it.
    pub fn runnable(self) -> bool {
        matches!(self, Kind::Woken | Kind::Preempted)
    }
}

/// Waits that had not ended when the measurement did. They are in no histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// How many.
    pub waits: u64,
    /// How long they had lasted, all together, nanoseconds.
    pub sum_ns: u64,
    /// How long the longest had lasted, nanoseconds.
    pub max_ns: u64,
}

/// What is shown together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// All threads of a process.
    #[default]
    Process,
    /// Each thread.
    Thread,
    /// All threads of a cgroup, without those of cgroups below it.
    Cgroup,
}

/// Waits of a process, a thread or a cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its number; 0 of all for which there was no room.
    pub id: u64,
    /// The number of the process that a thread belongs to, or of the process.
    pub tgid: u32,
    /// Its name; of a cgroup its path. Empty when the cgroup is gone.
    pub name: String,
    /// Waits that ended, by [`Kind`].
    pub waits: [Histogram; Kind::ALL.len()],
    /// Waits that did not, by what they began as.
    pub open: [Open; Kind::ALL.len()],
}

impl Group {
    /// Waits of a kind.
    pub fn of(&self, kind: Kind) -> &Histogram {
        &self.waits[kind as usize]
    }

    /// All waits together, nanoseconds, open ones not included.
    pub fn off_cpu_ns(&self) -> u64 {
        self.waits.iter().map(|waits| waits.sum_ns).sum()
    }

    /// Time in which threads could have run, nanoseconds.
    pub fn runnable_ns(&self) -> u64 {
        Kind::ALL.into_iter().filter(|kind| kind.runnable()).map(|kind| self.of(kind).sum_ns).sum()
    }
}

/// What was not counted, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Switches at which the kernel left the program out.
    pub switches: u64,
    /// Waits that had begun before their thread was first seen: those that were under way when the measurement began.
    pub begun_before: u64,
    /// Waits whose entry was taken for another thread.
    pub collisions: u64,
    /// Waits in which the clocks of two CPUs contradict each other.
    pub clocks: u64,
    /// Threads whose group found no room. Their waits are counted, in a group of their own.
    pub without_group: u64,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How long it was measured, nanoseconds.
    pub elapsed_ns: u64,
    /// What the groups are.
    pub by: By,
    /// In no order.
    pub groups: Vec<Group>,
    /// Threads of what was asked for that never ran, so that nothing is known but that they waited all the time.
    pub never_ran: u64,
    /// What was not counted.
    pub lost: Lost,
    /// What is known of waits for CPU quota.
    pub throttled: Throttled,
    /// What the program cost.
    pub cost: Option<Cost>,
    /// Why that is not known, if the kernel refused.
    pub cost_refused: Option<String>,
}

impl Measured {
    /// The sum of all groups.
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
