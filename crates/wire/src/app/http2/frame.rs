//! Frame headers of HTTP/2 (RFC 9113, 4.1 and 6).

/// Size of a frame's header.
pub const HEADER_BYTES: usize = 9;
/// First bytes of a client (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS_MAX_FRAME_SIZE before any SETTINGS (RFC 9113, 6.5.2).
pub const DEFAULT_MAX_FRAME_BYTES: u32 = 16_384;

/// Frame types.
pub mod kind {
    /// Body bytes.
    pub const DATA: u8 = 0;
    /// A header block, or its beginning.
    pub const HEADERS: u8 = 1;
    /// Deprecated priority.
    pub const PRIORITY: u8 = 2;
    /// Aborts a stream.
    pub const RST_STREAM: u8 = 3;
    /// Parameters of the sender.
    pub const SETTINGS: u8 = 4;
    /// Announces a stream that the server will open, with a header block.
    pub const PUSH_PROMISE: u8 = 5;
    /// Round trip.
    pub const PING: u8 = 6;
    /// No new streams.
    pub const GOAWAY: u8 = 7;
    /// Enlarges a window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The rest of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// DATA, HEADERS: the sender's last frame of the stream.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: an acknowledgement.
    pub const ACK: u8 = 0x1;
    /// HEADERS, PUSH_PROMISE, CONTINUATION: the header block is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS, PUSH_PROMISE: padding.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: five bytes of priority before the block.
    pub const PRIORITY: u8 = 0x20;
}

/// Parameters of SETTINGS (RFC 9113, 6.5.2).
pub mod setting {
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// SETTINGS_MAX_FRAME_SIZE.
    pub const MAX_FRAME_SIZE: u16 = 5;
}

/// The nine bytes before each frame's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Length of the payload.
    pub len: u32,
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// The stream; zero for the connection.
    pub stream: u32,
    /// The reserved bit, which must be ignored, and which nobody sets.
    pub reserved: bool,
}

impl Header {
    /// Parses it.
    #[inline]
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [a, b, c, kind, flags, s, t, u, v] = *bytes;
        let stream = u32::from_be_bytes([s, t, u, v]);
        Header {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            reserved: stream >> 31 != 0,
        }
    }

    /// Whether all bits of `mask` are set.
    #[inline]
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask == mask
    }

    /// Whether such a frame is legal on a connection: RFC 9113, 6 makes the others a connection error.
    #[inline]
    pub fn possible(&self, max_frame_bytes: u32) -> bool {
        let fits = match self.kind {
            kind::DATA | kind::CONTINUATION => self.stream != 0,
            kind::HEADERS => self.stream != 0 && self.len >= self.overhead_bytes(),
            kind::PUSH_PROMISE => self.stream != 0 && self.len >= 4,
            kind::PRIORITY => self.stream != 0 && self.len == 5,
            kind::RST_STREAM => self.stream != 0 && self.len == 4,
            kind::SETTINGS => {
                self.stream == 0 && self.len.is_multiple_of(6) && (!self.has(flag::ACK) || self.len == 0)
            }
            kind::PING => self.stream == 0 && self.len == 8,
            kind::GOAWAY => self.stream == 0 && self.len >= 8,
            kind::WINDOW_UPDATE => self.len == 4,
            _ => true,
        };
        fits && self.len <= max_frame_bytes
    }

    /// Bytes of a HEADERS frame outside its block, without padding.
    fn overhead_bytes(&self) -> u32 {
        u32::from(self.has(flag::PADDED)) + if self.has(flag::PRIORITY) { 5 } else { 0 }
    }

    /// Whether real programs send such a frame: this distinguishes frames from other bytes.
    pub fn usual(&self) -> bool {
        let stream = self.stream % 2 == 1 || self.stream == 0 || self.kind == kind::PUSH_PROMISE;
        self.has_only_its_flags() && stream && self.possible(1 << 22)
    }

    /// Whether RFC 9113 defines its type, and it has only flags of that type.
    pub fn has_only_its_flags(&self) -> bool {
        let flags = match self.kind {
            kind::DATA => flag::END_STREAM | flag::PADDED,
            kind::HEADERS => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            kind::SETTINGS | kind::PING => flag::ACK,
            kind::PUSH_PROMISE => flag::END_HEADERS | flag::PADDED,
            kind::CONTINUATION => flag::END_HEADERS,
            kind::PRIORITY | kind::RST_STREAM | kind::GOAWAY | kind::WINDOW_UPDATE => 0,
            _ => return false,
        };
        !self.reserved && self.flags & !flags == 0
    }
}

/// The header block in a payload of HEADERS, PUSH_PROMISE or CONTINUATION, without padding and preceding fields;
/// `None` if the lengths do not fit.
#[inline]
pub fn block_of_headers(header: &Header, payload: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    let mut end = payload.len();
    if header.kind == kind::CONTINUATION {
        return Some(start..end);
    }
    if header.has(flag::PADDED) {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        start = 1;
    }
    if header.kind == kind::HEADERS && header.has(flag::PRIORITY) {
        start += 5;
    }
    if header.kind == kind::PUSH_PROMISE {
        start += 4;
    }
    (start <= end).then_some(start..end)
}

/// The big-endian number at the beginning of a payload; zero if the payload is too short.
#[inline]
pub fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Parameters of a SETTINGS payload.
pub fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload
        .as_chunks::<6>()
        .0
        .iter()
        .map(|[a, b, c, d, e, f]| (u16::from_be_bytes([*a, *b]), u32::from_be_bytes([*c, *d, *e, *f])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_parsed_and_checked() {
        let headers = Header::read(&[0, 1, 2, 1, 5, 0, 0, 0, 3]);
        assert_eq!(headers, Header { len: 258, kind: 1, flags: 5, stream: 3, reserved: false });
        assert!(headers.possible(DEFAULT_MAX_FRAME_BYTES) && headers.usual());
        let at = |len, kind, flags, stream| Header { len, kind, flags, stream, reserved: false };
        assert!(!at(16_385, kind::DATA, 0, 1).possible(DEFAULT_MAX_FRAME_BYTES), "too long");
        assert!(!at(3, kind::DATA, 0, 0).possible(DEFAULT_MAX_FRAME_BYTES), "DATA of no stream");
        assert!(!at(7, kind::SETTINGS, 0, 0).possible(DEFAULT_MAX_FRAME_BYTES), "part of a parameter");
        assert!(!at(5, kind::WINDOW_UPDATE, 0, 0).possible(DEFAULT_MAX_FRAME_BYTES));
        assert!(at(5, 200, 0xff, 2).possible(DEFAULT_MAX_FRAME_BYTES), "unknown types are stepped over");
        assert!(!at(5, 200, 0, 1).usual());
        assert!(!at(5, kind::DATA, 0x40, 1).usual(), "a flag that DATA does not have");
    }

    #[test]
    fn padding_and_priority_are_outside_the_block() {
        let header = |flags| Header { kind: kind::HEADERS, flags, stream: 1, ..Header::default() };
        assert_eq!(block_of_headers(&header(0), b"abc"), Some(0..3));
        assert_eq!(block_of_headers(&header(flag::PADDED), &[1, b'a', 0]), Some(1..2));
        let both = header(flag::PADDED | flag::PRIORITY);
        assert_eq!(block_of_headers(&both, &[1, 0, 0, 0, 0, 9, b'a', 0]), Some(6..7));
        assert_eq!(block_of_headers(&header(flag::PADDED), &[3, 0, 0]), None);
        assert_eq!(block_of_headers(&header(flag::PADDED), &[]), None);
    }
}
