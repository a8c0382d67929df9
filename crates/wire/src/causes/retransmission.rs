//! Loss, and what mended it: the retransmission timer, a tail loss probe, or fast retransmission.
//!
//! Between the sender and the loss, a tap sees bytes sent twice; it knows when the first copy left and what the peer
//! acknowledged in between, and so what made the sender send again:
//! - *fast retransmission* (RFC 5681, 3.2; RACK, RFC 8985): the peer had acknowledged later bytes, by SACK or by
//!   repeating itself;
//! - *tail loss probe* (RFC 8985, 7): the last segment again, after about two round trips; with one segment in flight
//!   after 200 ms more, which is where the retransmission timer would have sent it, too;
//! - *retransmission timer* (RFC 6298; TCP_RTO_MIN is 200 ms): the first unacknowledged segment again without any of
//!   these, and twice as long until the next time.
//!
//! Between the loss and the receiver, a tap sees only that bytes come late, after others that were sent later. It
//! cannot say how long ago they were lost, only how long the later ones had to wait.
//!
//! An episode is said when the peer has acknowledged the bytes: until then a DSACK (RFC 2883), or an acknowledgement
//! faster than the path allows, may show that they were never lost.
//!
//! The three causes share one memory, since each excludes the others.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::segment::Segment;
use crate::tcp::{Kind, Sent, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};
use std::cmp::Ordering;

/// TCP_RTO_MIN of Linux, less one tick of a kernel with HZ = 100.
const RTO_MIN_NS: u64 = 190_000_000;
/// How much later than 200 ms and three shortest round trips a probe may come: ticks, and the smoothed round trip.
const PROBE_SLACK_NS: u64 = 40_000_000;
/// Packets that overtake each other on their way do so by less, and the bytes wait less: not worth a word.
const REORDERED_NS: u64 = 3_000_000;

/// How much later than two shortest ways a DSACK may come.
const DSACK_SLACK_NS: u64 = 5_000_000;
/// Recoveries of a connection that wait for a DSACK at once.
const MAX_UNDECIDED: usize = 64;

/// A recovery in progress: retransmitted bytes that are not yet acknowledged.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    cause: Cause,
    certainty: Certainty,
    first: Sent,
    /// What made the sender send again, if it was seen.
    signal: Option<(i64, u64)>,
    /// How many segments were sent again.
    resent: u32,
    /// The first one sent again.
    again: (i64, u64),
    /// The last one.
    last: (i64, u64),
    /// TCP timestamp of the first one sent again.
    timestamp: Option<u32>,
    start: u64,
    end: u64,
    /// Whether the receiver says when it gets bytes twice.
    told: bool,
}

/// A recovery whose acknowledgement seems too early for the retransmission: a DSACK may still call it unnecessary.
#[derive(Clone, Copy, Debug)]
struct Undecided {
    sender: Side,
    recovery: Recovery,
    acknowledged: (i64, u64),
    /// No DSACK comes later.
    until_ns: i64,
}

/// The first segment after a hole, at a tap behind the loss.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    time_ns: i64,
    packet: u64,
    start: u64,
    ip_id: u16,
    timestamp: Option<u32>,
    /// When some of the missing bytes came.
    filled_ns: Option<i64>,
}

/// What is known of a side as a sender. What only losses bring is boxed.
#[derive(Debug, Default)]
struct Sender {
    recovery: Option<Box<Recovery>>,
    ahead: Option<Box<Ahead>>,
    /// First acknowledgement by the peer of bytes after a missing one, since its acknowledgements last advanced.
    signal: Option<(i64, u64)>,
    /// When the peer's acknowledgements last advanced.
    advanced_ns: i64,
    /// Segments sent again although the peer had them.
    needless: u32,
}

