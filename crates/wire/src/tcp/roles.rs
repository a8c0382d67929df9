//! Client and server roles before a SYN or a request shows them: a guess from the ports.

use crate::segment::{Endpoint, Flags, Segment};
use rustc_hash::FxHashMap;
use spangap_model::Side;

/// Servers remembered; beyond it, ports alone decide.
const MAX_SERVERS: usize = 65_536;
/// Ports below this are for services (IANA's system ports, RFC 6335, 6).
const SYSTEM_PORTS: u16 = 1024;

/// Which addresses and ports are servers, as far as SYNs told.
#[derive(Debug, Default)]
pub struct Roles {
    servers: FxHashMap<Endpoint, ()>,
}

impl Roles {
    /// The side that sent the first segment seen of a connection, and whether that is known.
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
        // A server by other connections' SYNs.
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
