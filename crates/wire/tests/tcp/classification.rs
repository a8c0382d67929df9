//! Every kind of segment, made by hand.

use crate::made::*;
use spangap_model::Side::{Client, Server};
use spangap_wire::exchange::Mark;
use spangap_wire::segment::{Flags, Options, Segment};
use spangap_wire::tcp::Kind;

const AT: u64 = 1 << 32;

#[test]
fn a_handshake_a_call_and_an_end() {
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
