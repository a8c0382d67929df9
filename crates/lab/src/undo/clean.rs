//! All journals of a folder: undoes killed runs, and leaves active ones alone.

use super::journal::ENDING;
use super::removal::{PATIENCE, Remainder, UndoReport, undo};
use crate::LabError;
use serde::Serialize;
use spangap_undo::file::{LockAttempt, set_aside, take};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Result of a clean-up.
#[derive(Debug, Default, Serialize)]
pub struct CleanReport {
    /// Killed runs, each with what was removed and what is left.
    pub runs: Vec<UndoReport>,
    /// Journals of active runs, or of runs that another process is undoing. Left alone.
    pub going_on: Vec<PathBuf>,
}

impl CleanReport {
    /// Damaged journals that still exist.
    pub fn damaged(&self) -> impl Iterator<Item = &Path> {
        let runs = self.runs.iter().filter(|run| !run.unreadable.is_empty() && run.set_aside.is_none());
        runs.map(|run| &*run.journal)
    }

    /// Everything that could not be removed.
    pub fn left(&self) -> impl Iterator<Item = &Remainder> {
        self.runs.iter().flat_map(|run| &run.left)
    }
}

/// Undoes every inactive run with a journal in `state`. With `forget`, damaged journals are set aside once
/// their readable part is undone.
///
/// # Errors
/// The folder cannot be read. Parts of a run that cannot be removed are in the result.
pub fn clean(state: &Path, forget: bool) -> Result<CleanReport, LabError> {
    let mut cleaned = CleanReport::default();
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(cleaned),
        Err(error) => return Err(LabError::file("read", state)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(LabError::file("read", state))?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        match take(&path) {
            Ok(LockAttempt::Free(_locked)) => {
                let mut undone = undo(&path, PATIENCE);
                if forget && undone.but_for_damage() {
                    match set_aside(&path) {
                        Ok(aside) => undone.set_aside = Some(aside),
                        Err(error) => {
                            let (what, why) =
                                (format!("journal {}", path.display()), error.source.to_string());
                            undone.left.push(Remainder { what, why });
                        }
                    }
                }
                cleaned.runs.push(undone);
            }
            Ok(LockAttempt::Taken) => cleaned.going_on.push(path),
            Ok(LockAttempt::Gone) => {}
            Err(error) => {
                let left = Remainder { what: format!("journal {}", path.display()), why: error.to_string() };
                cleaned.runs.push(UndoReport { left: vec![left], ..UndoReport::of(&path) });
            }
        }
    }
    Ok(cleaned)
}
