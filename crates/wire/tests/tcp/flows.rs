//! Many connections: distinguished, ended, forgotten.

use crate::made::*;
use spangap_model::Side::{Client, Server};
use spangap_wire::segment::{Endpoint, Flags, Segment};
use spangap_wire::tcp::connection::Shared;
use spangap_wire::tcp::flows::{Flows, LINGER_NS};

fn with(
    mut made: Segment<'static>,
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &'static [u8],
) -> Segment<'static> {
    let end = if made.source.port == 80 { &mut made.destination } else { &mut made.source };
    end.port = port;
    (made.seq, made.ack, made.flags) = (seq, ack, Flags(flags));
    (made.payload, made.payload_len) = (payload, payload.len() as u32);
    made
}

#[test]
fn reused_ports_are_another_connection() {
    let (mut flows, mut shared) = (Flows::<Recorder>::default(), Shared::default());
    take_told();
    let mut take = |made: Segment<'static>| flows.segment(&made, &mut shared);
    take(with(segment(Client, 1, 1), 4000, 100, 0, Flags::SYN, b""));
    take(with(segment(Server, 2, 2), 4000, 200, 101, Flags::SYN | Flags::ACK, b""));
    take(with(segment(Client, 3, 3), 4000, 101, 201, Flags::ACK, b"one"));
    // A SYN with the same number is a retransmission; another number means another connection.
    take(with(segment(Client, 4, 4), 4000, 100, 0, Flags::SYN, b""));
    take(with(segment(Client, 5, 5), 4000, 900, 0, Flags::SYN, b""));
    take(with(segment(Client, 6, 6), 4000, 901, 77, Flags::ACK, b"two"));
    // Without a SYN, both numbers are far from all known ones.
    take(with(segment(Client, 7, 7), 4000, 2_000_000_000, 1_000_000_000, Flags::ACK, b"three"));
    // The same in another virtual network.
    take(Segment { network: 8, ..with(segment(Client, 8, 8), 4000, 101, 201, Flags::ACK, b"four") });
    flows.finish(&mut shared);
    assert_eq!(flows.counts.connections, 4);
    let told: Vec<_> =
        take_told().into_iter().map(|(id, told)| (id, stream(&told, Client).0.remove(0).1)).collect();
    let expected: [(u32, &[u8]); 4] = [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"four")];
    assert_eq!(told, expected.map(|(id, bytes)| (id, bytes.to_vec())));
    let mut ended = Vec::new();
    flows.take_ended(&mut ended);
    assert_eq!(
        ended.iter().map(|facts| (facts.id, facts.closed)).collect::<Vec<_>>(),
        [(1, false), (2, false)]
    );
    assert_eq!(flows.live().iter().map(|connection| connection.id()).collect::<Vec<_>>(), [3, 4]);
    assert!(flows.connection(1).is_some(), "until the next call");
    flows.take_ended(&mut ended);
    assert!(flows.connection(1).is_none() && ended.len() == 2);
}

#[test]
fn late_packets_find_their_closed_connection_for_a_while() {
    let (mut flows, mut shared) = (Flows::<Recorder>::default(), Shared::default());
    let reset = with(segment(Server, 2, 2), 4000, 0, 101, Flags::RST | Flags::ACK, b"");
    flows.segment(&with(segment(Client, 1, 1), 4000, 100, 0, Flags::SYN, b""), &mut shared);
    flows.segment(&reset, &mut shared);
    flows.segment(&with(segment(Client, 3, 3), 4000, 101, 1, Flags::ACK, b"late"), &mut shared);
    assert_eq!(flows.counts.connections, 1);
    // Other traffic advances the time.
    for index in 0..1_000 {
        let made = Segment { time_ns: LINGER_NS + 10, ..segment(Client, 4 + index, 0) };
        flows.segment(&with(made, 4001, 1, 1, Flags::ACK, b""), &mut shared);
    }
    let mut ended = Vec::new();
    flows.take_ended(&mut ended);
    assert_eq!(ended.len(), 1);
    assert!(ended[0].closed && ended[0].packets == 3);
}

