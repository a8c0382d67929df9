//! What an instrument examined, missed, and cannot see.

use super::Interval;
use crate::Side;
use crate::named::named;
use serde::{Deserialize, Serialize};

named! {
    pub enum Instrument {
        /// Packets: `dissect`.
        Packets = "packets",
        /// Spans: `meter`, `gaps`.
        Spans = "spans",
        /// The scheduler and softirqs, recorded: `host record`.
        HostRecording = "host-recording",
        /// Users of CPUs that a process wanted: `host thieves`.
        Thieves = "thieves",
        /// Known traps in settings and counters of a host: `host check`.
        HostCheck = "host-check",
        /// Live TCP sockets: `sockets`.
        Sockets = "sockets",
        /// The ping-pong pair: `tank`.
        Tank = "tank",
        /// Interrupts and the CPUs of applications: `isolate`.
        Isolation = "isolation",
        /// Any other program that writes evidence; its coverage names it as the source.
        Other = "other",
    }
}

/// What an instrument examined, and what it could not see. Without it, "nothing found" would mean nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    pub instrument: Instrument,
    /// File, process or host that it examined, in words.
    pub source: String,
    /// Side of the calls that it observed; `None` for both, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<Side>,
    /// Time covered; `None` if nothing has a time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<Interval>,
    /// Number of items (calls, spans, events, sockets, traps) that it saw.
    pub seen: u64,
    /// Number of items that it is known to have missed.
    pub lost: u64,
    /// What it cannot show, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cannot: Vec<String>,
}
