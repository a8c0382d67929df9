//! Splits the bytes of one direction into frames, in whatever chunks they arrive.

use super::frame::{DEFAULT_MAX_FRAME_BYTES, HEADER_BYTES, Header, PREFACE, block_of_headers, flag, kind};
use super::resync;
use crate::exchange::Mark;
use std::ops::Range;

/// Maximum size of a header block, or of any other frame that is parsed. RFC 9113 sets no limit; implementations
/// refuse far less.
const MAX_HELD_BYTES: usize = 1 << 20;

/// A frame's header, and the position and time of its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// When the tap saw its first byte.
    pub first: Mark,
    /// Offset of its first byte in the TCP stream.
    pub start: u64,
}

/// Kind of the next bytes.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Bytes of a DATA frame.
    Data {
        /// The body bytes among them, without padding.
        body: &'a [u8],
        /// Number of body bytes missing from the capture, instead.
        missing: u64,
        /// Whether they are the start of the frame.
        begins: bool,
        /// Whether they are the end of the frame.
        ends: bool,
        /// Offset of the first body byte.
        offset: u64,
    },
    /// A complete header block; `None` if bytes of it are missing, or it is too long.
    Block(Option<&'a [u8]>),
    /// Any other known frame; `None` if bytes of it are missing, or it is too long.
    Control(Option<&'a [u8]>),
}

/// The unread bytes of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Offset of the first.
    pub offset: u64,
    /// When they were seen.
    pub at: Mark,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(length.min(self.bytes.len()));
        self.bytes = rest;
        self.offset += taken.len() as u64;
        taken
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// After this many bytes of the client's preface.
    Preface(u8),
    /// Before or in a frame's header.
    Header,
    /// In a frame's payload.
    Payload,
    /// Frame boundaries are unknown.
    Lost,
}

/// Result of reading payload bytes.
enum Step<'a> {
    /// The end has not arrived yet.
    More,
    /// It has nothing to deliver.
    Again,
    /// The payload is complete.
    Complete(CompletePayload<'a>),
}

/// A complete payload.
struct CompletePayload<'a> {
    /// Whether it is a header block.
    block: bool,
    place: Place<'a>,
}

/// Location of the bytes of a payload.
enum Place<'a> {
    /// Incomplete in the capture, or too long.
    Missing,
    Chunk(&'a [u8]),
    Held(Range<usize>),
    Block,
}

/// The position was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The reader of one direction.
#[derive(Debug)]
pub struct Reader {
    state: State,
    /// Maximum frame size that the receiver accepts; `None` if it may have been announced before the capture.
    max_frame_bytes: Option<u32>,
    frame: Frame,
    /// Remaining payload.
    left: u32,
    /// Padding at its end.
    padding: u32,
    /// Whether the length of the padding is still to come.
    padding_next: bool,
    /// Whether no payload has been seen yet.
    begins: bool,
    /// Whether bytes of this frame, or of its block, are missing.
    broken: bool,
    /// A frame's header or payload that arrived in pieces.
    held: Vec<u8>,
    /// The beginning of a header block, and its first frame.
    block: Vec<u8>,
    block_frame: Option<Frame>,
    /// Whether `held` or `block` were delivered and must be cleared.
    used: bool,
    /// Start of a segment whose predecessor was cut by the snap length: most often also the start of a frame.
    segment_at: Option<u64>,
    /// Highest stream number in a frame so far.
    highest_stream: u32,
    /// Bytes skipped in search of a frame.
    pub skipped_bytes: u64,
}

impl Reader {
    /// From the first byte of the connection; the client's begins with the preface.
    pub fn from_start(client: bool) -> Reader {
        let state = if client { State::Preface(0) } else { State::Header };
        Reader { state, max_frame_bytes: Some(DEFAULT_MAX_FRAME_BYTES), ..Reader::joined() }
    }

    /// From any position.
    pub fn joined() -> Reader {
        Reader {
            state: State::Lost,
            max_frame_bytes: None,
            frame: Frame::default(),
            left: 0,
            padding: 0,
            padding_next: false,
            begins: false,
            broken: false,
            held: Vec::new(),
            block: Vec::new(),
            block_frame: None,
            used: false,
            segment_at: None,
            highest_stream: 0,
            skipped_bytes: 0,
        }
    }

    /// The receiver accepts frames of this size. A lower limit than before applies only from its acknowledgement
    /// on, so the highest one counts.
    pub fn accepts(&mut self, max_frame_bytes: u32) {
        self.max_frame_bytes = self.max_frame_bytes.map(|before| before.max(max_frame_bytes));
    }

