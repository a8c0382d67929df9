//! The keeper of a run: a separate process that undoes the run if it is killed.
//!
//! It is started before the journal exists, and its standard input is a pipe that the run holds. When that
//! closes, the run has ended, however it did; everything that the run has not undone is still in the journal.
//! It does not carry the run's marker, so it is not among the processes that it kills.

use super::MARK;
use super::removal::{UndoReport, undo};
use crate::LabError;
use spangap_undo::file::wait_for;
use spangap_undo::guard::Guard;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Printed when it is ready.
pub use spangap_undo::guard::READY;
/// Time limit of its attempts: nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit to find that there is nothing to do.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A keeper, as owned by its run.
pub(super) struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts a keeper, and waits until it can no longer miss the end of the run.
    pub(super) fn start(spangap: &Path, journal: &Path) -> Result<Keeper, LabError> {
        let mut command = Command::new(spangap);
        command.args(["lab", "keeper", "--journal"]).arg(journal).env_remove(MARK).stdin(Stdio::piped());
        let guard = Guard::start(&mut command)
            .map_err(|error| LabError::program("the process that undoes a killed run", error.to_string()))?;
        Ok(Keeper { child: guard.into_child() })
    }

    /// Closes its life line, and waits for its end.
    pub(super) fn end(mut self) {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        // A stopped keeper is not waited for: it has nothing to undo.
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The keeper process itself: waits for the end of `life_line`, then undoes what is left. `None` if nothing
/// was.
///
/// # Errors
/// The journal cannot be opened. Objects that cannot be removed are not an error: they stay in the journal.
pub fn keep(journal: &Path, mut life_line: impl Read) -> Result<Option<UndoReport>, LabError> {
    // Nothing is ever written; only the end counts.
    let _ = io::copy(&mut life_line, &mut io::sink());
    // A run that is just ending, or a clean-up, holds the lock a little longer.
    Ok(wait_for(journal)?.map(|_locked| undo(journal, PATIENCE)))
}
