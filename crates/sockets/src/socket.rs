//! A TCP socket with all its observable properties.

use crate::tcp_info::TcpInfo;
use serde::Serialize;
use spangap_machine::facts::net_tcp::State;
use spangap_machine::facts::net_tcp::{Family, Timer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A process that has the socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    pub pid: u32,
    pub comm: String,
    /// Descriptors of this socket.
    pub fds: Vec<i32>,
}

/// Source of `TCP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A duplicate of a descriptor.
    Descriptor,
    /// Netlink, which serves any user for its own network namespace.
    SockDiag,
    /// None: only the table in `/proc/PID/net` was read.
    Table,
}

/// The peer's socket of a connection, if on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerSocket {
    pub inode: u64,
    /// Processes that have it open.
    pub owners: Vec<Owner>,
    /// `TCP_NODELAY`.
    pub nodelay: Option<bool>,
    /// Smoothed RTT.
    pub rtt_ns: Option<u64>,
}

/// One TCP socket. Unreadable values are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TcpSocket {
    /// Inode of its network namespace; `None` if that is not one of those read.
    pub network_namespace: Option<u64>,
    /// Inode; unique as long as the socket exists.
    pub inode: u64,
    /// Kind of its addresses.
    pub family: Family,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address; `None` for a listening socket.
    pub peer: Option<SocketAddr>,
    /// State of the connection.
    pub state: State,
    /// Whether the peer opened the connection, because the local port is a listening one.
    pub accepted: Option<bool>,
    /// Every process that has it open, as far as visible.
    pub owners: Vec<Owner>,
    /// User id.
    pub uid: Option<u32>,
    /// Source of options and `TCP_INFO`.
    pub source: Source,
    /// Why it was not read through a descriptor.
    pub not_borrowed_because: Option<String>,
    /// `TCP_NODELAY`; known only through a descriptor.
    pub nodelay: Option<bool>,
    /// `TCP_CORK`; known only through a descriptor.
    pub cork: Option<bool>,
    /// `TCP_QUICKACK`: false if the kernel considers the connection interactive and delays its ACKs.
    pub quickack: Option<bool>,
    /// Number of ACKs that will be sent at once, whatever `quickack` says.
    pub quick_acks_left: Option<u64>,
    /// Congestion control, such as `cubic`.
    pub congestion_control: Option<String>,
    /// Bytes written by the application and not acknowledged.
    pub send_queue_bytes: Option<u64>,
    /// Bytes received and not read by the application.
    pub receive_queue_bytes: Option<u64>,
    /// Pending kernel timer.
    pub timer: Option<Timer>,
    /// Time until it fires.
    pub timer_ns: Option<u64>,
    /// Measurements of the kernel.
    #[serde(flatten)]
    pub info: TcpInfo,
    /// The peer's socket, looked up if this one's RTT is suspicious.
    pub peer_socket: Option<PeerSocket>,
    /// Journal of a change that can still be undone.
    pub open_undo: Option<PathBuf>,
}

impl TcpSocket {
    /// Share of the time with data outstanding that was limited by the peer's window.
    pub fn receive_window_limited_share(&self) -> Option<f64> {
        share(self.info.receive_window_limited_ns, self.info.busy_ns)
    }

    /// Share of the time with data outstanding that was limited by the send buffer.
    pub fn send_buffer_limited_share(&self) -> Option<f64> {
        share(self.info.send_buffer_limited_ns, self.info.busy_ns)
    }
}

fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0)?;
    Some(part? as f64 / whole as f64)
}
