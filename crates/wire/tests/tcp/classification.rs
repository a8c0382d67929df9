//! Every kind of segment, made by hand.

use crate::made::*;
use spangap_model::Side::{Client, Server};
use spangap_wire::exchange::Mark;
use spangap_wire::segment::{Flags, Options, Segment};
use spangap_wire::tcp::Kind;

const AT: u64 = 1 << 32;

#[test]
fn handshake_call_and_end_are_classified() {
    let mut line = Line::open();
    let request = line.send(Client, 1001, 5001, b"GET /", |_| ());
    assert_eq!((request.kind, request.bytes, request.in_flight_before), (Kind::New, AT + 1001..AT + 1006, 0));
    assert_eq!(request.window_before, Some(4000));
    let response = line.send(Server, 5001, 1006, b"200", |_| ());
    assert_eq!((response.kind, response.newly_acked), (Kind::New, AT + 1001..AT + 1006));
    let ack = line.send(Client, 1006, 5004, b"", |_| ());
    assert_eq!((ack.kind, ack.newly_acked), (Kind::BareAck, AT + 5001..AT + 5004));
    let fin = |segment: &mut Segment<'_>| segment.flags = Flags(Flags::FIN | Flags::ACK);
    assert_eq!(line.send(Client, 1006, 5004, b"", fin).kind, Kind::New);
    assert_eq!(line.send(Server, 5004, 1007, b"", fin).kind, Kind::New);
    let last = line.send(Client, 1007, 5005, b"", |_| ());
    assert_eq!((last.kind, last.newly_acked), (Kind::BareAck, AT + 5004..AT + 5005));
    let connection = line.connection.as_ref().expect("made");
    let facts = connection.facts();
    assert!(facts.closed && facts.sides_known);
    assert_eq!((facts.bytes, facts.resent_bytes, facts.hole_bytes), ([5, 3], [0, 0], [0, 0]));
    assert_eq!(facts.rtt_min_ns, [Some(1_000_000); 2]);
    assert_eq!((facts.handshake.syns, facts.handshake.syn_acks), (1, 1));
    assert_eq!(facts.handshake.ack.map(|(_, packet)| packet), Some(3));
    let at = |ms: i64, packet| Mark {
        seen_ns: (1000 + ms) * MS,
        ready_ns: (1000 + ms) * MS,
        packet,
        ready_packet: packet,
    };
    let told = [
        Told::Bytes(Client, AT + 1001, b"GET /".to_vec(), at(4, 4)),
        Told::Bytes(Server, AT + 5001, b"200".to_vec(), at(5, 5)),
        Told::Fin(Client),
        Told::Fin(Server),
        Told::Finish(true),
    ];
    assert_eq!(line.told(), told);
}

#[test]
fn bytes_lost_before_the_tap_fill_a_hole_later() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 100], |_| ());
    let ahead = line.send(Client, 1201, 5001, &[3; 100], |_| ());
    assert_eq!((ahead.kind, ahead.in_flight_before), (Kind::Ahead, 100));
    let sack = |segment: &mut Segment<'_>| {
        (segment.options.sack[0], segment.options.sack_count) = ((1201, 1301), 1);
    };
    assert_eq!(line.send(Server, 5001, 1101, b"", |_| ()).kind, Kind::BareAck);
    assert_eq!(line.send(Server, 5001, 1101, b"", sack).kind, Kind::RepeatedAck);
    let fill = line.send(Client, 1101, 5001, &[2; 100], |_| ());
    assert_eq!((fill.kind, fill.earlier), (Kind::Fill, None));
    let ack = line.send(Server, 5001, 1301, b"", |_| ());
    assert_eq!((ack.kind, ack.newly_acked), (Kind::BareAck, AT + 1101..AT + 1301));
    let told = line.told();
    let marks: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Told::Bytes(_, offset, _, at) => Some((*offset - AT, at.packet, at.ready_packet)),
            _ => None,
        })
        .collect();
    assert_eq!(marks, [(1001, 4, 4), (1101, 8, 8), (1201, 5, 8)]);
    assert_eq!(stream(&told, Client).1, []);
}

