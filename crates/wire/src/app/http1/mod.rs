//! HTTP/1.0 and 1.1, with keep-alive and pipelining (RFC 9112).
//!
//! Requests and responses are matched in order. A response's first byte is that of its final status line: interim
//! responses (1xx) are skipped. After CONNECT or an upgrade, the content is a conversation of its own; if that is
//! HTTP/2, it begins with the answer to the request that asked for the upgrade.
//!
//! Bytes missing from a body of known length cost nothing but their content. Any others lose the position, which
//! is recovered where a packet begins with a first line. The number of messages in between is unknown, so
//! exchanges that they may belong to are marked, and so are later ones of a pipelining client. A head cut by the
//! snap length is read as far as possible; its message lasts until the next one begins.

pub mod body;
pub mod head;
mod pairing;
mod start;

pub use start::{RequestLine, StatusLine, looks_like_request, looks_like_response};

use self::body::{Body, Step};
use self::head::Fields;
use self::pairing::{Pairing, Request};
use super::conversation::Conversation;
use super::{Context, Look, Parser, Sink};
use crate::exchange::{Mark, Part, Protocol, TextId};
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// Maximum size of a head.
const MAX_HEAD_BYTES: usize = 256 << 10;

/// One HTTP/1 connection.
#[derive(Debug, Default)]
pub struct Http1 {
    depth: u8,
    streams: [Stream; 2],
    pairing: Pairing,
    /// The conversation after CONNECT or an upgrade.
    tunnel: Option<Box<Conversation>>,
    joined: bool,
}

/// One side's messages.
#[derive(Debug, Default)]
struct Stream {
    place: Place,
    /// Bytes of an incomplete head, and where it began.
    head: Vec<u8>,
    first: Mark,
    start: u64,
}

#[derive(Debug, Default)]
enum Place {
    /// Before a message.
    #[default]
    Start,
    Head,
    Body(Body),
    /// After missing or broken bytes.
    Lost,
}

/// A complete or cut head, and its position.
struct Head<'a> {
    bytes: &'a [u8],
    part: Part,
    /// Whether its end was cut off, and whether even its first line was.
    cut: bool,
    line_cut: bool,
}

impl Http1 {
    /// HTTP/1 inside `depth` conversations, after `number` exchanges.
    pub fn within(depth: u8, number: u32) -> Http1 {
        Http1 { depth, pairing: Pairing::after(number), ..Http1::default() }
    }

    /// Reads more from `bytes`; returns the number of bytes used. Zero only if they belong to the tunnel.
    fn step(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) -> usize {
        let Chunk { from, offset, bytes, at } = chunk;
        let stream = &mut self.streams[from.index()];
        match &mut stream.place {
            Place::Start => {
                let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                if blank < bytes.len() {
                    (stream.first, stream.start) = (at, offset + blank as u64);
                    stream.place = Place::Head;
                }
                blank
            }
            Place::Head => self.head(context, chunk, sink),
            Place::Body(body) => {
                let step = body.step(bytes);
                let (content, used) = match step {
                    Step::Content(used) => (used, used),
                    Step::Framing(used) | Step::End(used) => (0, used),
                    Step::Broken => {
                        sink.counts.bytes_skipped += bytes.len() as u64;
                        self.lose(from, true, sink);
                        return bytes.len();
                    }
                };
                let over = body.over() || matches!(step, Step::End(_));
                let number = self.pairing.extend(from, content as u64, offset + used as u64, at);
                if let Some(observer) = sink.observer.as_mut().filter(|_| content > 0) {
                    observer.body(context.connection, number, from, &bytes[..content]);
                }
                if over {
                    self.message_over(context, from, sink);
                }
                used
            }
            Place::Lost => {
                let begins = match from {
                    // The snap length, or the packet's end, may precede the end of the line.
                    Side::Client => match looks_like_request(bytes) {
                        Look::More => memchr::memchr(b'/', &bytes[..bytes.len().min(12)]).is_some(),
                        look => matches!(look, Look::Is(_)),
                    },
                    Side::Server => matches!(looks_like_response(bytes), Look::Is(_)),
                };
                if begins {
                    self.pairing.found(from, sink);
                    self.streams[from.index()].place = Place::Start;
                    return self.step(context, chunk, sink);
                }
                self.pairing.extend(from, 0, offset + bytes.len() as u64, at);
                sink.counts.bytes_skipped += bytes.len() as u64;
                bytes.len()
            }
        }
    }

