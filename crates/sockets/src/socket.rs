//! A TCP socket with everything that could be seen of it.

use crate::tcp_info::TcpInfo;
use serde::Serialize;
use spangap_machine::facts::net_tcp::State;
use spangap_machine::facts::net_tcp::{Family, Timer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A process that has the socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its descriptors of this socket.
    pub fds: Vec<i32>,
}

/// Where `TCP_INFO` was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Through a duplicate of a descriptor.
    Descriptor,
    /// Asked of the kernel by netlink, which tells anyone of its own network namespace.
    SockDiag,
    /// Nowhere: what is shown is from the table of `/proc/PID/net`.
    Table,
}

/// The other end of a connection, when it is on this machine too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerSocket {
    /// Its inode.
    pub inode: u64,
    /// Processes that have it open.
    pub owners: Vec<Owner>,
    /// Its own `TCP_NODELAY`.
    pub nodelay: Option<bool>,
    /// Its own smoothed round trip.
    pub rtt_ns: Option<u64>,
}

/// One TCP socket. What the kernel does not let us see is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TcpSocket {
    /// Number of its network namespace; `None` when that is none of those looked at.
    pub network_namespace: Option<u64>,
    /// Names the socket as long as it lives.
    pub inode: u64,
    /// Kind of its addresses.
    pub family: Family,
    /// This end.
    pub local: SocketAddr,
    /// The other end; of a listening socket there is none.
    pub peer: Option<SocketAddr>,
    /// State of the connection.
    pub state: State,
    /// Whether its own port is one that is listened on: the other end made the connection.
    pub accepted: Option<bool>,
    /// Every process that has it open, as far as they can be seen.
    pub owners: Vec<Owner>,
    /// Whose it is.
    pub uid: Option<u32>,
    /// Where options and `TCP_INFO` come from.
    pub source: Source,
    /// Why it was not read through a descriptor.
    pub not_borrowed_because: Option<String>,
    /// `TCP_NODELAY`; only a descriptor tells.
    pub nodelay: Option<bool>,
    /// `TCP_CORK`; only a descriptor tells.
    pub cork: Option<bool>,
    /// `TCP_QUICKACK`: false when the kernel takes the connection for interactive and delays its ACKs.
    pub quickack: Option<bool>,
    /// ACKs that will be sent at once, whatever `quickack` says.
    pub quick_acks_left: Option<u64>,
    /// Congestion control, such as `cubic`.
    pub congestion_control: Option<String>,
    /// Written by the application and not acknowledged.
    pub send_queue_bytes: Option<u64>,
    /// Received and not read by the application.
    pub receive_queue_bytes: Option<u64>,
    /// What the kernel waits for.
    pub timer: Option<Timer>,
    /// In how long that is due.
    pub timer_ns: Option<u64>,
    /// What the kernel measured.
    #[serde(flatten)]
    pub info: TcpInfo,
    /// The other end, looked for when this one's round trip is suspicious.
    pub peer_socket: Option<PeerSocket>,
    /// Journal of a change that can still be undone.
    pub open_undo: Option<PathBuf>,
}

impl TcpSocket {
    /// Share of the time with data outstanding in which the peer's window was closed.
    pub fn receive_window_limited_share(&self) -> Option<f64> {
        share(self.info.receive_window_limited_ns, self.info.busy_ns)
    }

    /// Share of the time with data outstanding in which the send buffer was full.
    pub fn send_buffer_limited_share(&self) -> Option<f64> {
        share(self.info.send_buffer_limited_ns, self.info.busy_ns)
    }
}

fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0)?;
    Some(part? as f64 / whole as f64)
}
