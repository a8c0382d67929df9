//! What a run created is undone when the run ends, however that comes about: by [`Undo`] itself, or by its keeper.

use super::journal::{CreatedObject, ENDING, Head};
use super::keeper::Keeper;
use super::removal::{PATIENCE, undo};
use crate::LabError;
use spangap_machine::facts::boot_id;
use spangap_undo::Appender;
use spangap_undo::file::make;
use spangap_undo::journal::{head_line, line};
use std::fs;
use std::path::{Path, PathBuf};

/// Undoes what a run created, on drop at the latest.
pub struct Undo {
    id: String,
    path: PathBuf,
    /// Open and locked. `None` once it is undone.
    journal: Option<Appender>,
    keeper: Option<Keeper>,
}

impl Undo {
    /// A new journal in the folder `state`, undone only by this process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(state: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: None })
    }

    /// A new journal in the folder `state` with a keeper, so that it is undone even if this process is killed.
    /// `spangap` is the program whose `lab keeper` is started.
    ///
    /// # Errors
    /// It cannot be written, or the keeper does not start.
    pub fn kept(state: &Path, spangap: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        // Before the journal: nothing else would undo a run killed in between.
        let keeper = Keeper::start(spangap, &path)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: Some(keeper) })
    }

    /// Id of the run on this machine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Call before something is created.
    ///
    /// # Errors
    /// It cannot be recorded, or its name does not contain the run's id: then it must not be created.
    pub fn about_to_make(&mut self, made: CreatedObject) -> Result<(), LabError> {
        if let Some(why) = made.foreign(&self.id) {
            return Err(LabError::program("the journal of the run", why));
        }
        let journal = self.journal.as_mut().expect("it is open until everything is undone");
        Ok(journal.write(&line(&made))?)
    }

    /// Undoes everything, and removes the journal.
    ///
    /// # Errors
    /// Something is left; then the journal stays, too, and the keeper keeps trying for a while.
    pub fn everything(mut self) -> Result<(), LabError> {
        self.end()
    }

    /// The remains of a killed run: the journal, without its lock.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        self.journal = None;
    }

    fn end(&mut self) -> Result<(), LabError> {
        let Some(locked) = self.journal.take() else { return Ok(()) };
        let undone = undo(&self.path, PATIENCE);
        drop(locked);
        let keeper = self.keeper.take();
        if undone.left.is_empty() && undone.unreadable.is_empty() {
            // It finds nothing to do.
            if let Some(keeper) = keeper {
                keeper.end();
            }
            return Ok(());
        }
        let left = undone.left.iter().map(|left| format!("{}: {}", left.what, left.why));
        let damaged =
            undone.unreadable.iter().map(|damage| format!("journal {}, {damage}", self.path.display()));
        let left = left.chain(damaged);
        Err(LabError::Left(left.collect::<Vec<_>>().join("; ")))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // `spangap lab clean` can try again: the journal still exists.
        let _ = self.end();
    }
}

fn place(state: &Path) -> Result<(String, PathBuf), LabError> {
    fs::create_dir_all(state).map_err(LabError::file("make", state))?;
    // The process that undoes it may be in another folder.
    let state = fs::canonicalize(state).map_err(LabError::file("find", state))?;
    // Short, because names of namespaces are made of it.
    let id = format!("{:06x}{:04x}", std::process::id() & 0xff_ffff, fastrand::u16(..));
    let path = state.join(&id).with_extension(ENDING);
    Ok((id, path))
}

/// An empty journal, on disk and locked.
fn new(path: &Path) -> Result<Appender, LabError> {
    let text = head_line(&Head { boot_id: boot_id::here()? });
    let file = make(path, &text)?;
    Ok(Appender::new(path.to_owned(), file, &text))
}
