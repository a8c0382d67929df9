//! Off-CPU histograms as JSON; the text is made from the same shape.

pub mod text;

use super::wait_times::Waits;
use super::waits::ReasonsReport;
use crate::halted::Halted;
use crate::probes::cost::Cost;
use crate::probes::offcpu::{Group, GroupBy, Kind, Lost, Measurement, Throttled};
use serde::Serialize;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffcpuReport {
    /// Length of the measurement.
    pub duration_ns: u64,
    /// Measured threads, in words.
    pub of: String,
    /// Kind of the groups: `process`, `thread` or `cgroup`.
    pub by: &'static str,
    /// Groups, those denied a usable CPU for longest first.
    pub groups: Vec<GroupReport>,
    /// Threads that never ran, and are in no group.
    pub threads_never_ran: u64,
    /// Why the threads of the given processes slept, and what woke them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<ReasonsReport>,
    /// Processes that were stopped or frozen before the measurement began.
    pub halted: Vec<Halted>,
    /// Waits that were not counted.
    pub lost: Lost,
    /// Cost of the program; `None` if it did not run during a sample.
    pub cost: Option<Cost>,
    /// Limitations of the figures.
    pub notes: Vec<String>,
}

/// Waits of a process, a thread or a cgroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// Id of the process, thread or cgroup; 0 for the group of all that found no room.
    pub id: u64,
    /// Process id, for a process or thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Name; for a cgroup its directory.
    pub name: String,
    /// Total of completed waits.
    pub off_cpu_ns: u64,
    /// Total of completed waits in which it was runnable.
    pub runnable_ns: u64,
    pub waits: WaitsByKind,
}

/// Waits by their kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitsByKind {
    pub blocked: Waits,
    pub stopped: Waits,
    /// Runnable after being blocked or stopped.
    pub woken: Waits,
    /// Runnable throughout.
    pub preempted: Waits,
    /// Out of CPU quota.
    pub throttled: Waits,
}

impl WaitsByKind {
    /// In display order.
    pub fn all(&self) -> [(Kind, &Waits); Kind::ALL.len()] {
        [
            (Kind::Blocked, &self.blocked),
            (Kind::Woken, &self.woken),
            (Kind::Preempted, &self.preempted),
            (Kind::Throttled, &self.throttled),
            (Kind::Stopped, &self.stopped),
        ]
    }
}

impl GroupReport {
    fn new(group: &Group, by: GroupBy) -> GroupReport {
        let waits = |kind: Kind| Waits::new(group.of(kind), group.open[kind as usize]);
        GroupReport {
            id: group.id,
            pid: (by != GroupBy::Cgroup && group.id != 0).then_some(group.tgid),
            name: group.name.clone(),
            off_cpu_ns: group.off_cpu_ns(),
            runnable_ns: group.runnable_ns(),
            waits: WaitsByKind {
                blocked: waits(Kind::Blocked),
                stopped: waits(Kind::Stopped),
                woken: waits(Kind::Woken),
                preempted: waits(Kind::Preempted),
                throttled: waits(Kind::Throttled),
            },
        }
    }

    /// Time in which it wanted a CPU and had none, in nanoseconds.
    pub fn denied_ns(&self) -> u64 {
        self.runnable_ns + self.waits.throttled.sum_ns
    }
}

impl OffcpuReport {
    /// Describes a measurement; `of` names the measured threads.
    pub fn new(measured: &Measurement, of: String) -> OffcpuReport {
        let mut groups: Vec<_> =
            measured.groups.iter().map(|group| GroupReport::new(group, measured.by)).collect();
        groups.sort_by_key(|group| (std::cmp::Reverse((group.denied_ns(), group.off_cpu_ns)), group.id));
        OffcpuReport {
            duration_ns: measured.elapsed_ns,
            of,
            by: match measured.by {
                GroupBy::Process => "process",
                GroupBy::Thread => "thread",
                GroupBy::Cgroup => "cgroup",
            },
            groups,
            threads_never_ran: measured.never_ran,
            reasons: None,
            halted: Vec::new(),
            lost: measured.lost,
            cost: measured.cost,
            notes: notes(measured),
        }
    }
}

fn notes(measured: &Measurement) -> Vec<String> {
    let mut notes = Vec::new();
    if measured.throttled == Throttled::WhenItLeaves {
        notes.push(
            "before Linux 6.18 threads woken while the CPU quota of their cgroup was used up count as woken, not as throttled"
                .to_string(),
        );
    }
    if let Some(why) = &measured.cost_refused {
        notes.push(format!(
            "the overhead of the program is unknown: the kernel keeps no statistics of it: {why}"
        ));
    }
    notes
}