#[test]
fn idle_connections_are_evicted_and_counted() {
    let (mut flows, mut shared) = (Flows::<Recorder>::with_limit(100), Shared::default());
    let mut ended = Vec::new();
    for index in 0..10_000u32 {
        let mut made =
            with(segment(Client, u64::from(index), i64::from(index)), 4000, 1, 1, Flags::ACK, b"x");
        made.source = Endpoint::v4(index.to_be_bytes(), 4000);
        flows.segment(&made, &mut shared);
        // A connection that is never idle.
        let busy =
            with(segment(Client, u64::from(index), i64::from(index)), 5000, 10 + index, 1, Flags::ACK, b"y");
        flows.segment(&busy, &mut shared);
        flows.take_ended(&mut ended);
        assert!(flows.in_memory() <= 103);
    }
    assert_eq!(flows.counts.connections, 10_001, "the busy one was never pushed out");
    assert_eq!(flows.counts.evicted, 10_001 - 100);
    assert_eq!(ended.len(), 10_001 - 100);
    flows.finish(&mut shared);
    take_told();
}

#[test]
fn untaken_ended_connections_are_dropped_and_counted() {
    let (mut flows, mut shared) = (Flows::<Recorder>::with_limit(10), Shared::default());
    for index in 0..40_000u32 {
        let mut made = with(segment(Client, 1, i64::from(index)), 4000, 1, 1, Flags::ACK, b"");
        made.source = Endpoint::v4(index.to_be_bytes(), 4000);
        flows.segment(&made, &mut shared);
    }
    assert!(flows.in_memory() < 33_000);
    assert_eq!(flows.counts.untaken + flows.in_memory() as u64, 40_000);
}

#[test]
fn without_a_syn_ports_and_known_servers_identify_the_client() {
    let (mut flows, mut shared) = (Flows::<Recorder>::default(), Shared::default());
    let client_port = |flows: &Flows<Recorder>, id| flows.connection(id).map(|found| found.ends()[0].port);
    // 80 is a system port.
    flows.segment(&with(segment(Server, 1, 1), 500, 1, 1, Flags::ACK, b""), &mut shared);
    flows.segment(&with(segment(Server, 1, 1), 4000, 1, 1, Flags::ACK, b""), &mut shared);
    assert_eq!(client_port(&flows, 2), Some(4000));
    // Port 50051 is in the range of ephemeral ports; here the client's is lower.
    let high = |mut made: Segment<'static>, client: u16| {
        (made.source.port, made.destination.port) = (client, 50_051);
        made
    };
    flows.segment(&high(segment(Client, 1, 1), 40_000), &mut shared);
    assert_eq!(client_port(&flows, 3), Some(50_051), "a wrong guess: the higher one");
    flows.segment(&Segment { flags: Flags(Flags::SYN), ..high(segment(Client, 1, 1), 40_001) }, &mut shared);
    flows.segment(&high(segment(Client, 1, 1), 40_002), &mut shared);
    assert_eq!(client_port(&flows, 5), Some(40_002), "a server is known by another connection's SYN");
    assert!(flows.connection(4).is_some_and(|found| found.facts().sides_known));
    assert!(flows.connection(5).is_some_and(|found| !found.facts().sides_known));
}

#[test]
fn a_window_of_unknown_scale_is_at_least_what_was_in_flight() {
    let (mut flows, mut shared) = (Flows::<Recorder>::default(), Shared::default());
    let mut take = |made: Segment<'static>| flows.segment(&made, &mut shared);
    // Joined later: 12 bytes under way to the client, of which it acknowledges four; then six more.
    take(with(segment(Client, 1, 1), 4000, 500, 1_000, Flags::ACK, b"ask"));
    take(with(segment(Server, 2, 2), 4000, 1_000, 503, Flags::ACK, b"four"));
    take(with(segment(Server, 3, 3), 4000, 1_004, 503, Flags::ACK, b"eight in"));
    take(with(segment(Client, 4, 4), 4000, 503, 1_004, Flags::ACK, b""));
    take(with(segment(Server, 5, 5), 4000, 1_012, 503, Flags::ACK, b"as six"));
    let live = flows.live();
    assert_eq!(live[0].facts().windows[Client.index()], Some(14));
}
