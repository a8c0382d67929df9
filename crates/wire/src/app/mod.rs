//! What is spoken over a connection: bytes in order become exchanges.

pub mod conversation;
pub mod detect;
pub mod http1;
pub mod http2;
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

/// Different texts kept; beyond it methods are [`TextId`] zero, and counted.
const MAX_TEXTS: usize = 100_000;

/// Texts, each kept once: methods and authorities.
#[derive(Debug)]
pub struct Texts {
    ids: FxHashMap<Box<[u8]>, TextId>,
    texts: Vec<Box<[u8]>>,
    /// Texts that found no room.
    pub refused: u64,
}

impl Default for Texts {
    fn default() -> Texts {
        // Number zero is the unknown text.
        Texts { ids: FxHashMap::default(), texts: vec![Box::default()], refused: 0 }
    }
}

impl Texts {
    /// The number of a text, the same for the same bytes.
    pub fn id(&mut self, text: &[u8]) -> TextId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        if self.texts.len() > MAX_TEXTS {
            self.refused += 1;
            return TextId::default();
        }
        let id = TextId(self.texts.len() as u32);
        self.texts.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    /// The text; `None` for the unknown one.
    pub fn text(&self, id: TextId) -> Option<String> {
        let bytes = self.texts.get(id.0 as usize).filter(|_| id.0 != 0)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Watches what is read, byte by byte. For those who want more than exchanges: tests, mostly.
pub trait Observer {
    /// A header block was decoded. Fields that could not be decoded are left out, and counted in `unknown`.
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
    /// One side has ended its part of a stream (END_STREAM, end of an HTTP/1 message).
    fn end(&mut self, connection: u32, stream: u32, from: Side);
}

/// What was not understood, each counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppCounts {
    /// HTTP/2 header blocks with fields that could not be decoded (joined after the start, or after a hole).
    pub header_blocks_unknown: u64,
    /// The same where nothing but the snap length is to blame.
    pub header_blocks_cut: u64,
    /// HTTP/2 calls that the numbers of their streams show, and whose requests the capture does not have. At least so many.
    pub calls_unseen: u64,
    /// Bytes of HTTP/2 or HTTP/1 connections skipped until the parser knew again where it was.
    pub bytes_skipped: u64,
    /// Times the parser lost its place: a hole, or bytes that break the protocol.
    pub resyncs: u64,
    /// Streams or requests beyond a limit of the parser, not followed.
    pub streams_refused: u64,
    /// TLS records that could not be decrypted although keys were given.
    pub records_undecrypted: u64,
}

impl AppCounts {
    /// Adds those of other connections.
    pub fn add(&mut self, other: &AppCounts) {
        let AppCounts {
            header_blocks_unknown,
            header_blocks_cut,
            calls_unseen,
            bytes_skipped,
            resyncs,
            streams_refused,
            records_undecrypted,
        } = other;
        self.header_blocks_unknown += header_blocks_unknown;
        self.header_blocks_cut += header_blocks_cut;
        self.calls_unseen += calls_unseen;
        self.bytes_skipped += bytes_skipped;
        self.resyncs += resyncs;
        self.streams_refused += streams_refused;
        self.records_undecrypted += records_undecrypted;
    }
}

/// Where a connection's parser leaves what it finds.
#[derive(Default)]
pub struct Sink {
    /// Finished exchanges, in the order in which they finished.
    pub exchanges: Vec<Exchange>,
    /// Episodes that only the application's protocol shows (flow control, stream limit), with their connection.
    pub episodes: Vec<(u32, Episode)>,
    /// Methods and authorities.
    pub texts: Texts,
    /// What was not understood.
    pub counts: AppCounts,
    /// TLS keys by client random.
    pub keys: tls::Keys,
    /// Who else wants to know.
    pub observer: Option<Box<dyn Observer>>,
}

/// What a parser has to know of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The tap's number of the connection.
    pub connection: u32,
    /// Whether the capture has the connection's first bytes.
    pub from_start: bool,
}

/// What every protocol's parser does.
pub trait Parser {
    /// The next bytes of one side.
    fn bytes(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink);
    /// Bytes of one side that are not in the capture.
    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink);
    /// One side will send no more.
    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink);
    /// The connection is over (`closed`), or the capture is: what is under way is handed out as it is.
    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink);
    /// What it turned out to be.
    fn protocol(&self) -> crate::exchange::Protocol;
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server, where there is such a thing and it was seen.
    fn max_streams(&self) -> Option<u32> {
        None
    }
    /// Which end of the connection, as the parser was told, must be the client after all: `Some(Side::Server)` when
    /// what it was told is the server sent a request. Only asked while the sides are a guess. Chunks and holes go on
    /// being told in the sides of the beginning, and so do the episodes it leaves: the tap turns them around.
    fn client(&self) -> Option<Side> {
        None
    }
    /// Exchanges under way.
    fn open(&self) -> usize;
    /// Bytes of memory held, roughly.
    fn memory_bytes(&self) -> usize;
}