#[test]
fn retransmitted_bytes_refer_to_the_original() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 3000], |_| ());
    let part = line.send(Client, 1001 + 1448, 5001, &[1; 1448], |_| ());
    let earlier = Some((AT + 2449, AT + 3897, 1004 * MS));
    assert_eq!((part.kind, part.earlier, part.in_flight_before), (Kind::Resent, earlier, 3000));
    line.send(Server, 5001, 4001, b"", |_| ());
    // Its acknowledgement was lost behind the tap; acknowledged runs are remembered for a while.
    let again = line.send(Client, 1001 + 1448, 5001, &[1; 1448], |_| ());
    assert_eq!((again.kind, again.earlier), (Kind::Resent, earlier));
    let fin = |segment: &mut Segment<'_>| segment.flags = Flags(Flags::FIN | Flags::ACK);
    assert_eq!(line.send(Client, 4001, 5001, b"", fin).kind, Kind::New);
    let fin_again = line.send(Client, 4001, 5001, b"", fin);
    assert_eq!((fin_again.kind, fin_again.earlier.map(|earlier| earlier.2)), (Kind::Resent, Some(1008 * MS)));
    let facts = line.connection.as_ref().expect("made").facts();
    assert_eq!((facts.bytes[0], facts.resent_bytes[0]), (3000, 2896));
    assert_eq!(facts.rtt_min_ns[0], Some(MS as u64), "the part sent once, and the SYN");
    let (bytes, holes) = stream(&line.told(), Client);
    assert_eq!((bytes, holes), (vec![(AT + 1001, vec![1; 3000])], vec![]));
}

#[test]
fn a_packet_captured_twice_is_ignored() {
    let mut line = Line::open();
    for (seq, len) in [(1001, 100), (1101, 50)] {
        let made = line.send(Client, seq, 5001, &vec![7; len], |_| ());
        assert_eq!(made.kind, Kind::New);
        // The same identification a moment later.
        line.time_ns -= MS - 20_000;
        line.packet -= 1;
        let copy = line.send(Client, seq, 5001, &vec![7; len], |_| ());
        assert_eq!((copy.kind, copy.earlier), (Kind::Duplicate, None));
    }
    // Another identification: retransmitted. No identification, and later than any duplicate: retransmitted.
    assert_eq!(line.send(Client, 1101, 5001, &[7; 50], |_| ()).kind, Kind::Resent);
    assert_eq!(line.send(Client, 1101, 5001, &[7; 50], |segment| segment.ip_id = 0).kind, Kind::Resent);
    assert_eq!(line.send(Client, 1101, 5001, &[7; 50], |segment| segment.ip_id = 0).kind, Kind::Resent);
    line.time_ns -= MS - 10_000;
    assert_eq!(line.send(Client, 1101, 5001, &[7; 50], |segment| segment.ip_id = 0).kind, Kind::Duplicate);
    // Acknowledgements: the same packet twice, and one that a later one overtook.
    assert_eq!(line.send(Server, 5001, 1151, b"", |_| ()).kind, Kind::BareAck);
    line.packet -= 1;
    assert_eq!(line.send(Server, 5001, 1151, b"", |_| ()).kind, Kind::Duplicate);
    assert_eq!(line.send(Server, 5001, 1151, b"", |_| ()).kind, Kind::RepeatedAck);
    assert_eq!(line.send(Server, 5001, 1101, b"", |_| ()).kind, Kind::Duplicate);
    let facts = line.connection.as_ref().expect("made").facts();
    assert_eq!((facts.bytes[0], facts.resent_bytes[0]), (150, 150));
}

