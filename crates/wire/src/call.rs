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
    /// Not at one time, or not known.
    #[default]
    Unknown,
    /// From one moment to another, Unix nanoseconds by the clock of the first capture of the call's section, as far as it
    /// is known while reading.
    Between(i64, i64),
    /// Somewhere in the leg of this place in [`Call::legs`].
    InLeg(usize),
}

/// A sentence about a finding. Most calls are counted and never shown, so that it is written when somebody reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Note {
    /// There is nothing to say.
    #[default]
    None,
    /// These words.
    Text(Cow<'static, str>),
    /// Words with a time in milliseconds between them.
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

/// What held a call up.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Why.
    pub cause: Cause,
    /// How sure that is.
    pub certainty: Certainty,
    /// The end at which the cause sits, where it has one.
    pub side: Option<Side>,
    /// When it was.
    pub when: When,
    /// Time of the call that it took; `None` when the wire does not show how much.
    pub cost_ns: Option<u64>,
    /// What the cost cannot tell, or the plausibility bound, as a sentence.
    pub note: Note,
    /// Packets that show it: number of the capture (0 or 1), and the evidence.
    pub evidence: Vec<(u8, PacketProof)>,
}

/// A call as it was joined, before the clocks are known.
#[derive(Clone, Debug, Default)]
pub struct Halves {
    /// What the client's tap saw, and what the server's tap saw, by [`Side::index`].
    pub exchanges: [Option<Exchange>; 2],
    /// Which capture each is from.
    pub captures: [u8; 2],
    /// What the spans say.
    pub spans: Option<SpanTimes>,
    /// The server's capture covers the time of the call and its connection, and has no byte of the request.
    pub never_arrived: bool,
}

impl Halves {
    /// Whether the clock of a capture was set while the call was under way: how long it took is not known.
    #[inline]
    pub fn is_of_two_clocks(&self) -> bool {
        self.exchanges.iter().flatten().any(|half| half.doubts.clock_set)
    }
}

/// A call, finished.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its halves.
    pub halves: Halves,
    /// Number of its connection in [`crate::dissect::Dissection::connections`]; zero when it is not listed there.
    pub connection: u32,
    /// Client and server of its connection, listed or not.
    pub ends: Option<[Endpoint; 2]>,
    /// When it began, by the clock of the capture at the end where it is known first, Unix nanoseconds.
    pub start_ns: i64,
    /// From its first event to its last at that end, nanoseconds: of the CLIENT span if known, else of the wire at
    /// the client's tap, else of the wire at the server's.
    pub duration_ns: u64,
    /// Its legs in order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegTime>,
    /// What held it up, most costly first.
    pub findings: Vec<Finding>,
    /// What its hosts did, where they were recorded, by the place of the leg in `legs`.
    pub hosts: BTreeMap<usize, HostTime>,
    /// Place of its captures in [`crate::dissect::Dissection::sections`].
    pub section: usize,
    /// The calls by which its server, a proxy, passed it on: in order, more than one where the proxy tried again.
    pub hops: Vec<Hop>,
    /// Its legs over all hops; they sum to `duration_ns` exactly. Empty without hops.
    pub path: Vec<PathLeg>,
}
