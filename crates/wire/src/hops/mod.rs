//! Calls through proxies: a call to a proxy, and the calls by which the proxy forwarded it.
//!
//! The outer call contains the inner one: a proxy cannot forward a request before it has begun to arrive. The
//! link is an id that both carry (the same trace context or `x-request-id`), or else their content and times, but
//! only if no other call fits. Ambiguous calls stay unlinked, and are counted.

pub(crate) mod linker;
pub(crate) mod path;
pub(crate) mod proxy;
pub(crate) mod rules;
pub(crate) mod sums;

pub use crate::call::{Hop, LinkedBy, PathLeg, Stage};
use crate::totals::LegSum;

/// One leg across all hops, summed over the linked calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSum {
    /// Number of proxies before it.
    pub hop: u8,
    /// Its kind.
    pub stage: Stage,
    /// The sum.
    pub sum: LegSum,
}

/// Totals of calls across several hops.
#[derive(Clone, Debug, Default)]
pub struct HopTotals {
    /// Calls of clients that were followed through at least one proxy.
    pub calls: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u128,
    /// Links between calls by proof: see [`LinkedBy::ALL`].
    pub links: [u64; 4],
    /// Calls that fit more than one outer call, and stay unlinked.
    pub ambiguous: u64,
    /// Calls to a proxy without a known inner call: the proxy answered itself, or the rest is not in the
    /// captures.
    pub unknown_outer: u64,
    /// Calls by a proxy without a known outer call: its own, or forwarded for a client that is not in the
    /// captures.
    pub unknown_inner: u64,
    /// Time by leg across all hops, in order; they sum to `total_ns` exactly.
    pub legs: Vec<PathSum>,
}
