//! Errors of a target.

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

/// Reason for a target not to serve.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A setting that the stack does not support.
    #[error("stack {stack} has no setting for {setting}: {why}")]
    Unavailable {
        /// Stack.
        stack: TargetStack,
        /// Setting.
        setting: &'static str,
        /// What it does instead.
        why: &'static str,
    },
    /// The address is unusable.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A size above the limit.
    #[error("a response of {0} bytes is too large: expected at most {max}", max = ping::MAX_PAYLOAD_BYTES)]
    Payload(u64),
    /// A think time above the limit.
    #[error("a think time of {0} ns is too long: expected at most {max} ns", max = ping::MAX_THINK_NS)]
    Think(u64),
    /// A window that HTTP/2 does not permit.
    #[error("a window of {0} bytes: expected 65535 to 2147483647")]
    Window(u32),
    /// Spans cannot be sent.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// No thread can be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The reflection service cannot describe the ping service.
    #[error("cannot set up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server stopped by itself.
    #[error("the server on {address} failed")]
    Serve {
        /// Listening address.
        address: SocketAddr,
        /// Error of the transport.
        source: tonic::transport::Error,
    },
    /// Error of the raw target.
    #[error(transparent)]
    Raw(#[from] RawTargetError),
    /// The program of this stack is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The kernel did not start it, or does not report on it.
    #[error("cannot run {program}")]
    Run {
        /// The program.
        program: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The FIFO for its records cannot be created.
    #[error("cannot make a FIFO for the records of calls")]
    Fifo(#[source] io::Error),
    /// The program reported why it does not serve.
    #[error("{0}")]
    Failed(String),
    /// It ended without a reason.
    #[error("{program} exited on its own ({status}): expected it to serve until told to stop")]
    Ended {
        /// The program.
        program: PathBuf,
        /// Exit status.
        status: ExitStatus,
    },
    /// It did not report that it listens.
    #[error("{program} did not say within {patience:?} that it listens")]
    Silent {
        /// The program.
        program: PathBuf,
        /// Time limit.
        patience: Duration,
    },
    /// It did not stop when asked to.
    #[error("{program} did not exit within {patience:?} of being told to, and was killed")]
    Stuck {
        /// The program.
        program: PathBuf,
        /// Time limit.
        patience: Duration,
    },
}
