//! HTTP/2 and gRPC in clear text, from the start of a connection or joined later.
//!
//! `reader` splits the bytes of a direction into frames, `hpack` decodes header blocks, `streams` turns both into
//! exchanges. The content of DATA is not examined, except for the five bytes before each gRPC message.

pub mod field;
pub mod flow_control;
pub mod frame;
pub mod grpc;
pub mod head_of_line;
pub mod hpack;
pub mod huffman;
pub mod reader;
pub mod resync;
pub mod shape;
pub mod stream;
pub mod stream_limit;
pub mod streams;
pub mod table;

use super::{Context, Parser, Sink};
use crate::episode::Episode;
use crate::exchange::{Ended, Ending, Exchange, Mark, Protocol, Stop};
use crate::tcp::{Chunk, Hole};
use field::Head;
use flow_control::{FlowControl, Sent};
use frame::{flag, kind, setting};
use head_of_line::HeadOfLine;
use hpack::Decoder;
use reader::{Frame, Input, Piece, Reader};
use spangap_model::{Cause, Side};
use stream::Body;
use stream_limit::StreamLimit;
use streams::Streams;

/// Whether bytes of a connection that was joined after its start are HTTP/2.
pub fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(frame::PREFACE) || resync::find(bytes).is_some()
}

/// One direction, by its presumed sender.
#[derive(Debug)]
struct Direction {
    reader: Reader,
    decoder: Decoder,
}

/// One HTTP/2 connection. Its first bytes show whether it is seen from the start.
#[derive(Debug)]
pub struct Http2 {
    started: bool,
    directions: [Direction; 2],
    rest: Rest,
}

/// State that both directions share.
#[derive(Debug)]
struct Rest {
    /// The presumed side that acts as the client.
    client: Side,
    /// Whether that is certain, because the preface or a request was seen.
    client_certain: bool,
    streams: Streams,
    limit: StreamLimit,
    flow: FlowControl,
    line: HeadOfLine,
    /// Episodes of the current piece.
    found: Vec<Episode>,
    grpc: bool,
}

impl Default for Http2 {
    fn default() -> Http2 {
        let mut joined = Http2::joined();
        joined.started = false;
        joined
    }
}

impl Http2 {
    /// A connection whose next bytes, on both sides, are its first: the client's begin with the preface.
    pub fn from_preface() -> Http2 {
        let direction =
            |client| Direction { reader: Reader::from_start(client), decoder: Decoder::new(true) };
        Http2 { started: true, directions: [direction(true), direction(false)], rest: Rest::new(false) }
    }

    /// A connection that has turned to HTTP/2 for the answer to this request.
    pub fn upgraded(request: Exchange) -> Http2 {
        let mut upgraded = Http2::from_preface();
        upgraded.rest.streams.adopt(request);
        upgraded
    }

    /// A connection joined after its start.
    pub fn joined() -> Http2 {
        let direction = || Direction { reader: Reader::joined(), decoder: Decoder::new(false) };
        Http2 { started: true, directions: [direction(), direction()], rest: Rest::new(true) }
    }

    #[cold]
    fn start(&mut self, context: Context, from: Side, bytes: &[u8]) {
        let preface = bytes.starts_with(frame::PREFACE);
        if preface && from == Side::Server {
            *self = Http2::from_preface();
            self.directions.swap(0, 1);
            self.rest.client = Side::Server;
        } else if preface || context.from_start {
            *self = Http2::from_preface();
        }
        self.started = true;
    }

    fn lose(&mut self, from: Side, cut: bool, sink: &mut Sink) {
        let direction = &mut self.directions[from.index()];
        direction.decoder.forget();
        sink.counts.resyncs += 1;
        let side = self.rest.acts_as(from);
        self.rest.streams.lost_place(side, cut);
        self.rest.flow.lose();
        self.rest.limit.lose();
    }

    /// Reports bytes before `end` that were read without finding frame boundaries, if any.
    #[inline]
    fn not_told_apart(&mut self, from: Side, at: Mark, end: u64) {
        let reader = &mut self.directions[from.index()].reader;
        if reader.is_lost() && self.rest.streams.not_told_apart(self.rest.acts_as(from), at, end) {
            reader.segment_begins(end);
        }
    }

