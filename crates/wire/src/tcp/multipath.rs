//! Connections of Multipath TCP whose bytes are spread over several connections. They are not put together: what is
//! seen of their calls is marked, and the further connections have no calls of their own.

use crate::exchange::Exchange;
use rustc_hash::FxHashMap;

/// Connections whose token is known; beyond, those known are forgotten.
const MAX_CONNECTIONS: usize = 65_536;

/// Tokens, and the connections that others joined.
#[derive(Debug, Default)]
pub struct MultipathConnections {
    by_token: FxHashMap<u32, u32>,
    /// By number: since when.
    joined: FxHashMap<u32, i64>,
}

impl MultipathConnections {
    /// The token of a connection.
    pub fn opened(&mut self, token: u32, connection: u32) {
        if self.by_token.len() >= MAX_CONNECTIONS {
            self.by_token.clear();
        }
        self.by_token.insert(token, connection);
    }

    /// Another connection joins the one with this token.
    pub fn joins(&mut self, token: u32, at_ns: i64) {
        if self.joined.len() >= MAX_CONNECTIONS {
            self.joined.clear();
        }
        if let Some(connection) = self.by_token.get(&token) {
            self.joined.entry(*connection).or_insert(at_ns);
        }
    }

    /// Marks what may have bytes on another connection.
    #[inline]
    pub fn doubt(&self, connection: u32, exchanges: &mut [Exchange]) {
        if self.joined.is_empty() {
            return;
        }
        let Some(since_ns) = self.joined.get(&connection) else { return };
        for exchange in exchanges {
            let last = exchange.response.map_or(exchange.request.last, |part| part.last);
            if last.seen_ns >= *since_ns {
                exchange.doubts.hole = true;
                exchange.doubts.end_unknown |= exchange.ended != crate::exchange::Ended::Complete;
            }
        }
    }
}
