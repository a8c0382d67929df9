//! What the agent is told to do.

use crate::actuator::Actuator;
use spangap_fleet::v1;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Takes what the operator should know, a sentence at a time.
pub(crate) type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What leaves the host of the bytes of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Lengths, frame headers, and the header fields that the analysis needs.
    #[default]
    Headers,
    /// Everything.
    Full,
}

/// Files for TLS, PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that the meter's certificate may come from; `None`: those that this host knows.
    pub authorities: Option<PathBuf>,
    /// The agent's own certificate and its key, for a meter that demands one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// URL of the meter's port for OTLP over gRPC.
    pub meter: String,
    /// File with the token that the meter wants; read anew for each connection.
    pub token_file: Option<PathBuf>,
    /// Files for TLS, where the URL says `https`; read anew for each connection.
    pub tls: TlsFiles,
    /// Most memory that the agent may take with its rings, bytes.
    pub memory_bytes: u64,
    /// Most CPU that it may take with its probes, as a share of all CPUs.
    pub cpu_share: f64,
    /// What leaves the host.
    pub payload: Payload,
    /// Interfaces to capture on; none: all.
    pub interfaces: Vec<String>,
    /// Processes whose sockets are followed; none: all that listen or are connected over TCP.
    pub pids: Vec<u32>,
    /// Most bytes kept of a packet.
    pub snap_bytes: u32,
    /// Where to answer questions about health; `None`: nowhere.
    pub health: Option<SocketAddr>,
    /// What may change the host; `None`: nothing may.
    pub actuator: Option<Actuator>,
}

impl Settings {
    /// What each part may have of the memory. What is left is for the process itself and for what the kernel keeps beside
    /// its rings.
    pub(crate) fn shares(&self) -> Shares {
        let part = |sixteenths: u64| self.memory_bytes / 16 * sixteenths;
        Shares {
            packets: part(7),
            openings: part(1) / 4,
            events: part(2),
            event_rings: part(1),
            slice: part(2),
        }
    }
}

/// Bytes for each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The ring of packets.
    pub packets: u64,
    /// SYNs of connections that live.
    pub openings: u64,
    /// Coded events.
    pub events: u64,
    /// The rings in which the kernel hands events over.
    pub event_rings: u64,
    /// What is copied for a slice.
    pub slice: u64,
}

impl From<Payload> for v1::Payload {
    fn from(payload: Payload) -> v1::Payload {
        match payload {
            Payload::Headers => v1::Payload::Headers,
            Payload::Full => v1::Payload::Full,
        }
    }
}
