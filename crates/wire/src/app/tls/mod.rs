//! TLS: decrypted where the keys are known, otherwise turns of application data.

use super::{Context, Parser, Sink};
use crate::exchange::Protocol;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// Secrets of a key-log file (the format of `SSLKEYLOGFILE`).
#[derive(Debug, Default)]
pub struct Keys {}

impl Keys {
    /// Adds lines of a key-log file; gives the lines that are none: their number from 1, and what is wrong.
    pub fn add(&mut self, lines: &[u8]) -> Vec<(usize, String)> {
        let _ = lines;
        Vec::new()
    }
}

/// One TLS connection.
#[derive(Debug, Default)]
pub struct Tls {}

impl Parser for Tls {
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
