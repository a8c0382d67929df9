//! Known traps on this host: one trap, one file. Needs no eBPF, and root only where it says so.
//!
//! Files are read through [`Host`], below a root that may be a copy. [`Look`] holds what two readings say, a while apart.
//! Each trap of [`traps`] is a rule over these values, and yields one [`Finding`]. Nothing here changes anything:
//! what would help is a command for the reader to paste.

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
pub use finding::{Evidence, Finding, Severity, Verdict, Whose};
pub use look::{AcceptQueue, Connection, Counters, Look, Sockets, TcpSockets};
pub use traps::names;

/// Every trap's finding: traps first, the worst first; then what cannot be told; then what is fine.
pub fn findings(look: &Look) -> Vec<Finding> {
    let mut findings: Vec<Finding> = traps::ALL.iter().map(|trap| trap.finding(look)).collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}