    fn count_skipped(&mut self, from: Side, sink: &mut Sink) {
        let reader = &mut self.directions[from.index()].reader;
        sink.counts.bytes_skipped += std::mem::take(&mut reader.skipped_bytes);
    }
}

impl Parser for Http2 {
    fn bytes(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) {
        if !self.started {
            self.start(context, chunk.from, chunk.bytes);
        }
        let mut input = Input { bytes: chunk.bytes, offset: chunk.offset, at: chunk.at };
        let from = chunk.from;
        loop {
            let Direction { reader, decoder } = &mut self.directions[from.index()];
            let accepts = match reader.next(&mut input) {
                Ok(None) => break,
                Err(reader::Lost) => {
                    self.lose(from, false, sink);
                    continue;
                }
                Ok(Some((frame, piece))) => {
                    let here = Here { connection: context.connection, from, at: input.at, end: input.offset };
                    self.rest.piece(here, frame, piece, decoder, false, sink)
                }
            };
            if let Some(max_frame_bytes) = accepts {
                self.directions[from.other().index()].reader.accepts(max_frame_bytes);
            }
        }
        self.not_told_apart(from, chunk.at, chunk.offset + chunk.bytes.len() as u64);
        self.count_skipped(from, sink);
    }

    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        if !self.started {
            self.start(context, hole.from, &[]);
        }
        // The current frame ends somewhere in the hole: that much is known.
        let left = self.directions[hole.from.index()].reader.left_in_frame();
        if (1..hole.len).contains(&left) {
            let (head, rest) = (Hole { len: left, ..hole }, hole.len - left);
            self.hole(context, head, sink);
            return self.hole(context, Hole { offset: hole.offset + left, len: rest, ..hole }, sink);
        }
        let Direction { reader, decoder } = &mut self.directions[hole.from.index()];
        match reader.hole(hole.offset, hole.len) {
            Ok(None) => {}
            Ok(Some((frame, piece))) => {
                let end = hole.offset + hole.len;
                let here = Here { connection: context.connection, from: hole.from, at: hole.at, end };
                self.rest.piece(here, &frame, piece, decoder, hole.cut, sink);
            }
            Err(reader::Lost) => self.lose(hole.from, hole.cut, sink),
        }
        if hole.cut {
            // Cut bytes end where their segment ends.
            self.directions[hole.from.index()].reader.segment_begins(hole.offset + hole.len);
            self.not_told_apart(hole.from, hole.at, hole.offset + hole.len);
        }
        self.count_skipped(hole.from, sink);
    }

    fn fin(&mut self, _context: Context, _from: Side, _sink: &mut Sink) {}

    fn finish(&mut self, _context: Context, closed: bool, sink: &mut Sink) {
        let ended = if closed { Ended::ConnectionClosed } else { Ended::CaptureEnded };
        self.rest.streams.close_all(ended, None, sink, |_| true);
        sink.counts.calls_unseen += self.rest.streams.unseen();
    }

    fn protocol(&self) -> Protocol {
        if self.rest.grpc { Protocol::Grpc } else { Protocol::Http2 }
    }

    fn max_streams(&self) -> Option<u32> {
        self.rest.limit.limit()
    }

    fn client(&self) -> Option<Side> {
        self.rest.client_certain.then_some(self.rest.client)
    }

    fn open(&self) -> usize {
        self.rest.streams.count()
    }

    fn memory_bytes(&self) -> usize {
        let directions = self.directions.iter();
        let directions: usize = directions.map(|d| d.reader.memory_bytes() + d.decoder.memory_bytes()).sum();
        size_of::<Http2>() + directions + self.rest.streams.memory_bytes()
    }
}

/// Position of a piece.
#[derive(Clone, Copy, Debug)]
struct Here {
    connection: u32,
    /// The presumed sender.
    from: Side,
    at: Mark,
    /// Offset after it.
    end: u64,
}

