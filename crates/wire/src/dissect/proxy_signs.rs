//! Signs that one or two captures contain a proxy: only then are calls delayed for linking.

use crate::call::Halves;
use crate::exchange::TraceContext;
use crate::segment::Endpoint;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Maximum addresses remembered.
const MAX_ADDRESSES: usize = 4096;
/// Maximum trace contexts remembered, the latest ones; a power of two.
const CONTEXTS: usize = 4096;

/// Evidence of a proxy.
#[derive(Debug, Default)]
pub(super) struct ProxySigns {
    /// Whether any sign was found.
    pub found: bool,
    /// A server at each address, and a server called from each address.
    servers: FxHashMap<[u8; 16], Endpoint>,
    called: FxHashMap<[u8; 16], Endpoint>,
    /// Sides of the calls that only one capture has, by capture.
    sides: [[bool; 2]; 2],
    /// Connections by the trace context of a call on them.
    contexts: Vec<(u64, u32)>,
}

impl ProxySigns {
    /// Examines a connection: is a host both called and a caller of another one?
    pub fn connection(&mut self, [client, server]: [Endpoint; 2]) {
        let other = |known: Option<&Endpoint>| known.is_some_and(|known| *known != server);
        self.found |= other(self.called.get(&server.address)) || other(self.servers.get(&client.address));
        if self.servers.len() < MAX_ADDRESSES {
            self.servers.entry(server.address).or_insert(server);
            self.called.insert(client.address, server);
        }
    }

    /// Examines a call: does another connection have its trace context, or was its capture at the other end of
    /// another call?
    #[inline]
    pub fn look(&mut self, connection: u32, halves: &Halves) {
        if let [Some(half), None] | [None, Some(half)] = &halves.exchanges {
            let server = halves.exchanges[1].is_some();
            let sides = &mut self.sides[usize::from(halves.captures[usize::from(server)] & 1)];
            sides[usize::from(server)] = true;
            self.found |= *sides == [true; 2];
            self.context(connection, half.trace);
        } else if let Some(half) = &halves.exchanges[0] {
            self.context(connection, half.trace);
        }
    }

    fn context(&mut self, connection: u32, trace: Option<TraceContext>) {
        let Some(TraceContext { trace_id, .. }) = trace else { return };
        let mut hasher = FxHasher::default();
        trace_id.hash(&mut hasher);
        let hash = hasher.finish();
        self.contexts.resize(CONTEXTS, (0, 0));
        let known = &mut self.contexts[(hash >> 7) as usize & (CONTEXTS - 1)];
        self.found |= known.0 == hash && known.1 != connection;
        *known = (hash, connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_called_and_calls_another_is_a_proxy() {
        let end = |host: u8, port: u16| Endpoint::v4([10, 0, 0, host], port);
        let mut signs = ProxySigns::default();
        for client in 1..9 {
            signs.connection([end(client, 40_000), end(10, 80)]);
        }
        assert!(!signs.found);
        signs.connection([end(10, 50_000), end(11, 8080)]);
        assert!(signs.found);
        // A host that calls itself is both called and a caller, at one port.
        let mut local = ProxySigns::default();
        local.connection([end(1, 40_000), end(1, 80)]);
        local.connection([end(1, 40_001), end(1, 80)]);
        assert!(!local.found);
        local.connection([end(1, 40_002), end(1, 8080)]);
        assert!(local.found);
    }
}
