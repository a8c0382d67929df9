//! Settings of a run.

use crate::clocks::Retime;
use crate::draw::DrawnRun;
use crate::host_clock::HostClock;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Settings of a run.
pub struct RunSettings<'a> {
    /// The program `spangap`.
    pub spangap: PathBuf,
    /// Folder of the run; it must not exist yet.
    pub out: PathBuf,
    /// Folder of the journals.
    pub state: PathBuf,
    /// Seed of random choices.
    pub seed: u64,
    /// Clocks of hosts; they override the scenario's.
    pub clocks: Vec<HostClock>,
    /// What was drawn in addition to the scenario; `None` for a run that was not drawn.
    pub drawn: Option<DrawnRun>,
    /// Shifts packets and host recordings to the clock of their host.
    pub retime: &'a Retime<'a>,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    /// Receives progress.
    pub say: &'a dyn Fn(&str),
}