impl Here {
    /// The ending that a frame here causes, sent by `by`.
    fn ending(&self, by: Side, stop: Stop) -> Ending {
        let Mark { seen_ns, packet, .. } = self.at;
        Ending { at_ns: seen_ns, packet, by: Some(by), stop, request_acked: false }
    }
}

impl Rest {
    fn new(joined: bool) -> Rest {
        Rest {
            client: Side::Client,
            client_certain: !joined,
            streams: Streams::new(joined),
            limit: StreamLimit::default(),
            flow: FlowControl::new(!joined),
            line: HeadOfLine::default(),
            found: Vec::new(),
            grpc: false,
        }
    }

    /// The role that `from` plays.
    fn acts_as(&self, from: Side) -> Side {
        if from == self.client { Side::Client } else { Side::Server }
    }

    /// Processes the next piece; returns the maximum frame size that its sender accepts, if it announces one.
    #[inline]
    fn piece(
        &mut self,
        here: Here,
        frame: &Frame,
        piece: Piece<'_>,
        decoder: &mut Decoder,
        cut: bool,
        sink: &mut Sink,
    ) -> Option<u32> {
        let side = self.acts_as(here.from);
        let stream = frame.header.stream;
        self.streams.seen(stream);
        match piece {
            Piece::Data { body, missing, begins, ends, offset } => {
                if let Some(observer) = sink.observer.as_mut().filter(|_| !body.is_empty()) {
                    observer.body(here.connection, stream, here.from, body);
                }
                let body = Body { frame, bytes: body, missing, begins, offset, at: here.at, end: here.end };
                if begins {
                    self.flow.begins(here.from, frame, &mut self.found);
                }
                self.streams.data(here.connection, side, &body, cut, sink);
                if ends {
                    self.data_ends(here, frame, side);
                    if frame.header.has(flag::END_STREAM) {
                        self.end(here, side, stream, sink);
                    }
                }
            }
            Piece::Block(block) => self.block(here, frame, block, decoder, cut, sink),
            Piece::Control(payload) => return self.control(here, frame, payload, sink),
        }
        if !self.found.is_empty() {
            self.hand_out(here.connection, sink);
        }
        None
    }

    #[inline]
    fn data_ends(&mut self, here: Here, frame: &Frame, side: Side) {
        let mut stream = self.streams.get(frame.header.stream);
        let inside = stream.as_ref().is_some_and(|stream| stream.inside_message(side));
        let credit = stream.as_mut().map(|stream| &mut stream.credit[here.from.index()]);
        self.flow.sent(Sent { from: here.from, at: here.at, inside }, frame, credit);
        if side == Side::Server {
            self.line.data(frame, here.at);
        }
    }

    /// Delivers the collected episodes, with the presumed sides.
    #[cold]
    fn hand_out(&mut self, connection: u32, sink: &mut Sink) {
        for mut episode in self.found.drain(..) {
            // Flow control is tracked by presumed sender, everything else by role.
            if self.client == Side::Server && episode.cause != Cause::FlowControl {
                episode.side = episode.side.map(Side::other);
                episode.sender = episode.sender.other();
            }
            sink.episodes.push((connection, episode));
        }
    }

    fn end(&mut self, here: Here, side: Side, stream: u32, sink: &mut Sink) {
        if let Some(observer) = &mut sink.observer {
            observer.end(here.connection, stream, here.from);
        }
        self.streams.ended(side, stream, sink);
        if side == Side::Server {
            self.limit.closed(here.at);
        }
    }

