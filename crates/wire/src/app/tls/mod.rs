//! TLS: decrypted where the keys are known, otherwise turns of application data.

use super::detect::{Look, Spoken};
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

impl Tls {
    /// TLS with `depth` conversations around it, `number` exchanges before it.
    pub fn within(depth: u8, number: u32) -> Tls {
        let _ = (depth, number);
        Tls {}
    }
}

/// Whether bytes begin with a record: a ClientHello or, if `joined`, any (RFC 8446, 5.1).
pub fn looks_like(bytes: &[u8], joined: bool) -> Look {
    const MAX_RECORD_BYTES: usize = (1 << 14) + 2048;
    let (mut rest, mut records) = (bytes, 0);
    loop {
        let fits = |at: usize, test: &dyn Fn(u8) -> bool| rest.get(at).is_none_or(|byte| test(*byte));
        let hello = fits(0, &|b| b == 22) && fits(5, &|b| b == 1) && fits(9, &|b| b == 3);
        let any = joined && fits(0, &|b| (20..=23).contains(&b));
        if !(hello || any) || !fits(1, &|b| b == 3) || !fits(2, &|b| b <= 4) {
            return Look::Unknown;
        }
        let Some(header) = rest.first_chunk::<5>() else {
            return if records > 0 { Look::Is(Spoken::Tls) } else { Look::More };
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len == 0 || len > MAX_RECORD_BYTES {
            return Look::Unknown;
        }
        if !joined {
            return if rest.len() > 9 { Look::Is(Spoken::Tls) } else { Look::More };
        }
        records += 1;
        match rest.get(5 + len..) {
            None | Some([]) => return Look::Is(Spoken::Tls),
            Some(after) => rest = after,
        }
    }
}
