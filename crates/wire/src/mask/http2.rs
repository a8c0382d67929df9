//! Masks the frames of one HTTP/2 direction: frame headers are kept, header blocks are masked, and of DATA only
//! the lengths of gRPC messages are kept.

use super::hpack::Blocks;
use super::stream::Run;
use super::value::Masks;
use crate::app::http2::frame::{
    DEFAULT_MAX_FRAME_BYTES, HEADER_BYTES, Header, PREFACE, block_of_headers, flag, kind,
};
use crate::app::http2::grpc::PREFIX_BYTES;
use crate::app::http2::resync;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum streams followed at once; beyond it, all are forgotten.
const MAX_STREAMS: usize = 100_000;
/// Maximum size of a plausible frame.
const MAX_FRAME_BYTES: u32 = 1 << 22;
/// The last frame type that means something to a reader, and the replacement for all others.
const LAST_KIND: u8 = kind::CONTINUATION;
const OTHER_KIND: u8 = 0xff;
/// Maximum size of such other frames: the limit without an agreement of both ends (RFC 9113, 4.2).
const MAX_OTHER_BYTES: u32 = DEFAULT_MAX_FRAME_BYTES;
/// Limit of plausible stream numbers.
const BELIEVED_STREAM: u32 = 1 << 29;
/// Size of the length field in a frame's header.
const LENGTH_BYTES: usize = 3;

#[derive(Debug)]
enum State {
    /// Before a frame.
    Header,
    /// In a DATA frame.
    Data(Data),
    /// In a frame whose rest may not be shown.
    Skip(usize),
    /// Frame boundaries are unknown.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    left: usize,
    padding: usize,
    padding_next: bool,
    begins: bool,
    ends_stream: bool,
}

/// Position of a stream within its gRPC messages.
#[derive(Clone, Copy, Debug, Default)]
struct Body {
    grpc: Option<bool>,
    have: usize,
    prefix: [u8; PREFIX_BYTES],
    left: u64,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
    blocks: Blocks,
    preface: bool,
    bodies: HashMap<u32, Body>,
    highest_stream: u32,
    /// Whether frames were followed before the position was lost.
    followed: bool,
}

impl Frames {
    /// A direction whose first byte is the next one, or that was joined later; the client's begins with the
    /// preface.
    pub fn new(from_start: bool, client: bool) -> Frames {
        let state = if from_start { State::Header } else { State::Lost };
        Frames {
            state,
            blocks: Blocks::new(from_start),
            preface: from_start && client,
            bodies: HashMap::new(),
            highest_stream: 0,
            followed: from_start,
        }
    }

    /// Bytes are missing before the next run.
    pub fn hole(&mut self, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        match &mut self.state {
            State::Data(data) if len <= data.left && !data.padding_next => {
                data.left -= len;
                data.begins = false;
                if let Some(body) = self.bodies.get_mut(&data.stream) {
                    body.skip(len as u64);
                }
            }
            State::Skip(left) if len <= *left => *left -= len,
            _ => self.lose(),
        }
    }

    fn lose(&mut self) {
        self.state = State::Lost;
        self.blocks.forget();
        self.bodies.clear();
        self.preface = false;
    }

    /// Masks a run, starting at `at`.
    pub fn run(&mut self, run: &mut Run, mut at: usize, masks: &Masks) {
        while at < run.bytes.len() {
            match &mut self.state {
                State::Lost => match self.find(run, at) {
                    Some(found) => {
                        at = found;
                        self.state = State::Header;
                    }
                    None => return,
                },
                State::Skip(left) => {
                    let len = (*left).min(run.bytes.len() - at);
                    at += len;
                    *left -= len;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                }
                State::Data(_) => at = self.data(run, at),
                State::Header => match self.frame(run, at, masks) {
                    Some(next) => at = next,
                    None => return,
                },
            }
        }
    }

    /// Finds frame boundaries in the same way as `dissect`.
    fn find(&self, run: &Run, at: usize) -> Option<usize> {
        let first = run.segments.partition_point(|begin| *begin < at);
        let rest = first.checked_sub(1).map(|place| at..run.segment(place).end);
        let whole = (first..run.segments.len()).map(|place| run.segment(place));
        rest.into_iter().chain(whole).filter(|segment| segment.start < segment.end).find_map(|segment| {
            let bytes = &run.bytes[segment.clone()];
            if bytes.starts_with(PREFACE) {
                return Some(segment.start + PREFACE.len());
            }
            let goes_on = self.followed && resync::continues(bytes, self.highest_stream, None);
            if goes_on { Some(segment.start) } else { Some(segment.start + resync::find(bytes)?) }
        })
    }

