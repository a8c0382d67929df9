//! Observations of instruments as values: the common language of instruments, judge, agent and page.
//!
//! An instrument yields [`Finding`]s (cause, cost, proofs) and its [`Coverage`] (what it examined, what it lost, what
//! it cannot tell), so that "not examined" never reads as "nothing found". Packets also yield a [`CallRecord`] per
//! call: its legs, what its hosts did in them, and its own findings. Together they are an [`Evidence`]. No code
//! compares sentences: programs decide by the variants defined here, and words are made from them only for people.
//!
//! Every value goes to JSON and back. The document carries [`VERSION`]; a reader refuses a newer one.

mod call;
mod certainty;
mod coverage;
mod finding;
mod instrument;
mod testimony;

pub use call::{CallRecord, EndLeg, HopLeg, HopPlace, HostPart, HostTime, LegRecord, LegTime, ReadBy, Waker};
pub use certainty::{Certainty, Missing, Need};
pub use coverage::Coverage;
pub use finding::{Finding, Interval, PacketRecord, Proof, Scope};
pub use instrument::Instrument;
pub use testimony::Testimony;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The version of these shapes. It increases when a reader of the previous version would misunderstand a
/// document, not when a field is added.
pub const VERSION: u32 = 1;

/// Everything known about the calls between a client and a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Version of the shapes.
    pub version: Version,
    /// Calls examined individually, slowest first, followed by calls drawn at random from all others.
    pub calls: Vec<CallRecord>,
    /// Number of calls, examined or not.
    pub matching_calls: u64,
    /// Start of the traffic in question, in Unix nanoseconds by the client's clock: earlier calls are warm-up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured_from_unix_ns: Option<i64>,
    /// The server's clock relative to the client's, if both sides were captured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clocks: Option<Clocks>,
    /// Totals of the joined spans, if spans were read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
    /// CLIENT spans that may be of these calls, if nothing tells which is of which.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unplaced: Option<UnplacedSpans>,
    /// Findings about more than one call: about a pair, a process, a host.
    pub findings: Vec<Finding>,
    /// Coverage of each instrument.
    pub coverage: Vec<Coverage>,
}

/// The version of a document; parsing a later one is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        VERSION.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Version, D::Error> {
        match u32::deserialize(from)? {
            VERSION => Ok(Version),
            other => {
                Err(D::Error::custom(format!("evidence of version {other}; expected version {VERSION}")))
            }
        }
    }
}

/// Clock of the server's capture minus clock of the client's, as far as packets bound it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// Minimum offset, in nanoseconds.
    pub offset_low_ns: i64,
    /// Maximum offset, in nanoseconds.
    pub offset_high_ns: i64,
    /// Minimum and maximum drift in parts per million, if bounded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub skew_ppm: Option<(f64, f64)>,
    /// Number of intervals in each of which a single line fits: more than one if a clock was stepped.
    pub stretches: u64,
}

/// How many spans the calls rest on, as the meter or a file of spans had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanCounts {
    /// Spans of calls with both halves.
    pub joined: u64,
    /// SERVER spans beyond the first of a call.
    pub extra_attempts: u64,
}

/// CLIENT spans for the servers of calls whose packets carry no trace context, where no times of a span fit one call alone. What
/// clients waited for before the first byte of these calls, and after their last, is in no [`CallRecord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnplacedSpans {
    /// Number of spans.
    pub spans: u64,
    /// Median of their durations, nanoseconds.
    pub median_ns: u64,
}

impl Evidence {
    /// Calls from [`Evidence::measured_from_unix_ns`] on.
    pub fn measured(&self) -> impl Iterator<Item = &CallRecord> {
        let from = self.measured_from_unix_ns.unwrap_or(i64::MIN);
        self.calls.iter().filter(move |call| call.start_unix_ns >= from)
    }

    /// What the captures, spans and recordings behind the calls do not contain, in sentences.
    pub fn limits(&self) -> impl Iterator<Item = &String> {
        let is_of_calls =
            |one: &&Coverage| matches!(one.instrument, Instrument::Packets | Instrument::HostRecording);
        let of_calls = self.coverage.iter().filter(is_of_calls);
        of_calls.flat_map(|one| &one.cannot)
    }

    /// Adds the testimony of an instrument.
    pub fn hear(&mut self, testimony: Testimony) {
        self.findings.extend(testimony.findings);
        self.coverage.extend(testimony.coverage);
    }
}

#[cfg(test)]
mod tests;
