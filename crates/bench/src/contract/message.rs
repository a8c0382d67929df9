//! The JSON lines that programs print.

use crate::distribution::Distribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A part of a run. A call belongs to the phase in which it was due (open loop) or sent (closed loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Calls are made and not counted.
    Warmup,
    /// Calls are made and counted.
    Measured,
    /// No call begins; those under way may end.
    Drain,
    /// No call is under way.
    Drained,
}

/// Messages of a client program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ClientMessage {
    /// Connected, waiting for `go`.
    Ready {
        /// Stack.
        stack: String,
        /// Library and version.
        library: String,
        /// Number of channels.
        channels: u32,
    },
    /// There will be no run.
    Failed {
        /// Reason.
        error: String,
    },
    /// A channel opened a connection.
    Connection(Connection),
    /// A phase begins.
    Phase {
        /// Phase.
        phase: Phase,
        /// Time.
        unix_ns: u64,
    },
    /// Counts since the previous interval of the same phase.
    Interval(Box<Interval>),
    /// The run is over.
    End {
        /// `done` or `stopped`.
        reason: String,
    },
}

/// A connection known to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Numbered from 0.
    pub id: u16,
    /// Number of its channel; absent in targets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<u32>,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
}

/// Calls that ended with one status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Number of calls.
    pub count: u64,
    /// Reason of the last one, in the stack's words.
    pub last: String,
}

/// One interval of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// CONTRACT.md has their meaning.
pub struct Interval {
    pub phase: Phase,
    pub at_unix_ns: u64,
    pub duration_ns: u64,
    pub due: u64,
    pub skipped: u64,
    pub ok: u64,
    pub errors: BTreeMap<String, Failures>,
    pub slow: u64,
    pub latency: Histogram,
    pub from_send: Histogram,
    pub lateness: Histogram,
    pub in_flight: u64,
    pub cpu_ns: u64,
    pub context_switches: u64,
    pub records_dropped: u64,
}

/// A histogram in transit between programs: a value inside each bucket and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Exact largest value in nanoseconds.
    pub max: u64,
    /// Exact sum in nanoseconds.
    pub sum: u64,
    /// Value in nanoseconds and count, ascending.
    pub buckets: Vec<(u64, u64)>,
}

impl From<&Distribution> for Histogram {
    fn from(distribution: &Distribution) -> Self {
        Histogram {
            max: distribution.max_ns(),
            sum: u64::try_from(distribution.sum_ns()).unwrap_or(u64::MAX),
            buckets: distribution.buckets().collect(),
        }
    }
}

impl Histogram {
    /// Adds everything to a distribution.
    pub fn add_to(&self, distribution: &mut Distribution) {
        distribution.add(self.max, self.sum.into(), self.buckets.iter().copied());
    }
}

/// Messages of a target program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TargetMessage {
    /// It serves.
    Listening {
        /// Address.
        address: SocketAddr,
        /// Library and version.
        library: String,
    },
    /// It cannot serve.
    Failed {
        /// Reason.
        error: String,
    },
    /// It accepted a connection.
    Connection(Connection),
    /// It is done.
    End {
        /// Number of pings answered.
        calls: u64,
        /// The same by status name.
        by_status: BTreeMap<String, u64>,
        /// Calls with an unreadable trace context.
        malformed_traceparent: u64,
        /// Records that found the queue full.
        records_dropped: u64,
        /// Whether calls were still in progress.
        cut_off: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines of CONTRACT.md.
    #[test]
    fn the_examples_of_the_contract_are_read() {
        let contract = include_str!("../../../../clients/CONTRACT.md");
        let histogram = r#"{"max":5,"sum":5,"buckets":[[5,1]]}"#;
        let text = contract
            .replace(":H", &format!(":{histogram}"))
            .replace("\n \"", " \"")
            .replace("warmup|measured|drain|drained", "drain");
        let lines: Vec<_> =
            text.lines().filter(|line| line.starts_with("{\"event\"") && !line.contains("...")).collect();
        assert_eq!(lines.len(), 6, "{lines:#?}");
        for line in lines {
            serde_json::from_str::<ClientMessage>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    proptest! {
        #[test]
        fn histogram_survives_transport(values in prop::collection::vec(0u64..1 << 45, 0..200)) {
            let mut sent = Distribution::default();
            values.iter().for_each(|&ns| sent.record(ns));
            let text = serde_json::to_string(&Histogram::from(&sent)).unwrap();
            let mut received = Distribution::default();
            serde_json::from_str::<Histogram>(&text).unwrap().add_to(&mut received);
            prop_assert_eq!(received.quantiles(), sent.quantiles());
            prop_assert_eq!(received.count(), values.len() as u64);
        }
    }
}