    /// Processes a frame and its payload; returns where to continue. `None`: the run ends inside it, and the
    /// available part may not be shown.
    fn frame(&mut self, run: &mut Run, mut at: usize, masks: &Masks) -> Option<usize> {
        if std::mem::take(&mut self.preface) {
            if !run.bytes[at..].starts_with(PREFACE) {
                self.lose();
                return Some(at);
            }
            run.show(at, at + PREFACE.len());
            return Some(at + PREFACE.len());
        }
        let Some(bytes) = run.bytes[at..].first_chunk::<HEADER_BYTES>() else {
            // A partial header, where the snap length cut it: useless to everyone.
            self.lose();
            return None;
        };
        let header = Header::read(bytes);
        // An undefined flag shows that a message was mistaken for frames.
        let is_known = header.kind <= LAST_KIND;
        let may_be = if is_known { header.has_only_its_flags() } else { header.len <= MAX_OTHER_BYTES };
        if !header.possible(MAX_FRAME_BYTES) || !may_be {
            self.lose();
            return Some(at + 1);
        }
        if is_known {
            run.show(at, at + HEADER_BYTES);
            self.highest_stream = self.highest_stream.max(header.stream);
            self.followed = true;
        } else {
            // Readers skip it, and need only its length. A message may have been mistaken for frames.
            run.show(at, at + LENGTH_BYTES);
            run.masked[at + LENGTH_BYTES] = OTHER_KIND;
        }
        at += HEADER_BYTES;
        let len = header.len as usize;
        if header.kind == kind::DATA {
            self.state = State::Data(Data {
                stream: header.stream,
                left: len,
                padding: 0,
                padding_next: header.has(flag::PADDED),
                begins: true,
                ends_stream: header.has(flag::END_STREAM),
            });
            return Some(self.data(run, at));
        }
        if matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE) {
            return self.block(run, at, header, masks);
        }
        if header.kind == kind::CONTINUATION {
            // Part of a block that was not seen from its beginning.
            self.blocks.forget();
        }
        // The part of it that is not a message: parameters, credit, and codes, all of which are below 256.
        let is_code = |at: usize| run.bytes.get(at..at + 3) == Some(&[0; 3]);
        let shown = match header.kind {
            kind::SETTINGS => len,
            // Four letters are a number, too, and so are the four before them.
            kind::WINDOW_UPDATE if header.stream < BELIEVED_STREAM => len,
            kind::RST_STREAM if is_code(at) => len,
            kind::GOAWAY if is_code(at + 4) => 8,
            _ => 0,
        };
        if header.kind == kind::RST_STREAM {
            self.bodies.remove(&header.stream);
        }
        let end = (at + shown.min(len)).min(run.bytes.len());
        run.show(at, end);
        if header.kind == kind::SETTINGS {
            settings(run, at..end);
        }
        self.state = if len > 0 { State::Skip(len) } else { State::Header };
        Some(at)
    }

    /// Masks a header block with its continuations.
    fn block(&mut self, run: &mut Run, at: usize, header: Header, masks: &Masks) -> Option<usize> {
        let mut block = Vec::new();
        let mut places = Vec::new();
        let (mut at, mut part) = (at, header);
        loop {
            let end = at + part.len as usize;
            let Some(payload) = run.bytes.get(at..end) else {
                self.blocks.forget();
                self.state = State::Skip(part.len as usize);
                return Some(at);
            };
            let Some(range) = block_of_headers(&part, payload) else {
                self.lose();
                return Some(end);
            };
            // The length of the padding, the priority, the promised stream.
            run.show(at, at + range.start);
            block.extend_from_slice(&run.bytes[at + range.start..at + range.end]);
            places.push(at + range.start..at + range.end);
            at = end;
            if part.has(flag::END_HEADERS) {
                break;
            }
            let next =
                run.bytes.get(at..).and_then(|rest| rest.first_chunk::<HEADER_BYTES>()).map(Header::read);
            let Some(next) =
                next.filter(|next| next.kind == kind::CONTINUATION && next.stream == header.stream)
            else {
                self.lose();
                return Some(at);
            };
            run.show(at, at + HEADER_BYTES);
            at += HEADER_BYTES;
            part = next;
        }
        self.state = State::Header;
        let mut masked = vec![0; block.len()];
        // If it is not a block, none of it is shown.
        let facts = self.blocks.mask(&block, &mut masked, masks).unwrap_or_default();
        let mut rest = &masked[..];
        for place in places {
            let (part, after) = rest.split_at(place.len());
            run.masked[place].copy_from_slice(part);
            rest = after;
        }
        if header.has(flag::END_STREAM) {
            self.bodies.remove(&header.stream);
        } else if facts.grpc.is_some() {
            self.body(header.stream).grpc = facts.grpc;
        }
        Some(at)
    }

    fn body(&mut self, stream: u32) -> &mut Body {
        if self.bodies.len() >= MAX_STREAMS {
            self.bodies.clear();
        }
        self.bodies.entry(stream).or_default()
    }

    fn data(&mut self, run: &mut Run, mut at: usize) -> usize {
        let State::Data(mut data) = self.state else { return at };
        if data.padding_next && data.left > 0 && at < run.bytes.len() {
            data.padding = usize::from(run.bytes[at]);
            run.show(at, at + 1);
            (at, data.left, data.padding_next) = (at + 1, data.left - 1, false);
        }
        let here = data.left.min(run.bytes.len() - at);
        let content = data.left.saturating_sub(data.padding).min(here);
        let body = self.body(data.stream);
        if data.begins && body.grpc.is_none() && content >= PREFIX_BYTES {
            // One complete message reveals no more than the frame's own length.
            let message = match run.bytes[at..] {
                [0 | 1, a, b, c, d, ..] => u64::from(u32::from_be_bytes([a, b, c, d])) + 5,
                _ => 0,
            };
            body.grpc = (message == data.left.saturating_sub(data.padding) as u64).then_some(true);
        }
        body.walk(run, at, content);
        data.begins &= content == 0;
        data.left -= here;
        self.state = if data.left > 0 { State::Data(data) } else { State::Header };
        if data.left == 0 && data.ends_stream {
            self.bodies.remove(&data.stream);
        }
        at + here
    }
}

