//! What is seen of a run from outside its client: its sockets in the kernel, the target's own account.

use crate::report::{Sockets, Streams};

/// What was seen so far.
#[derive(Default)]
pub struct Sight {
    warnings: Vec<String>,
}

impl Sight {
    /// Looks at nothing.
    pub fn none() -> Self {
        Sight::default()
    }

    /// Tells which process to look at.
    pub fn of_process(&mut self, _pid: u32) {}
    /// Looks at the sockets.
    pub fn look(&mut self) {}
    /// Asks the target, at the beginning of the measured phase.
    pub fn measured_begins(&mut self) {}
    /// Looks and asks for the last time.
    pub fn measured_ends(&mut self) {}
    pub fn connections(&self) -> Option<u64> {
        None
    }
    pub fn sockets(&self) -> Option<Sockets> {
        None
    }
    pub fn streams(&self, _inflight: Option<u32>) -> Option<Streams> {
        None
    }
    pub fn cpu_target_ns(&self) -> Option<u64> {
        None
    }
    pub fn context_switches_target(&self) -> Option<u64> {
        None
    }
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
