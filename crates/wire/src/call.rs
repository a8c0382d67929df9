//! A call: its two halves put together, its legs, what held it up, and the hops by which proxies forwarded it.

use crate::episode::PacketProof;
use crate::exchange::Exchange;
use crate::segment::Endpoint;
use crate::spans::SpanTimes;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Certainty, HostTime};
use spangap_model::{Cause, Legs, Side};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub use spangap_model::evidence::LegTime;

/// When something held a call up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Unknown, or not at one particular time.
    #[default]
    Unknown,
    /// Between two moments, Unix nanoseconds by the clock of the first capture of the call's section, as far as
    /// that clock is known while reading.
    Between(i64, i64),
    /// Anywhere in the leg with this index in [`Call::legs`].
    InLeg(usize),
}

/// A sentence about a finding. It is formatted on demand, because most calls are counted and never shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Note {
    /// Nothing to say.
    #[default]
    None,
    /// Plain text.
    Text(Cow<'static, str>),
    /// Text around a time, nanoseconds.
    Time(&'static str, u64, &'static str),
}

impl Note {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        match self {
            Note::None => true,
            Note::Text(text) => text.is_empty(),
            Note::Time(..) => false,
        }
    }
}

impl From<String> for Note {
    fn from(text: String) -> Note {
        if text.is_empty() { Note::None } else { Note::Text(text.into()) }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::None => Ok(()),
            Note::Text(text) => f.write_str(text),
            Note::Time(before, ns, after) => write!(f, "{before}{}{after}", format_ns(*ns)),
        }
    }
}

/// A cause that delayed a call, before the clocks are known; `report/` makes a `model::evidence::Finding` of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFinding {
    /// The cause.
    pub cause: Cause,
    /// Certainty of the cause.
    pub certainty: Certainty,
    /// The end responsible, if the cause has one.
    pub side: Option<Side>,
    /// When the delay occurred.
    pub when: When,
    /// Share of the call's time; `None` when the wire does not show it.
    pub cost_ns: Option<u64>,
    /// Limits of the cost figure, or its plausibility bound, as a sentence.
    pub note: Note,
    /// Packets that prove it: the capture's number (0 or 1), and the proof.
    pub evidence: Vec<(u8, PacketProof)>,
}

/// A joined call, before the clocks are known.
#[derive(Clone, Debug, Default)]
pub struct Halves {
    /// The exchanges at the client's tap and at the server's tap, by [`Side::index`].
    pub exchanges: [Option<Exchange>; 2],
    /// The capture of each exchange.
    pub captures: [u8; 2],
    /// Times from the spans.
    pub spans: Option<SpanTimes>,
    /// The server's capture covers the call's time and connection, but contains no byte of the request.
    pub never_arrived: bool,
}

impl Halves {
    /// Whether a capture's clock was set during the call, so that its duration is unknown.
    #[inline]
    pub fn is_of_two_clocks(&self) -> bool {
        self.exchanges.iter().flatten().any(|half| half.doubts.clock_set)
    }

    /// The end of the only tap that has the call; `None` if both do.
    pub fn lone(&self) -> Option<Side> {
        match &self.exchanges {
            [Some(_), None] => Some(Side::Client),
            [None, Some(_)] => Some(Side::Server),
            _ => None,
        }
    }

    /// Whether there is no capture of the other end, which would have shown more of the call.
    pub fn is_of_one_capture(&self) -> bool {
        self.lone().is_some() && self.captures[0] == self.captures[1]
    }
}

/// A finished call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Both halves.
    pub halves: Halves,
    /// Number of its connection in [`crate::dissect::Dissection::connections`]; zero if the connection is not
    /// listed.
    pub connection: u32,
    /// Client and server of its connection, listed or not.
    pub ends: Option<[Endpoint; 2]>,
    /// Start, Unix nanoseconds, by the clock of the capture at the first end that knows it.
    pub start_ns: i64,
    /// Time from the first event to the last at that end, nanoseconds: from the CLIENT span if known, else from
    /// the wire at the client's tap, else from the wire at the server's tap.
    pub duration_ns: u64,
    /// Its legs in order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegTime>,
    /// Causes of delay, most costly first.
    pub findings: Vec<CallFinding>,
    /// Activity of the hosts, where it was recorded, by index into `legs`.
    pub hosts: BTreeMap<usize, HostTime>,
    /// Index of the call's captures in [`crate::dissect::Dissection::sections`].
    pub section: usize,
    /// The calls that its server, a proxy, made to forward it, in order; a proxy that retried made several.
    pub hops: Vec<Hop>,
    /// Its legs across all hops; they sum to `duration_ns` exactly. Empty without hops.
    pub path: Vec<PathLeg>,
}

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
    /// Nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// Uncertainty in either direction.
    pub bound_ns: u64,
}
