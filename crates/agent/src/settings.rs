//! The agent's settings.

use crate::actuator::Actuator;
use spangap_fleet::v1;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

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
    /// What each part may have of the memory, after what the process takes by itself.
    pub(crate) fn shares(&self) -> Shares {
        self.shares_beside(*OF_ITS_OWN.get_or_init(|| resident_bytes() + GROWS_BYTES + KERNEL_BYTES))
    }

    fn shares_beside(&self, own_bytes: u64) -> Shares {
        // With less than a quarter of it left, parts that are too small to be of use would be no help either.
        let left = self.memory_bytes.saturating_sub(own_bytes).max(self.memory_bytes / 4);
        let part = |parts: u64| left / 16 * parts;
        Shares {
            packets: part(8),
            openings: part(1) / 4,
            events: part(2),
            event_rings: part(1),
            slice: part(4) / SLICE_COPIES,
        }
    }
}

/// Resident memory of this process when it was first asked for: before anything is recorded.
static OF_ITS_OWN: OnceLock<u64> = OnceLock::new();
/// Code and tables that are touched later: the clean pages of the program, names, tasks, the stream to the meter.
const GROWS_BYTES: u64 = 20 << 20;
/// Maps of the probes that are in no process.
const KERNEL_BYTES: u64 = 16 << 20;
/// A slice is there as it was copied, as its bytes were put in order, as they may be seen, and as it is sent; and there is what is
/// known of each packet.
const SLICE_COPIES: u64 = 5;

/// Resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    let page = rustix::param::page_size() as u64;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * page
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_and_the_process_fit_into_the_memory() {
        for mib in [64, 96, 128, 256, 1024] {
            let settings = Settings {
                meter: String::new(),
                token_file: None,
                tls: TlsFiles::default(),
                memory_bytes: mib << 20,
                cpu_share: 0.02,
                payload: Payload::Headers,
                interfaces: Vec::new(),
                pids: Vec::new(),
                snap_bytes: 256,
                health: None,
                actuator: None,
            };
            let own = 30 << 20;
            let shares = settings.shares_beside(own);
            let parts = shares.packets + shares.openings + shares.events + shares.event_rings;
            let all = parts + SLICE_COPIES * shares.slice;
            assert!(all + own <= mib << 20, "{mib} MiB: {shares:?}");
            assert!(all >= (mib << 20) / 4 - (1 << 20), "{mib} MiB: {shares:?}");
        }
    }
}
