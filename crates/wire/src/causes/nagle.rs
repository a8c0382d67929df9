//! Nagle x delayed ACK: the sender holds a small segment back until the peer acknowledges an earlier small one,
//! while the peer delays that acknowledgement.
//!
//! The sender's kernel holds a segment that is not full while a small one is unacknowledged (RFC 1122, 4.2.3.4;
//! Linux `tcp_nagle_check`). The receiver's kernel delays an acknowledgement that it cannot piggyback, on Linux
//! by 40 to 200 ms (TCP_DELACK_MIN, TCP_DELACK_MAX). The rule requires neither duration: routes and other kernels
//! use different ones.
//!
//! *How the wire shows that the sender had the bytes.* A bare ACK wakes no application: a segment that leaves
//! right after it was held by the kernel, or left at that moment by chance. The probability of chance is the
//! distance of the release from the ACK, as a fraction of the hold; each hold that ends on time adds evidence, in
//! bits, and each that does not subtracts some, as in a sequential test. A small segment sent while another one
//! is unacknowledged is the strongest evidence against it: such a socket has TCP_NODELAY.
//!
//! Its tests define the rule by its near misses.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::{Exchange, Part};
use crate::segment::Flags;
use crate::tcp::{Kind, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};
use std::ops::Range;

/// Shorter holds are ordinary: the ACK clock ticks as fast as the path allows.
const MIN_HOLD_NS: u64 = 2_000_000;
/// An acknowledgement counts as delayed if it takes this many times the round trip to the peer.
const DELAYED_TIMES: u64 = 2;
/// A release farther from the ACK than this fraction of the hold is unrelated.
const TIGHT: u64 = 64;
/// Bits of evidence required for a hold to be shown: chance in one of 16,384 cases.
const ENOUGH_BITS: i16 = 14;
/// Maximum bits from one hold: tight timing can result from two timers in lockstep.
const MOST_BITS: i16 = 10;
/// Bits for a hold in the middle of a message: the sender had begun to write it, and the rest is rarely produced
/// later.
const MESSAGE_BITS: i16 = 4;
/// Bits against, for a segment that left by itself, after the ACK but not right after it.
const OWN_TIME_BITS: i16 = 10;
/// Bits against, for a small segment sent over an unacknowledged small one.
const NODELAY_BITS: i16 = 30;
/// A small segment this soon after another one cannot be a probe of the sender's timer (which ignores Nagle): the
/// timer takes at least two round trips and 2 ms (Linux `tcp_schedule_loss_probe`).
const BEFORE_PROBE_NS: u64 = 2_000_000;
/// After a retransmission, the congestion window may hold a segment back as well.
const CONGESTED_NS: u64 = 1_000_000_000;
/// Payload that every link carries (RFC 9293, 3.7.1): below it, a segment is small whatever the MSS.
const SMALL_BYTES: u64 = 536;
/// Minimum size of an unused window: half of the smallest receive buffer of Linux (SOCK_MIN_RCVBUF).
const LEAST_WINDOW_BYTES: u64 = 1_152;
/// Headers required to know the size of an unobstructed window.
const WINDOWS_SEEN: u8 = 64;
/// Holds released by the peer's data that are required before they are shown, and their minimum variation (in
/// eighths).
const VARIED_HOLDS: u16 = 4;
const VARIED_EIGHTHS: u64 = 12;
/// Whole messages released by the peer's data: their waits must vary by this many times the distance between ACK
/// and release.
const IN_STEP_TIMES: u64 = 16;

/// Everything that a side had sent was acknowledged, and its last segment was small.
#[derive(Clone, Copy, Debug)]
struct Cleared {
    sent_ns: i64,
    sent_packet: u64,
    sent: (u64, u64),
    in_flight: u64,
    ack_ns: i64,
    ack_packet: u64,
    /// The peer's bytes in the segment with the ACK; empty for a bare ACK.
    with: (u64, u64),
    /// Room in the peer's window before the ACK, bytes; `None` when the scale is unknown.
    room: Option<u64>,
    /// Whether the window was as large then as it has ever been, and still is.
    is_open: bool,
}

