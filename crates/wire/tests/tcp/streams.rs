//! However a stream is split, repeated, shuffled and lost: the output is the stream, with holes where it was
//! lost, and nothing twice.

use crate::made::*;
use proptest::prelude::*;
use spangap_model::Side::{Client, Server};
use spangap_wire::segment::{Flags, Segment};

/// The byte at a position of the stream.
fn byte(place: usize) -> u8 {
    (place as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]
}

/// One segment of a plan: its bytes, and its displacement in time.
#[derive(Clone, Debug)]
struct Piece {
    start: usize,
    len: usize,
    shift: usize,
}

/// Segments that cover a stream of some length, some repeated with other borders, displaced by up to `reorder`
/// positions.
fn pieces(reorder: usize) -> impl Strategy<Value = (usize, Vec<Piece>)> {
    let cuts = prop::collection::vec(1usize..700, 1..40);
    let again = prop::collection::vec((0usize..4_000, 1usize..900, 0usize..40), 0..12);
    (cuts, again, prop::collection::vec(0..=reorder, 64)).prop_map(|(cuts, again, shifts)| {
        let mut start = 0;
        let mut all = Vec::new();
        for (index, len) in cuts.into_iter().enumerate() {
            all.push((index, Piece { start, len, shift: shifts[index] }));
            start += len;
        }
        for (from, len, after) in again {
            let from = from % start;
            let len = len.min(start - from);
            // Retransmitted only after the original.
            let sent =
                all.iter().filter(|(_, piece)| piece.start < from + len).map(|(index, _)| *index).max();
            all.push((sent.unwrap_or(0) + after % 8, Piece { start: from, len, shift: shifts[after] }));
        }
        all.sort_by_key(|(index, piece)| index + piece.shift);
        (start, all.into_iter().map(|(_, piece)| piece).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_or_delivered_twice((len, plan) in pieces(6), isn in prop_oneof![any::<u32>(), Just(u32::MAX - 900)]) {
        let data: Vec<u8> = (0..len).map(byte).collect();
        let mut line = Line::new();
        line.send(Client, isn, 0, b"", |segment| segment.flags = Flags(Flags::SYN));
        let first = isn.wrapping_add(1);
        for piece in &plan {
            let bytes = &data[piece.start..piece.start + piece.len];
            line.send(Client, first.wrapping_add(piece.start as u32), 0, bytes, |_| ());
        }
        let facts = line.connection.as_ref().expect("made").facts();
        prop_assert_eq!((facts.bytes[0], facts.hole_bytes[0]), (len as u64, 0));
        let (bytes, holes) = stream(&line.told(), Client);
        let start = (1u64 << 32) + u64::from(isn) + 1;
        prop_assert!(bytes == [(start, data)] && holes.is_empty());
    }

    #[test]
    fn exactly_the_dropped_bytes_are_holes(
        (len, plan) in pieces(3),
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        cut in prop_oneof![Just(usize::MAX), 1usize..300],
        isn in prop_oneof![any::<u32>(), Just(u32::MAX - 900)],
        acks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let data: Vec<u8> = (0..len).map(byte).collect();
        let mut line = Line::new();
        line.send(Client, isn, 0, b"", |segment| segment.flags = Flags(Flags::SYN));
        let first = isn.wrapping_add(1);
        let drops: Vec<usize> = dropped.iter().map(|index| index.index(plan.len())).collect();
        let acks: Vec<usize> = acks.iter().map(|index| index.index(plan.len())).collect();
        let mut seen = vec![false; len];
        let mut sent = 0;
        for (index, piece) in plan.iter().enumerate() {
            let range = piece.start..piece.start + piece.len;
            if !drops.contains(&index) {
                let bytes = &data[range.clone()];
                let captured = &bytes[..bytes.len().min(cut)];
                line.send(Client, first.wrapping_add(piece.start as u32), 0, captured, |segment| {
                    segment.payload_len = bytes.len() as u32;
                });
                seen[range.clone()].fill(true);
            }
            sent = sent.max(range.end);
            if acks.contains(&index) {
                // The receiver cannot have more than was sent without a gap.
                let acked = sent.min(plan[index + 1..].iter().map(|piece| piece.start).min().unwrap_or(sent));
                line.send(Server, 9, first.wrapping_add(acked as u32), b"", |_| ());
            }
        }
        let last = seen.iter().rposition(|seen| *seen).map_or(0, |last| last + 1);
        let (bytes, holes) = stream(&line.told(), Client);
        let start = (1u64 << 32) + u64::from(isn) + 1;
        let place = |offset: u64| (offset - start) as usize;
        for (offset, bytes) in &bytes {
            let at = place(*offset);
            prop_assert!(data[at..at + bytes.len()] == bytes[..]);
            prop_assert!(seen[at..at + bytes.len()].iter().all(|seen| *seen));
        }
        let covered: u64 = bytes.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
            + holes.iter().map(|(_, len)| len).sum::<u64>();
        prop_assert!(covered >= last as u64);
        if cut == usize::MAX && acks.is_empty() {
            // Holes are exactly the bytes never seen.
            for (offset, len) in holes {
                prop_assert!(seen[place(offset)..place(offset) + len as usize].iter().all(|seen| !*seen));
            }
        }
    }

    #[test]
    fn any_segments_at_all_are_bounded_and_never_go_backwards(
        segments in prop::collection::vec(
            (any::<bool>(), 0u32..200_000, 0u32..200_000, 0u32..70_000, 0u8..64, any::<u16>(), 0i64..3_000_000),
            1..120,
        ),
        base in any::<u32>(),
        wild in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 0..3),
    ) {
        let mut line = Line::new();
        line.sides_known = false;
        let jumps: Vec<_> = wild.iter().map(|(index, jump)| (index.index(segments.len()), *jump)).collect();
        for (index, (client, seq, ack, len, flags, window, pause_ns)) in segments.iter().enumerate() {
            let jump = jumps.iter().find(|(at, _)| *at == index).map_or(0, |(_, jump)| *jump);
            line.time_ns += pause_ns;
            let from = if *client { Client } else { Server };
            let seq = base.wrapping_add(*seq).wrapping_add(jump);
            line.send(from, seq, base.wrapping_add(*ack), &[], |segment| {
                segment.flags = Flags(*flags);
                segment.window = *window;
                segment.payload_len = *len;
                segment.payload = &[0x55; 64][..64.min(*len as usize)];
            });
        }
        let told = line.told();
        stream(&told, Client);
        stream(&told, Server);
    }
}

#[test]
fn acknowledged_bytes_without_a_capture_are_a_hole_immediately() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 100], |_| ());
    line.send(Client, 1201, 5001, &[3; 100], |_| ());
    line.send(Server, 5001, 1301, b"", |_| ());
    line.send(Client, 1301, 5001, &[4; 100], |_| ());
    let connection = line.connection.as_ref().expect("made");
    assert!(connection.sides()[0].missing);
    assert_eq!(connection.facts().hole_bytes, [100, 0]);
    let told = line.told();
    let hole = told.iter().find_map(|told| match told {
        Told::Hole(_, offset, len, cut, at) => Some((*offset as u32, *len, *cut, at.packet)),
        _ => None,
    });
    assert_eq!(hole, Some((1101, 100, false, 6)), "certain with the acknowledgement");
    // The receiver had them and did not wait: only the capture lacks them.
    let after = told.iter().find_map(|told| match told {
        Told::Bytes(_, offset, _, at) if *offset as u32 == 1201 => Some((at.packet, at.ready_packet)),
        _ => None,
    });
    assert_eq!(after, Some((5, 5)));
}

