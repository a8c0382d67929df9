//! Delivers the bytes of one direction in order: zero-copy when they arrive in order, from a bounded buffer when
//! they do not, and as explicit holes when the capture lacks them.

use crate::exchange::Mark;
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum bytes of one direction buffered ahead of a gap. It exceeds the receive buffers of common settings
/// (net.ipv4.tcp_rmem, 6 MiB), so that this buffer holds whatever a receiver can.
pub const MAX_AHEAD_BYTES: usize = 8 << 20;
/// Maximum bytes buffered in all connections together.
pub const MAX_TOTAL_AHEAD_BYTES: usize = 256 << 20;
/// Overhead charged per buffered piece: more than its real cost, so that tiny pieces stay few (16,384).
const PIECE_BYTES: usize = 512;
/// How long an acknowledgement of bytes not in the capture waits for them, nanoseconds: packets that different
/// queues and cores delivered to the capture are out of order by microseconds.
pub const REORDER_GRACE_NS: i64 = 100_000;
/// A packet whose time is this much before that of an earlier one was not captured late: the clock was set back.
/// ntpd sets a clock only when it is off by 128 ms or more, and slews it otherwise.
pub const SET_BACK_NS: i64 = 100_000_000;

/// Output, in order and without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Bytes.
    Bytes {
        /// Stream offset of the first.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
        /// When they were seen, and when they became readable.
        at: Mark,
    },
    /// Bytes missing from the capture.
    Hole {
        /// Stream offset of the first.
        offset: u64,
        /// How many.
        len: u64,
        /// When that became certain.
        at: Mark,
        /// Whether only the snap length cut them.
        cut: bool,
    },
    /// End of the stream.
    Fin,
}

/// A segment's contribution to the stream.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Length on the wire.
    pub len: u32,
    /// The captured prefix.
    pub bytes: &'a [u8],
    /// Whether the stream ends after it.
    pub fin: bool,
    /// When the tap saw it.
    pub time_ns: i64,
    /// Packet number.
    pub packet: u64,
}

/// Buffered and abandoned bytes, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes buffered now, including the overhead of each piece.
    pub ahead_bytes: usize,
    /// Bytes that arrived after the hole they fill had been reported.
    pub late_bytes: u64,
    /// Segments whose bytes differ from earlier ones at the same offset.
    pub conflicts: u64,
}

/// Bytes that wait for earlier ones.
#[derive(Debug)]
struct Piece {
    len: u64,
    bytes: Box<[u8]>,
    time_ns: i64,
    packet: u64,
}

/// Bytes that the peer acknowledged but the tap did not see.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    up_to: u64,
    time_ns: i64,
    packet: u64,
}

/// One direction.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// Everything before this offset was delivered; zero before the first segment.
    next: u64,
    /// Whether anything was delivered, or must start at `next` because of a SYN.
    anchored: bool,
    fin: Option<u64>,
    ended: bool,
    /// Time and packet of the latest segment that made bytes readable.
    ready: (i64, u64),
    ahead: BTreeMap<u64, Piece>,
    ahead_cost: usize,
    unseen: Option<Unseen>,
    /// Whether the peer repeated its acknowledgement at the gap: it waits for these bytes, too.
    peer_waits: bool,
    hole_bytes: u64,
    /// The latest hole, to count its bytes that arrive late.
    hole: Range<u64>,
}

impl Reassembly {
    /// The stream begins at `offset`, as a SYN or its acknowledgement proves.
    pub fn anchor(&mut self, offset: u64) {
        if !self.anchored {
            self.next = offset;
            self.anchored = true;
        }
    }

    /// A segment without payload at `offset`: the next byte presumably has this offset.
    pub fn hint(&mut self, offset: u64) {
        if self.next == 0 {
            self.next = offset;
        }
    }

    /// Everything before this offset was delivered.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether the peer acknowledged bytes that the tap has not seen yet.
    #[inline]
    pub fn misses_acknowledged(&self) -> bool {
        self.unseen.is_some()
    }

    /// Bytes delivered as holes, not counting cut ones.
    pub fn hole_bytes(&self) -> u64 {
        self.hole_bytes
    }

    /// Whether the end was delivered.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Number of these bytes that were never seen and are still expected.
    #[inline]
    pub fn unseen(&self, bytes: Range<u64>) -> u64 {
        if !self.anchored {
            return bytes.end - bytes.start;
        }
        let start = bytes.start.max(self.next);
        let total = bytes.end.saturating_sub(start);
        if total == 0 || self.ahead.is_empty() {
            return total;
        }
        let mut unseen = 0;
        gaps(&self.ahead, start..bytes.end, |gap| unseen += gap.end - gap.start);
        unseen
    }

    /// Inserts a segment's part; delivers whatever is now in order to `out`.
    #[inline]
    pub fn insert(&mut self, part: Part<'_>, ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) {
        if part.offset == self.next && self.ahead.is_empty() && self.anchored && self.fin.is_none() {
            self.ready = later(by_one_clock(self.ready, &part), (part.time_ns, part.packet));
            let at = mark((part.time_ns, part.packet), self.ready);
            emit(&mut self.next, part.bytes, u64::from(part.len), at, out);
            if part.fin {
                self.fin = Some(self.next);
                self.end(ledger, out);
            }
            return;
        }
        self.insert_elsewhere(part, ledger, out);
    }

