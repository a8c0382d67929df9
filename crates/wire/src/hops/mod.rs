//! Calls that went through proxies: a call to a proxy, and the calls by which the proxy passed it on.
//!
//! The outer call contains the inner one: a proxy cannot pass on a request before it has begun to arrive. The link between
//! them is what both carry (the same trace context or `x-request-id`), or else their content and their times, and then only
//! where no other call fits. What fits more than once stays unlinked, and is counted.

pub(crate) mod linker;
pub(crate) mod path;
pub(crate) mod proxy;
pub(crate) mod rules;
pub(crate) mod sums;

use crate::call::Call;
use crate::totals::LegSum;
use spangap_model::Legs;

/// What shows that one call is the other, passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkedBy {
    /// Both carry the same trace id and span id: the proxy forwards the trace context as it is.
    TraceContext,
    /// Both carry the same `x-request-id`.
    RequestId,
    /// Both carry the same trace id, and have the same method: the proxy makes a span of its own.
    TraceId,
    /// Method, sizes and times fit those of this call and of no other.
    Content,
}

impl LinkedBy {
    /// All of them, the surest first.
    pub const ALL: [LinkedBy; 4] =
        [LinkedBy::TraceContext, LinkedBy::RequestId, LinkedBy::TraceId, LinkedBy::Content];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LinkedBy::TraceContext => "trace-context",
            LinkedBy::RequestId => "request-id",
            LinkedBy::TraceId => "trace-id",
            LinkedBy::Content => "content",
        }
    }
}

/// A call by which a proxy passed another one on.
#[derive(Clone, Debug)]
pub struct Hop {
    /// What shows it.
    pub by: LinkedBy,
    /// The call.
    pub call: Call,
}

/// What a leg of a call over all its hops is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A leg of the call to the next host, as of any call.
    Call(Legs),
    /// From the last request byte at the proxy to the first one that it sends on.
    ProxyRequest {
        /// The proxy's own capture of the request is missing: the way to it is in this time, too.
        with_wire: bool,
    },
    /// From the end of an attempt to the next one.
    ProxyRetry,
    /// From the last response byte that the proxy got to the first one that it sent on; below zero where it sends on what
    /// it has while more arrives.
    ProxyResponse {
        /// The way back from the proxy is in this time, too.
        with_wire: bool,
    },
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Call(legs) => legs.fmt(f),
            Stage::ProxyRequest { with_wire: false } => f.write_str("proxy_request"),
            Stage::ProxyRequest { with_wire: true } => f.write_str("request_wire+proxy_request"),
            Stage::ProxyRetry => f.write_str("proxy_retry"),
            Stage::ProxyResponse { with_wire: false } => f.write_str("proxy_response"),
            Stage::ProxyResponse { with_wire: true } => f.write_str("proxy_response+response_wire"),
        }
    }
}

/// One leg of a call over all its hops. All of them sum to the call's duration exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLeg {
    /// How many proxies are before it; a proxy's own time belongs to the hop that leads to it.
    pub hop: u8,
    /// Which of several attempts of a proxy this is a leg of, from 1; zero where there is one.
    pub attempt: u8,
    /// What it is.
    pub stage: Stage,
    /// Nanoseconds; see [`crate::call::LegTime`].
    pub ns: i64,
    /// How far off it may be either way.
    pub bound_ns: u64,
}

/// One leg over all hops, summed over the linked calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSum {
    /// How many proxies are before it.
    pub hop: u8,
    /// What it is.
    pub stage: Stage,
    /// The sum.
    pub sum: LegSum,
}

/// Calls over several hops, counted.
#[derive(Clone, Debug, Default)]
pub struct HopTotals {
    /// Calls of clients that were followed through a proxy at least.
    pub calls: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u128,
    /// Links between calls, by what shows them: see [`LinkedBy::ALL`].
    pub links: [u64; 4],
    /// Calls that fit more than one other as its hop, and stay unlinked.
    pub ambiguous: u64,
    /// Calls to a proxy that no call of the proxy was found for: it answered itself, or the rest is not in the captures.
    pub unknown_outer: u64,
    /// Calls of a proxy that no call to it was found for: its own, or passed on for someone not in the captures.
    pub unknown_inner: u64,
    /// Time by leg over all hops, in order; they sum to `total_ns` exactly.
    pub legs: Vec<PathSum>,
}