    /// Parses a head, or collects it; returns the number of bytes of `chunk` that it used.
    fn head(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) -> usize {
        let stream = &mut self.streams[chunk.from.index()];
        let held = stream.head.len();
        if held == 0
            && let Some(end) = head::end(chunk.bytes, 0)
        {
            let bytes = &chunk.bytes[..end];
            self.whole_head(context, &chunk, bytes, end, sink);
            return end;
        }
        let room = chunk.bytes.len().min(MAX_HEAD_BYTES - held);
        stream.head.extend_from_slice(&chunk.bytes[..room]);
        if let Some(end) = head::end(&stream.head, held.saturating_sub(3)) {
            let mut bytes = std::mem::take(&mut stream.head);
            self.whole_head(context, &chunk, &bytes[..end], end - held, sink);
            bytes.clear();
            bytes.shrink_to(4096);
            self.streams[chunk.from.index()].head = bytes;
            return end - held;
        }
        if stream.head.len() == MAX_HEAD_BYTES {
            self.lose(chunk.from, true, sink);
        }
        room
    }

    fn whole_head(
        &mut self,
        context: Context,
        chunk: &Chunk<'_>,
        bytes: &[u8],
        used: usize,
        sink: &mut Sink,
    ) {
        let stream = &mut self.streams[chunk.from.index()];
        stream.place = Place::Start;
        let part = Part {
            first: stream.first,
            start: stream.start,
            last: chunk.at,
            end: chunk.offset + used as u64,
            ..Part::default()
        };
        self.message(context, chunk.from, &Head { bytes, part, cut: false, line_cut: false }, sink);
    }

    fn message(&mut self, context: Context, from: Side, head: &Head<'_>, sink: &mut Sink) {
        let mut lines = head::lines(head.bytes);
        let first = lines.next().unwrap_or_default();
        let understood = match from {
            Side::Client => self.request(context, head, first, Fields::read(lines), sink),
            Side::Server => self.response(context, head, first, Fields::read(lines), sink),
        };
        if !understood {
            sink.counts.bytes_skipped += head.bytes.len() as u64;
            self.lose(from, true, sink);
        }
    }

    fn request(
        &mut self,
        context: Context,
        head: &Head<'_>,
        first: &[u8],
        fields: Fields,
        sink: &mut Sink,
    ) -> bool {
        let Some(line) = RequestLine::read(first).filter(|_| !fields.broken) else { return false };
        // The rest of a cut path is unknown, and so is the identity of the path.
        let method = if head.line_cut && !line.target.contains(&b'?') {
            TextId::default()
        } else {
            sink.texts.id(line.text)
        };
        let request = Request {
            connection: context.connection,
            part: head.part,
            method,
            trace: fields.trace.context(),
            request_id: fields.trace.request_id(),
            cut: head.cut,
            is_head: line.method == b"HEAD",
            is_connect: line.method == b"CONNECT",
        };
        let number = self.pairing.request(request, sink);
        observe(context, number, Side::Client, head, sink, || {
            vec![(b":method".to_vec(), line.method.to_vec()), (b":path".to_vec(), line.target.to_vec())]
        });
        let body = if fields.chunked { Body::CHUNKED } else { Body::Fixed(fields.length.unwrap_or(0)) };
        self.body(context, Side::Client, head, body, sink);
        true
    }

    fn response(
        &mut self,
        context: Context,
        head: &Head<'_>,
        first: &[u8],
        fields: Fields,
        sink: &mut Sink,
    ) -> bool {
        let Some(line) = StatusLine::read(first).filter(|_| !fields.broken) else { return false };
        if (100..200).contains(&line.code) && line.code != 101 {
            return !head.cut;
        }
        if line.code == 101
            && fields.h2c
            && !head.cut
            && let Some(request) = self.pairing.take_upgraded(sink)
        {
            self.pairing.give_up(true, sink);
            self.tunnel = Some(Box::new(Conversation::upgraded(request)));
            return true;
        }
        let asked = self.pairing.response(head.part, line.code, head.cut);
        observe(context, asked.number, Side::Server, head, sink, || {
            vec![(b":status".to_vec(), line.code.to_string().into_bytes())]
        });
        let tunnel = line.code == 101 || asked.is_connect && (200..300).contains(&line.code);
        let body = if tunnel || asked.is_head || matches!(line.code, 204 | 304) {
            Body::Fixed(0)
        } else if fields.chunked {
            Body::CHUNKED
        } else {
            fields.length.map_or(Body::UntilClose, Body::Fixed)
        };
        if !asked.known && !tunnel {
            // Whether it has a body depends on a request that was not seen.
            sink.counts.bytes_skipped += head.bytes.len() as u64;
            self.lose(Side::Server, false, sink);
            return true;
        }
        self.body(context, Side::Server, head, body, sink);
        if tunnel && !head.cut {
            self.pairing.give_up(true, sink);
            let number = self.pairing.number();
            self.tunnel = Some(Box::new(match line.code {
                101 => Conversation::turns(Protocol::Turns, number),
                _ => Conversation::within(self.depth, number),
            }));
        }
        true
    }

    fn body(&mut self, context: Context, from: Side, head: &Head<'_>, body: Body, sink: &mut Sink) {
        if head.cut {
            self.lose(from, false, sink);
        } else if body.over() {
            self.message_over(context, from, sink);
        } else {
            self.streams[from.index()].place = Place::Body(body);
        }
    }

