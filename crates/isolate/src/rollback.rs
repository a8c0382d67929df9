//! The way back, from the journal alone: a value is restored only if it is still the one that was written.

use crate::journal::{Entry, Journal};
use crate::kernel::Kernel;
use crate::place::Place;
use serde::Serialize;

/// How a value that was written stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// As it was written.
    Ours,
    /// As it was before: never written, or set back.
    Before,
    /// Somebody else has changed it.
    Changed {
        /// To this.
        found: String,
    },
    /// There is no such place any more: the cgroup, interface or thread is gone.
    Gone,
    /// It cannot be read.
    Unknown {
        /// Why.
        why: String,
    },
}

/// A value that was written, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What was written.
    pub entry: Entry,
    /// How it stands.
    pub state: State,
}

/// How everything that was written stands, in the order of the journal.
pub fn standing(_kernel: &dyn Kernel, _journal: &Journal) -> Vec<Standing> {
    Vec::new()
}

/// What was undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    /// Values restored.
    pub restored: Vec<Place>,
    /// Values that were as before already.
    pub before_already: u64,
    /// Places that are gone.
    pub gone: Vec<Place>,
    /// Values left, since somebody else had changed them.
    pub left: Vec<Standing>,
    /// Values that could not be restored, with what the kernel said.
    pub failed: Vec<(Place, String)>,
    /// Cgroups made meanwhile that had inherited a narrowed set, and were given what their parent got back.
    pub widened: Vec<String>,
}

/// Undoes, in reverse. `force` restores also what somebody else has changed.
pub fn rollback(
    _kernel: &dyn Kernel,
    _journal: &Journal,
    _force: bool,
    _tell: &mut dyn FnMut(&Place),
) -> RolledBack {
    RolledBack::default()
}
