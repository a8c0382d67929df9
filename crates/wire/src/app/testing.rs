//! What the tests of every parser need.

use super::Context;
use crate::exchange::Mark;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// A connection seen from its start.
pub const CONTEXT: Context = Context { connection: 1, from_start: true };

/// The mark of a packet that came at this time and needed no other.
pub fn at(time: i64) -> Mark {
    Mark { seen_ns: time, ready_ns: time, packet: time as u64, ready_packet: time as u64 }
}

/// Bytes that came at this time.
pub fn chunk(from: Side, offset: u64, bytes: &[u8], time: i64) -> Chunk<'_> {
    Chunk { from, offset, bytes, at: at(time) }
}

/// Bytes that are missing.
pub fn hole(from: Side, offset: u64, len: u64, time: i64, cut: bool) -> Hole {
    Hole { from, offset, len, at: at(time), cut }
}
