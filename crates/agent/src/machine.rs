//! `machine.json` of a slice: the machine, and how the bytes were masked or truncated.

use crate::openings::Opened;
use crate::settings::Payload;
use serde::Serialize;
use spangap_machine::Host;
use spangap_machine::facts::{cpuinfo, meminfo, system_name, uptime};

/// The file. Its first keys are the same as in files of `lab run`.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    kernel: String,
    cpus: usize,
    cpu_model: Option<String>,
    memory_bytes: Option<u64>,
    load: Vec<f64>,
    host: String,
    spangap: &'static str,
    /// Which bytes of messages the capture contains.
    payload: Payload,
    /// Explanation of the payload.
    payload_words: &'static str,
    /// Whether TCP checksums are those on the wire.
    tcp_checksums: &'static str,
    /// Connections of the capture that were already open.
    #[serde(skip_serializing_if = "Option::is_none")]
    opened_before: Option<OpenedBefore>,
    /// Copies of packets on other interfaces, omitted from the capture. Near one end, also what did not pass there.
    copies_left_out: u64,
    /// What cannot be observed here, in sentences.
    lacks: Vec<String>,
}

/// Connections opened before a capture, by what is known of their handshakes.
#[derive(Debug, Serialize)]
pub(crate) struct OpenedBefore {
    connections: u64,
    /// Their SYNs precede the packets, on a separate interface.
    syns_kept: u64,
    /// Known from the kernel's sockets; synthetic SYNs that say so precede the packets, on a separate
    /// interface.
    told_by_kernel: u64,
    unknown: u64,
}

impl OpenedBefore {
    pub fn of(opened: &Opened) -> OpenedBefore {
        let Opened { before, kept, told, unknown, .. } = *opened;
        OpenedBefore { connections: before, syns_kept: kept, told_by_kernel: told, unknown }
    }
}

/// Description of this machine.
pub(crate) fn machine(
    payload: Payload,
    opened_before: Option<OpenedBefore>,
    copies_left_out: u64,
    lacks: Vec<String>,
) -> Machine {
    let host = Host::below("/");
    let cpuinfo = cpuinfo::parse(&host.read(cpuinfo::PATH).unwrap_or_default());
    let load = host.parsed(uptime::LOADAVG, uptime::load);
    Machine {
        kernel: system_name::kernel_here(),
        cpus: cpuinfo.count,
        cpu_model: cpuinfo.model,
        memory_bytes: host.parsed(meminfo::PATH, meminfo::total_bytes).ok(),
        load: load.map_or_else(|_| Vec::new(), |load| load.averages.to_vec()),
        host: system_name::host_here(),
        spangap: env!("CARGO_PKG_VERSION"),
        payload,
        payload_words: match payload {
            Payload::Headers => {
                "payloads are masked: lengths and frame headers are true, and those header fields that the analysis needs"
            }
            Payload::Full => "payloads are as they were on the wire",
        },
        tcp_checksums: match payload {
            Payload::Headers => "as on the wire: they do not fit payloads that are masked",
            Payload::Full => "as on the wire",
        },
        opened_before,
        copies_left_out,
        lacks,
    }
}
