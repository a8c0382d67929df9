//! States of a thread, as the kernel's scheduler reports them.

use crate::named::named;

named! {
    /// What took a stretch of a thread's time. At every moment exactly one of these holds.
    pub enum Doing {
        /// It ran.
        Running = "running",
        /// It was the task of its CPU, but a softirq or hardirq ran there.
        Interrupted = "interrupted",
        /// It could have run, and waited for a CPU.
        Runnable = "runnable",
        /// It could have run, but the CPU quota of its cgroup was used up.
        Throttled = "throttled",
        /// It had been stopped by a signal or a debugger.
        Stopped = "stopped",
        /// It waited for something: data, a lock, a timer.
        Blocked = "blocked",
        /// It waited for data that had reached the tap, but not yet its socket: softirqs ran late.
        SoftirqLate = "softirq_late",
        /// Not seen, or lost.
        Unknown = "unknown",
    }
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
