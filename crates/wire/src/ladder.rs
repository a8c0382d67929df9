//! One call, packet by packet, at both ends. The captures are read a second time, since the first pass keeps no
//! packets.

use crate::align::Clock;
use crate::call::Call;
use crate::decode::Decoder;
use crate::dissect::Dissection;
use crate::exchange::{Exchange, Mark};
use crate::segment::{Endpoint, Flags, Segment};
use crate::source::SourceError;
use spangap_model::Side;

/// Maximum rungs shown; beyond it, rungs without a note are left out of the middle.
const MAX_RUNGS: usize = 60;
/// Maximum packets read again for one end of a call.
const MAX_PACKETS: u64 = 2_000_000;
/// Rungs of one end that are kept before the middle is left out.
const MAX_KEPT: usize = 5_000;

/// One packet of the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Number of the capture.
    pub capture: u8,
    /// Number of the packet.
    pub packet: u64,
    /// When its tap saw it, by its own clock, Unix nanoseconds.
    pub time_ns: i64,
    /// Who sent it.
    pub from: Side,
    /// Flags.
    pub flags: Flags,
    /// Stream offset of its payload.
    pub offset: u64,
    /// Payload bytes.
    pub len: u32,
    /// Acknowledgement, as an offset of the other direction.
    pub ack: Option<u64>,
    /// Raw window from the header.
    pub window: u16,
    /// Its role in the call, from the marks of the exchange and the proofs of the findings: `first request byte`,
    /// `sent again`, ...
    pub notes: Vec<String>,
    /// Whether one of them says more than which bytes of the call it carries: a proof, or the call's end.
    pub stands_out: bool,
    /// Packets left out just before this one, for readability.
    pub left_out_before: u64,
}

/// A call's packets at both ends, ordered by time on the first capture's clock as far as the offset allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// The packets.
    pub rungs: Vec<Rung>,
    /// Total number of packets left out.
    pub left_out: u64,
}

/// Reads a call's packets again, at both ends: those of its connection, from the first to the last packet of the
/// call and its proofs.
///
/// # Errors
/// [`SourceError`] when a capture cannot be read a second time.
pub fn ladder_of(dissection: &Dissection, call: &Call) -> Result<Ladder, SourceError> {
    let mut ladder = Ladder::default();
    for (side, exchange) in call.halves.exchanges.iter().enumerate() {
        let capture = call.halves.captures[side];
        let Some(exchange) = exchange else { continue };
        let end =
            dissection.captures.get(usize::from(capture)).and_then(|capture| capture.bookmarks.as_ref());
        let facts = dissection.connection_of(call).and_then(|listed| listed.seen_by(capture));
        let (Some(bookmarks), Some(facts)) = (end, facts) else { continue };
        let notes = notes(call, exchange, capture, if side == 0 { Side::Client } else { Side::Server });
        let (Some(first), Some(last)) = (notes.first().map(|n| n.packet), notes.last().map(|n| n.packet))
        else {
            continue;
        };
        let mut reader = bookmarks.reopen_at(first)?;
        let mut decoder = Decoder::default();
        let mut left = MAX_PACKETS;
        while let Some(packet) = reader.next() {
            if packet.number > last || left == 0 {
                break;
            }
            left -= 1;
            let Ok(segment) = decoder.decode(&packet) else { continue };
            let Some(from) = sender(&segment, facts.ends).filter(|_| segment.network == facts.network) else {
                continue;
            };
            let mut rung = rung(&segment, capture, from, exchange);
            let own = notes.iter().filter(|note| note.packet == packet.number);
            rung.stands_out = own.clone().any(|note| note.stands_out);
            rung.notes = own.map(|note| note.text.clone()).collect();
            ladder.rungs.push(rung);
            if ladder.rungs.len() >= 2 * MAX_KEPT {
                shorten(&mut ladder, MAX_KEPT);
            }
        }
    }
    let (clock, first) = (dissection.clock_of(call), dissection.first_capture_of(call));
    ladder.rungs.sort_by_key(|rung| (by_first_clock(rung, clock, first), rung.capture, rung.packet));
    shorten(&mut ladder, MAX_RUNGS);
    Ok(ladder)
}

/// The sender of a segment; `None` if it belongs to another connection.
fn sender(segment: &Segment<'_>, ends: [Endpoint; 2]) -> Option<Side> {
    let [client, server] = ends;
    match (segment.source, segment.destination) {
        (from, to) if from == client && to == server => Some(Side::Client),
        (from, to) if from == server && to == client => Some(Side::Server),
        _ => None,
    }
}