#[test]
fn keep_alives_and_their_answers_are_classified() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 10], |_| ());
    // Not while data is in flight: this is an old acknowledgement, or the byte again.
    assert_ne!(line.send(Client, 1010, 5001, &[1], |_| ()).kind, Kind::KeepAlive);
    line.send(Server, 5001, 1011, b"", |_| ());
    assert_eq!(line.send(Client, 1010, 5001, b"", |_| ()).kind, Kind::KeepAlive);
    assert_eq!(line.send(Server, 5001, 1011, b"", |_| ()).kind, Kind::RepeatedAck);
    assert_eq!(line.send(Client, 1010, 5001, &[0], |_| ()).kind, Kind::KeepAlive);
    // A single byte that was sent alone and is repeated is not a keep-alive.
    line.send(Client, 1011, 5001, &[1], |_| ());
    line.send(Server, 5001, 1012, b"", |_| ());
    assert_eq!(line.send(Client, 1011, 5001, &[1], |_| ()).kind, Kind::Resent);
    let (bytes, holes) = stream(&line.told(), Client);
    assert_eq!((bytes, holes), (vec![(AT + 1001, vec![1; 11])], vec![]));
}

#[test]
fn a_closed_window_its_probes_and_its_opening_are_classified() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 10], |_| ());
    let closed = line.send(Server, 5001, 1011, b"", |segment| segment.window = 0);
    assert_eq!((closed.kind, closed.window_before), (Kind::BareAck, Some(1000)), "that of the SYN/ACK");
    assert_eq!(line.connection.as_ref().expect("made").sides()[1].window, Some(0));
    assert_eq!(line.send(Client, 1010, 5001, b"", |_| ()).kind, Kind::WindowProbe);
    assert_eq!(line.send(Server, 5001, 1011, b"", |segment| segment.window = 0).kind, Kind::RepeatedAck);
    // As in other systems: with the next byte.
    assert_eq!(line.send(Client, 1011, 5001, &[2], |_| ()).kind, Kind::WindowProbe);
    line.send(Server, 5001, 1011, b"", |segment| segment.window = 0);
    let open = line.send(Server, 5001, 1011, b"", |segment| segment.window = 500);
    assert_eq!((open.kind, open.window_before), (Kind::WindowUpdate, Some(0)));
    assert_eq!(line.connection.as_ref().expect("made").sides()[1].window, Some(2000));
    let data = line.send(Client, 1011, 5001, &[2; 10], |_| ());
    assert_eq!(data.kind, Kind::New, "the byte of the probe was not taken, so it is sent for the first time");
    let (bytes, holes) = stream(&line.told(), Client);
    assert_eq!((bytes, holes), (vec![(AT + 1001, [[1; 10], [2; 10]].concat())], vec![]));
}

#[test]
fn windows_are_known_only_with_both_syns() {
    let mut line = Line::open();
    line.send(Client, 1001, 5001, &[1; 10], |_| ());
    assert_eq!(line.connection.as_ref().expect("made").sides()[0].window, Some(4000));

    let joined = |window: u16| {
        let mut line = Line::new();
        line.send(Client, 1001, 5001, &[1; 10], |segment| segment.window = window);
        line.connection.as_ref().expect("made").sides()[0].window
    };
    assert_eq!((joined(1000), joined(0)), (None, Some(0)));

    let scales = |client: Option<u8>, server: Option<u8>| {
        let mut line = Line::new();
        let options = |window_scale| Options { window_scale, mss: Some(1400), ..Options::default() };
        line.send(Client, 1, 0, b"", |segment| {
            (segment.flags, segment.options) = (Flags(Flags::SYN), options(client));
        });
        line.send(Server, 1, 2, b"", |segment| {
            (segment.flags, segment.options) = (Flags(Flags::SYN | Flags::ACK), options(server));
        });
        let syn_ack_window = line.connection.as_ref().expect("made").sides()[1].window;
        assert_eq!(syn_ack_window, Some(1000), "never scaled");
        line.send(Client, 2, 2, b"", |_| ());
        line.connection.as_ref().expect("made").sides()[0].window
    };
    assert_eq!(scales(Some(7), Some(2)), Some(1000 << 7));
    assert_eq!(scales(Some(7), None), Some(1000));
    assert_eq!(scales(Some(200), Some(0)), Some(1000 << 14));
}

