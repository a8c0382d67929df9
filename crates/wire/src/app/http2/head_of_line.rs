//! Responses that stand behind a large run of another stream's DATA on the same connection.

use super::reader::Frame;
use crate::episode::{Certainty, Episode, Evidence, EvidenceList, What};
use crate::exchange::Mark;
use spangap_model::{Cause, Side};

/// A run of one stream's DATA below this does not count as large. At 1 Gb/s it takes half a millisecond.
const LARGE_BYTES: u64 = 65_536;

/// The run of DATA frames of one stream that ends what the server has sent so far.
#[derive(Debug, Default)]
pub struct HeadOfLine {
    stream: u32,
    bytes: u64,
    first: Mark,
    last: Mark,
    end: u64,
}

impl HeadOfLine {
    /// The server sent a DATA frame that ends at `end`.
    #[inline]
    pub fn data(&mut self, frame: &Frame, at: Mark, end: u64) {
        if frame.header.stream != self.stream || frame.start != self.end {
            *self = HeadOfLine { stream: frame.header.stream, first: frame.first, ..HeadOfLine::default() };
        }
        self.bytes += u64::from(frame.header.len);
        self.last = at;
        self.end = end;
    }

    /// The server begins the response of a stream: a header block that ends at `end`.
    #[inline]
    pub fn response(&self, frame: &Frame, end: u64, found: &mut Vec<Episode>) {
        let behind =
            self.bytes >= LARGE_BYTES && frame.start == self.end && frame.header.stream != self.stream;
        // In the packet that ends the run: it was ready when that was written. Later it may have become ready since.
        if !behind || frame.first.packet != self.last.packet {
            return;
        }
        let from = Evidence {
            packet: self.first.packet,
            time_ns: self.first.seen_ns,
            what: What::with("{} bytes of DATA of stream {} begin", self.bytes, u64::from(self.stream)),
        };
        let what = What::with(
            "the response of stream {} follows in their last packet",
            u64::from(frame.header.stream),
            0,
        );
        let to = Evidence { packet: frame.first.packet, time_ns: frame.first.seen_ns, what };
        found.push(Episode {
            cause: Cause::HeadOfLine,
            certainty: Certainty::Possible { missing: "when the response was ready" },
            side: Some(Side::Server),
            sender: Side::Server,
            from_ns: self.first.seen_ns,
            to_ns: frame.first.seen_ns,
            start: frame.start,
            end,
            stream_id: Some(frame.header.stream),
            evidence: EvidenceList::of(&[from, to]),
        });
    }
}
