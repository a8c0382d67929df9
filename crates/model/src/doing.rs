//! States of a thread, as the kernel's scheduler reports them.

use crate::named::named;

named! {
    /// Activity of a thread. At every moment exactly one of these holds.
    pub enum Doing {
        /// On a CPU, at its own work.
        Running = "running",
        /// Current on its CPU while a softirq or hardirq ran there.
        Interrupted = "interrupted",
        /// Runnable, waiting for a CPU.
        Runnable = "runnable",
        /// Runnable, but its cgroup's CPU quota was used up.
        Throttled = "throttled",
        /// Stopped by a signal or a debugger.
        Stopped = "stopped",
        /// Blocked: waiting for data, a lock, a timer.
        Blocked = "blocked",
        /// Waiting for data that had reached the tap, but not yet its socket: softirqs ran late.
        SoftirqLate = "softirq_late",
        /// Not observed, or lost.
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
