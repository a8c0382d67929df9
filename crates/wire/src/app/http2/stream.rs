//! One stream: its frames become an exchange, or one exchange for each turn of a gRPC stream.

use super::field::Head;
use super::frame::flag;
use super::grpc::{Event, Messages};
use super::reader::Frame;
use crate::exchange::{Ended, Exchange, Mark, Part, Protocol};
use spangap_model::{CallStatus, Side};

/// Whether a body consists of gRPC messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    /// The content type was not seen: the first DATA frame decides.
    #[default]
    Unknown,
    Grpc,
    Other,
}

/// A piece of a stream's body.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// Its frame.
    pub frame: &'a Frame,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Number of bytes missing from the capture, instead.
    pub missing: u64,
    /// Whether it is the start of the frame.
    pub begins: bool,
    /// Offset of the first byte.
    pub offset: u64,
    /// When it was seen.
    pub at: Mark,
    /// Offset after it, including padding.
    pub end: u64,
}

/// A stream in progress.
#[derive(Debug, Default)]
pub struct Stream {
    /// The known facts, without the response.
    pub exchange: Exchange,
    response: Part,
    response_begun: bool,
    http_status: Option<u32>,
    grpc_status: Option<u32>,
    framing: Framing,
    /// By client and server.
    messages: [Messages; 2],
    /// Whether the client has ended its part.
    pub request_ended: bool,
    /// Whether the messages fail to alternate: one request, one response, one request ...
    irregular: bool,
    /// Whether the request of this turn is answered and nothing is in flight.
    answered: bool,
    /// Whether it counts as a call in flight.
    pub under_way: bool,
    /// Whether frames of it may have been missed, so that it may have ended.
    pub doubtful: bool,
    /// Whether it has most likely ended, with all its bytes seen: it was the only one, and its client went on to
    /// another.
    pub over: bool,
    /// Send allowance in addition to the initial window, by client and server: updates minus data sent.
    pub credit: [i64; 2],
}

impl Stream {
    /// A stream whose request begins with this frame.
    pub fn new(connection: u32, frame: &Frame) -> Stream {
        let request = Part { first: frame.first, start: frame.start, ..Part::default() };
        let protocol = Protocol::Http2;
        let exchange =
            Exchange { connection, stream_id: frame.header.stream, protocol, request, ..Exchange::default() };
        Stream { exchange, ..Stream::default() }
    }

    /// A stream whose request was sent before its connection turned to HTTP/2.
    pub fn adopted(request: Exchange) -> Stream {
        let exchange = Exchange { stream_id: 1, protocol: Protocol::Http2, ..request };
        Stream { exchange, request_ended: true, framing: Framing::Other, ..Stream::default() }
    }

    /// Header fields of the request: the first block, or its trailers.
    pub fn request_head(&mut self, head: &Head) {
        let exchange = &mut self.exchange;
        exchange.method = head.path.unwrap_or(exchange.method);
        exchange.trace = exchange.trace.or(head.trace());
        exchange.by_shape.trace |= head.by_shape.trace;
        exchange.by_shape.method |= head.by_shape.method;
        exchange.request_id = exchange.request_id.max(head.request_id());
        exchange.deadline_ns = exchange.deadline_ns.or(head.timeout_ns);
        self.content_type(head);
    }

    /// Header fields of the response: the first block, or its trailers.
    pub fn response_head(&mut self, head: &Head, frame: &Frame) {
        if head.informational() {
            return;
        }
        let mut head = *head;
        if self.framing == Framing::Grpc && self.response_begun && frame.header.has(flag::END_STREAM) {
            head.complete_trailers();
        }
        let head = &head;
        self.response_begins(frame.first, frame.start);
        self.exchange.by_shape.status |= head.by_shape.status;
        self.http_status = self.http_status.or(head.status);
        self.grpc_status = head.grpc_status.or(self.grpc_status);
        self.content_type(head);
    }

    fn content_type(&mut self, head: &Head) {
        self.exchange.doubts.headers_unknown |= head.unknown > 0;
        match head.grpc {
            Some(true) => self.is_grpc(),
            // Whatever the answer is (an error page of a proxy), a gRPC request asked for it.
            Some(false) if self.framing == Framing::Unknown => self.framing = Framing::Other,
            None if self.framing == Framing::Unknown && head.unknown == 0 && head.request => {
                self.framing = Framing::Other;
            }
            _ => {}
        }
    }

    fn is_grpc(&mut self) {
        self.framing = Framing::Grpc;
        self.exchange.protocol = Protocol::Grpc;
    }

    fn response_begins(&mut self, first: Mark, start: u64) {
        if !self.response_begun {
            self.response_begun = true;
            self.response = Part { first, start, last: first, end: start, ..Part::default() };
        }
    }

    /// Extends the part that `side` (client or server by role) sends to this point.
    pub fn reaches(&mut self, side: Side, at: Mark, end: u64) {
        let part = match side {
            // Bytes after an answer belong to the next turn, or to none: the trailers of a stream.
            Side::Client | Side::Server if self.answered => return,
            Side::Client => &mut self.exchange.request,
            Side::Server if !self.response_begun => return,
            Side::Server => &mut self.response,
        };
        part.last = at;
        part.end = end;
    }

