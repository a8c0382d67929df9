//! Matches responses to requests: each answers the first one waiting.

use crate::app::Sink;
use crate::exchange::{Ended, Exchange, Mark, Part, Protocol, TextId, TraceContext};
use spangap_model::{CallStatus, Side};
use std::collections::VecDeque;

/// Maximum simultaneous requests that are followed; the rest are counted.
const MAX_WAITING: usize = 4096;

/// Facts from a request's head.
pub struct Request {
    pub connection: u32,
    pub part: Part,
    pub method: TextId,
    pub trace: Option<TraceContext>,
    /// See [`Exchange::request_id`].
    pub request_id: u64,
    /// Whether some header fields are unknown.
    pub cut: bool,
    pub is_head: bool,
    pub is_connect: bool,
}

/// The request that a response answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingRequest {
    /// Whether the request was seen.
    pub known: bool,
    /// Its number.
    pub number: u32,
    pub is_head: bool,
    pub is_connect: bool,
}

/// The unanswered requests of a connection.
#[derive(Debug, Default)]
pub struct Pairing {
    number: u32,
    waiting: VecDeque<Waiting>,
    /// Whether the last of `waiting` is still being sent, and the first is being answered.
    asking: bool,
    answering: bool,
    /// Whether the position in the client's and in the server's bytes is lost.
    lost: [bool; 2],
    /// Whether the lost bytes of the server may contain responses.
    responses_lost: bool,
    /// Whether unseen requests may be in flight.
    unsure: bool,
    /// Whether a response has arrived since then.
    answered: bool,
    /// Whether the client has sent a request before the previous one was answered.
    pipelines: bool,
}

#[derive(Debug)]
struct Waiting {
    exchange: Exchange,
    is_head: bool,
    is_connect: bool,
    /// Whether the response is complete, although the request is not.
    answered: bool,
}

impl Pairing {
    /// Numbers exchanges from `number` + 1.
    pub fn after(number: u32) -> Pairing {
        Pairing { number, ..Pairing::default() }
    }

    /// The connection was joined after its start.
    pub fn joined(&mut self) {
        self.unsure = true;
        (self.lost, self.responses_lost) = ([true; 2], true);
    }

    /// Exchanges so far.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Exchanges in flight.
    pub fn open(&self) -> usize {
        self.waiting.len()
    }