/// A finished hold.
#[derive(Clone, Copy, Debug)]
struct Hold {
    cleared: Cleared,
    released_ns: i64,
    released_packet: u64,
    bytes: (u64, u64),
    /// Distance of the release from the time that the ACK alone would imply.
    off_ns: u64,
}

impl Hold {
    fn delay_ns(&self) -> u64 {
        nanos(self.cleared.sent_ns, self.cleared.ack_ns)
    }

    fn is_inside(&self, part: &Part) -> bool {
        part.start < self.cleared.sent.1 && self.bytes.0 < part.end
    }

    /// Whether bytes of the message were held.
    fn touches(&self, part: &Part) -> bool {
        part.start < self.bytes.1 && self.bytes.0 < part.end
    }

    /// How tightly the release follows the ACK, in bits.
    fn bits(&self) -> i16 {
        (self.delay_ns() / self.off_ns.max(1)).max(1).ilog2() as i16
    }

    fn episode(&self, sender: Side, certainty: Certainty) -> Episode {
        let Cleared { sent, sent_ns, sent_packet, ack_ns, ack_packet, .. } = self.cleared;
        let held = self.bytes.1 - self.bytes.0;
        let mine = |packet, time_ns, what| PacketProof { packet, time_ns, what };
        let late_us = nanos(sent_ns, ack_ns) / 1000;
        let ack = match self.cleared.with {
            (start, end) if start < end => {
                What::with("acknowledged after {us}, by data of another message", late_us, 0)
            }
            _ => What::with("acknowledged after {us}, by a bare ACK", late_us, 0),
        };
        let after_us = nanos(ack_ns, self.released_ns) / 1000;
        Episode {
            cause: Cause::NagleDelayedAck,
            certainty,
            side: Some(sender),
            sender,
            from_ns: sent_ns,
            to_ns: self.released_ns,
            start: self.bytes.0,
            end: self.bytes.1,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                mine(
                    sent_packet,
                    sent_ns,
                    What::with(
                        "{} bytes, less than a full segment, are unacknowledged from here on",
                        sent.1 - sent.0,
                        0,
                    ),
                ),
                mine(ack_packet, ack_ns, ack),
                mine(
                    self.released_packet,
                    self.released_ns,
                    What::with("{} bytes leave {us} after that ACK", held, after_us),
                ),
            ]),
        }
    }
}

/// State of a side as a sender. Holds are boxed: hardly any connection has one.
#[derive(Debug, Default)]
struct Sender {
    /// Offset after the last small segment.
    small_end: u64,
    cleared: Option<Cleared>,
    /// Evidence that its socket holds small segments back.
    bits: i16,
    /// A hold released by a bare ACK, pending until the message shows whether it was in the middle.
    bare: Option<Box<Hold>>,
    /// A hold released by the peer's data; only a message can show that it is one.
    carried: Option<Box<Hold>>,
    /// Number of holds released by the peer's data, and the shortest and the longest of them.
    carried_count: u16,
    carried_ns: (u64, u64),
    /// Maximum distance of their releases from the ACK.
    carried_off_ns: u64,
    /// Evidence that unrelated data of the peer releases messages.
    carried_bits: i16,
    resent_ns: Option<i64>,
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    senders: [Sender; 2],
    /// Unscaled window in the last header of each side.
    windows: [u16; 2],
    /// Maximum so far, and the number of headers it is based on.
    largest: [(u16, u8); 2],
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        if !step.newly_acked.is_empty() {
            self.acknowledged(step, view);
        } else if !step.bytes.is_empty() {
            // From here on, data of the other side may be the answer to this.
            self.senders[step.from.other().index()].cleared = None;
        }
        self.windows[step.from.index()] = step.segment.window;
        let (largest, seen) = &mut self.largest[step.from.index()];
        (*largest, *seen) = ((*largest).max(step.segment.window), seen.saturating_add(1));
        if step.bytes.is_empty() {
            return;
        }
        match step.kind {
            Kind::New => self.sent(step, view, found),
            Kind::Resent | Kind::Fill | Kind::Ahead => {
                let sender = &mut self.senders[step.from.index()];
                sender.resent_ns = Some(step.segment.time_ns);
                sender.cleared = None;
            }
            _ => {}
        }
    }

    #[inline]
    fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        for (side, part) in
            [(Side::Client, Some(&exchange.request)), (Side::Server, exchange.response.as_ref())]
        {
            let sender = &mut self.senders[side.index()];
            let Some(part) = part else { continue };
            if let Some(hold) = sender.bare.take_if(|hold| hold.is_inside(part)) {
                conclude(&hold, side, sender.bits + MESSAGE_BITS, view, found);
            }
            if let Some(hold) = sender.carried.take_if(|hold| hold.touches(part))
                && let Some(certainty) = sender.carried(&hold, side, exchange, view)
            {
                found.push(hold.episode(side, certainty));
            }
        }
    }

    fn finish(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
        for (side, sender) in [Side::Client, Side::Server].into_iter().zip(&mut self.senders) {
            if let Some(hold) = sender.bare.take() {
                conclude(&hold, side, sender.bits, view, found);
            }
        }
    }
}