    /// Whether frame boundaries are unknown.
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// The next piece, consumed from `input`, and its frame: for a header block, the first one. `None` if there
    /// are no more.
    ///
    /// # Errors
    /// If the bytes are not HTTP/2: the position is lost from here on.
    #[inline]
    pub fn next<'a, 'c: 'a>(
        &'a mut self,
        input: &mut Input<'c>,
    ) -> Result<Option<(&'a Frame, Piece<'a>)>, Lost> {
        if self.used {
            self.held.clear();
            self.block.clear();
            self.used = false;
        }
        let complete = loop {
            match self.state {
                State::Payload if self.frame.header.kind == kind::DATA => return self.data(input),
                State::Payload => match self.other(input)? {
                    Step::More => return Ok(None),
                    Step::Again => {}
                    Step::Complete(complete) => break complete,
                },
                State::Header => {
                    if !self.header(input)? {
                        return Ok(None);
                    }
                }
                State::Preface(matched) => {
                    let rest = &PREFACE[usize::from(matched)..];
                    let length = rest.len().min(input.bytes.len());
                    if length == 0 {
                        return Ok(None);
                    }
                    if input.bytes[..length] != rest[..length] {
                        return Err(self.lose());
                    }
                    input.take(length);
                    let matched = matched + length as u8;
                    let whole = usize::from(matched) == PREFACE.len();
                    self.state = if whole { State::Header } else { State::Preface(matched) };
                }
                State::Lost => {
                    let aligned = self.segment_at.take() == Some(input.offset)
                        && resync::continues(input.bytes, self.highest_stream, self.max_frame_bytes);
                    let found = if aligned { Some(0) } else { resync::find(input.bytes) };
                    self.skipped_bytes += found.unwrap_or(input.bytes.len()) as u64;
                    input.take(found.unwrap_or(input.bytes.len()));
                    if found.is_none() {
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        };
        self.used = true;
        Ok(Some((&self.frame, self.piece(complete))))
    }

    fn piece<'a>(&'a self, complete: CompletePayload<'a>) -> Piece<'a> {
        let bytes = match complete.place {
            Place::Missing => None,
            Place::Chunk(bytes) => Some(bytes),
            Place::Held(range) => self.held.get(range),
            Place::Block => Some(&self.block[..]),
        };
        if complete.block { Piece::Block(bytes) } else { Piece::Control(bytes) }
    }

    /// Reads a header, or the available part of it; returns whether it is complete.
    #[inline]
    fn header(&mut self, input: &mut Input<'_>) -> Result<bool, Lost> {
        if self.held.is_empty() {
            self.frame.first = input.at;
            self.frame.start = input.offset;
        }
        if let Some(bytes) = input.bytes.first_chunk().filter(|_| self.held.is_empty()) {
            self.frame.header = Header::read(bytes);
            input.take(HEADER_BYTES);
        } else {
            let wanted = HEADER_BYTES - self.held.len();
            self.held.extend_from_slice(input.take(wanted));
            let Some(bytes) = self.held.first_chunk() else { return Ok(false) };
            self.frame.header = Header::read(bytes);
            self.held.clear();
        }
        let header = &self.frame.header;
        // Without the receiver's limit, any length that fits the field.
        let possible = header.possible(self.max_frame_bytes.unwrap_or(u32::MAX));
        let continues = self.block_frame.map(|frame| frame.header.stream);
        let expected = if header.kind == kind::CONTINUATION {
            continues == Some(header.stream)
        } else {
            continues.is_none()
        };
        if !possible || !expected {
            return Err(self.lose());
        }
        self.left = header.len;
        self.highest_stream = self.highest_stream.max(header.stream);
        self.padding = 0;
        self.padding_next = header.kind == kind::DATA && header.has(flag::PADDED);
        if self.padding_next && header.len == 0 {
            return Err(self.lose());
        }
        self.begins = true;
        self.broken &= continues.is_some();
        self.state = State::Payload;
        Ok(true)
    }

    #[inline]
    fn data<'a, 'c: 'a>(&'a mut self, input: &mut Input<'c>) -> Result<Option<(&'a Frame, Piece<'a>)>, Lost> {
        if self.padding_next {
            let [padding] = *input.take(1) else { return Ok(None) };
            self.left -= 1;
            self.padding = u32::from(padding);
            self.padding_next = false;
            if self.padding > self.left {
                return Err(self.lose());
            }
        }
        if input.bytes.is_empty() && self.left > 0 {
            return Ok(None);
        }
        let offset = input.offset;
        let bytes = input.take(self.left as usize);
        let body = self.advance(bytes.len() as u32) as usize;
        let piece = self.data_piece(&bytes[..body], 0, offset);
        Ok(Some((&self.frame, piece)))
    }

    /// Consumes bytes of a DATA frame's payload; returns how many of them are body.
    fn advance(&mut self, bytes: u32) -> u32 {
        let body = bytes.min(self.left - self.padding.min(self.left));
        self.left -= bytes;
        body
    }

    fn data_piece<'a>(&mut self, body: &'a [u8], missing: u64, offset: u64) -> Piece<'a> {
        let ends = self.left == 0;
        if ends {
            self.state = State::Header;
        }
        Piece::Data { body, missing, begins: std::mem::replace(&mut self.begins, false), ends, offset }
    }

    /// Reads the payload of a frame other than DATA, or the available part of it.
    #[inline]
    fn other<'a>(&mut self, input: &mut Input<'a>) -> Result<Step<'a>, Lost> {
        let bytes = input.take(self.left as usize);
        self.left -= bytes.len() as u32;
        let header = self.frame.header;
        let known = header.kind <= kind::CONTINUATION;
        let whole = self.left == 0 && self.held.is_empty();
        if !whole && known && !self.broken {
            self.broken = self.held.len() + bytes.len() > MAX_HELD_BYTES;
            self.held.extend_from_slice(if self.broken { &[] } else { bytes });
        }
        if self.left > 0 {
            return Ok(Step::More);
        }
        self.state = State::Header;
        if !known {
            return Ok(Step::Again);
        }
        if !matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION) {
            let place = if whole { Place::Chunk(bytes) } else { Place::Held(0..self.held.len()) };
            return Ok(Step::Complete(CompletePayload {
                block: false,
                place: if self.broken { Place::Missing } else { place },
            }));
        }
        let payload = if whole { bytes } else { &self.held };
        let range = match block_of_headers(&header, payload) {
            Some(range) if !self.broken => range,
            None if !self.broken => return Err(self.lose()),
            _ => 0..0,
        };
        if header.has(flag::END_HEADERS) && self.block_frame.is_none() {
            let place = if whole { Place::Chunk(&bytes[range]) } else { Place::Held(range) };
            return Ok(Step::Complete(CompletePayload {
                block: true,
                place: if self.broken { Place::Missing } else { place },
            }));
        }
        // One of several frames of a block.
        self.broken |= self.block.len() + range.len() > MAX_HELD_BYTES;
        if !self.broken {
            self.block.extend_from_slice(&payload[range]);
        }
        self.held.clear();
        let frame = *self.block_frame.get_or_insert(self.frame);
        if !header.has(flag::END_HEADERS) {
            return Ok(Step::Again);
        }
        self.frame = frame;
        self.block_frame = None;
        Ok(Step::Complete(CompletePayload {
            block: true,
            place: if self.broken { Place::Missing } else { Place::Block },
        }))
    }

    /// Remaining bytes of the current frame; zero between frames, and if unknown.
    pub fn left_in_frame(&self) -> u64 {
        match self.state {
            State::Payload if !self.padding_next => u64::from(self.left),
            _ => 0,
        }
    }

    /// The bytes before `offset` were cut by the snap length, and a segment begins there.
    pub fn segment_begins(&mut self, offset: u64) {
        self.segment_at = Some(offset);
    }

    /// Processes missing bytes.
    ///
    /// # Errors
    /// If frame boundaries are no longer known.
    pub fn hole(&mut self, offset: u64, length: u64) -> Result<Option<(Frame, Piece<'static>)>, Lost> {
        if self.state == State::Lost {
            self.skipped_bytes += length;
            return Ok(None);
        }
        let inside = self.state == State::Payload && length <= u64::from(self.left) && !self.padding_next;
        if !inside {
            self.skipped_bytes += length;
            return Err(self.lose());
        }
        if self.frame.header.kind == kind::DATA {
            let missing = self.advance(length as u32);
            return Ok(Some((self.frame, self.data_piece(&[], u64::from(missing), offset))));
        }
        self.left -= length as u32;
        self.broken = true;
        // Even if nothing remains, the payload counts as one in pieces.
        self.held.clear();
        if self.left > 0 {
            return Ok(None);
        }
        let mut nothing = Input { bytes: &[], offset: offset + length, at: self.frame.first };
        match self.other(&mut nothing)? {
            Step::Complete(complete) if complete.block => Ok(Some((self.frame, Piece::Block(None)))),
            Step::Complete(_) => Ok(Some((self.frame, Piece::Control(None)))),
            Step::More | Step::Again => Ok(None),
        }
    }

    /// Marks the position as lost.
    pub fn lose(&mut self) -> Lost {
        self.state = State::Lost;
        self.held.clear();
        self.block.clear();
        self.block_frame = None;
        self.broken = false;
        Lost
    }

    /// Memory use.
    pub fn memory_bytes(&self) -> usize {
        self.held.capacity() + self.block.capacity()
    }
}
