//! What a thread did in a stretch of time, as the kernel's scheduler tells it.

use crate::wait::WaitReason;
use std::fmt;

/// What took a stretch of a thread's time. At every moment exactly one of these holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It ran.
    Running,
    /// It was the task of its CPU, but a softirq or hardirq ran there.
    Interrupted,
    /// It could have run, and waited for a CPU.
    Runnable,
    /// It could have run, but the CPU quota of its cgroup was used up.
    Throttled,
    /// It had been stopped by a signal or a debugger.
    Stopped,
    /// It waited for something: data, a lock, a timer.
    Blocked,
    /// It waited for data that had reached the tap, but not yet its socket: softirqs ran late.
    SoftirqLate,
    /// Not seen, or lost.
    Unknown,
}

impl Doing {
    /// All of them.
    pub const ALL: [Doing; 8] = [
        Doing::Running,
        Doing::Interrupted,
        Doing::Runnable,
        Doing::Throttled,
        Doing::Stopped,
        Doing::Blocked,
        Doing::SoftirqLate,
        Doing::Unknown,
    ];

    /// The name in JSON, tables and pages.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Running => "running",
            Doing::Interrupted => "interrupted",
            Doing::Runnable => "runnable",
            Doing::Throttled => "throttled",
            Doing::Stopped => "stopped",
            Doing::Blocked => "blocked",
            Doing::SoftirqLate => "softirq_late",
            Doing::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A part of a leg on one host: what the thread that had the call in hand did, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart {
    /// What.
    pub doing: Doing,
    /// Who had the CPU meanwhile, in words: `stress (pid 812)`, `NET_RX of eth0`; `None` where that is nobody else.
    pub behind: Option<String>,
    /// Of a wait: what for, where that is known.
    pub waited_for: Option<WaitReason>,
    /// Of a wait: who or what ended it, in words.
    pub woken_by: Option<String>,
    /// Nanoseconds.
    pub ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = Doing::ALL.iter().map(|doing| doing.name()).collect();
        assert_eq!(names.len(), Doing::ALL.len());
    }
}
