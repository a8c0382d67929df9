//! Finds frame boundaries in bytes where they are unknown.
//!
//! Programs write whole frames, so a segment often begins with one; otherwise a frame begins somewhere inside.
//! Bytes that look like a frame's header must be followed by another header where the frame ends: a wrong
//! position would give wrong calls, a missed one costs only some bytes.

use super::frame::{HEADER_BYTES, Header, flag, kind};
use super::{grpc, hpack};

/// Number of consecutive frames, up to the end of the bytes or beyond, that make a position certain.
const CERTAIN_FRAMES: usize = 3;
/// Maximum plausible stream number: a client that opens a thousand streams a second reaches it in six days.
const MAX_STREAM: u32 = 1 << 29;

/// Offset of the first frame's header in `bytes`.
pub fn find(bytes: &[u8]) -> Option<usize> {
    if frames_from(bytes).is_some_and(|frames| frames.certain_at_segment()) {
        return Some(0);
    }
    // A frame shorter than 64 KiB begins with a zero.
    memchr::memchr_iter(0, bytes.get(1..)?)
        .map(|at| at + 1)
        .find(|at| frames_from(&bytes[*at..]).is_some_and(|frames| frames.certain_anywhere()))
}

/// Maximum distance of the next frame's stream number from the highest one so far, in either direction.
const NEAR_STREAMS: u32 = 1 << 15;
/// Maximum plausible frame size while the receiver's limit is unknown: the minimum of that limit.
const USUAL_FRAME_BYTES: u32 = 16_384;

/// Whether a segment continues with a frame, in a direction whose frames were followed until shortly before. The
/// requirements are weaker than for an arbitrary position: the stream must be near the previous ones, and the
/// length must fit the type and the receiver's limit. Of other bytes, one in 10^12 passes.
pub fn continues(bytes: &[u8], highest_stream: u32, max_frame_bytes: Option<u32>) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>().map(Header::read) else { return false };
    let near = header.stream <= highest_stream.saturating_add(NEAR_STREAMS)
        && header.stream >= highest_stream.saturating_sub(NEAR_STREAMS);
    let connection = matches!(header.kind, kind::SETTINGS | kind::PING | kind::GOAWAY | kind::WINDOW_UPDATE);
    let block = matches!(header.kind, kind::HEADERS | kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE);
    let fits = if header.stream == 0 { connection } else { near && block };
    header.usual() && fits && header.len <= max_frame_bytes.unwrap_or(USUAL_FRAME_BYTES)
}

/// A run of frames.
struct Frames {
    /// Number of complete ones.
    complete: usize,
    /// Whether the last one ends where the bytes end.
    exact: bool,
    /// Number of frames with a payload that is certain by itself.
    evident: usize,
}

impl Frames {
    fn certain_at_segment(&self) -> bool {
        self.evident > 0 || self.complete >= CERTAIN_FRAMES || (self.exact && self.complete >= 2)
    }

    fn certain_anywhere(&self) -> bool {
        self.complete >= CERTAIN_FRAMES && self.evident > 0 || (self.exact && self.evident >= 2)
    }
}

/// The frames at the start of `bytes`; `None` if these are not frames.
fn frames_from(bytes: &[u8]) -> Option<Frames> {
    let mut frames = Frames { complete: 0, exact: false, evident: 0 };
    let mut rest = bytes;
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let header = Header::read(header);
        if !header.usual() || header.stream > MAX_STREAM {
            return None;
        }
        rest = &rest[HEADER_BYTES..];
        let payload = rest.get(..header.len as usize);
        frames.evident += usize::from(evident(&header, payload, rest)?);
        if payload.is_none() {
            return Some(frames);
        }
        rest = &rest[header.len as usize..];
        frames.complete += 1;
        if frames.complete >= CERTAIN_FRAMES && frames.evident >= 2 {
            break;
        }
    }
    frames.exact = rest.is_empty();
    Some(frames)
}

/// Whether a frame's payload confirms its type; `None` if it contradicts it.
fn evident(header: &Header, payload: Option<&[u8]>, beginning: &[u8]) -> Option<bool> {
    match header.kind {
        kind::HEADERS if header.has(flag::END_HEADERS) && !header.has(flag::PADDED) => {
            let Some(payload) = payload else { return Some(false) };
            let block = if header.has(flag::PRIORITY) { payload.get(5..)? } else { payload };
            hpack::plausible(block).then_some(true)
        }
        kind::DATA if !header.has(flag::PADDED) => match beginning {
            // One complete gRPC message.
            [0 | 1, a, b, c, d, ..] if header.len as usize >= grpc::PREFIX_BYTES => {
                Some(u32::from_be_bytes([*a, *b, *c, *d]).checked_add(5) == Some(header.len))
            }
            _ => Some(false),
        },
        kind::SETTINGS => {
            let known =
                payload?.as_chunks::<6>().0.iter().all(|parameter| parameter[0] == 0 || parameter[0] == 0xfe);
            (known && !header.has(flag::ACK) || header.len == 0)
                .then_some(header.has(flag::ACK) || header.len > 0)
        }
        kind::WINDOW_UPDATE => {
            // An increment is at least one, and has 31 bits.
            let [a, b, c, d] = *payload? else { return None };
            (a < 0x80 && [a, b, c, d] != [0; 4]).then_some(true)
        }
        kind::RST_STREAM => {
            let [0, 0, 0, _] = *payload? else { return None };
            Some(true)
        }
        kind::PING => payload.map(|_| true),
        _ => Some(false),
    }
}
