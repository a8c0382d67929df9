//! Measures the meter as users run it: the real binary, pinned to one core, fed over real sockets.
//!
//! The parts are a library so that the command line's tests can compare the meter with the same truth.

pub mod cases;
pub mod floor;
pub mod gapload;
pub mod generate;
pub mod goals;
pub mod payload;
pub mod process;
pub mod send;
pub mod truth;
pub mod workload;

use std::path::PathBuf;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or folder cannot be accessed.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The content of an existing file is invalid.
    #[error("{}: offset {offset}: expected {expected}", path.display())]
    Format {
        path: PathBuf,
        offset: usize,
        /// The expected content.
        expected: &'static str,
    },
    /// A program failed to start or to do its work.
    #[error("{program}: {reason}")]
    Program {
        program: String,
        /// What happened instead.
        reason: String,
    },
    /// The meter's answer is wrong.
    #[error("{peer}: {reason}")]
    Peer {
        /// Address and, if relevant, path.
        peer: String,
        /// What happened instead.
        reason: String,
    },
}

impl BenchError {
    /// For `map_err`: a failure at this path.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> BenchError {
        let path = path.into();
        move |source| BenchError::File { path, source }
    }

    /// For `map_err`: a failure of this peer.
    pub fn peer<E: std::fmt::Display>(peer: impl ToString) -> impl FnOnce(E) -> BenchError {
        let peer = peer.to_string();
        move |reason| BenchError::Peer { peer, reason: reason.to_string() }
    }
}
