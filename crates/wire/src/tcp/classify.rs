//! Classifies segments: updates the state of both sides, and reports the changes.

use super::openings::Announced;
use super::reassembly::REORDER_GRACE_NS;
use super::repeated::{Recent, fingerprint};
use super::{Handshake, Kind, Sent, SideState, Step, in_flight};
use crate::segment::{Flags, Options, Segment};
use spangap_model::Side;
use std::ops::Range;

/// Maximum window (RFC 7323, 2.3: 65,535 shifted by 14): a number farther than this from the known ones does not
/// belong to this connection.
const MAX_WINDOW: u64 = 65_535 << 14;
/// If both numbers of a segment are farther than this from the known ones, it belongs to another connection
/// between the same ports. Two random numbers are both nearer in one case out of a thousand; a capture that loses
/// this much of both directions at once has lost the connection anyway.
const OTHER_CONNECTION: u64 = 64 << 20;
/// Payload that every path carries in one packet (IPv6's minimum of 1,280 bytes, RFC 8200, 5, without headers).
/// It is the assumed segment size when the handshake was not captured, since with segmentation offload one
/// captured packet may be many on the wire.
const ASSUMED_MSS: u32 = 1_220;
/// Recently acknowledged runs remembered per side, to recognise unnecessary retransmissions.
const PAST_RUNS: usize = 4;

/// State of one side that the rules cannot see.
#[derive(Debug, Default)]
struct Private {
    isn: Option<u32>,
    /// Payload of its SYN (TCP Fast Open, RFC 7413), which the answer may acknowledge.
    syn_bytes: u32,
    /// Window scale option of its SYN, if the tap saw the SYN: `Some(None)` for a SYN without the option.
    scale: Option<Option<u8>>,
    mss: Option<u16>,
    /// Raw window from the header of the last segment.
    raw_window: Option<u16>,
    /// Offset after the FIN, if one was sent.
    fin: Option<u64>,
    /// Offset after the last byte seen, and the time, if [`SideState::next`] is beyond it because a segment
    /// without payload carried the offset of later bytes.
    named: Option<(u64, i64)>,
    /// Offset of a window probe's byte.
    probe: Option<u64>,
    past: [Option<Sent>; PAST_RUNS],
    past_at: u8,
    recent: Recent,
}

impl Private {
    /// Bytes before `offset` were seen or are known to be missing; bytes before `next` were sent.
    fn seen_up_to(&mut self, offset: u64, next: u64) {
        if let Some((seen, at_ns)) = self.named {
            let seen = seen.max(offset);
            self.named = (seen < next).then_some((seen, at_ns));
        }
    }
}

/// State of both sides.
#[derive(Debug, Default)]
pub struct Tracker {
    /// State that the rules can see, by [`Side::index`].
    pub sides: [SideState; 2],
    /// The handshake.
    pub handshake: Handshake,
    private: [Private; 2],
    /// Payload bytes of this step that were never seen before; each step sets it.
    pub fresh_bytes: u64,
}

/// The offset of a raw number that is nearest to a known offset.
#[inline]
pub fn unwrap(near: u64, raw: u32) -> u64 {
    near.wrapping_add_signed(i64::from(raw.wrapping_sub(near as u32) as i32))
}

/// The offset of a direction's first raw number.
fn first_offset(raw: u32) -> u64 {
    (1 << 32) | u64::from(raw)
}