    /// Processes a piece of the body; sets `turn` to the turn that ends before it, if any.
    #[inline]
    pub fn body(&mut self, side: Side, body: &Body<'_>, turn: &mut Option<Exchange>) {
        if self.framing == Framing::Unknown && body.begins && body.frame.header.len > 0 {
            match body.bytes {
                [0 | 1, a, b, c, d, ..]
                    if u32::from_be_bytes([*a, *b, *c, *d]).checked_add(5) == Some(body.frame.header.len) =>
                {
                    self.is_grpc();
                }
                _ => self.framing = Framing::Other,
            }
        }
        if side == Side::Server && body.begins {
            self.response_begins(body.frame.first, body.frame.start);
        }
        if self.framing == Framing::Grpc {
            self.walk(side, body, turn);
        } else {
            self.part(side).body_bytes += body.bytes.len() as u64 + body.missing;
        }
        self.reaches(side, body.at, body.end);
    }

    fn part(&mut self, side: Side) -> &mut Part {
        if side == Side::Client { &mut self.exchange.request } else { &mut self.response }
    }

    fn walk(&mut self, side: Side, body: &Body<'_>, turn: &mut Option<Exchange>) {
        let index = side.index();
        let mut at = 0;
        while let Some((used, event)) = self.messages[index].next(&body.bytes[at..]) {
            match event {
                Event::Begin => {
                    // A message at the start of its frame begins where the frame does.
                    let first = body.begins && at == 0;
                    let mark = if first { body.frame.first } else { body.at };
                    let start = if first { body.frame.start } else { body.offset + at as u64 };
                    self.message_begins(side, mark, start, turn);
                }
                Event::End => {}
            }
            at += used;
            self.part(side).body_bytes += used as u64;
            if event == Event::End {
                self.message_ends(side, body.at, body.offset + at as u64);
            }
        }
        self.part(side).body_bytes += (body.bytes.len() - at) as u64 + body.missing;
        if body.missing > 0 && self.messages[index].skip(body.missing) {
            self.message_ends(side, body.at, body.offset + body.missing);
        }
        self.irregular |= self.messages[index].lost();
    }

    fn message_begins(&mut self, side: Side, mark: Mark, start: u64, turn: &mut Option<Exchange>) {
        match side {
            Side::Client if self.answered => {
                let mut exchange = self.taken(Ended::Complete);
                exchange.turn = exchange.turn.max(1);
                let next = Exchange {
                    turn: exchange.turn + 1,
                    request: Part { first: mark, start, ..Part::default() },
                    doubts: crate::exchange::Doubts { hole: false, ..exchange.doubts },
                    deadline_ns: None,
                    in_flight: 0,
                    response: None,
                    ..exchange.clone()
                };
                *turn = Some(exchange);
                self.exchange = next;
                self.answered = false;
                self.response = Part::default();
                self.response_begun = false;
            }
            Side::Client => self.irregular |= self.exchange.request.messages > 0,
            Side::Server => {
                // Either a second answer, or an answer to half a request.
                if self.answered || (self.exchange.request.messages == 0 && !self.request_ended) {
                    self.irregular = true;
                    self.answered = false;
                }
                self.response_begins(mark, start);
            }
        }
        if self.irregular && self.exchange.turn > 0 {
            self.exchange.doubts.turns_overlap = true;
        }
    }

    fn message_ends(&mut self, side: Side, at: Mark, end: u64) {
        self.part(side).messages += 1;
        self.reaches(side, at, end);
        if side == Side::Server {
            self.answered = !self.irregular && !self.request_ended;
        }
    }

    /// Whether the request of this turn is answered and the client may send another: nothing is in flight.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether the data of `side` stops inside a gRPC message.
    pub fn inside_message(&self, side: Side) -> bool {
        self.messages[side.index()].inside()
    }

    /// Whether any part of the response was seen.
    pub fn responds(&self) -> bool {
        self.response_begun
    }

    /// Whether bytes of a side may belong to this stream.
    pub fn may_send(&self, side: Side) -> bool {
        match side {
            _ if self.over => false,
            Side::Client => !self.request_ended && !self.response_begun,
            Side::Server => true,
        }
    }

    /// The stream ended: returns its last, or only, exchange.
    pub fn finish(&mut self, ended: Ended) -> Exchange {
        // The client ended its part after the answer, or not at all: the last turn of a stream ended with its
        // answer.
        if self.answered {
            self.exchange.turn = self.exchange.turn.max(1);
        }
        self.taken(if self.answered { Ended::Complete } else { ended })
    }

    fn taken(&mut self, ended: Ended) -> Exchange {
        let mut exchange = self.exchange.clone();
        exchange.response = self.response_begun.then_some(self.response);
        exchange.ended = ended;
        let http = self.http_status.filter(|status| exchange.protocol != Protocol::Grpc || *status != 200);
        exchange.status = match (self.grpc_status, http) {
            (Some(status), _) => CallStatus::from_grpc(u64::from(status)),
            (None, Some(status)) => CallStatus::from_http(u64::from(status)),
            (None, None) => CallStatus::UNSET,
        };
        exchange.http_status =
            http.filter(|_| self.grpc_status.is_none()).and_then(|status| u16::try_from(status).ok());
        exchange
    }
}
