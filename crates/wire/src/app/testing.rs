//! Helpers for the tests of every parser.

use super::Context;
use crate::exchange::Mark;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// A connection seen from its start.
pub const CONTEXT: Context = Context { connection: 1, from_start: true };

/// The mark of a packet that arrived at this time and was readable immediately.
pub fn at(time: i64) -> Mark {
    Mark { seen_ns: time, ready_ns: time, packet: time as u64, ready_packet: time as u64 }
}

/// Bytes that arrived at this time.
pub fn chunk(from: Side, offset: u64, bytes: &[u8], time: i64) -> Chunk<'_> {
    Chunk { from, offset, bytes, at: at(time) }
}

/// Missing bytes.
pub fn hole(from: Side, offset: u64, len: u64, time: i64, cut: bool) -> Hole {
    Hole { from, offset, len, at: at(time), cut }
}