    /// Memory use in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * std::mem::size_of::<Waiting>()
    }

    /// A request begins; returns its number.
    pub fn request(&mut self, request: Request, sink: &mut Sink) -> u32 {
        if self.lost[1] && self.answering && !self.pipelines {
            // A client that waits for a response before its next request has received this one.
            self.over(Side::Server, sink);
        }
        let nothing_else = self.waiting.is_empty() && !self.answering;
        if nothing_else && self.answered && !self.pipelines && !self.responses_lost {
            self.unsure = false;
        }
        self.number = self.number.saturating_add(1);
        if self.waiting.len() >= MAX_WAITING {
            sink.counts.streams_refused += 1;
            (self.unsure, self.pipelines, self.asking) = (true, true, false);
            return self.number;
        }
        self.asking = true;
        let mut exchange = Exchange {
            connection: request.connection,
            stream_id: self.number,
            protocol: Protocol::Http1,
            request: request.part,
            method: request.method,
            trace: request.trace,
            request_id: request.request_id,
            in_flight: self.waiting.len() as u32 + 1,
            ..Exchange::default()
        };
        exchange.doubts.turns_overlap = self.unsure;
        exchange.doubts.headers_unknown = request.cut;
        let Request { is_head, is_connect, .. } = request;
        self.waiting.push_back(Waiting { exchange, is_head, is_connect, answered: false });
        self.number
    }

    /// A final response begins; returns the request that it answers.
    pub fn response(&mut self, part: Part, code: u16, cut: bool) -> PendingRequest {
        let Some(first) = self.waiting.front_mut().filter(|first| !first.answered) else {
            return PendingRequest::default();
        };
        self.answering = true;
        let exchange = &mut first.exchange;
        exchange.response = Some(part);
        exchange.status = CallStatus::from_http(u64::from(code));
        exchange.http_status = Some(code);
        exchange.doubts.headers_unknown |= cut;
        let Waiting { is_head, is_connect, .. } = *first;
        PendingRequest { known: true, number: exchange.stream_id, is_head, is_connect }
    }

    /// Takes out the request that an upgrade of the connection leaves to be answered; its method becomes its path.
    pub fn take_upgraded(&mut self, sink: &mut Sink) -> Option<Exchange> {
        self.waiting.front().filter(|first| !first.answered)?;
        let mut exchange = self.waiting.pop_front()?.exchange;
        self.asking &= !self.waiting.is_empty();
        if let Some(text) = sink.texts.text(exchange.method)
            && let Some((_, path)) = text.split_once(' ')
        {
            exchange.method = sink.texts.id(path.as_bytes());
        }
        Some(exchange)
    }

    /// The current message of `from`.
    fn part(&mut self, from: Side) -> Option<(&mut Part, u32)> {
        let waiting = match from {
            Side::Client => self.waiting.back_mut().filter(|_| self.asking)?,
            Side::Server => self.waiting.front_mut().filter(|_| self.answering)?,
        };
        let number = waiting.exchange.stream_id;
        let part = match from {
            Side::Client => &mut waiting.exchange.request,
            Side::Server => waiting.exchange.response.as_mut()?,
        };
        Some((part, number))
    }

    /// Extends the current message, with `content` bytes of body; returns the number of its exchange, or zero.
    #[inline]
    pub fn extend(&mut self, from: Side, content: u64, end: u64, at: Mark) -> u32 {
        let Some((part, number)) = self.part(from) else { return 0 };
        part.body_bytes += content;
        part.end = end;
        part.last = at;
        number
    }

    /// The current message of `from` is complete; returns the number of its exchange, or zero.
    pub fn over(&mut self, from: Side, sink: &mut Sink) -> u32 {
        let number = self.part(from).map_or(0, |(_, number)| number);
        match from {
            Side::Client => self.asking = false,
            Side::Server if self.answering => {
                (self.answering, self.answered) = (false, true);
                let more = !self.lost[1] && self.waiting.len() > 1;
                if let Some(first) = self.waiting.front_mut() {
                    first.answered = true;
                    // Missing bytes show late: the next request may be seen before them.
                    self.pipelines |= more && !first.exchange.doubts.hole;
                }
                // A request without a known end has been answered.
                self.asking &= !(self.lost[0] && self.waiting.len() == 1);
            }
            Side::Server => {}
        }
        let complete = self.waiting.front().is_some_and(|first| first.answered);
        if complete && !(self.asking && self.waiting.len() == 1) {
            sink.exchanges.extend(self.waiting.pop_front().map(|waiting| waiting.exchange));
        }
        number
    }

    /// Bytes of `from` are missing, within the current message or while the position is lost.
    pub fn hole(&mut self, from: Side) {
        let missing = |waiting: &mut Waiting| waiting.exchange.doubts.hole = true;
        match from {
            // Lost bytes of the server may contain any of the responses.
            Side::Server if self.lost[1] => self.waiting.iter_mut().for_each(missing),
            Side::Server => self.waiting.front_mut().into_iter().for_each(missing),
            Side::Client if self.asking || self.lost[0] => {
                self.waiting.back_mut().into_iter().for_each(missing)
            }
            Side::Client => {}
        }
    }

    /// The position in the bytes of `from` is lost; if `hidden`, so is the number of messages.
    pub fn lost(&mut self, from: Side, hidden: bool) {
        self.lost[from.index()] = true;
        if !hidden {
            return;
        }
        (self.unsure, self.answered) = (true, false);
        if from == Side::Server {
            self.responses_lost = true;
            for waiting in &mut self.waiting {
                waiting.exchange.doubts.turns_overlap = true;
            }
        }
    }

    /// The position is recovered: a message of `from` begins.
    pub fn found(&mut self, from: Side, sink: &mut Sink) {
        self.over(from, sink);
        if from == Side::Server && std::mem::take(&mut self.responses_lost) {
            self.answered = false;
            // If the client waits for each response before its next request, the response belongs to the last
            // request; otherwise it may belong to any.
            let keep = usize::from(!self.pipelines);
            while self.waiting.len() > keep {
                self.unanswered(false, sink);
            }
        }
        self.lost[from.index()] = false;
    }

    fn unanswered(&mut self, closed: bool, sink: &mut Sink) {
        let Some(Waiting { mut exchange, answered, .. }) = self.waiting.pop_front() else { return };
        if !answered {
            exchange.ended = if closed { Ended::ConnectionClosed } else { Ended::CaptureEnded };
            exchange.doubts.end_unknown =
                self.lost[1] || exchange.doubts.turns_overlap || exchange.doubts.hole;
        }
        self.asking &= !self.waiting.is_empty();
        sink.exchanges.push(exchange);
    }

    /// The end of input: delivers the waiting exchanges.
    pub fn give_up(&mut self, closed: bool, sink: &mut Sink) {
        while !self.waiting.is_empty() {
            self.unanswered(closed, sink);
        }
        (self.asking, self.answering) = (false, false);
    }
}
