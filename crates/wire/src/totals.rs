//! Sums over calls: by connection, by pair of hosts, over all.

use crate::segment::Endpoint;
use crate::tcp::ConnectionFacts;
use spangap_model::{Cause, Histogram, Legs, Side};

/// Time of one leg, summed over calls. The true sum lies within `bound_ns` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegSum {
    /// Which.
    pub legs: Legs,
    /// Nanoseconds.
    pub total_ns: i64,
    /// How far off the sum may be either way.
    pub bound_ns: u64,
}

/// What one cause took, summed over calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseSum {
    /// Which.
    pub cause: Cause,
    /// The end at which it sits, where it has one.
    pub side: Option<Side>,
    /// Calls with this finding, shown.
    pub calls: u64,
    /// Calls for which it is possible and not shown.
    pub possible: u64,
    /// Their cost, as far as the wire shows it, nanoseconds.
    pub cost_ns: u64,
}

/// Sums over some calls.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Calls.
    pub calls: u64,
    /// Calls seen at one end only, by the end.
    pub one_end: [u64; 2],
    /// Calls that did not end well: gRPC status other than OK, HTTP 5xx, reset, connection closed.
    pub failed: u64,
    /// Calls still under way when the capture ended.
    pub unfinished: u64,
    /// Durations.
    pub durations: Histogram,
    /// Time by leg, in order.
    pub legs: Vec<LegSum>,
    /// Time by cause, most costly first.
    pub causes: Vec<CauseSum>,
}

/// A connection, as both captures saw it.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// Its number in the report, from 1.
    pub number: u32,
    /// What each capture knows of it.
    pub seen: [Option<ConnectionFacts>; 2],
    /// Which capture is nearer to the client; `None` while nothing shows it (one capture, or no calls in both).
    pub client_capture: Option<u8>,
    /// Sums over its calls.
    pub sums: Sums,
    /// Episodes that no call was held up by, or that are about the connection as a whole, summed by cause.
    pub notes: Vec<String>,
}

/// All calls from one host to one server.
#[derive(Clone, Debug)]
pub struct PairTotals {
    /// Client's address; its port is zero, since it stands for all.
    pub client: Endpoint,
    /// Server's address and port.
    pub server: Endpoint,
    /// Connections.
    pub connections: u64,
    /// Sums over its calls.
    pub sums: Sums,
}