fn rung(segment: &Segment<'_>, capture: u8, from: Side, exchange: &Exchange) -> Rung {
    let near = |side: Side| match side {
        Side::Client => exchange.request.start,
        Side::Server => exchange.response.as_ref().map_or(1 << 32, |response| response.start),
    };
    Rung {
        capture,
        packet: segment.packet,
        time_ns: segment.time_ns,
        from,
        flags: segment.flags,
        offset: unwrapped(segment.seq, near(from)),
        len: segment.payload_len,
        ack: segment.flags.has(Flags::ACK).then(|| unwrapped(segment.ack, near(from.other()))),
        window: segment.window,
        notes: Vec::new(),
        stands_out: false,
        left_out_before: 0,
    }
}

/// The offset nearest to `near` with `number` as its low half.
fn unwrapped(number: u32, near: u64) -> u64 {
    let apart = number.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(apart))
}

/// What a packet is to the call.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PacketNote {
    packet: u64,
    text: String,
    /// See [`Rung::stands_out`].
    stands_out: bool,
}

/// The role of each packet in the call, by packet number.
fn notes(call: &Call, exchange: &Exchange, capture: u8, tap: Side) -> Vec<PacketNote> {
    let at = |mark: &Mark, sent: bool| if sent { mark.packet } else { mark.ready_packet };
    let mut notes = Vec::new();
    let place = |packet: u64, text: String| PacketNote { packet, text, stands_out: false };
    let mut part = |part: &crate::exchange::Part, sent: bool, name: &str| {
        let (first, last) = (at(&part.first, sent), at(&part.last, sent));
        if first == last {
            notes.push(place(first, format!("the whole {name}")));
        } else {
            notes.push(place(first, format!("first {name} byte")));
            notes.push(place(last, format!("last {name} byte")));
        }
    };
    part(&exchange.request, tap == Side::Client, "request");
    if let Some(response) = &exchange.response {
        part(response, tap == Side::Server, "response");
    }
    if let Some(ending) = &exchange.ending {
        let (text, stands_out) = match ending.by {
            Some(_) => ("the call ends here".to_owned(), true),
            None => ("last packet seen; the call is still open".to_owned(), false),
        };
        notes.push(PacketNote { packet: ending.packet, text, stands_out });
    }
    for (of, evidence) in call.findings.iter().flat_map(|finding| &finding.evidence) {
        if *of == capture {
            let text = evidence.what.to_string();
            notes.push(PacketNote { packet: evidence.packet, text, stands_out: true });
        }
    }
    notes.sort();
    notes.dedup();
    notes
}

/// A rung's time by the clock of the call's first capture, as far as the offset allows.
fn by_first_clock(rung: &Rung, clock: Option<&Clock>, first: u8) -> i64 {
    if rung.capture == first {
        return rung.time_ns;
    }
    let range = clock.and_then(|clock| clock.first_at(rung.time_ns));
    range.map_or(rung.time_ns, |(low, high)| low + (high - low) / 2)
}

/// Removes rungs without a note from the middle.
fn shorten(ladder: &mut Ladder, most: usize) {
    let excess = ladder.rungs.len().saturating_sub(most);
    let plain = ladder.rungs.iter().filter(|rung| rung.notes.is_empty()).count();
    let out = excess.min(plain);
    let begin = (plain - out) / 2;
    let (mut nth, mut before) = (0, 0);
    ladder.rungs.retain_mut(|rung| {
        let is_plain = rung.notes.is_empty();
        nth += usize::from(is_plain);
        if is_plain && (begin + 1..=begin + out).contains(&nth) {
            before += rung.left_out_before + 1;
            return false;
        }
        rung.left_out_before += std::mem::take(&mut before);
        true
    });
    ladder.left_out += out as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out_except_for_notes() {
        let rung = |packet: u64| Rung {
            capture: 0,
            packet,
            time_ns: 0,
            from: Side::Client,
            flags: Flags::default(),
            offset: 0,
            len: 0,
            ack: None,
            window: 0,
            notes: if packet == 50 { vec!["last request byte".into()] } else { Vec::new() },
            stands_out: false,
            left_out_before: 0,
        };
        let mut ladder = Ladder { rungs: (1..=100).map(rung).collect(), left_out: 0 };
        shorten(&mut ladder, 21);
        let packets: Vec<u64> = ladder.rungs.iter().map(|rung| rung.packet).collect();
        let expected: Vec<u64> = (1..=10).chain([50]).chain(91..=100).collect();
        assert_eq!((packets, ladder.left_out), (expected, 79));
        shorten(&mut ladder, 11);
        let places: Vec<(u64, u64)> =
            ladder.rungs.iter().map(|rung| (rung.packet, rung.left_out_before)).collect();
        assert_eq!(&places[4..8], &[(5, 0), (50, 44), (96, 45), (97, 0)]);
        assert_eq!(ladder.rungs.iter().map(|rung| rung.left_out_before).sum::<u64>(), ladder.left_out);
    }

    #[test]
    fn numbers_wrap_around() {
        let near = (3 << 32) + 5;
        assert_eq!(unwrapped(u32::MAX, near), (3 << 32) - 1);
        assert_eq!(unwrapped(9, near), (3 << 32) + 9);
    }
}