/// Keeps only the parameters with known numbers in a SETTINGS payload (RFC 9113, 8441, 9218, and gRPC's own). If
/// a body was mistaken for frames, the payload is part of a message.
fn settings(run: &mut Run, place: Range<usize>) {
    const MOST: usize = 16;
    const BYTES: usize = 6;
    let known = |id: u16| matches!(id, 1..=9 | 0xfe03);
    for (number, parameter) in run.masked[place].chunks_mut(BYTES).enumerate() {
        let id = parameter.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        if number >= MOST || parameter.len() < BYTES || !known(id) {
            parameter.fill(0);
        }
    }
}

impl Body {
    /// Shows the message prefixes in the next bytes.
    fn walk(&mut self, run: &mut Run, mut at: usize, len: usize) {
        let end = at + len;
        while self.grpc == Some(true) && at < end {
            if self.have < PREFIX_BYTES {
                let byte = run.bytes[at];
                if self.have == 0 && byte > 1 {
                    self.grpc = Some(false);
                    return;
                }
                self.prefix[self.have] = byte;
                run.show(at, at + 1);
                (at, self.have) = (at + 1, self.have + 1);
                let [_, a, b, c, d] = self.prefix;
                self.left = u64::from(u32::from_be_bytes([a, b, c, d]));
            }
            if self.have == PREFIX_BYTES {
                let step = self.left.min((end - at) as u64);
                at += step as usize;
                self.left -= step;
                if self.left == 0 {
                    self.have = 0;
                }
            }
        }
    }

    /// Bytes of the body are missing.
    fn skip(&mut self, len: u64) {
        if self.grpc != Some(true) {
            return;
        }
        if self.have == PREFIX_BYTES && len <= self.left {
            self.left -= len;
            if self.left == 0 {
                self.have = 0;
            }
        } else {
            self.grpc = Some(false);
        }
    }
}
