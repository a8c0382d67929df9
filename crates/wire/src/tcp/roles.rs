//! Guesses client and server roles from the ports until a SYN or a request shows them.

use crate::segment::{Endpoint, Flags, Segment};
use rustc_hash::FxHashMap;
use spangap_model::Side;

/// Maximum servers remembered; beyond it, only ports decide.
const MAX_SERVERS: usize = 65_536;
/// Ports below this belong to services (IANA's system ports, RFC 6335, 6).
const SYSTEM_PORTS: u16 = 1024;

/// Addresses and ports of servers, as shown by SYNs.
#[derive(Debug, Default)]
pub struct Roles {
    servers: FxHashMap<Endpoint, ()>,
}

impl Roles {
    /// The sender of a connection's first segment, and whether that is certain.
    pub fn side(&mut self, segment: &Segment<'_>) -> (Side, bool) {
        let (source, destination) = (segment.source, segment.destination);
        if segment.flags.has(Flags::SYN) {
            let answer = segment.flags.has(Flags::ACK);
            let server = if answer { source } else { destination };
            if self.servers.len() < MAX_SERVERS {
                self.servers.insert(server, ());
            }
            return (if answer { Side::Server } else { Side::Client }, true);
        }
        // The SYNs of other connections identify the server.
        match (self.servers.contains_key(&source), self.servers.contains_key(&destination)) {
            (true, false) => return (Side::Server, false),
            (false, true) => return (Side::Client, false),
            _ => {}
        }
        let system = |end: Endpoint| end.port < SYSTEM_PORTS;
        let from_client = match (system(source), system(destination)) {
            (true, false) => false,
            (false, true) => true,
            // Ephemeral ports are the high ones.
            _ => source.port > destination.port,
        };
        (if from_client { Side::Client } else { Side::Server }, false)
    }
}