impl Memory {
    /// Whether the peer's window is as large as ever, before and with this ACK, although data came in: its reader
    /// does not obstruct it.
    fn is_open(&self, step: &Step<'_>) -> bool {
        let (last, (largest, seen)) = (self.windows[step.from.index()], self.largest[step.from.index()]);
        let is_large = |window: u16| u32::from(window) * 8 >= u32::from(largest) * 7;
        seen >= WINDOWS_SEEN && is_large(last) && is_large(step.segment.window)
    }

    /// Bytes of the other side were acknowledged: checks whether this leaves nothing in flight, with a small last
    /// segment.
    #[inline]
    fn acknowledged(&mut self, step: &Step<'_>, view: View<'_>) {
        let side = step.from.other();
        let is_open = self.is_open(step);
        let (own, sender) = (view.of(side), &mut self.senders[side.index()]);
        sender.cleared = None;
        if own.acked != own.next || sender.small_end != own.next {
            return;
        }
        let Some(last) = own.last_data.filter(|last| last.end == own.next && last.sends == 1) else { return };
        // While the scale is unknown, the raw window is a lower bound; if that suffices, the scale does not
        // matter.
        let known = view.of(step.from).window_scale.and(step.window_before);
        let least = u64::from(self.windows[step.from.index()]);
        sender.cleared = Some(Cleared {
            sent_ns: last.time_ns,
            sent_packet: last.packet,
            sent: (last.start, last.end),
            in_flight: step.newly_acked.end - step.newly_acked.start,
            ack_ns: step.segment.time_ns,
            ack_packet: step.segment.packet,
            with: (step.bytes.start, step.bytes.end),
            room: known.or((least >= 2 * SMALL_BYTES).then_some(least)),
            is_open,
        });
    }

    /// New bytes were sent.
    #[inline]
    fn sent(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let sender = &mut self.senders[step.from.index()];
        let len = step.bytes.end - step.bytes.start;
        let full = view.full_bytes(step.from, step.segment.options.timestamps.is_some());
        let cleared = sender.cleared.take();
        let small = match full {
            Some(full) => len < full,
            None => len < SMALL_BYTES,
        };
        // A segment longer than a full one is several of them; the last one is small unless the length is a
        // multiple.
        let ends_small = small || full.is_some_and(|full| !len.is_multiple_of(full));
        // A FIN is never held back.
        let is_fin = step.segment.flags.has(Flags::FIN);
        if small && !is_fin {
            match cleared {
                Some(cleared) if step.in_flight_before == 0 => sender.follows(cleared, step, view, found),
                _ if step.in_flight_before > 0 && sender.small_end > view.of(step.from).acked => {
                    sender.overtakes(step, view);
                }
                _ => {}
            }
        }
        if ends_small {
            sender.small_end = step.bytes.end;
        }
    }
}