#[test]
fn the_segment_size_is_what_the_peer_announced() {
    let mut line = Line::new();
    let options = |mss| Options { mss, timestamps: Some((1, 0)), ..Options::default() };
    line.send(Client, 1, 0, b"", |segment| {
        (segment.flags, segment.options) = (Flags(Flags::SYN), options(Some(1460)));
    });
    line.send(Server, 1, 2, b"", |segment| {
        (segment.flags, segment.options) = (Flags(Flags::SYN | Flags::ACK), options(Some(9000)));
    });
    let sides = line.connection.as_ref().expect("made").sides();
    assert_eq!(
        [&sides[0], &sides[1]].map(|side| (side.mss, side.mss_announced)),
        [(9000, true), (1460, true)]
    );
    let mut joined = Line::new();
    joined.send(Client, 1, 1, &[1; 700], |_| ());
    joined.send(Client, 701, 1, &[1; 30_000], |_| ());
    let side = &joined.connection.as_ref().expect("made").sides()[0];
    assert_eq!((side.mss, side.mss_announced), (1220, false), "a super-frame tells little");
}

#[test]
fn only_fitting_resets_end_the_connection() {
    let reset = |segment: &mut Segment<'_>| segment.flags = Flags(Flags::RST);
    let closed = |seq: u32| {
        let mut line = Line::open();
        line.send(Client, 1001, 5001, &[1; 10], |_| ());
        assert_eq!(line.send(Server, seq, 0, b"", reset).kind, Kind::Reset);
        line.connection.as_ref().expect("made").closed()
    };
    assert!(closed(5001));
    assert!(!closed(4000) && !closed(5001 + (1 << 20)));
    // Nobody listens: the answer to a SYN has no number of its own.
    let mut line = Line::new();
    line.send(Client, 1000, 0, b"", |segment| segment.flags = Flags(Flags::SYN));
    line.send(Server, 0, 1001, b"", |segment| segment.flags = Flags(Flags::RST | Flags::ACK));
    assert!(line.connection.as_ref().expect("made").closed());
}

#[test]
fn a_retransmitted_syn_is_counted_and_a_duplicate_is_not() {
    let mut line = Line::new();
    let syn = |segment: &mut Segment<'_>| segment.flags = Flags(Flags::SYN);
    assert_eq!(line.send(Client, 1000, 0, b"", syn).kind, Kind::Handshake);
    line.time_ns += 1_000 * MS;
    assert_eq!(line.send(Client, 1000, 0, b"", syn).kind, Kind::Handshake);
    line.packet -= 1;
    assert_eq!(line.send(Client, 1000, 0, b"", syn).kind, Kind::Duplicate);
    let handshake = line.connection.as_ref().expect("made").facts().handshake;
    assert_eq!((handshake.syns, handshake.syn), (2, Some((1001 * MS, 1))));
}

#[test]
fn a_sequence_number_without_its_bytes_shows_that_they_were_sent() {
    let mut line = Line::open();
    line.send(Server, 5001, 1001, &[9; 50], |_| ());
    // The client acknowledges that with a number after bytes that were lost before this tap.
    let ack = line.send(Client, 1101, 5051, b"", |_| ());
    assert_eq!(ack.kind, Kind::BareAck);
    assert_eq!(line.connection.as_ref().expect("made").sides()[0].next, AT + 1101);
    let ahead = line.send(Client, 1101, 5051, &[2; 100], |_| ());
    assert_eq!((ahead.kind, ahead.in_flight_before), (Kind::Ahead, 100));
    assert_eq!(line.send(Client, 1001, 5051, &[1; 100], |_| ()).kind, Kind::Fill);
    assert_eq!(line.send(Client, 1201, 5051, &[3; 100], |_| ()).kind, Kind::New);
    // The same, a few microseconds apart: merely captured in reverse order.
    line.send(Client, 1401, 5051, b"", |_| ());
    line.time_ns -= MS - 5_000;
    assert_eq!(line.send(Client, 1301, 5051, &[4; 100], |_| ()).kind, Kind::New);
    // Bytes that arrive a while later, with nothing in between, were retransmitted.
    line.send(Client, 1501, 5051, b"", |_| ());
    assert_eq!(line.send(Client, 1401, 5051, &[5; 100], |_| ()).kind, Kind::Fill);
    let told = line.told();
    assert_eq!(stream(&told, Client).0[0].1.len(), 500);
}