impl Tracker {
    /// Whether a segment's numbers fit this connection.
    pub fn admits(&self, segment: &Segment<'_>, from: Side) -> bool {
        let flags = segment.flags;
        let own = &self.private[from.index()];
        let peer = &self.private[from.other().index()];
        if flags.has(Flags::RST) {
            return true;
        }
        if flags.has(Flags::SYN) {
            let answers = flags.has(Flags::ACK).then(|| segment.ack.wrapping_sub(1));
            let is_acked = |isn: u32, by: u32| by.wrapping_sub(isn) <= peer.syn_bytes;
            let peer_fits = answers.is_none_or(|by| peer.isn.is_none_or(|isn| is_acked(isn, by)));
            return match own.isn {
                // Its answer was captured before it, and tells where its payload ends.
                Some(isn) if isn == segment.seq.wrapping_add(segment.payload_len) => peer_fits,
                Some(isn) => isn == segment.seq && peer_fits,
                None if self.sides[from.index()].next == 0 => peer_fits,
                // The ACK of a SYN/ACK can be captured before it.
                None => answers.is_some_and(|by| peer.isn.is_some_and(|isn| is_acked(isn, by))),
            };
        }
        let off = |next: u64, raw: u32| if next == 0 { 0 } else { unwrap(next, raw).abs_diff(next) };
        let seq_off = off(self.sides[from.index()].next, segment.seq);
        if seq_off > MAX_WINDOW {
            return false;
        }
        if !flags.has(Flags::ACK) || seq_off <= OTHER_CONNECTION {
            return true;
        }
        off(self.sides[from.other().index()].next, segment.ack) <= OTHER_CONNECTION
    }

    /// Swaps the sides.
    pub fn swap(&mut self) {
        self.sides.swap(0, 1);
        self.private.swap(0, 1);
    }