impl Sender {
    /// A small segment left while another one was unacknowledged: Nagle's algorithm did not hold it.
    fn overtakes(&mut self, step: &Step<'_>, view: View<'_>) {
        if self.bits == -NODELAY_BITS {
            return;
        }
        let Some(last) = view.of(step.from).in_flight.iter().rev().nth(1) else { return };
        let probe_ns = BEFORE_PROBE_NS + 2 * view.round_trip_ns().unwrap_or(0);
        let waited_ns = nanos(last.last_time_ns, step.segment.time_ns);
        let bits = if waited_ns < probe_ns { NODELAY_BITS } else { OWN_TIME_BITS };
        self.bits = (self.bits - bits).max(-NODELAY_BITS);
    }

    /// A small segment left after everything before it was acknowledged.
    #[inline]
    fn follows(&mut self, cleared: Cleared, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let delay_ns = nanos(cleared.sent_ns, cleared.ack_ns);
        let gap_ns = nanos(cleared.ack_ns, step.segment.time_ns);
        if delay_ns < MIN_HOLD_NS {
            return;
        }
        self.near(cleared, gap_ns, delay_ns, step, view, found);
    }

    #[cold]
    fn near(
        &mut self,
        cleared: Cleared,
        gap_ns: u64,
        delay_ns: u64,
        step: &Step<'_>,
        view: View<'_>,
        found: &mut Vec<Episode>,
    ) {
        let time_ns = step.segment.time_ns;
        if self.resent_ns.is_some_and(|resent| nanos(resent, time_ns) < CONGESTED_NS) {
            return;
        }
        let bytes = cleared.in_flight + (step.bytes.end - step.bytes.start);
        let room = cleared.room.or((cleared.is_open && bytes <= LEAST_WINDOW_BYTES).then_some(bytes));
        let cleared = Cleared { room, ..cleared };
        if cleared.room.is_some_and(|room| room < bytes) {
            return;
        }
        // At the tap, the release follows the ACK by the round trip to the sender. Without the handshake, a round
        // trip that is not short may include the delay of the sender's own acknowledgements.
        let reliable = |way: &u64| view.handshake.ack.is_some() || *way <= delay_ns / 8;
        let way_ns = view.reach_ns(step.from).filter(reliable).unwrap_or(0);
        if gap_ns > delay_ns + way_ns {
            return;
        }
        let off_ns = gap_ns.abs_diff(way_ns).min(gap_ns);
        let tight = off_ns <= delay_ns / TIGHT;
        let hold = Hold {
            cleared,
            released_ns: time_ns,
            released_packet: step.segment.packet,
            bytes: (step.bytes.start, step.bytes.end),
            off_ns,
        };
        if cleared.with.0 < cleared.with.1 {
            self.carried = Some(Box::new(hold));
            return;
        }
        if !tight {
            self.bits = (self.bits - OWN_TIME_BITS).max(-NODELAY_BITS);
            return;
        }
        let bits = hold.bits();
        self.bits = (self.bits + bits.min(MOST_BITS)).min(NODELAY_BITS);
        if let Some(before) = self.bare.replace(Box::new(hold)) {
            conclude(&before, step.from, self.bits - bits.min(MOST_BITS), view, found);
        }
        // Beyond doubt, and the path is known: the position in the message does not matter.
        if self.bits >= ENOUGH_BITS && is_delayed(&hold, step.from, view) == Some(true) {
            self.bare = None;
            conclude(&hold, step.from, self.bits, view, found);
        }
    }

