//! Resource usage of this process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Usage of all threads, including ended ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time, in user and kernel mode.
    pub cpu_ns: u64,
    /// Both voluntary and involuntary.
    pub context_switches: u64,
}

impl Used {
    /// Since the start of the process.
    pub fn so_far() -> Self {
        // Fails only for an unknown `who`.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Used::default() };
        let cpu = usage.user_time() + usage.system_time();
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Used { cpu_ns: cpu.num_nanoseconds() as u64, context_switches: switches as u64 }
    }

    /// The kernel's two readings may contradict each other by a tick: the difference never goes below zero.
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows() {
        let before = Used::so_far();
        let mut number = 1u64;
        while Used::so_far().cpu_ns < before.cpu_ns + 1_000_000 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(Used::so_far().context_switches >= before.context_switches);
    }
}