    /// Classifies a segment. `unseen` counts the bytes of a range that were never seen; `run_limit` bounds the
    /// number of runs of unacknowledged bytes.
    #[inline]
    pub fn step<'a>(
        &mut self,
        segment: &'a Segment<'a>,
        from: Side,
        run_limit: usize,
        unseen: impl Fn(Range<u64>) -> u64,
    ) -> Step<'a> {
        let flags = segment.flags;
        let first = self.sides[from.index()].next == 0;
        let bytes = self.place(segment, from);
        let own = &self.sides[from.index()];
        let mut step = Step {
            segment,
            from,
            kind: Kind::Duplicate,
            newly_acked: 0..0,
            in_flight_before: own.next.saturating_sub(own.acked),
            earlier: None,
            window_before: own.window,
            bytes,
        };
        self.fresh_bytes = if step.bytes.is_empty() { 0 } else { unseen(step.bytes.clone()) };
        let ack = if flags.has(Flags::ACK) { self.acknowledged_by(segment, from) } else { None };
        step.kind = self.kind(&step, first, ack.as_ref());
        let new = matches!(step.kind, Kind::New | Kind::Ahead | Kind::Fill | Kind::BareAck);
        let print = fingerprint(segment);
        let private = &mut self.private[from.index()];
        if !new && private.recent.holds(print, segment) {
            step.kind = Kind::Duplicate;
            self.fresh_bytes = 0;
            return step;
        }
        private.recent.add(print, segment.time_ns);
        if let Some(ack) = ack
            && step.kind != Kind::Duplicate
        {
            step.newly_acked = self.acknowledge(ack, from, segment);
        }
        if !matches!(step.kind, Kind::Duplicate | Kind::Reset) {
            self.sent(&mut step, run_limit);
            self.window(segment, from);
        }
        self.sides[from.index()].last = Some((segment.time_ns, segment.packet));
        step
    }

    /// The payload's offsets; the first segment of a direction defines the origin.
    fn place(&mut self, segment: &Segment<'_>, from: Side) -> Range<u64> {
        let side = &mut self.sides[from.index()];
        if side.next == 0 {
            let first = first_offset(segment.seq);
            side.next = first;
            side.acked = first;
        }
        let start = unwrap(side.next, segment.seq) + u64::from(segment.flags.has(Flags::SYN));
        start..start + u64::from(segment.payload_len)
    }

    /// The offset acknowledged before, and now. `None` if the number cannot belong to this connection.
    fn acknowledged_by(&mut self, segment: &Segment<'_>, from: Side) -> Option<Range<u64>> {
        let peer = &mut self.sides[from.other().index()];
        if peer.next == 0 {
            let first = first_offset(segment.ack);
            // In a handshake, the number before the first acknowledged one is the SYN's.
            peer.next = first;
            peer.acked = first;
            return Some(first..first);
        }
        let ack = unwrap(peer.next, segment.ack);
        (ack.abs_diff(peer.next) <= MAX_WINDOW).then_some(peer.acked..ack)
    }

    fn kind(&self, step: &Step<'_>, first: bool, ack: Option<&Range<u64>>) -> Kind {
        let (segment, flags) = (step.segment, step.segment.flags);
        if flags.has(Flags::RST) {
            return Kind::Reset;
        }
        if flags.has(Flags::SYN) {
            return Kind::Handshake;
        }
        let own = &self.sides[step.from.index()];
        let private = &self.private[step.from.index()];
        let closed_window = self.sides[step.from.other().index()].window == Some(0);
        let (start, len, fin) = (step.bytes.start, segment.payload_len, flags.has(Flags::FIN));
        let end = step.bytes.end + u64::from(fin);
        let acks_more = ack.is_some_and(|ack| ack.end > ack.start);
        if len == 0 && !fin {
            let idle = own.acked >= own.next && private.fin.is_none() && !first && !acks_more;
            if idle && start + 1 == own.next {
                return if closed_window { Kind::WindowProbe } else { Kind::KeepAlive };
            }
            return match ack {
                _ if first => Kind::BareAck,
                Some(_) if acks_more => Kind::BareAck,
                // A later one overtook it, so it carries no information.
                Some(ack) if ack.end < ack.start => Kind::Duplicate,
                _ if segment.options.sack_count == 0 && private.raw_window != Some(segment.window) => {
                    Kind::WindowUpdate
                }
                _ => Kind::RepeatedAck,
            };
        }
        if len == 1 && !fin {
            let sent_alone = own.last_data.is_some_and(|last| last.start == start && last.end == start + 1);
            if closed_window && (start == own.next || start + 1 == own.next) && own.acked >= start {
                return Kind::WindowProbe;
            }
            if start + 1 == own.next && own.acked >= own.next && !sent_alone && !first {
                return Kind::KeepAlive;
            }
        }
        let no_data_before = own.data_segments == 0 && self.private[step.from.index()].isn.is_none();
        // Bytes sent a while ago, as a later segment without payload implied, but seen only now.
        let named =
            private.named.filter(|(_, at_ns)| segment.time_ns.saturating_sub(*at_ns) >= REORDER_GRACE_NS);
        let seen_up_to = private.named.map_or(own.next, |(seen, _)| seen);
        if first || (no_data_before && len > 0 && start <= own.next) {
            Kind::New
        } else if start > seen_up_to {
            Kind::Ahead
        } else if end > seen_up_to {
            let after_probe = private.probe == Some(start) && start + 1 == seen_up_to;
            match start == seen_up_to || after_probe {
                true if named.is_some() => Kind::Fill,
                true => Kind::New,
                false => Kind::Resent,
            }
        } else if self.fresh_bytes > 0 {
            Kind::Fill
        } else {
            Kind::Resent
        }
    }

    /// Bytes before this offset were sent, but are not in the capture.
    pub fn skip_to(&mut self, from: Side, offset: u64) {
        let own = &mut self.sides[from.index()];
        own.missing = true;
        own.next = own.next.max(offset);
        self.private[from.index()].seen_up_to(offset, own.next);
    }

    /// Records an acknowledgement; returns the newly acknowledged range.
    fn acknowledge(&mut self, ack: Range<u64>, from: Side, segment: &Segment<'_>) -> Range<u64> {
        let peer = &mut self.sides[from.other().index()];
        let private = &mut self.private[from.other().index()];
        if ack.end <= ack.start {
            return ack.start..ack.start;
        }
        peer.acked = ack.end;
        let rtt_ns = in_flight::acknowledged(&mut peer.in_flight, ack.end, segment.time_ns, |run| {
            private.past[usize::from(private.past_at) % PAST_RUNS] = Some(run);
            private.past_at = private.past_at.wrapping_add(1);
        });
        if let Some(rtt_ns) = rtt_ns {
            peer.rtt_min_ns = Some(peer.rtt_min_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
        }
        ack
    }

    /// Records the bytes sent.
    fn sent(&mut self, step: &mut Step<'_>, run_limit: usize) {
        let segment = step.segment;
        let side = step.from.index();
        if step.kind == Kind::Handshake {
            return self.shake_hands(step);
        }
        if let (Some(_), None, Side::Client) = (self.handshake.syn_ack, self.handshake.ack, step.from)
            && segment.flags.has(Flags::ACK)
        {
            self.handshake.ack = Some((segment.time_ns, segment.packet));
        }
        let end = step.bytes.end + u64::from(segment.flags.has(Flags::FIN));
        let own = &mut self.sides[side];
        let private = &mut self.private[side];
        if step.kind == Kind::KeepAlive {
            return;
        }
        if step.bytes.start == end {
            if end > own.next && end - own.next <= MAX_WINDOW {
                let (seen, at_ns) = private.named.unwrap_or((own.next, segment.time_ns));
                private.named = Some((seen, at_ns));
                own.next = end;
            }
            return;
        }
        if step.kind == Kind::WindowProbe {
            private.probe = Some(step.bytes.start);
        }
        let all = step.bytes.start..end;
        // Bytes already acknowledged are not in flight again.
        let under_way = all.start.max(own.acked)..all.end;
        let (time_ns, packet) = (segment.time_ns, segment.packet);
        step.earlier = in_flight::sent(&mut own.in_flight, under_way, time_ns, packet, run_limit);
        if step.kind == Kind::Resent && step.earlier.is_none_or(|earlier| earlier.start > all.start) {
            let overlaps = |run: &&Sent| run.start < all.end && run.end > all.start;
            let past = private.past.iter().flatten().filter(overlaps).min_by_key(|run| run.start);
            let past = past.or(own.last_data.as_ref().filter(overlaps));
            step.earlier = past.copied().or(step.earlier);
        }
        if segment.flags.has(Flags::FIN) {
            private.fin = Some(end);
        }
        if !step.bytes.is_empty() {
            self.count(step);
        }
        let (own, private) = (&mut self.sides[side], &mut self.private[side]);
        own.next = own.next.max(end);
        if own.acked > 0 {
            own.most_in_flight = own.most_in_flight.max(own.next.saturating_sub(own.acked));
        }
        private.seen_up_to(end, own.next);
    }

    /// Counts the payload of a segment.
    fn count(&mut self, step: &Step<'_>) {
        let segment = step.segment;
        let own = &mut self.sides[step.from.index()];
        own.data_segments += 1;
        own.bytes += self.fresh_bytes;
        own.resent_bytes += u64::from(segment.payload_len) - self.fresh_bytes.min(segment.payload_len.into());
        if !own.mss_announced {
            own.mss = own.mss.max(segment.payload_len.min(ASSUMED_MSS));
        }
        match &mut own.last_data {
            Some(last) if step.bytes.end <= last.end => {
                if step.bytes.end > last.start {
                    last.last_time_ns = segment.time_ns;
                    last.last_packet = segment.packet;
                    last.sends = last.sends.saturating_add(1);
                }
            }
            last => {
                *last = Some(Sent {
                    start: step.bytes.start,
                    end: step.bytes.end,
                    time_ns: segment.time_ns,
                    packet: segment.packet,
                    last_time_ns: segment.time_ns,
                    last_packet: segment.packet,
                    sends: 1,
                });
            }
        }
    }

    fn shake_hands(&mut self, step: &Step<'_>) {
        let segment = step.segment;
        let answer = segment.flags.has(Flags::ACK);
        let at = Some((segment.time_ns, segment.packet));
        if answer {
            self.handshake.syn_ack = self.handshake.syn_ack.or(at);
            self.handshake.syn_acks += 1;
            let peer = &mut self.private[step.from.other().index()];
            peer.isn = peer.isn.or(Some(segment.ack.wrapping_sub(1)));
            self.refuses_payload(segment, step.from.other());
        } else {
            self.handshake.syn = self.handshake.syn.or(at);
            self.handshake.syns += 1;
        }
        let own = &mut self.sides[step.from.index()];
        let private = &mut self.private[step.from.index()];
        own.next = own.next.max(step.bytes.end);
        // The SYN's own number is in flight, too: its acknowledgement gives the first round trip.
        let syn = step.bytes.start - 1..step.bytes.end;
        in_flight::sent(&mut own.in_flight, syn, segment.time_ns, segment.packet, in_flight::FEW_RUNS);
        private.isn = Some(segment.seq);
        private.syn_bytes = private.syn_bytes.max(segment.payload_len);
        if !step.bytes.is_empty() {
            self.count(step);
        }
        let Options { window_scale, mss, .. } = segment.options;
        self.announced(step.from, &Announced { end: segment.source, window_scale, mss });
    }

    /// If this answer leaves out bytes that the SYN of `from` carried, they were not taken: they will be sent for the
    /// first time, and nothing was lost.
    fn refuses_payload(&mut self, answer: &Segment<'_>, from: Side) {
        let (own, private) = (&mut self.sides[from.index()], &self.private[from.index()]);
        let syn_end = private.isn.map(|isn| isn.wrapping_add(1).wrapping_add(private.syn_bytes));
        let acked = unwrap(own.next, answer.ack);
        if private.syn_bytes > 0 && syn_end == Some(own.next as u32) && acked < own.next {
            own.next = acked;
            own.last_data = None;
            own.in_flight.retain(|run| run.start < acked);
            own.in_flight.iter_mut().for_each(|run| run.end = run.end.min(acked));
        }
    }

    /// Records the options of a side's SYN, which may precede the capture.
    pub fn announced(&mut self, from: Side, announced: &Announced) {
        let private = &mut self.private[from.index()];
        private.scale = Some(announced.window_scale.map(|shift| shift.min(14)));
        private.mss = announced.mss;
        self.negotiated();
    }

    /// Derives what both SYNs settle, as far as they were seen.
    fn negotiated(&mut self) {
        let [a, b] = &self.private;
        let scales = match (a.scale, b.scale) {
            (Some(Some(a)), Some(Some(b))) => [Some(a), Some(b)],
            // Scaling needs the option in both (RFC 7323, 1.3).
            (Some(None), _) | (_, Some(None)) => [Some(0), Some(0)],
            _ => [None, None],
        };
        // Without the option, the MSS is 536 (RFC 9293, 3.7.1).
        let taken_by = |peer: &Private| peer.mss.or(peer.scale.map(|_| 536));
        let taken = [taken_by(b), taken_by(a)];
        for (side, own) in self.sides.iter_mut().enumerate() {
            own.window_scale = scales[side];
            if let Some(mss) = taken[side] {
                own.mss = u32::from(mss);
                own.mss_announced = true;
            }
        }
    }

    fn window(&mut self, segment: &Segment<'_>, from: Side) {
        let own = &mut self.sides[from.index()];
        let private = &mut self.private[from.index()];
        private.raw_window = Some(segment.window);
        let raw = u64::from(segment.window);
        own.window = match own.window_scale {
            // The window of a SYN is never scaled (RFC 7323, 2.2).
            _ if segment.flags.has(Flags::SYN) || raw == 0 => Some(raw),
            Some(shift) => Some(raw << shift),
            None => None,
        };
        if own.window_scale.is_some() && !segment.flags.has(Flags::SYN) {
            own.largest_window = own.largest_window.max(own.window);
        }
    }
}
