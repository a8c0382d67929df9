//! SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113, 5.1.2): when a client had the maximum number of streams open, and
//! opened the next one only because another had ended.
//!
//! A client that by itself never has more calls in flight looks the same on the wire. What distinguishes them is
//! when the call began in the client, so this alone never convicts. If a slot stayed free for a while, the
//! episode ends when it became free: the limit did not cause any later delay.

use super::reader::Frame;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::Mark;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Time that a client's program may need for its next request, in addition to its stack's response time to
/// SETTINGS or PING: to wake a thread, and to serialise. Longer delays are not caused by the limit.
const REACTION_NS: i64 = 1_000_000;

/// A slot that stays free this long is unrelated to the next stream.
const GIVEN_UP_NS: i64 = 1_000_000_000;

/// Maximum streams remembered while slots remain free.
const MAX_WAITED: usize = 1024;

/// State of the limit.
#[derive(Debug, Default)]
pub struct StreamLimit {
    limit: Option<(u32, PacketProof)>,
    pinned_since_ns: Option<i64>,
    /// End of the last stream since then.
    freed: Option<Mark>,
    /// When the first stream ended since all slots were last taken.
    free_since_ns: Option<i64>,
    /// Streams opened in slots of ended ones.
    waited: Vec<StreamWait>,
    /// When the server last asked the client's stack for a response.
    asked_ns: Option<i64>,
    /// The minimum time of such a response at this tap.
    answer_ns: Option<i64>,
}

/// A stream that was opened in the slot of an ended one.
#[derive(Debug)]
struct StreamWait {
    frame: Frame,
    /// Offset after its header block.
    end: u64,
    /// The end of the stream that made room for it.
    freed: Mark,
    /// Until when the limit delayed it, if at all.
    until_ns: i64,
}

impl StreamLimit {
    /// The server sets the limit.
    pub fn set(&mut self, limit: u32, at: Mark) {
        let what = What::with("SETTINGS_MAX_CONCURRENT_STREAMS is {}", u64::from(limit), 0);
        self.limit = Some((limit, PacketProof { packet: at.packet, time_ns: at.seen_ns, what }));
        self.unpin();
    }

    /// The limit.
    pub fn limit(&self) -> Option<u32> {
        self.limit.map(|(limit, _)| limit)
    }

    /// The server sends SETTINGS or PING.
    pub fn asked(&mut self, at: Mark) {
        self.asked_ns = Some(at.seen_ns);
    }

    /// The client acknowledges it.
    pub fn answered(&mut self, at: Mark) {
        if let Some(asked) = self.asked_ns.take() {
            let took = at.seen_ns.saturating_sub(asked);
            self.answer_ns = Some(self.answer_ns.map_or(took, |least| least.min(took)));
        }
    }

    fn unpin(&mut self) {
        self.pinned_since_ns = None;
        (self.freed, self.free_since_ns) = (None, None);
        self.waited.clear();
    }

    /// Frames were missed: the number of open streams is unknown.
    pub fn lose(&mut self) {
        self.unpin();
    }

    /// A stream ended.
    #[inline]
    pub fn closed(&mut self, at: Mark) {
        if self.pinned_since_ns.is_some() {
            self.freed = Some(at);
            self.free_since_ns.get_or_insert(at.seen_ns);
        }
    }

    /// The client opened a stream with a block that ends at `end`; `open` is the number of open streams.
    #[inline]
    pub fn opened(&mut self, frame: &Frame, end: u64, open: usize, found: &mut Vec<Episode>) {
        let Some((limit, setting)) = self.limit else { return };
        if let (Some(freed), Some(free_since_ns)) = (self.freed, self.free_since_ns) {
            // The client needs one transit to learn of the slot and one to use it, as far as this tap sees them.
            let patience_ns = self.answer_ns.unwrap_or(0).saturating_mul(2).saturating_add(REACTION_NS);
            let opened_ns = frame.first.seen_ns;
            let later_ns = opened_ns.saturating_sub(freed.seen_ns);
            let mut until_ns = opened_ns;
            if later_ns > patience_ns {
                until_ns = free_since_ns;
                self.waited.iter_mut().for_each(|one| one.until_ns = one.until_ns.min(free_since_ns));
            }
            if later_ns > GIVEN_UP_NS {
                self.unpin();
            } else if self.waited.len() < MAX_WAITED {
                self.waited.push(StreamWait { frame: *frame, end, freed, until_ns });
            }
        }
        if open < limit as usize {
            return;
        }
        match self.pinned_since_ns {
            // Every slot is taken again: the streams that took them had waited, as far as can be seen.
            Some(since_ns) => found.extend(self.waited.drain(..).map(|one| one.episode(since_ns, setting))),
            None => self.pinned_since_ns = Some(frame.first.seen_ns),
        }
        self.free_since_ns = None;
    }
}

impl StreamWait {
    fn episode(&self, since_ns: i64, setting: PacketProof) -> Episode {
        let StreamWait { frame, end, freed, until_ns } = self;
        let what = What::text("a stream ends while as many as allowed are open");
        let ended = PacketProof { packet: freed.packet, time_ns: freed.seen_ns, what };
        let later_ns = frame.first.seen_ns.saturating_sub(freed.seen_ns).max(0) as u64;
        let what =
            What::with("stream {} is opened {} ns after that", u64::from(frame.header.stream), later_ns);
        let opened = PacketProof { packet: frame.first.packet, time_ns: frame.first.seen_ns, what };
        Episode {
            cause: Cause::StreamLimit,
            certainty: Certainty::Possible(Missing::ClientSpanStart),
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns: since_ns,
            to_ns: *until_ns,
            start: frame.start,
            end: *end,
            stream_id: Some(frame.header.stream),
            copies: Copies::One,
            evidence: PacketProofs::of(&[setting, ended, opened]),
        }
    }
}
