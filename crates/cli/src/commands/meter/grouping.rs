//! What a row of the table stands for, as an argument.

use clap::ValueEnum;
use serde::Deserialize;
use spangap_meter::ingest::named::Part;
use spangap_meter::pairs::{Ends, Grouping};

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Client service and server service
    Pair,
    /// The same, and the method
    Method,
    /// Both services at their nodes
    Node,
    /// Client service at its node, and server service
    ClientNode,
    /// Client service, and server service at its node
    ServerNode,
    /// Both services at their pods
    Pod,
    /// Client service at its pod, and server service
    ClientPod,
    /// Client service, and server service at its pod
    ServerPod,
    /// Both services at their zones
    Zone,
    /// Client service at its zone, and server service
    ClientZone,
    /// Client service, and server service at its zone
    ServerZone,
    /// Both services at their versions
    Version,
    /// Client service at its version, and server service
    ClientVersion,
    /// Client service, and server service at its version
    ServerVersion,
}

impl From<By> for Grouping {
    fn from(by: By) -> Grouping {
        let (part, ends) = match by {
            By::Pair => return Grouping::Pair,
            By::Method => return Grouping::Method,
            By::Node => (Part::Node, Ends::Both),
            By::ClientNode => (Part::Node, Ends::Client),
            By::ServerNode => (Part::Node, Ends::Server),
            By::Pod => (Part::Pod, Ends::Both),
            By::ClientPod => (Part::Pod, Ends::Client),
            By::ServerPod => (Part::Pod, Ends::Server),
            By::Zone => (Part::Zone, Ends::Both),
            By::ClientZone => (Part::Zone, Ends::Client),
            By::ServerZone => (Part::Zone, Ends::Server),
            By::Version => (Part::Version, Ends::Both),
            By::ClientVersion => (Part::Version, Ends::Client),
            By::ServerVersion => (Part::Version, Ends::Server),
        };
        Grouping::Part(part, ends)
    }
}
