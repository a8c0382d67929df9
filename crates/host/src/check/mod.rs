//! Known traps of a host, one per file. Needs no eBPF, and root only where a trap says so.
//!
//! Files are read through [`Host`], below a root that may be a copy of another machine's. [`Inspection`] holds two
//! readings taken some time apart. Each trap in [`traps`] is a rule over these values and yields one
//! [`TrapFinding`]. Nothing here changes the machine: a remedy is a command for the reader to paste.

mod evidence;
mod facts;
mod finding;
mod look;
mod remedy;
mod stalls;
mod traps;

use spangap_machine::{FactError, Host, Known};
use spangap_model::Cpus;

pub use evidence::evidence;
pub(crate) use facts::cgroup::freezer;
pub use finding::{Severity, Subject, TrapFigure, TrapFinding, TrapVerdict};
pub use look::{AcceptQueue, Connection, Counters, Inspection, Sockets, TcpSockets};
pub use traps::names;

/// Findings of all traps: present traps first, the worst first; then those without a verdict; then absent ones.
pub fn findings(look: &Inspection) -> Vec<TrapFinding> {
    let mut findings: Vec<TrapFinding> = traps::ALL.iter().map(|trap| trap.finding(look)).collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}
