//! Errors of reading and changing sockets.

use spangap_machine::FactError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason why the sockets of a process cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// A file or folder under `/proc`: the process is gone, or belongs to another user.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The process does not exist.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Requested id.
        pid: u32,
    },
    /// The process belongs to another user.
    #[error(
        "the descriptors of process {pid} cannot be seen: it is another user's ({owner}), which needs CAP_SYS_PTRACE (root has it)"
    )]
    NotPermitted {
        pid: u32,
        /// Its user, in words.
        owner: String,
    },
    /// The process is exiting: it has closed its connections, or is about to.
    #[error("process {pid} is ending")]
    Ending { pid: u32 },
    /// A kernel file is unreadable or malformed.
    #[error(transparent)]
    Fact(#[from] FactError),
    /// The socket could not be duplicated, or refused the option.
    #[error("cannot set TCP_NODELAY on descriptor {fd} of process {pid}")]
    Set {
        pid: u32,
        fd: i32,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The descriptor now belongs to another socket, or to none.
    #[error("descriptor {fd} of process {pid} is no longer the connection from {local} to {peer}")]
    Changed {
        pid: u32,
        fd: i32,
        /// Local address.
        local: SocketAddr,
        /// Peer address.
        peer: SocketAddr,
    },
    /// The socket still reads back the old value.
    #[error(
        "TCP_NODELAY on descriptor {fd} of process {pid} is still {found} after it was set: expected {}",
        !found
    )]
    NotTaken {
        pid: u32,
        fd: i32,
        /// Value read back.
        found: bool,
    },
}
