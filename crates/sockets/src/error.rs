//! Why sockets cannot be seen or set.

use spangap_machine::FactError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the sockets of a process cannot be seen or set.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// A file or folder under `/proc`: the process is gone, or belongs to another user.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The id asked for.
        pid: u32,
    },
    /// A process of another user.
    #[error(
        "the descriptors of process {pid} cannot be seen: it is another user's ({owner}), which needs CAP_SYS_PTRACE (root has it)"
    )]
    NotPermitted {
        /// Process.
        pid: u32,
        /// Whose it is, in words.
        owner: String,
    },
    /// The process ends: it has closed its connections, or is about to.
    #[error("process {pid} is ending")]
    Ending {
        /// Process.
        pid: u32,
    },
    /// A file of the kernel that cannot be read, or is of another form.
    #[error(transparent)]
    Fact(#[from] FactError),
    /// The socket could not be borrowed, or would not take the option.
    #[error("cannot set TCP_NODELAY on descriptor {fd} of process {pid}")]
    Set {
        /// Process.
        pid: u32,
        /// Descriptor.
        fd: i32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The descriptor is now another socket, or none.
    #[error("descriptor {fd} of process {pid} is no longer the connection from {local} to {peer}")]
    Changed {
        /// Process.
        pid: u32,
        /// Descriptor.
        fd: i32,
        /// That process' end.
        local: SocketAddr,
        /// The other end.
        peer: SocketAddr,
    },
    /// Reading it back showed the old value.
    #[error(
        "TCP_NODELAY on descriptor {fd} of process {pid} is still {found} after it was set: expected {}",
        !found
    )]
    NotTaken {
        /// Process.
        pid: u32,
        /// Descriptor.
        fd: i32,
        /// Value read back.
        found: bool,
    },
}
