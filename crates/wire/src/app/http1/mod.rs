//! HTTP/1.0 and 1.1, with keep-alive and pipelining.

use super::{Context, Parser, Sink};
use crate::exchange::Protocol;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// One HTTP/1 connection.
#[derive(Debug, Default)]
pub struct Http1 {}

impl Parser for Http1 {
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

impl Http1 {
    /// HTTP/1 with `depth` conversations around it, `number` exchanges before it.
    pub fn within(depth: u8, number: u32) -> Http1 {
        let _ = (depth, number);
        Http1 {}
    }
}

pub use start::{looks_like_request, looks_like_response};
mod start;