/// The rule's memory of one connection.
#[derive(Debug, Default)]
pub struct Memory {
    senders: [Sender; 2],
    /// Oldest first.
    undecided: Vec<Undecided>,
    /// Whether either end cannot do SACK, and so does not probe (RFC 8985, 3): known from the handshake.
    without_sack: bool,
    /// Whether SACK is in use, as the handshake or a block shows: then bytes that come twice are reported.
    with_sack: bool,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        self.with_sack |= step.segment.options.sack_count > 0;
        if !self.undecided.is_empty() {
            self.settle(step.segment.time_ns, found);
        }
        let peer = &mut self.senders[step.from.other().index()];
        let sacks = step.segment.options.sack_count > 0 || step.kind == Kind::RepeatedAck;
        if sacks || peer.recovery.is_some() || peer.signal.is_some() {
            peer.acknowledged(step, view, &mut self.undecided, found);
        }
        if !step.newly_acked.is_empty() {
            peer.advanced_ns = step.segment.time_ns;
        }
        match step.kind {
            Kind::Resent => self.resent(step, view, found),
            Kind::Ahead => self.senders[step.from.index()].ahead(step),
            Kind::Fill => self.senders[step.from.index()].fill(step, view, found),
            Kind::New => {
                let own = &mut self.senders[step.from.index()];
                if own.ahead.is_some() && !step.bytes.is_empty() {
                    // In order again: every hole is filled.
                    own.ahead = None;
                }
            }
            Kind::Handshake => {
                self.without_sack |= !step.segment.options.sack_permitted;
                self.with_sack |= step.segment.options.sack_permitted;
            }
            _ => {}
        }
    }

    fn finish(&mut self, _view: View<'_>, found: &mut Vec<Episode>) {
        for Undecided { sender, recovery, .. } in self.undecided.drain(..) {
            found.push(recovery.cut_short().episode(sender, None));
        }
        for (side, sender) in [Side::Client, Side::Server].into_iter().zip(&mut self.senders) {
            found.extend(sender.recovery.take().map(|recovery| recovery.episode(side, None)));
        }
    }

    fn notes(&self, into: &mut Vec<String>) {
        for (side, sender) in [Side::Client, Side::Server].into_iter().zip(&self.senders) {
            if sender.needless > 0 {
                into.push(format!(
                    "The {} retransmitted {} segments that the {} already had (DSACK, or an acknowledgement faster \
                     than the path): late acknowledgements, not loss.",
                    side.name(),
                    sender.needless,
                    side.other().name()
                ));
            }
        }
    }
}

impl Memory {
    #[cold]
    fn resent(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let own = view.of(step.from);
        let without_sack = self.without_sack;
        let alone = step.bytes.start <= own.acked;
        let told = (self.with_sack && !without_sack) || (alone && step.segment.options.timestamps.is_some());
        let sender = &mut self.senders[step.from.index()];
        if step.bytes.end <= own.acked {
            // The tap has seen their acknowledgement: that one is late, or lost.
            sender.needless = sender.needless.saturating_add(1);
            return;
        }
        let now = (step.segment.time_ns, step.segment.packet);
        if let Some(recovery) = &mut sender.recovery {
            // Of the same flight: these, too, had left before the sender first sent again.
            let of_flight = step.bytes.start < recovery.end
                || step.earlier.is_some_and(|earlier| earlier.time_ns <= recovery.again.0);
            if of_flight {
                let waited_ns = nanos(recovery.last.0, now.0);
                // What was sent again got lost as well: the timer had to expire.
                let again = step.earlier.is_some_and(|earlier| earlier.sends > 1);
                if again && waited_ns >= RTO_MIN_NS {
                    recovery.cause = Cause::Rto;
                    recovery.certainty = Certainty::Shown;
                }
                recovery.resent = recovery.resent.saturating_add(1);
                recovery.last = now;
                recovery.start = recovery.start.min(step.bytes.start);
                recovery.end = recovery.end.max(step.bytes.end);
                return;
            }
            found.push(recovery.episode(step.from, None));
            sender.recovery = None;
        }
        let Some(earlier) = step.earlier else { return };
        let (cause, certainty) = why(step, earlier, sender, without_sack, view);
        sender.recovery = Some(Box::new(Recovery {
            cause,
            certainty,
            first: earlier,
            signal: sender.signal.filter(|_| cause == Cause::FastRetransmit),
            resent: 1,
            again: now,
            last: now,
            timestamp: step.segment.options.timestamps.map(|(value, _)| value),
            start: step.bytes.start,
            end: step.bytes.end,
            told,
        }));
    }