    fn message_over(&mut self, context: Context, from: Side, sink: &mut Sink) {
        self.streams[from.index()].place = Place::Start;
        let number = self.pairing.over(from, sink);
        if let Some(observer) = &mut sink.observer {
            observer.end(context.connection, number, from);
        }
    }

    /// The position in one side's bytes is lost; `hidden`: so is the number of messages.
    fn lose(&mut self, from: Side, hidden: bool, sink: &mut Sink) {
        let stream = &mut self.streams[from.index()];
        sink.counts.bytes_skipped += stream.head.len() as u64;
        stream.head = Vec::new();
        if !matches!(stream.place, Place::Lost) {
            sink.counts.resyncs += 1;
            stream.place = Place::Lost;
        }
        self.pairing.lost(from, hidden);
    }

    /// Parses the captured part of a head before a hole.
    fn cut_head(&mut self, context: Context, hole: &Hole, sink: &mut Sink) {
        let stream = &mut self.streams[hole.from.index()];
        let bytes = std::mem::take(&mut stream.head);
        let complete = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        let part = Part {
            first: stream.first,
            start: stream.start,
            last: hole.at,
            end: hole.offset + hole.len,
            ..Part::default()
        };
        let line_cut = complete == 0;
        let mut known = bytes;
        if line_cut {
            known.extend_from_slice(if hole.from == Side::Client { b" HTTP/1.1\n" } else { b"\n" });
        } else {
            known.truncate(complete);
        }
        self.message(context, hole.from, &Head { bytes: &known, part, cut: true, line_cut }, sink);
    }
}

/// Reports a head to an observer.
fn observe(
    context: Context,
    number: u32,
    from: Side,
    head: &Head<'_>,
    sink: &mut Sink,
    first: impl FnOnce() -> Vec<(Vec<u8>, Vec<u8>)>,
) {
    if let Some(observer) = &mut sink.observer {
        let mut fields = first();
        fields.extend(head::all(head::lines(head.bytes).skip(1)));
        observer.headers(context.connection, number, from, &fields, 0);
    }
}

impl Parser for Http1 {
    fn bytes(&mut self, context: Context, mut chunk: Chunk<'_>, sink: &mut Sink) {
        if !self.joined && !context.from_start {
            self.joined = true;
            self.pairing.joined();
            // Not at the start of a message, unless the bytes look like one.
            for stream in &mut self.streams {
                stream.place = Place::Lost;
            }
        }
        while !chunk.bytes.is_empty() {
            if let Some(tunnel) = &mut self.tunnel {
                return tunnel.bytes(Context { from_start: true, ..context }, chunk, sink);
            }
            let used = self.step(context, chunk, sink);
            chunk.bytes = &chunk.bytes[used..];
            chunk.offset += used as u64;
        }
    }

    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        if let Some(tunnel) = &mut self.tunnel {
            return tunnel.hole(context, hole, sink);
        }
        let Hole { from, offset, len, at, cut } = hole;
        let stream = &mut self.streams[from.index()];
        let hidden = !cut || matches!(stream.place, Place::Start);
        let known = match &mut stream.place {
            Place::Body(body) => {
                let known = body.skip(len);
                let over = body.over();
                self.pairing.extend(from, if known { len } else { 0 }, offset + len, at);
                if !cut {
                    self.pairing.hole(from);
                }
                if over && known {
                    self.message_over(context, from, sink);
                }
                known
            }
            Place::Head if cut && !stream.head.is_empty() => {
                self.cut_head(context, &hole, sink);
                true
            }
            Place::Lost => {
                self.pairing.extend(from, 0, offset + len, at);
                false
            }
            Place::Start | Place::Head => false,
        };
        if !known {
            self.lose(from, hidden, sink);
            if !cut {
                self.pairing.hole(from);
            }
        }
    }

    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink) {
        if let Some(tunnel) = &mut self.tunnel {
            return tunnel.fin(context, from, sink);
        }
        if matches!(self.streams[from.index()].place, Place::Body(Body::UntilClose) | Place::Lost) {
            self.message_over(context, from, sink);
        }
    }

    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink) {
        self.pairing.give_up(closed, sink);
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.finish(context, closed, sink);
        }
    }

    fn protocol(&self) -> Protocol {
        self.tunnel.as_ref().map_or(Protocol::Http1, |tunnel| tunnel.protocol())
    }

    fn max_streams(&self) -> Option<u32> {
        self.tunnel.as_ref().and_then(|tunnel| tunnel.max_streams())
    }

    fn open(&self) -> usize {
        self.tunnel.as_ref().map_or(self.pairing.open(), |tunnel| tunnel.open())
    }

    fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Http1>()
            + self.streams.iter().map(|stream| stream.head.capacity()).sum::<usize>()
            + self.pairing.memory_bytes()
            + self.tunnel.as_ref().map_or(0, |tunnel| tunnel.memory_bytes())
    }
}

#[cfg(test)]
mod tests;
