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

use crate::call::Call;
use crate::totals::LegSum;
use spangap_model::Legs;

/// The proof that one call is the forwarded form of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkedBy {
    /// Both carry the same trace id and span id: the proxy forwards the trace context unchanged.
    TraceContext,
    /// Both carry the same `x-request-id`.
    RequestId,
    /// Both carry the same trace id and have the same method: the proxy creates a span of its own.
    TraceId,
    /// Method, sizes and times fit this call and no other.
    Content,
}

impl LinkedBy {
    /// All of them, the surest first.
    pub const ALL: [LinkedBy; 4] =
        [LinkedBy::TraceContext, LinkedBy::RequestId, LinkedBy::TraceId, LinkedBy::Content];

    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LinkedBy::TraceContext => "trace-context",
            LinkedBy::RequestId => "request-id",
            LinkedBy::TraceId => "trace-id",
            LinkedBy::Content => "content",
        }
    }
}

/// A call by which a proxy forwarded another one.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The proof of the link.
    pub by: LinkedBy,
    /// The call.
    pub call: Call,
}

/// The kind of a leg of a call across all its hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A leg of the call to the next host, as in any call.
    Call(Legs),
    /// From the last request byte at the proxy to the first one that it forwards.
    ProxyRequest {
        /// The proxy's own capture of the request is missing, so this includes the transit to the proxy.
        with_wire: bool,
    },
    /// From the end of an attempt to the start of the next.
    ProxyRetry,
    /// From the last response byte that the proxy received to the first one that it forwarded; negative if it
    /// forwards data while more arrives.
    ProxyResponse {
        /// This includes the transit back from the proxy.
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

/// One leg of a call across all its hops. All of them sum to the call's duration exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLeg {
    /// Number of proxies before it; a proxy's own time belongs to the hop that leads to it.
    pub hop: u8,
    /// Number of the proxy's attempt, from 1; zero if there is only one.
    pub attempt: u8,
    /// Its kind.
    pub stage: Stage,
    /// Nanoseconds; see [`crate::call::LegTime`].
    pub ns: i64,
    /// Uncertainty in either direction.
    pub bound_ns: u64,
}

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