    /// Acknowledgements that seemed too early, with no DSACK after them in all the time that one takes, were those of the
    /// copies sent again. The next loss of the connection says nothing of that.
    #[cold]
    fn settle(&mut self, now_ns: i64, found: &mut Vec<Episode>) {
        for Undecided { sender, recovery, acknowledged, .. } in
            self.undecided.extract_if(.., |undecided| now_ns > undecided.until_ns)
        {
            found.push(recovery.episode(sender, Some(acknowledged)));
        }
    }
}

/// What made the sender send `earlier` again.
fn why(
    step: &Step<'_>,
    earlier: Sent,
    sender: &Sender,
    without_sack: bool,
    view: View<'_>,
) -> (Cause, Certainty) {
    let own = view.of(step.from);
    let waited_ns = nanos(earlier.last_time_ns, step.segment.time_ns);
    let round_trip_ns = view.round_trip_ns().or(view.reach_ns(step.from.other()));
    // A signal from before the bytes were sent is about others.
    let signal = sender.signal.filter(|(at, _)| *at >= earlier.last_time_ns);
    if let Some((signal_ns, _)) = signal {
        // The timer may still be first, when too little comes back for fast retransmission.
        let idle_ns = nanos(signal_ns, step.segment.time_ns);
        let timer = idle_ns >= RTO_MIN_NS && idle_ns > 2 * round_trip_ns.unwrap_or(0);
        return (if timer { Cause::Rto } else { Cause::FastRetransmit }, Certainty::Shown);
    }
    let is_head = step.bytes.start <= own.acked;
    let is_tail = step.bytes.end == own.next;
    if waited_ns >= RTO_MIN_NS {
        // A probe comes this late over a long path (RFC 8985, 7.2: after two round trips), or 200 ms later if
        // one segment is in flight. Repairing the end of a flight, the rest of which was acknowledged
        // meanwhile, is a probe's task; a segment that was alone from the start is also retransmitted just
        // when the timer would have fired, and is attributed to the timer here.
        let trips_ns = 3 * round_trip_ns.unwrap_or(0);
        let of_flight = is_head && sender.advanced_ns > earlier.time_ns;
        let probe_ns = if of_flight { 200_000_000 + trips_ns + PROBE_SLACK_NS } else { trips_ns };
        return match (is_head, is_tail) {
            (_, true) if !without_sack && waited_ns <= probe_ns => (Cause::TailLoss, Certainty::Shown),
            (true, _) => (Cause::Rto, Certainty::Shown),
            _ => (Cause::Rto, Certainty::Possible(Missing::ResendReason)),
        };
    }
    if is_tail && !without_sack && waited_ns >= round_trip_ns.unwrap_or(0) {
        return (Cause::TailLoss, Certainty::Shown);
    }
    // Sooner than the usual timer, without a reason that this tap could see.
    (Cause::Rto, Certainty::Possible(Missing::ResendReason))
}

