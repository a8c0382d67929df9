//! Findings of instruments.

use super::{Certainty, Instrument};
use crate::{Culprit, Doing, Side, Taker};
use serde::{Deserialize, Serialize};

/// Something that took time, as found by one instrument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Hop of a call through proxies that it delayed, from 1; absent for the call itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hop: Option<u8>,
    /// Cause and side.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// How sure it is, and what would decide it.
    #[serde(flatten)]
    pub certainty: Certainty,
    /// The instrument that found it.
    pub instrument: Instrument,
    /// What it is about; in JSON absent for the call that it is attached to.
    #[serde(skip_serializing_if = "Scope::is_call", default)]
    pub scope: Scope,
    /// Time by the clock of the call's client or, outside of a call, by that of the instrument's host. `None`
    /// if it has no time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<Interval>,
    /// Time that it took within its scope, in nanoseconds; `None` if unproven.
    pub cost_ns: Option<u64>,
    /// A caveat about the cost, or another remark, as a sentence; empty for none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub note: String,
    /// What it rests on; `evidence` in JSON. Empty where an instrument only counts.
    #[serde(rename = "evidence", default)]
    pub proofs: Vec<Proof>,
}

impl Finding {
    /// Whether its look-alikes are excluded.
    pub fn is_shown(&self) -> bool {
        self.certainty.is_shown()
    }

    /// Packets among the proofs.
    pub fn packets(&self) -> impl Iterator<Item = &PacketRecord> {
        self.proofs.iter().filter_map(|proof| match proof {
            Proof::Packet(packet) => Some(packet),
            _ => None,
        })
    }
}

/// What a finding is about. Its cost counts within this: time of one call, or of all calls of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Scope {
    /// The call that it is attached to.
    #[default]
    Call,
    /// One TCP connection.
    Connection {
        /// The client's address and port.
        client: String,
        /// The server's address and port.
        server: String,
    },
    /// One process.
    Process {
        /// Process id on its host.
        pid: u32,
        /// Its name, as the kernel shortens it.
        name: String,
    },
    /// All calls of a client service to a server service.
    Pair {
        /// The client service.
        client: String,
        /// The server service.
        server: String,
    },
    /// A whole host.
    Host,
}

impl Scope {
    fn is_call(&self) -> bool {
        *self == Scope::Call
    }
}

/// A time interval, in Unix nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Start.
    pub from_unix_ns: i64,
    /// End, not before the start.
    pub to_unix_ns: i64,
}

impl Interval {
    /// Length in nanoseconds.
    pub fn length_ns(self) -> u64 {
        u64::try_from(self.to_unix_ns.saturating_sub(self.from_unix_ns)).unwrap_or(0)
    }

    /// Intersection; `None` if empty.
    pub fn common(self, other: Interval) -> Option<Interval> {
        let from_unix_ns = self.from_unix_ns.max(other.from_unix_ns);
        let to_unix_ns = self.to_unix_ns.min(other.to_unix_ns);
        (from_unix_ns < to_unix_ns).then_some(Interval { from_unix_ns, to_unix_ns })
    }
}

/// A packet as a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// Index of the capture, from 0 in the given order.
    pub capture: u8,
    /// Number of the packet in it, from 1.
    pub packet: u64,
    /// Time at the tap, by the capture's clock.
    pub time_unix_ns: i64,
    /// What it proves, in words that end a sentence.
    pub what: String,
}

/// A proof of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Proof {
    /// A packet in a capture.
    Packet(PacketRecord),
    /// An interval of a thread's activity.
    Stretch {
        /// Side of the host.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        side: Option<Side>,
        /// Activity.
        doing: Doing,
        /// Who had the CPU meanwhile.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        taker: Option<Taker>,
        /// Length in nanoseconds.
        ns: u64,
    },
    /// A value read from a file in `/proc` or `/sys`, from a socket, or from a report.
    Value {
        /// Its place: a path, `tcp_info` of a connection, a field.
        place: String,
        /// The value as text, with its unit.
        value: String,
    },
}
