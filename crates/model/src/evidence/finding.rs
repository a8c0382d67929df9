//! What an instrument shows.

use super::{Certainty, Instrument};
use crate::{Culprit, Doing, Side, Taker};
use serde::{Deserialize, Serialize};

/// Something that took time, as one instrument shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The hop of a call through proxies that it held up, from 1; absent for the call itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hop: Option<u8>,
    /// What, and at which end.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// How sure that is.
    #[serde(flatten)]
    pub certainty: Certainty,
    /// Who saw it.
    pub instrument: Instrument,
    /// What it holds for.
    #[serde(skip_serializing_if = "Scope::is_call", default)]
    pub scope: Scope,
    /// When, by the clock of the call's client; of a finding on its own by that of its host. `None` where it has no time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<Interval>,
    /// Time that it took of what it holds for, nanoseconds; `None` where that is not shown.
    pub cost_ns: Option<u64>,
    /// What the cost cannot tell, or what else there is to say, as a sentence; empty for nothing.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub note: String,
    /// What shows it.
    #[serde(rename = "evidence", default)]
    pub proofs: Vec<Proof>,
}

impl Finding {
    /// Whether its look-alikes are excluded.
    pub fn is_shown(&self) -> bool {
        self.certainty.is_shown()
    }

    /// The packets that show it.
    pub fn packets(&self) -> impl Iterator<Item = &PacketRecord> {
        self.proofs.iter().filter_map(|proof| match proof {
            Proof::Packet(packet) => Some(packet),
            _ => None,
        })
    }
}

/// What a finding holds for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Scope {
    /// The call that it stands with.
    #[default]
    Call,
    /// A connection.
    Connection {
        /// The client's address and port.
        client: String,
        /// The server's.
        server: String,
    },
    /// A process.
    Process {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// All calls of a client to a server.
    Pair {
        /// The client.
        client: String,
        /// The server.
        server: String,
    },
    /// All of a host.
    Host,
}

impl Scope {
    fn is_call(&self) -> bool {
        *self == Scope::Call
    }
}

/// From one moment to another, Unix nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin.
    pub from_unix_ns: i64,
    /// End, not before the begin.
    pub to_unix_ns: i64,
}

impl Interval {
    /// How long it is, nanoseconds.
    pub fn length_ns(self) -> u64 {
        u64::try_from(self.to_unix_ns.saturating_sub(self.from_unix_ns)).unwrap_or(0)
    }

    /// What two have in common; `None` for nothing.
    pub fn common(self, other: Interval) -> Option<Interval> {
        let from_unix_ns = self.from_unix_ns.max(other.from_unix_ns);
        let to_unix_ns = self.to_unix_ns.min(other.to_unix_ns);
        (from_unix_ns < to_unix_ns).then_some(Interval { from_unix_ns, to_unix_ns })
    }
}

/// A packet that shows something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// Number of the capture, from 0 in the order in which they were given.
    pub capture: u8,
    /// Number of the packet in it, from 1.
    pub packet: u64,
    /// When the tap saw it, by the capture's clock.
    pub time_unix_ns: i64,
    /// What it shows, in words that end a sentence.
    pub what: String,
}

/// What shows a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Proof {
    /// A packet.
    Packet(PacketRecord),
    /// A stretch of a thread's time.
    Stretch {
        /// Whose host.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        side: Option<Side>,
        /// What its threads did.
        doing: Doing,
        /// Who had the CPU meanwhile.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        taker: Option<Taker>,
        /// For how long, nanoseconds.
        ns: u64,
    },
    /// A value that was read: of a file of `/proc` or `/sys`, of a socket, of a report.
    Value {
        /// Where it stands: a path, `tcp_info` of a connection, a field.
        place: String,
        /// What stands there.
        value: String,
    },
}