impl Sender {
    /// The peer acknowledged something, or repeated itself, while that matters.
    #[cold]
    fn acknowledged(
        &mut self,
        step: &Step<'_>,
        view: View<'_>,
        undecided: &mut Vec<Undecided>,
        found: &mut Vec<Episode>,
    ) {
        let from = step.from.other();
        let segment = step.segment;
        let own = view.of(from);
        if let Some(twice) = segment.dsack() {
            self.needless = self.needless.saturating_add(1);
            let of = |undecided: &Undecided| undecided.sender == from && undecided.recovery.overlaps(twice);
            if let Some(place) = undecided.iter().position(of) {
                undecided.remove(place);
                return;
            }
            if self.recovery.take_if(|recovery| recovery.resent == 1).is_some() {
                return;
            }
            if let Some(recovery) = &mut self.recovery {
                recovery.resent -= 1;
            }
        }
        if !step.newly_acked.is_empty() {
            self.signal = None;
        }
        if own.acked < own.next {
            let reports = match segment.options.sack_count {
                0 => step.kind == Kind::RepeatedAck,
                _ => segment.sacked().iter().any(|(left, _)| left.wrapping_sub(segment.ack) as i32 > 0),
            };
            if reports && self.signal.is_none() {
                self.signal = Some((segment.time_ns, segment.packet));
            }
        }
        let acknowledged = |recovery: &mut Box<Recovery>| own.acked >= recovery.end;
        let Some(recovery) = self.recovery.take_if(acknowledged).map(|recovery| *recovery) else { return };
        let at = (segment.time_ns, segment.packet);
        // Sooner than a copy could have come and its acknowledgement gone back: it is that of the first copy.
        // A way that is as long as the wait may be measured by this very loss.
        let waited_ns = nanos(recovery.first.time_ns, recovery.again.0);
        let way_ns = view.reach_ns(step.from).filter(|way| *way < waited_ns).unwrap_or(0);
        let too_soon = nanos(recovery.again.0, segment.time_ns) < way_ns / 8 * 7;
        // Or it echoes a timestamp from before (RFC 3522, 3.2). One that was due for earlier bytes as well, a delayed
        // one, echoes the timestamp of those (RFC 7323, 4.3), whichever copy came after them.
        let echoes_before = match (segment.options.timestamps, recovery.timestamp) {
            (Some((_, echo)), Some(again)) => (echo.wrapping_sub(again) as i32) < 0,
            _ => false,
        };
        let alone = step.newly_acked.start >= recovery.start;
        let (echoes_first, delayed) = (echoes_before && alone, echoes_before && !alone);
        if recovery.resent == 1 && (too_soon || delayed) && !echoes_first && recovery.told {
            // The path was measured by acknowledgements that may all have been delayed, while the one for a
            // filled hole is not. A receiver that gets bytes twice says so: until it could have, all is open.
            let later_ns = recovery.again.0.saturating_add_unsigned(way_ns).max(segment.time_ns);
            let until_ns = later_ns.saturating_add_unsigned(way_ns + DSACK_SLACK_NS);
            if undecided.len() >= MAX_UNDECIDED {
                let Undecided { sender, recovery, .. } = undecided.remove(0);
                found.push(recovery.cut_short().episode(sender, None));
            }
            undecided.push(Undecided { sender: from, recovery, acknowledged: at, until_ns });
            return;
        }
        if recovery.resent == 1 && (too_soon || echoes_first) {
            self.needless = self.needless.saturating_add(1);
            return;
        }
        found.push(recovery.episode(from, Some(at)));
    }

    #[cold]
    fn ahead(&mut self, step: &Step<'_>) {
        if self.ahead.is_none() {
            let segment = step.segment;
            self.ahead = Some(Box::new(Ahead {
                time_ns: segment.time_ns,
                packet: segment.packet,
                start: step.bytes.start,
                ip_id: segment.ip_id,
                timestamp: segment.options.timestamps.map(|(value, _)| value),
                filled_ns: None,
            }));
        }
    }

    /// Bytes that were missing came.
    #[cold]
    fn fill(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let now_ns = step.segment.time_ns;
        let Some(slot) = self.ahead.as_mut().filter(|ahead| step.bytes.start < ahead.start) else { return };
        let ahead = **slot;
        slot.filled_ns = Some(now_ns);
        // More of what was filled just now is part of that.
        if ahead.filled_ns.is_some_and(|filled| nanos(filled, now_ns) < REORDERED_NS) {
            return;
        }
        let waited_ns = nanos(ahead.time_ns, step.segment.time_ns);
        let way_ns = view.reach_ns(step.from);
        let sent_later = order(step.segment, ahead);
        // What the first segment after the hole made the receiver send cannot have come back sooner.
        let too_soon = way_ns.is_none_or(|way| waited_ns < way / 8 * 7);
        let overtaken = sent_later == Some(Ordering::Less)
            || (sent_later.is_none() && (waited_ns < REORDERED_NS || (way_ns.is_some() && too_soon)));
        if overtaken {
            return;
        }
        let certainty = match sent_later {
            Some(_) => Certainty::Shown,
            // Reordering by as much as a round trip, to the point, is not known; by less it may be.
            None if way_ns.is_some_and(|way| waited_ns >= way) => Certainty::Shown,
            None => Certainty::Possible(Missing::SentTwice),
        };
        let timer = waited_ns >= RTO_MIN_NS && waited_ns > 2 * way_ns.unwrap_or(0);
        let cause = if timer { Cause::Rto } else { Cause::FastRetransmit };
        // A sender that has more to send again sends full segments, unless the path did not carry these.
        let (bytes, missing) = (step.bytes.end - step.bytes.start, ahead.start - step.bytes.start);
        let full = view.full_bytes(step.from, step.segment.options.timestamps.is_some());
        let in_pieces = timer && bytes < missing && full.is_some_and(|full| bytes < full / 10 * 9);
        let evidence = |packet, time_ns, what| PacketProof { packet, time_ns, what };
        found.push(Episode {
            cause,
            certainty,
            side: None,
            sender: step.from,
            from_ns: ahead.filled_ns.unwrap_or(ahead.time_ns),
            to_ns: step.segment.time_ns,
            start: step.bytes.start,
            end: step.bytes.end,
            stream_id: None,
            copies: if in_pieces { Copies::Pieces } else { Copies::One },
            evidence: PacketProofs::of(&[
                evidence(
                    ahead.packet,
                    ahead.time_ns,
                    What::with("{} bytes before these are missing", ahead.start - step.bytes.start, 0),
                ),
                evidence(
                    step.segment.packet,
                    step.segment.time_ns,
                    What::with(
                        "{} missing bytes come {us} later",
                        step.bytes.end - step.bytes.start,
                        waited_ns / 1000,
                    ),
                ),
            ]),
        });
    }
}