    /// Evaluates a hold inside a message, released by the peer's data: nothing if the message answers that data.
    fn carried(&mut self, hold: &Hold, side: Side, exchange: &Exchange, view: View<'_>) -> Option<Certainty> {
        let answered = match side {
            Side::Server => Some(&exchange.request),
            Side::Client => exchange.response.as_ref(),
        };
        let with: Range<u64> = hold.cleared.with.0..hold.cleared.with.1;
        if answered.is_some_and(|part| part.start < with.end && with.start < part.end) {
            return None;
        }
        if side == Side::Server && exchange.request.last.seen_ns > hold.cleared.sent_ns {
            return None;
        }
        // WINDOW_UPDATE frames (13 bytes each, RFC 9113, 6.9) may have released it by flow control.
        let with_bytes = with.end - with.start;
        if with_bytes.is_multiple_of(13) && with_bytes <= 52
            || is_delayed(hold, side, view) != Some(true)
            || self.bits < 0
        {
            return None;
        }
        if hold.off_ns > hold.delay_ns() / TIGHT {
            self.carried_bits = (self.carried_bits - OWN_TIME_BITS).max(-NODELAY_BITS);
            return None;
        }
        self.carried_bits = (self.carried_bits + hold.bits().min(MOST_BITS)).min(NODELAY_BITS);
        let delay_ns = hold.delay_ns();
        let (least, most) = if self.carried_count == 0 { (delay_ns, delay_ns) } else { self.carried_ns };
        self.carried_count = self.carried_count.saturating_add(1);
        self.carried_off_ns = self.carried_off_ns.max(hold.off_ns);
        self.carried_ns = (least.min(delay_ns), most.max(delay_ns));
        // An application that always takes the same time may coincide with requests at the same rate.
        let varied =
            self.carried_count >= VARIED_HOLDS && self.carried_ns.1 >= self.carried_ns.0 / 8 * VARIED_EIGHTHS;
        let part = match side {
            Side::Client => Some(&exchange.request),
            Side::Server => exchange.response.as_ref(),
        };
        if part.is_some_and(|part| hold.is_inside(part)) {
            let shown = varied || self.bits >= ENOUGH_BITS;
            return Some(if shown { Certainty::Shown } else { Certainty::Possible(Missing::BytesReady) });
        }
        // The whole message may have been written at that moment, once or twice by chance. Applications at both
        // ends that run at the same rate would drift by as much as the waits vary.
        let in_step = self.carried_ns.1 - self.carried_ns.0 < IN_STEP_TIMES * self.carried_off_ns;
        let shown = self.carried_count >= VARIED_HOLDS && !in_step && self.carried_bits >= ENOUGH_BITS;
        match side {
            _ if !shown => None,
            Side::Server => Some(Certainty::Shown),
            // A client that calls again after each answer shows the same picture, however long its answers take.
            Side::Client if exchange.in_flight <= 1 => None,
            Side::Client => Some(Certainty::Possible(Missing::BytesReady)),
        }
    }
}

/// Whether the peer delayed its acknowledgement; `None` while its minimum delay is unknown.
fn is_delayed(hold: &Hold, sender: Side, view: View<'_>) -> Option<bool> {
    let way_ns = view.reach_ns(sender.other())?;
    let delay_ns = hold.delay_ns();
    if way_ns >= delay_ns {
        // This hold itself may be the shortest acknowledgement known.
        return None;
    }
    Some(delay_ns >= MIN_HOLD_NS + DELAYED_TIMES * way_ns)
}

/// Reports a hold released by a bare ACK with the certainty that its evidence supports.
fn conclude(hold: &Hold, sender: Side, bits: i16, view: View<'_>, found: &mut Vec<Episode>) {
    let missing = match is_delayed(hold, sender, view) {
        Some(false) => return,
        _ if bits <= 0 => return,
        None => Some(Missing::RoundTrip),
        Some(true) if hold.cleared.room.is_none() => Some(Missing::WindowScale),
        Some(true) if bits < ENOUGH_BITS => Some(Missing::BytesReady),
        Some(true) => None,
    };
    let certainty = missing.map_or(Certainty::Shown, Certainty::Possible);
    found.push(hold.episode(sender, certainty));
}

#[cfg(test)]
mod tests;
