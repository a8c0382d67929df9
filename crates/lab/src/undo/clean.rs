//! All journals of a folder: what was killed is undone, what goes on is left alone.

use super::journal::ENDING;
use super::removal::{Left, PATIENCE, Undone, undo};
use crate::LabError;
use serde::Serialize;
use spangap_undo::file::{Found, set_aside, take};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What was found and removed.
#[derive(Debug, Default, Serialize)]
pub struct Cleaned {
    /// Runs that were killed, each with what was removed and what is left.
    pub runs: Vec<Undone>,
    /// Journals of runs that go on, or that somebody else is just undoing. They are left alone.
    pub going_on: Vec<PathBuf>,
}

impl Cleaned {
    /// Journals that are damaged, and still there.
    pub fn damaged(&self) -> impl Iterator<Item = &Path> {
        let runs = self.runs.iter().filter(|run| !run.unreadable.is_empty() && run.set_aside.is_none());
        runs.map(|run| &*run.journal)
    }

    /// All that could not be removed.
    pub fn left(&self) -> impl Iterator<Item = &Left> {
        self.runs.iter().flat_map(|run| &run.left)
    }
}

/// Undoes every run whose journal is in `state` and that does not go on. With `forget`, journals that are damaged are set
/// aside when everything is undone that can be read of them.
///
/// # Errors
/// When the folder cannot be read. What of a run cannot be removed is in the result.
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
