//! The agent's settings.

use spangap_fleet::v1;
use spangap_machine::facts::process_status;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Receives messages for the operator, one sentence each.
pub(crate) type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Which bytes of messages leave the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Lengths, frame headers, and the header fields that the analysis needs.
    #[default]
    Headers,
    /// Everything.
    Full,
}

/// TLS files, PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities accepted for the meter's certificate; `None` for the host's own.
    pub authorities: Option<PathBuf>,
    /// The agent's certificate and its key, for a meter that requires one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Command and permissions of the actuator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actuator {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Permitted changes: `sockets`, `isolate`.
    pub allows: Vec<String>,
}

/// Settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// URL of the meter's port for OTLP over gRPC.
    pub meter: String,
    /// File with the token for the meter; read anew for each connection.
    pub token_file: Option<PathBuf>,
    /// TLS files for an `https` URL; read anew for each connection.
    pub tls: TlsFiles,
    /// Memory limit of the agent including its rings, bytes.
    pub memory_bytes: u64,
    /// CPU limit of the agent including its probes, as a share of all CPUs.
    pub cpu_share: f64,
    /// Which bytes leave the host.
    pub payload: Payload,
    /// Interfaces to capture on; empty for all.
    pub interfaces: Vec<String>,
    /// Processes whose sockets are followed; empty for all that listen or are connected over TCP.
    pub pids: Vec<u32>,
    /// Whether the agent stands for a node: then all network namespaces are its own, wherever the machine's first
    /// process is.
    pub whole_node: bool,
    /// Maximum bytes kept of a packet.
    pub snap_bytes: u32,
    /// Address of the health port; `None` disables it.
    pub health: Option<SocketAddr>,
    /// The process that may change the host; `None` permits no changes.
    pub actuator: Option<Actuator>,
}

impl Settings {
    /// Memory of each part, after the process's own share.
    pub(crate) fn shares(&self) -> Shares {
        self.shares_beside(*OF_ITS_OWN.get_or_init(|| resident_bytes() + GROWS_BYTES + KERNEL_BYTES))
    }

    fn shares_beside(&self, own_bytes: u64) -> Shares {
        // With less than a quarter left, the parts would be too small to be useful.
        let left = self.memory_bytes.saturating_sub(own_bytes).max(self.memory_bytes / 4);
        let part = |parts: u64| left / 80 * parts;
        Shares {
            packets: part(48),
            openings: part(1),
            events: part(10),
            event_rings: part(5),
            slice: part(16) / SLICE_COPIES,
        }
    }
}

/// Resident memory of this process at the first call: before anything is recorded.
static OF_ITS_OWN: OnceLock<u64> = OnceLock::new();
/// Code and tables touched later: the clean pages of the program, names, tasks, the stream to the meter.
const GROWS_BYTES: u64 = 16 << 20;
/// Maps of the probes outside any process: 7 MiB, nearly all of it stacks.
const KERNEL_BYTES: u64 = 8 << 20;
/// A slice exists as a copy, reordered, and masked; in addition there are the facts of each packet. What is sent leaves in pieces.
const SLICE_COPIES: u64 = 4;

/// Resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    process_status::own_resident_bytes().unwrap_or(0)
}

/// Bytes of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The ring of packets.
    pub packets: u64,
    /// SYNs of live connections.
    pub openings: u64,
    /// Encoded events.
    pub events: u64,
    /// The rings in which the kernel passes events.
    pub event_rings: u64,
    /// Copies for a slice.
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

/// Settings of an agent that keeps all of what it can.
#[cfg(test)]
pub(crate) fn sample(memory_bytes: u64) -> Settings {
    Settings {
        meter: String::new(),
        token_file: None,
        tls: TlsFiles::default(),
        memory_bytes,
        cpu_share: 0.02,
        payload: Payload::Headers,
        interfaces: Vec::new(),
        pids: Vec::new(),
        whole_node: false,
        snap_bytes: 256,
        health: None,
        actuator: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_and_the_process_fit_into_the_memory() {
        for mib in [64, 96, 128, 256, 1024] {
            let settings = sample(mib << 20);
            let own = 30 << 20;
            let shares = settings.shares_beside(own);
            let parts = shares.packets + shares.openings + shares.events + shares.event_rings;
            let all = parts + SLICE_COPIES * shares.slice;
            assert!(all + own <= mib << 20, "{mib} MiB: {shares:?}");
            assert!(all >= (mib << 20) / 4 - (1 << 20), "{mib} MiB: {shares:?}");
        }
    }
}