    #[inline]
    fn block(
        &mut self,
        here: Here,
        frame: &Frame,
        block: Option<&[u8]>,
        decoder: &mut Decoder,
        cut: bool,
        sink: &mut Sink,
    ) {
        let stream = frame.header.stream;
        let mut observed = sink.observer.is_some().then(Vec::new);
        let decoded = block.and_then(|block| decoder.decode(block, &mut sink.texts, observed.as_mut()).ok());
        let head = decoded.unwrap_or_else(|| {
            decoder.forget();
            observed.iter_mut().for_each(Vec::clear);
            Head::unreadable()
        });
        let cut = cut && block.is_none();
        if head.unknown > 0 && (self.streams.only_cut() || cut) {
            sink.counts.header_blocks_cut += 1;
        } else if head.unknown > 0 {
            sink.counts.header_blocks_unknown += 1;
        }
        if let (Some(observer), Some(fields)) = (&mut sink.observer, observed) {
            observer.headers(here.connection, stream, here.from, &fields, head.unknown);
        }
        if frame.header.kind == kind::PUSH_PROMISE {
            // The block had to be decoded to keep the table in sync; the promised stream answers no request.
            sink.counts.streams_refused += 1;
            return;
        }
        let answers = head.status.is_some() || head.grpc_status.is_some();
        if !self.client_certain && (head.request || answers) {
            self.sides_show(if head.request { here.from } else { here.from.other() });
        }
        self.grpc |= head.grpc == Some(true);
        let side = self.acts_as(here.from);
        let missing = block.is_none() && !cut;
        if side == Side::Server && self.streams.get(stream).is_some_and(|stream| !stream.responds()) {
            self.line.response(frame, here.end, &mut self.found);
        }
        let opened =
            self.streams.headers(here.connection, side, frame, (&head, missing), (here.at, here.end), sink);
        if cut {
            self.streams.cut_block(stream);
        }
        if opened {
            self.limit.opened(frame, here.end, self.streams.count(), &mut self.found);
        }
        if frame.header.has(flag::END_STREAM) {
            self.end(here, side, stream, sink);
        }
    }

    /// A header block shows which side acts as the client.
    fn sides_show(&mut self, client: Side) {
        self.client_certain = true;
        if self.client != client {
            self.client = client;
            self.streams.clear();
        }
    }

    fn control(&mut self, here: Here, frame: &Frame, payload: Option<&[u8]>, sink: &mut Sink) -> Option<u32> {
        let side = self.acts_as(here.from);
        let stream = frame.header.stream;
        let Some(payload) = payload else {
            if matches!(frame.header.kind, kind::SETTINGS | kind::WINDOW_UPDATE) {
                self.flow.lose();
            }
            return None;
        };
        match frame.header.kind {
            kind::SETTINGS | kind::PING => {
                match (side, frame.header.has(flag::ACK)) {
                    (Side::Server, false) => self.limit.asked(here.at),
                    (Side::Client, true) => self.limit.answered(here.at),
                    _ => {}
                }
                if frame.header.kind == kind::SETTINGS {
                    return self.settings(here, side, payload);
                }
            }
            kind::WINDOW_UPDATE => {
                let bytes = frame::number(payload);
                if stream == 0 {
                    self.flow.window_update(here.from, None, bytes, here.at);
                } else if let Some(open) = self.streams.get(stream) {
                    let credit = &mut open.credit[here.from.other().index()];
                    self.flow.window_update(here.from, Some((stream, credit)), bytes, here.at);
                }
            }
            kind::RST_STREAM => {
                let code = frame::number(payload);
                let ended = Ended::Reset { code, by_client: side == Side::Client };
                self.streams.close(stream, ended, Some(here.ending(side, Stop::RstStream(code))), sink);
                self.limit.closed(here.at);
            }
            kind::GOAWAY if side == Side::Server => {
                // The server will not process the streams after this one.
                let last = frame::number(payload) & 0x7fff_ffff;
                let code = payload.get(4..).map_or(0, frame::number);
                let ending = here.ending(side, Stop::GoAway(code));
                self.streams.close_all(Ended::ConnectionClosed, Some(ending), sink, |open| {
                    open.exchange.stream_id > last
                });
                self.limit.lose();
            }
            _ => {}
        }
        None
    }

    fn settings(&mut self, here: Here, side: Side, payload: &[u8]) -> Option<u32> {
        let mut accepts = None;
        for (name, value) in frame::settings(payload) {
            match name {
                setting::MAX_CONCURRENT_STREAMS if side == Side::Server => self.limit.set(value, here.at),
                setting::INITIAL_WINDOW_SIZE => self.flow.initial_window(here.from, value),
                setting::MAX_FRAME_SIZE => accepts = Some(value),
                _ => {}
            }
        }
        accepts
    }
}

#[cfg(test)]
mod tests;
