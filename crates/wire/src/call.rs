//! A call: its two halves put together, its legs, and what held it up.

use crate::episode::PacketProof;
use crate::exchange::Exchange;
use crate::hops::{Hop, PathLeg};
use crate::segment::Endpoint;
use crate::spans::SpanTimes;
use spangap_model::evidence::{Certainty, HostTime};
use spangap_model::{Cause, Side};
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
    /// Text around a time in milliseconds.
    Ms(&'static str, u64, &'static str),
}

impl Note {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        match self {
            Note::None => true,
            Note::Text(text) => text.is_empty(),
            Note::Ms(..) => false,
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
            Note::Ms(before, ns, after) => write!(f, "{before}{:.1} ms{after}", *ns as f64 / 1e6),
        }
    }
}

/// A cause that delayed a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
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
    pub findings: Vec<Finding>,
    /// Activity of the hosts, where it was recorded, by index into `legs`.
    pub hosts: BTreeMap<usize, HostTime>,
    /// Index of the call's captures in [`crate::dissect::Dissection::sections`].
    pub section: usize,
    /// The calls that its server, a proxy, made to forward it, in order; a proxy that retried made several.
    pub hops: Vec<Hop>,
    /// Its legs across all hops; they sum to `duration_ns` exactly. Empty without hops.
    pub path: Vec<PathLeg>,
}