    #[cold]
    fn insert_elsewhere(&mut self, part: Part<'_>, ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) {
        if self.ended {
            return;
        }
        self.ready = by_one_clock(self.ready, &part);
        if !self.anchored {
            // The capture joined after the start: the stream begins with the first bytes seen. Only a keep-alive
            // may have carried the offset before them, or a segment without payload that of later bytes.
            let expected = self.next != 0 && part.offset > self.next + 1;
            self.next = if expected { self.next } else { part.offset };
            self.anchored = true;
        }
        let end = part.offset + u64::from(part.len);
        let late = part.offset.max(self.hole.start)..end.min(self.hole.end);
        if late.start < late.end {
            ledger.late_bytes += late.end - late.start;
            self.hole.start = late.end;
        }
        if part.fin && self.fin.is_none() && end >= self.next {
            self.fin = Some(end);
        }
        let end = end.min(self.fin.unwrap_or(u64::MAX));
        if part.offset < end {
            self.buffer(part, end, ledger);
        }
        self.release(ledger, out);
        if self.ahead_cost > MAX_AHEAD_BYTES || ledger.ahead_bytes > MAX_TOTAL_AHEAD_BYTES {
            self.give_up(u64::MAX, (part.time_ns, part.packet), true, ledger, out);
        }
    }

    /// Buffers the unseen bytes of a part: the first copy counts.
    fn buffer(&mut self, part: Part<'_>, end: u64, ledger: &mut Ledger) {
        let start = part.offset.max(self.next);
        if start >= end {
            return;
        }
        let bytes_of = |range: &Range<u64>| {
            let from = usize::try_from(range.start - part.offset).unwrap_or(usize::MAX);
            let to = usize::try_from(range.end - part.offset).unwrap_or(usize::MAX);
            part.bytes.get(from.min(part.bytes.len())..to.min(part.bytes.len())).unwrap_or_default()
        };
        if self.ahead.range(..end).next_back().is_some_and(|(at, piece)| at + piece.len > start) {
            let differs = overlapping(&self.ahead, start..end)
                .any(|(at, piece)| piece_differs(at, piece, start..end, bytes_of));
            ledger.conflicts += u64::from(differs);
        }
        let mut fresh = Vec::new();
        gaps(&self.ahead, start..end, |gap| fresh.push(gap));
        for gap in fresh {
            let bytes: Box<[u8]> = bytes_of(&gap).into();
            let cost = bytes.len() + PIECE_BYTES;
            self.ahead_cost += cost;
            ledger.ahead_bytes += cost;
            let piece = Piece { len: gap.end - gap.start, bytes, time_ns: part.time_ns, packet: part.packet };
            self.ahead.insert(gap.start, piece);
        }
    }

    /// Delivers everything that is now in order.
    fn release(&mut self, ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) {
        while let Some(entry) = self.ahead.first_entry() {
            if *entry.key() != self.next {
                break;
            }
            let piece = entry.remove();
            let cost = piece.bytes.len() + PIECE_BYTES;
            self.ahead_cost = self.ahead_cost.saturating_sub(cost);
            ledger.ahead_bytes = ledger.ahead_bytes.saturating_sub(cost);
            let seen = (piece.time_ns, piece.packet);
            self.ready = later(self.ready, seen);
            let at = mark(seen, self.ready);
            emit(&mut self.next, &piece.bytes, piece.len, at, out);
        }
        if self.ahead.is_empty() {
            self.peer_waits = false;
        }
        if self.unseen.is_some_and(|unseen| unseen.up_to <= self.next) {
            self.unseen = None;
        }
        self.end(ledger, out);
    }

    fn end(&mut self, ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) {
        if !self.ended && self.fin.is_some_and(|fin| fin <= self.next) {
            self.ended = true;
            // Bytes beyond the end are not part of the stream.
            self.ahead = BTreeMap::new();
            ledger.ahead_bytes = ledger.ahead_bytes.saturating_sub(std::mem::take(&mut self.ahead_cost));
            self.unseen = None;
            out(Output::Fin);
        }
    }

    /// The peer acknowledged everything before `ack`; `again` if it only repeated an acknowledgement.
    #[inline]
    pub fn acknowledged(&mut self, ack: u64, again: bool, time_ns: i64, packet: u64) {
        if ack > self.next && self.anchored && !self.ended {
            let first = self.unseen.map_or((time_ns, packet), |unseen| (unseen.time_ns, unseen.packet));
            // A FIN's number is not a byte.
            let up_to = ack.min(self.fin.unwrap_or(u64::MAX));
            if up_to > self.next {
                self.unseen = Some(Unseen { up_to, time_ns: first.0, packet: first.1 });
            }
        } else if again && ack == self.next && !self.ahead.is_empty() {
            self.peer_waits = true;
        }
    }

