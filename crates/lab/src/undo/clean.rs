//! All journals of a folder: undoes killed runs, and leaves active ones alone.

use super::journal::ENDING;
use super::removal::{Left, PATIENCE, Undone, undo};
use crate::LabError;
use serde::Serialize;
use spangap_undo::file::{Found, set_aside, take};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Result of a clean-up.
#[derive(Debug, Default, Serialize)]
pub struct Cleaned {
    /// Killed runs, each with what was removed and what is left.
    pub runs: Vec<Undone>,
    /// Journals of active runs, or of runs that another process is undoing. Left alone.
    pub going_on: Vec<PathBuf>,
}

impl Cleaned {
    /// Damaged journals that still exist.
    pub fn damaged(&self) -> impl Iterator<Item = &Path> {
        let runs = self.runs.iter().filter(|run| !run.unreadable.is_empty() && run.set_aside.is_none());
        runs.map(|run| &*run.journal)
    }

    /// Everything that could not be removed.
    pub fn left(&self) -> impl Iterator<Item = &Left> {
        self.runs.iter().flat_map(|run| &run.left)
    }
}

/// Undoes every inactive run with a journal in `state`. With `forget`, damaged journals are set aside once
/// their readable part is undone.
///
/// # Errors
/// The folder cannot be read. Parts of a run that cannot be removed are in the result.
pub fn clean(state: &Path, forget: bool) -> Result<Cleaned, LabError> {
    let mut cleaned = Cleaned::default();
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
            Ok(Found::Free(_locked)) => {
                let mut undone = undo(&path, PATIENCE);
                if forget && undone.but_for_damage() {
                    match set_aside(&path) {
                        Ok(aside) => undone.set_aside = Some(aside),
                        Err(error) => {
                            let (what, why) =
                                (format!("journal {}", path.display()), error.source.to_string());
                            undone.left.push(Left { what, why });
                        }
                    }
                }
                cleaned.runs.push(undone);
            }
            Ok(Found::Taken) => cleaned.going_on.push(path),
            Ok(Found::Gone) => {}
            Err(error) => {
                let left = Left { what: format!("journal {}", path.display()), why: error.to_string() };
                cleaned.runs.push(Undone { left: vec![left], ..Undone::of(&path) });
            }
        }
    }
    Ok(cleaned)
}
