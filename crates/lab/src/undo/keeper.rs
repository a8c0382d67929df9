//! The keeper of a run: a process of its own that undoes the run when that is killed.
//!
//! It is started before the journal is there, and its standard input is a pipe that the run holds. When that ends, the
//! run has ended, however it did; what the run has not undone is still in the journal. It has not the run's mark, so
//! that it is not among what it ends.

use super::journal::MARK;
use super::removal::{Undone, undo};
use crate::LabError;
use spangap_undo::file::wait_for;
use spangap_undo::guard::Guard;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What it says when it keeps.
pub use spangap_undo::guard::READY;
/// How long it tries: nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one may take to see that there is nothing to do.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A keeper as its run has it.
pub(super) struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts one, and waits until nothing that may happen to the run escapes it.
    pub(super) fn start(spangap: &Path, journal: &Path) -> Result<Keeper, LabError> {
        let mut command = Command::new(spangap);
        command.args(["lab", "keeper", "--journal"]).arg(journal).env_remove(MARK).stdin(Stdio::piped());
        let guard = Guard::start(&mut command)
            .map_err(|error| LabError::program("the process that undoes a killed run", error.to_string()))?;
        Ok(Keeper { child: guard.into_child() })
    }

    /// Lets go of it, and waits for its end.
    pub(super) fn end(mut self) {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        // One that somebody has stopped is not waited for: it has nothing to undo.
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The keeper's own part: waits for the end of `life_line`, then undoes what is still to be undone. `None`: nothing was.
///
/// # Errors
/// When the journal cannot be opened. What cannot be removed is no error: it stays in the journal.
pub fn keep(journal: &Path, mut life_line: impl Read) -> Result<Option<Undone>, LabError> {
    // Nothing is ever written; what counts is the end.
    let _ = io::copy(&mut life_line, &mut io::sink());
    // A run that is just ending, or somebody who cleans, has it a little longer.
    Ok(wait_for(journal)?.map(|_locked| undo(journal, PATIENCE)))
}
