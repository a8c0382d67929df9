//! Masks the messages of one HTTP/1 direction: keeps first lines without queries, names of fields, and body
//! boundaries.

use super::http2::Frames;
use super::stream::Run;
use super::value::{Masks, visible_in};
use crate::app::http1::body::{Body, Chunked, Step};
use crate::app::http1::head::{self, Fields};
use crate::app::http1::{RequestLine, StatusLine, looks_like_request, looks_like_response};
use crate::app::http2::frame::PREFACE;
use crate::app::{Look, Spoken};
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum length of a method; the longest registered one has 17: `UPDATEREDIRECTREF`.
const MAX_METHOD_BYTES: usize = 20;

/// The body that the response to a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedBody {
    /// As its head says.
    Usual,
    /// None, whatever its head says.
    Head,
    /// Everything after a success is another protocol.
    Connect,
}

#[derive(Debug)]
enum State {
    Head,
    Body(Body),
    Http2(Frames),
    /// Another protocol, of which nothing may be shown.
    Tunnel,
    Lost,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Messages {
    state: State,
    /// Requests so far, for the other direction; or those that responses belong to.
    pub expected: VecDeque<ExpectedBody>,
}

/// What a head announces.
enum Next {
    Body(Body),
    Head,
    Http2,
    Tunnel,
    /// It is not a head.
    Lost,
}

impl Messages {
    /// A direction whose first byte is the next one, or that was joined later. Responses know the requests.
    pub fn new(from_start: bool, expected: VecDeque<ExpectedBody>) -> Messages {
        Messages { state: if from_start { State::Head } else { State::Lost }, expected }
    }

    /// Bytes are missing before the next run.
    pub fn hole(&mut self, len: u64) {
        let known = match &mut self.state {
            State::Body(body) => body.skip(len),
            State::Http2(frames) => {
                frames.hole(len);
                true
            }
            State::Tunnel => true,
            State::Head | State::Lost => false,
        };
        if !known {
            self.state = State::Lost;
            self.expected.clear();
        } else if matches!(&self.state, State::Body(body) if body.over()) {
            self.state = State::Head;
        }
    }

    /// Masks a run.
    pub fn run(&mut self, run: &mut Run, masks: &Masks) {
        let mut at = 0;
        while at < run.bytes.len() {
            match &mut self.state {
                State::Tunnel => return,
                State::Http2(frames) => return frames.run(run, at, masks),
                State::Lost => {
                    let is_head = |begin: &&usize| {
                        let bytes = &run.bytes[**begin..];
                        let is = |look| look == Look::Is(Spoken::Http1);
                        is(looks_like_request(bytes)) || is(looks_like_response(bytes))
                    };
                    // Earlier segments were already examined: a sender of many small ones must not make each cost
                    // all of them.
                    let first = run.segments.partition_point(|begin| *begin < at);
                    let Some(found) = run.segments[first..].iter().find(is_head) else { return };
                    at = *found;
                    self.state = State::Head;
                }
                State::Head if run.bytes[at..].starts_with(PREFACE) => {
                    self.state = State::Http2(Frames::new(true, true));
                }
                State::Head => {
                    let Some(end) = head::end(&run.bytes[at..], 0).map(|end| at + end) else {
                        self.state = State::Lost;
                        return;
                    };
                    let next = self.head(run, at..end, masks);
                    at = if matches!(next, Next::Lost) { at + 1 } else { end };
                    self.state = match next {
                        Next::Body(body) if !body.over() => State::Body(body),
                        Next::Body(_) | Next::Head => State::Head,
                        Next::Http2 => State::Http2(Frames::new(true, false)),
                        Next::Tunnel => State::Tunnel,
                        Next::Lost => State::Lost,
                    };
                }
                State::Body(body) => {
                    let trailers = matches!(body, Body::Chunked(Chunked::Trailers { .. }));
                    match body.step(&run.bytes[at..]) {
                        Step::Content(len) => {
                            at += len;
                            if body.over() {
                                self.state = State::Head;
                            }
                        }
                        Step::Framing(len) => {
                            framing(run, at..at + len, trailers);
                            at += len.max(1);
                        }
                        Step::End(len) => {
                            framing(run, at..at + len, trailers);
                            at += len;
                            self.state = State::Head;
                        }
                        Step::Broken => self.state = State::Lost,
                    }
                }
            }
        }
    }

