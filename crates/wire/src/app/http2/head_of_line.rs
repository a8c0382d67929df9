//! Responses behind a large run of another stream's DATA on the same connection.

use super::reader::Frame;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::Mark;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Minimum size of a large run. It takes half a millisecond at 1 Gb/s.
const LARGE_BYTES: u64 = 65_536;
/// A pause of this length ends a stream's run: a later response may have waited for the server itself.
const PAUSE_NS: i64 = 10_000_000;

/// DATA frames of one stream, with little from other streams between them.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    stream: u32,
    bytes: u64,
    first: Mark,
    last: Mark,
}

impl Run {
    #[inline]
    fn add(&mut self, frame: &Frame, at: Mark) {
        let Run { stream, last, .. } = *self;
        if frame.header.stream != stream || frame.first.seen_ns.saturating_sub(last.seen_ns) > PAUSE_NS {
            *self = Run { stream: frame.header.stream, first: frame.first, ..Run::default() };
        }
        self.bytes += u64::from(frame.header.len);
        self.last = at;
    }
}

/// The large run that the server is sending, or sent last.
#[derive(Debug, Default)]
pub struct HeadOfLine {
    run: Run,
    /// Data of another stream since; that run takes over once it is large as well.
    other: Run,
}

impl HeadOfLine {
    /// The server sent a DATA frame that ends at `at`.
    #[inline]
    pub fn data(&mut self, frame: &Frame, at: Mark) {
        if frame.header.stream == self.run.stream || self.run.bytes < LARGE_BYTES {
            self.run.add(frame, at);
            return;
        }
        self.other.add(frame, at);
        if self.other.bytes >= LARGE_BYTES {
            self.run = std::mem::take(&mut self.other);
        }
    }

    /// The server begins the response of a stream: a header block that ends at `end`.
    #[inline]
    pub fn response(&self, frame: &Frame, end: u64, found: &mut Vec<Episode>) {
        let Run { stream, bytes, first, last } = self.run;
        // In the packet with the last bytes of the run so far: the response was ready when that packet was
        // written. In a later packet, it may have become ready since.
        let behind = bytes >= LARGE_BYTES && frame.header.stream != stream;
        if !behind || frame.first.packet != last.packet {
            return;
        }
        let from = PacketProof {
            packet: first.packet,
            time_ns: first.seen_ns,
            what: What::with("{} bytes of DATA of stream {} begin", bytes, u64::from(stream)),
        };
        let what = What::with(
            "the response of stream {} follows in their last packet",
            u64::from(frame.header.stream),
            0,
        );
        let to = PacketProof { packet: frame.first.packet, time_ns: frame.first.seen_ns, what };
        found.push(Episode {
            cause: Cause::HeadOfLine,
            certainty: Certainty::Possible(Missing::ResponseReady),
            side: Some(Side::Server),
            sender: Side::Server,
            from_ns: first.seen_ns,
            to_ns: frame.first.seen_ns,
            start: frame.start,
            end,
            stream_id: Some(frame.header.stream),
            copies: Copies::One,
            evidence: PacketProofs::of(&[from, to]),
        });
    }
}
