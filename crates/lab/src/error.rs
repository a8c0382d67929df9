//! What can go wrong in the lab.

use spangap_machine::FactError;
use spangap_undo::FileError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Something this machine or build lacks; the scenario cannot run here at all.
    #[error("{what} is not available here: {why}")]
    Unavailable {
        /// Which scenario, or what it needs.
        what: String,
        /// What is missing, and what brings it.
        why: String,
    },
    /// A file or folder.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// What was tried: `write`, `make`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of the kernel that cannot be read, or is of another form.
    #[error(transparent)]
    Fact(#[from] FactError),
    /// A program that did not do its part.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What it said, or what was waited for in vain.
        why: String,
    },
    /// The calls of a run had ended before the fault could begin.
    #[error(
        "{actor} was not ready before the calls were over: this machine is too busy for a run that short"
    )]
    TooLate {
        /// What makes the fault.
        actor: String,
    },
    /// A parameter that is not there, or has no such value.
    #[error("{0}")]
    Parameter(String),
    /// Ctrl-C, or a signal that asks for the end.
    #[error("interrupted; everything is undone")]
    Interrupted,
    /// A run that failed after programs of it had said something.
    #[error("{failed} (the output of the run's programs is in {})", logs.display())]
    Failed {
        /// Why.
        failed: Box<LabError>,
        /// Folder of their output, one file each.
        logs: PathBuf,
    },
    /// Something of a run could not be removed.
    #[error("not everything of the run could be removed ({0}); `spangap lab clean` tries again")]
    Left(String),
    /// A run that failed, and then could not be undone either.
    #[error("{failed}; and {left}")]
    FailedAndLeft {
        /// Why it failed.
        failed: Box<LabError>,
        /// What could not be removed.
        left: Box<LabError>,
    },
}

impl From<FileError> for LabError {
    fn from(FileError { what, path, source }: FileError) -> LabError {
        LabError::File { what, path, source }
    }
}

impl LabError {
    /// A file operation that failed.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError + use<> {
        let path = path.to_owned();
        move |source| LabError::File { what, path, source }
    }

    /// A program that failed.
    pub fn program(program: impl Into<String>, why: impl Into<String>) -> LabError {
        LabError::Program { program: program.into(), why: why.into() }
    }
}
