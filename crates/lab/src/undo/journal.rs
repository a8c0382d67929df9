//! The journal of one run. Whoever runs it holds a lock on it; one without a lock belongs to a run that was killed.

use super::clean::undo;
use crate::LabError;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Variable in the environment of every program that a run starts: the run's id. By it they are found again.
pub const MARK: &str = "SPANGAP_LAB";

/// Something that would stay when the run is killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "made", deny_unknown_fields)]
pub enum Made {
    /// A network namespace of `ip netns`, with all that is inside: devices, routes, queueing disciplines, settings.
    Namespace {
        /// Its name.
        name: String,
    },
    /// A control group; its processes are ours.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// A folder of ours with all that is inside.
    Folder {
        /// Which.
        path: PathBuf,
    },
}

/// Undoes what a run made, when it is dropped at the latest.
pub struct Undo {
    id: String,
    path: PathBuf,
    journal: File,
    undone: bool,
}

impl Undo {
    /// A new journal in the folder `state`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(state: &Path) -> Result<Undo, LabError> {
        fs::create_dir_all(state).map_err(LabError::file("make", state))?;
        // Short: names of namespaces are made of it.
        let id = format!("{:06x}{:04x}", std::process::id() & 0xff_ffff, fastrand::u16(..));
        let path = state.join(format!("{id}.journal"));
        let journal = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .map_err(LabError::file("make", &path))?;
        flock(&journal, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| LabError::file("lock", &path)(error.into()))?;
        Ok(Undo { id, path, journal, undone: false })
    }

    /// What the run is called on this machine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// To be called before something is made.
    ///
    /// # Errors
    /// When it cannot be written down: then it must not be made.
    pub fn about_to_make(&mut self, made: Made) -> Result<(), LabError> {
        let mut line = serde_json::to_vec(&made).expect("it is plain data");
        line.push(b'\n');
        self.journal
            .write_all(&line)
            .and_then(|()| self.journal.sync_data())
            .map_err(LabError::file("write", &self.path))
    }

    /// Undoes everything, and removes the journal.
    ///
    /// # Errors
    /// When something stays; then the journal does, too.
    pub fn everything(mut self) -> Result<(), LabError> {
        self.undone = true;
        undo(&self.path).map(drop)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if !self.undone {
            // Another try is `spangap lab clean`; the journal is still there.
            let _ = undo(&self.path);
        }
    }
}

/// What a journal says. A line that was cut short is something that was not made.
pub(super) fn read(path: &Path) -> Result<Vec<Made>, LabError> {
    let text = fs::read(path).map_err(LabError::file("read", path))?;
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_slice(line).map_err(|error| LabError::File {
                what: "understand",
                path: format!("{}, line {}", path.display(), number + 1).into(),
                source: std::io::Error::other(error),
            })
        })
        .collect()
}
