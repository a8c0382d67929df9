//! Application protocols: ordered bytes become exchanges.

pub mod conversation;
pub mod detect;
pub mod http1;
pub mod http2;
pub mod proxy_header;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod trace;
pub mod turns;

use crate::episode::Episode;
use crate::exchange::{Exchange, TextId};
use crate::tcp::{Chunk, Hole};
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::sync::Arc;

/// Maximum different texts; beyond it, methods are [`TextId`] zero, and counted.
const MAX_TEXTS: usize = 100_000;

/// Maximum length that is kept of a text.
const MAX_TEXT_BYTES: usize = 1024;

/// The path in a request's target: calls that differ in their query are of the same method.
#[inline]
pub fn without_query(target: &[u8]) -> &[u8] {
    &target[..memchr::memchr2(b'?', b'#', target).unwrap_or(target.len())]
}

/// Interned texts: methods and authorities.
#[derive(Debug)]
pub struct Texts {
    ids: FxHashMap<Arc<[u8]>, TextId>,
    texts: Vec<Arc<[u8]>>,
    /// Texts beyond the maximum.
    pub refused: u64,
}

impl Default for Texts {
    fn default() -> Texts {
        // Number zero is the unknown text.
        Texts { ids: FxHashMap::default(), texts: vec![Arc::default()], refused: 0 }
    }
}

impl Texts {
    /// The number of a text; equal bytes have the same number.
    pub fn id(&mut self, text: &[u8]) -> TextId {
        let text = &text[..text.len().min(MAX_TEXT_BYTES)];
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        if self.texts.len() > MAX_TEXTS {
            self.refused += 1;
            return TextId::default();
        }
        let id = TextId(self.texts.len() as u32);
        let text: Arc<[u8]> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The texts after the first so many, in the order of their numbers from 1.
    pub fn since(&self, known: usize) -> &[Arc<[u8]>] {
        self.texts.get(1 + known..).unwrap_or_default()
    }

    /// The text; `None` for the unknown one.
    pub fn text(&self, id: TextId) -> Option<String> {
        let bytes = self.texts.get(id.0 as usize).filter(|_| id.0 != 0)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Observes the decoded data byte by byte, for callers that need more than exchanges: mostly tests.
pub trait Observer: Send {
    /// A header block was decoded. Fields that could not be decoded are omitted, and counted in `unknown`.
    fn headers(
        &mut self,
        connection: u32,
        stream: u32,
        from: Side,
        fields: &[(Vec<u8>, Vec<u8>)],
        unknown: u32,
    );
    /// The next bytes of a body (DATA frames without padding, HTTP/1 bodies after chunked decoding).
    fn body(&mut self, connection: u32, stream: u32, from: Side, bytes: &[u8]);
    /// One side ended its part of a stream (END_STREAM, end of an HTTP/1 message).
    fn end(&mut self, connection: u32, stream: u32, from: Side);
}

/// Counters of data that was not understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppCounts {
    /// HTTP/2 header blocks with fields that could not be decoded (joined after the start, or after a hole).
    pub header_blocks_unknown: u64,
    /// The same, when only the snap length is to blame.
    pub header_blocks_cut: u64,
    /// HTTP/2 calls whose stream numbers prove that they exist, but whose requests are not in the capture: a
    /// lower bound.
    pub calls_unseen: u64,
    /// Bytes of HTTP/2 or HTTP/1 connections skipped until the parser found its position again.
    pub bytes_skipped: u64,
    /// Number of times the parser lost its position: a hole, or bytes that violate the protocol.
    pub resyncs: u64,
    /// Streams or requests beyond a limit of the parser, which are not followed.
    pub streams_refused: u64,
    /// TLS records that could not be decrypted although keys were given.
    pub records_undecrypted: u64,
    /// Connections of Multipath TCP that joined another one.
    pub further_paths: u64,
}

impl AppCounts {
    /// Adds the counters of other connections.
    pub fn add(&mut self, other: &AppCounts) {
        let AppCounts {
            header_blocks_unknown,
            header_blocks_cut,
            calls_unseen,
            bytes_skipped,
            resyncs,
            streams_refused,
            records_undecrypted,
            further_paths,
        } = other;
        self.header_blocks_unknown += header_blocks_unknown;
        self.header_blocks_cut += header_blocks_cut;
        self.calls_unseen += calls_unseen;
        self.bytes_skipped += bytes_skipped;
        self.resyncs += resyncs;
        self.streams_refused += streams_refused;
        self.records_undecrypted += records_undecrypted;
        self.further_paths += further_paths;
    }
}

/// The parser that handles the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// TLS.
    Tls,
    /// None of the above.
    Unknown,
}

/// Result of examining bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A recognised protocol.
    Is(Spoken),
    /// The presumed server is the client.
    OtherWay,
    /// More bytes may decide.
    More,
    /// No known protocol begins like this.
    Unknown,
}

/// Output of a connection's parser.
#[derive(Default)]
pub struct Sink {
    /// Finished exchanges, in the order in which they finished.
    pub exchanges: Vec<Exchange>,
    /// Episodes that only the application protocol shows (flow control, stream limit), with their connection.
    pub episodes: Vec<(u32, Episode)>,
    /// Methods and authorities.
    pub texts: Texts,
    /// Counters of data that was not understood.
    pub counts: AppCounts,
    /// TLS keys by client random.
    pub keys: tls::Keys,
    /// An additional observer.
    pub observer: Option<Box<dyn Observer>>,
}

/// Facts that a parser needs about its connection.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The tap's number for the connection.
    pub connection: u32,
    /// Whether the capture has the connection's first bytes.
    pub from_start: bool,
}

/// Interface of every protocol's parser.
pub trait Parser {
    /// The next bytes of one side.
    fn bytes(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink);
    /// Bytes of one side that are not in the capture.
    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink);
    /// One side will send no more.
    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink);
    /// The connection ended (`closed`), or the capture did: delivers the unfinished exchanges as they are.
    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink);
    /// The detected protocol.
    fn protocol(&self) -> crate::exchange::Protocol;
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server, if the protocol has it and it was seen.
    fn max_streams(&self) -> Option<u32> {
        None
    }
    /// The side, as passed to the parser, that must be the client after all: `Some(Side::Server)` if the presumed
    /// server sent a request. Called only while the sides are a guess. Chunks, holes and episodes keep using the
    /// initial sides; the tap swaps them.
    fn client(&self) -> Option<Side> {
        None
    }
    /// Exchanges in flight.
    fn open(&self) -> usize;
    /// Approximate memory use in bytes.
    fn memory_bytes(&self) -> usize;
}