    fn head(&mut self, run: &mut Run, place: Range<usize>, masks: &Masks) -> Next {
        let text = run.bytes[place.clone()].to_vec();
        let mut lines = head::lines(&text);
        let Some(first) = lines.next() else { return Next::Lost };
        let fields = Fields::read(lines);
        let request = RequestLine::read(first);
        let status = StatusLine::read(first);
        let shown = match (&request, &status) {
            // If a body was mistaken for a message, none of it is shown.
            (Some(request), _) if !is_method(request.method) => 0..0,
            (Some(request), _) if !is_target(request.target) => 0..request.method.len() + 1,
            (Some(request), _) => 0..request.text.len(),
            (None, Some(_)) => 0..first.len().min(12),
            (None, None) => return Next::Lost,
        };
        let mut masked = masks.raw(first, shown);
        if request.is_some() {
            // ` HTTP/1.1`
            let version = first.len() - 9;
            masked[version..].copy_from_slice(&first[version..]);
        } else if let Some(space) = masked.get_mut(12) {
            *space = b' ';
        }
        run.masked[place.start..place.start + first.len()].copy_from_slice(&masked);
        rest(run, place.start + first.len(), place.end, masks);
        if fields.broken {
            return Next::Lost;
        }
        let framed = match (fields.chunked, fields.length) {
            (true, _) => Some(Body::CHUNKED),
            (false, length) => length.map(Body::Fixed),
        };
        if let Some(request) = request {
            self.expected.push_back(match request.method {
                b"HEAD" => ExpectedBody::Head,
                b"CONNECT" => ExpectedBody::Connect,
                _ => ExpectedBody::Usual,
            });
            return if request.method == b"CONNECT" {
                Next::Tunnel
            } else {
                framed.map_or(Next::Head, Next::Body)
            };
        }
        let code = status.map_or(0, |status| status.code);
        if code == 101 {
            return if fields.h2c { Next::Http2 } else { Next::Tunnel };
        }
        if code < 200 {
            return Next::Head;
        }
        match self.expected.pop_front().unwrap_or(ExpectedBody::Usual) {
            ExpectedBody::Connect if code < 300 => Next::Tunnel,
            ExpectedBody::Head => Next::Head,
            _ if matches!(code, 204 | 304) => Next::Head,
            _ => Next::Body(framed.unwrap_or(Body::UntilClose)),
        }
    }
}

/// Whether this is a method in the style of the registered ones: in capitals. Nothing distinguishes others from a
/// body.
fn is_method(method: &[u8]) -> bool {
    method.len() <= MAX_METHOD_BYTES && method.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
}

/// Whether a target is a path, optionally after a host and its port, which cannot contain a user or password.
fn is_target(target: &[u8]) -> bool {
    if target.iter().any(|byte| *byte == b'@' || byte.is_ascii_control()) {
        return false;
    }
    let after_scheme = [&b"http://"[..], b"https://"].iter().find_map(|scheme| target.strip_prefix(*scheme));
    let authority = match after_scheme {
        Some(rest) => rest.split(|byte| b"/?#".contains(byte)).next().unwrap_or(rest),
        None if target.starts_with(b"/") || target == b"*" => return true,
        // The target of CONNECT.
        None => target,
    };
    let port = authority.rsplit(|byte| *byte == b':').next().unwrap_or(authority);
    let has_port = authority.contains(&b':') && !authority.ends_with(b"]");
    authority.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte))
        && (!has_port || port.iter().all(u8::is_ascii_digit))
}

/// Masks the lines after the first: names and line ends are kept, values as far as they may be shown.
fn rest(run: &mut Run, from: usize, to: usize, masks: &Masks) {
    let mut at = from;
    while at < to {
        let end = memchr::memchr(b'\n', &run.bytes[at..to]).map_or(to, |end| at + end + 1);
        let line = run.bytes[at..end].to_vec();
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        run.show(at + text.len(), end);
        // A continuation of the previous line has no name.
        let continued = text.first().is_some_and(|byte| byte.is_ascii_whitespace());
        match memchr::memchr(b':', text).filter(|_| !continued) {
            Some(colon) => {
                let value = &text[colon + 1..];
                let trimmed = value.trim_ascii();
                let lead = value.len() - value.trim_ascii_start().len();
                let name_end = at + colon + 1 + lead;
                run.show(at, name_end);
                let name = &text[..colon];
                // A line of a body that a head without an end runs into.
                if !name.iter().all(u8::is_ascii_graphic) {
                    run.masked[at..at + colon].copy_from_slice(&masks.raw(name, 0..0));
                }
                let masked = masks.raw(trimmed, visible_in(name, trimmed));
                run.masked[name_end..name_end + masked.len()].copy_from_slice(&masked);
                run.masked[name_end + masked.len()..at + text.len()].fill(b' ');
            }
            None => {
                let masked = masks.raw(text, 0..0);
                run.masked[at..at + text.len()].copy_from_slice(&masked);
                if continued {
                    run.masked[at] = b' ';
                }
            }
        }
        at = end;
    }
}

/// Keeps chunk sizes and line ends, but not extensions and trailers.
fn framing(run: &mut Run, place: Range<usize>, trailers: bool) {
    let mut size = !trailers;
    for at in place {
        let byte = run.bytes[at];
        size &= byte.is_ascii_hexdigit() || byte == b'\r' || byte == b'\n';
        run.masked[at] = match byte {
            b'\r' | b'\n' => byte,
            _ if size => byte,
            b';' => byte,
            _ => b'x',
        };
    }
}
