//! Why there is no target, or no longer.

use crate::contract::TargetStack;
use crate::otlp::ExportError;
use crate::ping;
use crate::programs::Missing;
use crate::raw::server::RawTargetError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why the target does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Something that the stack cannot do.
    #[error("stack {stack} has no setting for {setting}: {why}")]
    Unavailable {
        /// Stack asked for.
        stack: TargetStack,
        /// What it was to be told.
        setting: &'static str,
        /// What it does instead.
        why: &'static str,
    },
    /// The address cannot be used.
    #[error("cannot listen on {listen}")]
    Listen {
        /// As given.
        listen: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A size over the limit.
    #[error("a response of {0} bytes is too large: expected at most {max}", max = ping::MAX_PAYLOAD_BYTES)]
    Payload(u64),
    /// A think time over the limit.
    #[error("a think time of {0} ns is too long: expected at most {max} ns", max = ping::MAX_THINK_NS)]
    Think(u64),
    /// A window that HTTP/2 cannot have.
    #[error("a window of {0} bytes: expected 65535 to 2147483647")]
    Window(u32),
    /// Spans cannot be sent.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The kernel gave no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The reflection service cannot describe the ping service.
    #[error("cannot set up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended by itself.
    #[error("the server on {address} failed")]
    Serve {
        /// Where it listened.
        address: SocketAddr,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// There is no raw target.
    #[error(transparent)]
    Raw(#[from] RawTargetError),
    /// The program of this stack is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The kernel did not start it, or did not tell of it.
    #[error("cannot run {program}")]
    Run {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The FIFO for its records cannot be made.
    #[error("cannot make a FIFO for the records of calls")]
    Fifo(#[source] io::Error),
    /// It said why it does not serve.
    #[error("{0}")]
    Failed(String),
    /// It ended and did not say why.
    #[error("{program} exited on its own ({status}): expected it to serve until told to stop")]
    Ended {
        /// The program.
        program: PathBuf,
        /// How.
        status: ExitStatus,
    },
    /// It does not say that it listens.
    #[error("{program} did not say within {patience:?} that it listens")]
    Silent {
        /// The program.
        program: PathBuf,
        /// Time it had.
        patience: Duration,
    },
    /// It was told to stop and did not.
    #[error("{program} did not exit within {patience:?} of being told to, and was killed")]
    Stuck {
        /// The program.
        program: PathBuf,
        /// Time it had.
        patience: Duration,
    },
}