/// Whether a segment that arrived after another one was also sent after it, if its headers show that.
fn order(segment: &Segment<'_>, ahead: Ahead) -> Option<Ordering> {
    if let (Some((value, _)), Some(before)) = (segment.options.timestamps, ahead.timestamp)
        && value != before
    {
        return Some((value.wrapping_sub(before) as i32).cmp(&0));
    }
    // Linux counts the segments of a connection in the IPv4 identification; other stacks may count all they send.
    // Zero and equal ones count nothing.
    if segment.ip_id != 0 && ahead.ip_id != 0 && segment.ip_id != ahead.ip_id {
        let distance = segment.ip_id.wrapping_sub(ahead.ip_id) as i16;
        if distance.unsigned_abs() < 1024 {
            return Some(distance.cmp(&0));
        }
    }
    None
}

impl Recovery {
    /// Whether it sent any of these bytes again: sequence numbers, the low half of offsets.
    fn overlaps(&self, (left, right): (u32, u32)) -> bool {
        right.wrapping_sub(self.start as u32) as i32 > 0 && (self.end as u32).wrapping_sub(left) as i32 > 0
    }

    /// Nothing more is seen of it, and a DSACK could still have come.
    fn cut_short(self) -> Recovery {
        Recovery { certainty: Certainty::Possible(Missing::EndsEarly), ..self }
    }

    fn episode(&self, sender: Side, acknowledged: Option<(i64, u64)>) -> Episode {
        let evidence = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
        let waited_us = nanos(self.first.time_ns, self.again.0) / 1000;
        let why = match self.cause {
            Cause::TailLoss => {
                "the last segment in flight is sent again after {us}, as a probe; {} segments in all"
            }
            Cause::FastRetransmit => {
                "sent again after {us}, later bytes being acknowledged; {} segments in all"
            }
            _ => "sent again after {} us; {} segments in all until they are acknowledged",
        };
        let sent = What::with("{} bytes sent for the first time", self.first.end - self.first.start, 0);
        let mut items = vec![evidence((self.first.time_ns, self.first.packet), sent)];
        if let Some(signal) = self.signal {
            items.push(evidence(signal, What::text("the peer acknowledges bytes after a missing one")));
        }
        items.push(evidence(self.again, What::with(why, waited_us, u64::from(self.resent))));
        if self.last != self.again {
            let after_us = nanos(self.again.0, self.last.0) / 1000;
            items.push(evidence(
                self.last,
                What::with("the last one sent again, {us} after the first", after_us, 0),
            ));
        } else if let Some(acknowledged) = acknowledged {
            items.push(evidence(acknowledged, What::text("the peer acknowledges them")));
        }
        Episode {
            cause: self.cause,
            certainty: self.certainty,
            side: None,
            sender,
            from_ns: self.first.time_ns,
            to_ns: self.last.0,
            start: self.start,
            end: self.end,
            stream_id: None,
            copies: Copies::Both { told: self.told },
            evidence: PacketProofs::of(&items),
        }
    }
}

#[cfg(test)]
mod tests;
