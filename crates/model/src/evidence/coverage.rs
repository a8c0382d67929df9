//! What an instrument examined, lost, and cannot see.

use super::Interval;
use crate::Side;
use crate::named::named;
use serde::{Deserialize, Serialize};

named! {
    /// Who saw it.
    pub enum Instrument {
        /// Packets: `dissect`.
        Packets = "packets",
        /// Spans: `meter`, `gaps`.
        Spans = "spans",
        /// The scheduler and softirqs, recorded: `host record`.
        HostRecording = "host-recording",
        /// Who had the CPUs of a process: `host thieves`.
        Thieves = "thieves",
        /// Known traps in settings and counters of a host: `host check`.
        HostCheck = "host-check",
        /// Live TCP sockets: `sockets`.
        Sockets = "sockets",
        /// The ping-pong pair: `tank`.
        Tank = "tank",
        /// Interrupts and the CPUs of applications: `isolate`.
        Isolation = "isolation",
    }
}

/// What an instrument looked at, and what it could not see. Without it, nothing found means nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Who.
    pub instrument: Instrument,
    /// The file, process or host that it looked at, in words.
    pub source: String,
    /// The end of the calls that it saw; `None`: both, or not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<Side>,
    /// From when to when; `None` where nothing has a time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<Interval>,
    /// How many of what it counts (calls, spans, events, sockets, traps) it saw.
    pub seen: u64,
    /// How many of these it is known to have missed.
    pub lost: u64,
    /// What it cannot tell, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cannot: Vec<String>,
}