    /// Turns bytes that were acknowledged long enough before `now_ns` into a hole, as they will not come. Returns
    /// whether there was one.
    #[inline]
    pub fn settle(&mut self, now_ns: i64, ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) -> bool {
        let Some(unseen) = self.unseen else { return false };
        if now_ns.saturating_sub(unseen.time_ns) < REORDER_GRACE_NS || self.only_a_fin(unseen.up_to) {
            return false;
        }
        let at = (unseen.time_ns, unseen.packet);
        self.unseen = None;
        self.give_up(unseen.up_to, at, self.peer_waits, ledger, out);
        true
    }

    /// The end of input: delivers everything buffered, with the holes between.
    pub fn finish(&mut self, now: (i64, u64), ledger: &mut Ledger, out: &mut impl FnMut(Output<'_>)) {
        let acknowledged = self.unseen.take().map_or(0, |unseen| unseen.up_to);
        if self.only_a_fin(acknowledged) {
            self.fin.get_or_insert(self.next);
            self.end(ledger, out);
        }
        if self.anchored && !self.ended {
            let last = self.ahead.last_key_value().map_or(0, |(at, piece)| at + piece.len);
            self.give_up(acknowledged.max(last), now, true, ledger, out);
        }
    }

    /// A single number acknowledged beyond all seen bytes is most likely that of a FIN, as long as nothing
    /// follows it.
    fn only_a_fin(&self, acknowledged: u64) -> bool {
        acknowledged == self.next + 1 && self.ahead.is_empty()
    }

    /// Delivers everything before `up_to`, as bytes or as holes, and what is in order after it. `waited` tells
    /// whether the receiver had to wait for the bytes of the hole until `at`; if not, it received them, and only
    /// the capture lacks them.
    #[cold]
    fn give_up(
        &mut self,
        up_to: u64,
        at: (i64, u64),
        waited: bool,
        ledger: &mut Ledger,
        out: &mut impl FnMut(Output<'_>),
    ) {
        if waited {
            self.ready = later(self.ready, at);
        }
        loop {
            self.release(ledger, out);
            let piece = self.ahead.first_key_value().map(|(at, _)| *at);
            let end = match piece {
                Some(start) => start.min(up_to),
                None if up_to == u64::MAX => break,
                None => up_to,
            };
            if end <= self.next || self.ended {
                break;
            }
            let len = end - self.next;
            out(Output::Hole { offset: self.next, len, at: mark(at, at), cut: false });
            self.hole_bytes += len;
            self.hole = self.next..end;
            self.next = end;
        }
    }
}

/// A moment before a part was captured, or the part's own if the clock was set back since.
#[inline]
fn by_one_clock(before: (i64, u64), part: &Part<'_>) -> (i64, u64) {
    let set_back = before.0.saturating_sub(part.time_ns) > SET_BACK_NS;
    if set_back { (part.time_ns, part.packet) } else { before }
}

/// The later of two moments.
fn later(a: (i64, u64), b: (i64, u64)) -> (i64, u64) {
    if b.0 >= a.0 { b } else { a }
}

/// A mark of bytes seen at one moment and readable at another.
#[inline]
fn mark(seen: (i64, u64), ready: (i64, u64)) -> Mark {
    Mark { seen_ns: seen.0, ready_ns: ready.0, packet: seen.1, ready_packet: ready.1 }
}

/// Delivers the captured prefix of `len` bytes, and the rest as cut.
#[inline]
fn emit(next: &mut u64, bytes: &[u8], len: u64, at: Mark, out: &mut impl FnMut(Output<'_>)) {
    let captured = bytes.len() as u64;
    if captured > 0 {
        out(Output::Bytes { offset: *next, bytes, at });
    }
    if captured < len {
        out(Output::Hole { offset: *next + captured, len: len - captured, at, cut: true });
    }
    *next += len.max(captured);
}

/// The pieces that overlap `bytes`, in order.
fn overlapping(ahead: &BTreeMap<u64, Piece>, bytes: Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
    let before = ahead.range(..bytes.start).next_back();
    let before = before.filter(|(at, piece)| *at + piece.len > bytes.start);
    before.into_iter().chain(ahead.range(bytes)).map(|(at, piece)| (*at, piece))
}

/// The parts of `bytes` that no piece covers, in order.
fn gaps(ahead: &BTreeMap<u64, Piece>, bytes: Range<u64>, mut gap: impl FnMut(Range<u64>)) {
    let mut from = bytes.start;
    for (at, piece) in overlapping(ahead, bytes.clone()) {
        if at > from {
            gap(from..at);
        }
        from = from.max(at + piece.len);
    }
    if from < bytes.end {
        gap(from..bytes.end);
    }
}

/// Whether a piece differs from the new copy where both were captured.
fn piece_differs<'a>(
    at: u64,
    piece: &Piece,
    copy: Range<u64>,
    bytes_of: impl Fn(&Range<u64>) -> &'a [u8],
) -> bool {
    let both = at.max(copy.start)..(at + piece.len).min(copy.end);
    let new = bytes_of(&both);
    let old =
        usize::try_from(both.start - at).ok().and_then(|from| piece.bytes.get(from..)).unwrap_or_default();
    old.iter().zip(new).any(|(old, new)| old != new)
}
