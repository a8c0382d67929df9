//! Causes of lost time: one name for each, used everywhere.

use crate::named::named;
use serde::{Deserialize, Serialize};
use std::fmt;

named! {
    /// Why a call took longer than it had to.
    pub enum Cause {
        /// Nothing is wrong.
        None = "none",
        /// A partial segment was held back until the peer's delayed ACK.
        NagleDelayedAck = "nagle-delayed-ack",
        /// Loss, repaired by the retransmission timer.
        Rto = "rto",
        /// Loss of the last segments, repaired by a tail loss probe.
        TailLoss = "tail-loss",
        /// Loss, repaired by fast retransmission or RACK.
        FastRetransmit = "fast-retransmit",
        /// Bytes that had reached the receiver's tap did not reach its TCP, and were retransmitted.
        ReceiverDrop = "receiver-drop",
        /// A SYN or SYN/ACK was lost.
        SynLoss = "syn-loss",
        /// The server's accept queue was full.
        AcceptOverflow = "accept-overflow",
        /// The receiver's TCP window was closed or too small: its application reads late.
        ReceiveWindow = "receive-window",
        /// SETTINGS_MAX_CONCURRENT_STREAMS was reached.
        StreamLimit = "stream-limit",
        /// An HTTP/2 flow-control window was used up.
        FlowControl = "flow-control",
        /// Bytes were queued behind those of another call on the same connection.
        HeadOfLine = "head-of-line",
        /// The client's stack serialises the calls of one connection.
        SharedConnection = "shared-connection",
        /// The call had to open its connection first.
        ConnectionPerCall = "connection-per-call",
        /// The server's application took the time.
        ServerApp = "server-app",
        /// The server's side took the time: its host or its application, which packets do not distinguish.
        ServerHostOrApp = "server-host-or-app",
        /// The call was queued in the server before its application took it.
        ServerQueue = "server-queue",
        /// The client's application took the time.
        ClientApp = "client-app",
        /// A thread was runnable and not running.
        RunQueue = "run-queue",
        /// CPU quota used up.
        CpuQuota = "cpu-quota",
        /// Softirqs ran on the application's CPU.
        SoftirqOnCpu = "softirq-on-cpu",
        /// The softirq that delivers packets ran late.
        SoftirqLate = "softirq-late",
        /// The NIC delivered interrupts together.
        Coalescing = "coalescing",
        /// The server received the request and did not respond before the call was abandoned.
        NoResponse = "no-response",
        /// The path delivered no copy of the bytes.
        BlackHole = "black-hole",
        /// Packets sent apart arrived together: softirq-late, coalescing or a queue on the path, which are not
        /// distinguished.
        BatchedArrival = "batched-arrival",
        /// The hypervisor took the CPU.
        Steal = "steal",
        /// An idle CPU had to wake up.
        IdleWake = "idle-wake",
        /// The process was stopped.
        Stopped = "stopped",
        /// The path between the taps took the time.
        NetworkDelay = "network-delay",
        /// The path between the taps took a varying time.
        NetworkJitter = "network-jitter",
        /// One direction takes longer than the other.
        PathAsymmetry = "path-asymmetry",
        /// The size of the message took the time.
        LargePayload = "large-payload",
        /// Several attempts per call.
        Retries = "retries",
        /// The proxy between client and server took the time itself.
        Proxy = "proxy",
        /// Clocks that differ, with nothing wrong.
        Clock = "clock",
        /// Every CPU was busy.
        CpuSaturated = "cpu-saturated",
        /// The name of the server had to be looked up first.
        Dns = "dns",
        /// The TLS handshake of the call's connection.
        TlsHandshake = "tls-handshake",
        /// The call waited for a connection of its client's pool.
        PoolWait = "pool-wait",
        /// Packets larger than the path carries were dropped on it.
        PathMtu = "path-mtu",
        /// A thread waited for a lock that another one held.
        Lock = "lock",
        /// A thread waited for a disk, or for its writes to become durable.
        Disk = "disk",
        /// A thread waited for memory: for reclaim, or for its own pages to be read.
        Memory = "memory",
    }
}

impl Cause {
    /// Whether it ends before a connection can carry its first call: a call waits for it only while its
    /// connection is being opened.
    pub fn is_of_opening(self) -> bool {
        matches!(self, Cause::Dns | Cause::TlsHandshake)
    }
}

named! {
    /// A side of a call.
    pub enum Side {
        /// Where the call is made.
        Client = "client",
        /// Where it is served.
        Server = "server",
    }
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// 0 for the client, 1 for the server.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// A cause, and its side if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Culprit {
    /// Cause; `Cause::None` if nothing was wrong.
    pub cause: Cause,
    /// The end that is responsible; `None` for a cause that has none, as the path, or where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<Side>,
}

impl Culprit {
    /// Nothing is wrong.
    pub const NOTHING: Culprit = Culprit { cause: Cause::None, side: None };

    /// A culprit on one side.
    pub const fn at(cause: Cause, side: Side) -> Culprit {
        Culprit { cause, side: Some(side) }
    }

    /// A culprit on no side, or on both.
    pub const fn of(cause: Cause) -> Culprit {
        Culprit { cause, side: None }
    }
}

/// `nagle-delayed-ack (client)`
impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Some(side) => write!(f, "{} ({side})", self.cause),
            None => self.cause.fmt(f),
        }
    }
}

/// A text that names no culprit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCulpritError(String);

impl fmt::Display for ParseCulpritError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}; expected a cause, with its side in brackets", self.0)
    }
}

impl std::error::Error for ParseCulpritError {}

impl std::str::FromStr for Culprit {
    type Err = ParseCulpritError;
    fn from_str(text: &str) -> Result<Culprit, ParseCulpritError> {
        let culprit = match text.split_once(" (") {
            Some((cause, side)) => {
                let side = side.strip_suffix(')').and_then(Side::of_name);
                Cause::of_name(cause).zip(side).map(|(cause, side)| Culprit::at(cause, side))
            }
            None => Cause::of_name(text).map(Culprit::of),
        };
        culprit.ok_or_else(|| ParseCulpritError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_spelled_alike() {
        let names: HashSet<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    }
}
