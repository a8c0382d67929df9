//! The live ring on the real kernel: it keeps every sent packet exactly once, and the kernel applies its filters.

use spangap_wire::decode::Decoder;
use spangap_wire::source::filter::compile;
use spangap_wire::source::ring::{Interface, Ring, RingError};
use std::net::UdpSocket;

/// `None` if this process may not capture.
fn open(interface: &str, filter: &str, snap_bytes: u32, ring_bytes: u64) -> Option<Ring> {
    let interface = Interface::find(interface).unwrap();
    let program = compile(filter, snap_bytes, interface.once).unwrap();
    match Ring::open(&interface, &program, snap_bytes, ring_bytes) {
        Ok(ring) => Some(ring),
        Err(RingError::Refused { error, .. }) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("not run: capturing needs CAP_NET_RAW");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Two sockets on loopback.
fn sockets() -> (UdpSocket, UdpSocket, u16) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(("127.0.0.1", port)).unwrap();
    (sender, receiver, port)
}

fn datagrams(ring: &Ring, port: u16) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let headers = |data: &[u8], at: usize| data.get(at + 22..at + 24) == Some(&port.to_be_bytes()[..]);
    ring.packets(|packet| {
        let at = if packet.link.0 == 1 { 14 } else { 20 };
        assert!(headers(packet.data, at), "only what the filter lets through");
        found.push(packet.data[at + 28..].to_vec());
        Ok::<(), std::convert::Infallible>(())
    })
    .unwrap();
    found
}

/// Waits for the condition: blocks close a tenth of a second after their first packet.
fn until(ring: &mut Ring, done: impl Fn(&Ring) -> bool) {
    for _ in 0..6000 {
        ring.wait(10).unwrap();
        ring.advance();
        if done(ring) {
            return;
        }
    }
    panic!("the ring never had what was sent");
}

#[test]
fn every_packet_is_kept_once() {
    for interface in ["lo", "any"] {
        let (sender, receiver, port) = sockets();
        let filter = format!("udp dst port {port}");
        let Some(mut ring) = open(interface, &filter, 70, 1 << 20) else { return };
        for n in 0..500u32 {
            sender.send(&n.to_be_bytes()).unwrap();
            receiver.recv(&mut [0; 16]).unwrap();
        }
        until(&mut ring, |ring| datagrams(ring, port).len() >= 500);
        let seen = datagrams(&ring, port);
        let expected: Vec<Vec<u8>> = (0..500u32).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(seen, expected, "on {interface}");
        let counts = ring.counts().unwrap();
        assert_eq!((counts.received, counts.dropped), (500, 0), "on {interface}");
    }
}

#[test]
fn the_snap_length_applies_and_times_increase() {
    let (sender, receiver, port) = sockets();
    let Some(mut ring) = open("lo", &format!("udp dst port {port}"), 64, 1 << 20) else { return };
    for _ in 0..3 {
        sender.send(&[9; 1000]).unwrap();
        receiver.recv(&mut [0; 1000]).unwrap();
    }
    until(&mut ring, |ring| datagrams(ring, port).len() == 3);
    let mut last_ns = ring.complete_since_ns();
    let mut decoder = Decoder::default();
    ring.packets(|packet| {
        assert_eq!((packet.data.len(), packet.wire_len), (64, 14 + 28 + 1000));
        assert!(packet.time_ns >= last_ns);
        last_ns = packet.time_ns;
        assert!(decoder.decode(packet).is_err(), "no TCP in it");
        Ok::<(), std::convert::Infallible>(())
    })
    .unwrap();
}

#[test]
fn a_full_ring_drops_the_oldest_and_states_since_when_it_is_complete() {
    let (sender, receiver, port) = sockets();
    let Some(mut ring) = open("lo", &format!("udp dst port {port}"), 4000, 1 << 20) else { return };
    let since_ns = ring.complete_since_ns();
    let mut payload = vec![0; 3000];
    let total = 2000u32;
    for n in 0..total {
        payload[..4].copy_from_slice(&n.to_be_bytes());
        sender.send(&payload).unwrap();
        receiver.recv(&mut [0; 4000]).unwrap();
        ring.advance();
    }
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    until(&mut ring, |ring| datagrams(ring, port).last().is_some_and(|last| number(last) == total - 1));
    let kept: Vec<u32> = datagrams(&ring, port).iter().map(|bytes| number(bytes)).collect();
    assert!(kept.len() > 100 && kept.len() < total as usize);
    assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1), "without a hole");
    assert!(ring.complete_since_ns() > since_ns);
    let counts = ring.counts().unwrap();
    assert_eq!((counts.received, counts.dropped), (total as u64, 0));
    ring.release_all();
    assert!(datagrams(&ring, port).is_empty());
}

#[test]
fn packets_without_room_are_counted() {
    let (sender, receiver, port) = sockets();
    let Some(mut ring) = open("lo", &format!("udp dst port {port}"), 4000, 1 << 20) else { return };
    // Nobody returns blocks meanwhile.
    for _ in 0..1000 {
        sender.send(&[1; 3000]).unwrap();
        receiver.recv(&mut [0; 4000]).unwrap();
    }
    let counts = ring.counts().unwrap();
    assert!(counts.dropped > 0 && counts.stalls > 0);
    assert_eq!(counts.received, 1000, "received counts those that were dropped, too");
}
