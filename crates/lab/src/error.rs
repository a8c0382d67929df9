//! Errors of the lab.

use spangap_machine::FactError;
use spangap_undo::FileError;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine or build lacks something; the scenario cannot run here at all.
    #[error("{what} is not available here: {why}")]
    Unavailable {
        /// The scenario, or what it needs.
        what: String,
        /// What is missing, and how to get it.
        why: String,
    },
    /// A file or folder.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// Operation: `write`, `make`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A kernel file that is unreadable or malformed.
    #[error(transparent)]
    Fact(#[from] FactError),
    /// A program that failed.
    #[error("{program}: {why}")]
    Program {
        program: String,
        /// Its message, or the missing event.
        why: String,
    },
    /// The calls of a run ended before the fault could start.
    #[error(
        "{actor} was not ready before the calls were over: this machine is too busy for a run that short"
    )]
    TooLate {
        /// Actor that makes the fault.
        actor: String,
    },
    /// An unknown parameter, or an invalid value.
    #[error("{0}")]
    Parameter(String),
    /// Ctrl-C, or a termination signal.
    #[error("interrupted; everything is undone")]
    Interrupted,
    /// A run that failed, and left output of its programs.
    #[error("{failed} (the output of the run's programs is in {})", logs.display())]
    Failed {
        /// Reason.
        failed: Box<LabError>,
        /// Folder of their output, one file each.
        logs: PathBuf,
    },
    /// Part of a run could not be removed.
    #[error("not everything of the run could be removed ({0}); `spangap lab clean` tries again")]
    Left(String),
    /// A run that failed, and could not be undone completely either.
    #[error("{failed}; and {left}")]
    FailedAndLeft {
        /// Reason of the failure.
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
