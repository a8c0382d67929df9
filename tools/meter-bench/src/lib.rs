//! Measures the meter as a user runs it: the real binary, pinned to one core, fed over real sockets.
//!
//! The parts are a library so that the command line's tests hold the meter to the same truth.

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

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that is there but is not what it should be.
    #[error("{}: offset {offset}: expected {expected}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        offset: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// A program that did not start or did not do its work.
    #[error("{program}: {reason}")]
    Program {
        /// Which.
        program: String,
        /// What happened instead.
        reason: String,
    },
    /// The meter did not answer as it should.
    #[error("{peer}: {reason}")]
    Peer {
        /// Address and, if it matters, path.
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