#[test]
fn an_acknowledgement_captured_before_its_bytes_is_not_loss() {
    let mut line = Line::open();
    line.send(Server, 5001, 1101, b"", |_| ());
    line.time_ns -= MS - 5_000;
    line.send(Client, 1001, 5001, &[1; 100], |_| ());
    line.send(Client, 1101, 5001, &[2; 100], |_| ());
    assert_eq!(line.connection.as_ref().expect("made").facts().hole_bytes, [0, 0]);
    assert_eq!(stream(&line.told(), Client).1, []);
}

#[test]
fn an_uncaptured_fin_is_not_a_missing_byte() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 100], |_| ());
    line.send(Server, 5001, 1102, b"", |_| ());
    line.send(Server, 5001, 1102, &[9; 10], |_| ());
    let told = line.told();
    assert_eq!(stream(&told, Client).1, []);
    assert!(told.contains(&Told::Fin(Client)));
}

#[test]
fn the_first_copy_counts_and_a_different_one_is_counted() {
    let mut line = Line::open();
    line.send(Client, 1101, 5001, &[2; 100], |_| ());
    line.send(Client, 1151, 5001, &[9; 100], |_| ());
    line.send(Client, 1001, 5001, &[1; 100], |_| ());
    assert_eq!(line.shared.ledger.conflicts, 1);
    let (bytes, _) = stream(&line.told(), Client);
    assert_eq!(bytes[0].1, [[1u8; 100].as_slice(), &[2; 100], &[9; 50]].concat());
}

