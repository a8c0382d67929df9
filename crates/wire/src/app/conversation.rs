//! What a connection speaks is found out from its first bytes; then one parser has it.

use super::{Context, Parser, Sink};
use crate::exchange::Protocol;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// One connection, whatever it speaks.
#[derive(Debug, Default)]
pub struct Conversation {}

impl Parser for Conversation {
    fn bytes(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) {
        let _ = (context, chunk, sink);
    }
    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        let _ = (context, hole, sink);
    }
    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink) {
        let _ = (context, from, sink);
    }
    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink) {
        let _ = (context, closed, sink);
    }
    fn protocol(&self) -> Protocol {
        Protocol::Turns
    }
    fn open(&self) -> usize {
        0
    }
    fn memory_bytes(&self) -> usize {
        0
    }
}