#[test]
fn an_unfilled_gap_is_abandoned_at_the_memory_limit() {
    let mut line = Line::open();
    let payload = vec![7; 60_000];
    let mut peak = 0;
    for index in 0..1_000u32 {
        line.send(Client, 2001 + index * 60_000, 5001, &payload, |_| ());
        peak = peak.max(line.shared.ledger.ahead_bytes);
    }
    assert!(peak > 4 << 20 && peak < 9 << 20, "{peak}");
    // Later bytes come too late.
    line.send(Client, 1001, 5001, &payload[..1000], |_| ());
    assert_eq!(line.shared.ledger.late_bytes, 1000);
    let (bytes, holes) = stream(&line.told(), Client);
    assert_eq!(holes, [((1 << 32) + 1001, 1000)]);
    assert_eq!(bytes[0].1.len(), 60_000_000);
}

#[test]
fn a_joined_connection_with_wrongly_guessed_sides_is_corrected() {
    let mut line = Line::new();
    line.sides_known = false;
    // The first segment seen is the server's, but was assumed to be the client's.
    let mut made = Segment { payload: b"tail", payload_len: 4, ..segment(Server, 1, 0) };
    (made.seq, made.ack) = (70, 500);
    let mut connection = spangap_wire::tcp::connection::Connection::<Recorder>::new(7, &made, Client, false);
    connection.segment(&made, &mut line.shared);
    let mut request = Segment { payload: b"GET /", payload_len: 5, ..segment(Client, 2, 1) };
    (request.seq, request.ack) = (500, 74);
    assert_eq!(connection.ends()[0].port, 80);
    connection.segment(&request, &mut line.shared);
    assert_eq!(connection.ends()[0].port, 40_000);
    let mut response = Segment { payload: b"200", payload_len: 3, ..segment(Server, 3, 2) };
    (response.seq, response.ack) = (74, 505);
    let step = connection.segment(&response, &mut line.shared);
    assert_eq!((step.from, step.newly_acked), (Server, (1 << 32) + 500..(1 << 32) + 505));
    let facts = connection.facts();
    assert_eq!((facts.bytes, facts.sides_known), ([5, 7], true));
    connection.finish(&mut line.shared);
    let told = take_told().pop().expect("finished").1;
    // The parser's input keeps the initial sides.
    assert_eq!(stream(&told, Client).0, [((1 << 32) + 70, b"tail200".to_vec())]);
    assert_eq!(stream(&told, Server).0, [((1 << 32) + 500, b"GET /".to_vec())]);
}
