//! A ping-pong over loopback: who wrote, what arrived, who read, to the byte.

use super::{own_tid, while_streaming};
use spangap_host::event::{Event, Transfer, What};
use spangap_host::probes::intervals::Settings;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const ROUNDS: usize = 200;
const REQUEST: usize = 100;
const RESPONSE: usize = 3000;

/// Events of one end of a connection, each with its sequence number.
#[derive(Debug, Default)]
struct End {
    wrote: Vec<(u64, u32, u32)>,
    arrived: Vec<(u64, u32)>,
    read: Vec<(u64, u32, u32)>,
}

fn end_of(events: &[Event], local: u16, peer: u16) -> End {
    let mut end = End::default();
    let ours = |at: &Transfer| {
        let ours = at.local_port == local && at.peer_port == peer;
        assert!(!ours || at.peer_tail == 0x7f00_0001, "{at:x?}");
        ours
    };
    for event in events {
        match &event.what {
            What::Wrote { tid, at } if ours(at) => end.wrote.push((event.time_ns, *tid, at.seq)),
            What::Arrived(at) if ours(at) => end.arrived.push((event.time_ns, at.seq)),
            What::Read { tid, at } if ours(at) => end.read.push((event.time_ns, *tid, at.seq)),
            _ => {}
        }
    }
    end
}

/// Checks that each write of `size` bytes at `from` arrives at `to` and is read there, in this order.
fn check(from: &End, to: &End, size: u32, writer: u32, reader: u32) {
    assert!(from.wrote.iter().all(|(_, tid, _)| *tid == writer));
    assert!(to.read.iter().all(|(_, tid, _)| *tid == reader));
    let first = from.wrote[0].2;
    for round in 0..ROUNDS as u32 {
        let seq = first.wrapping_add(round * size);
        let end = seq.wrapping_add(size);
        // There may be more, from writes that continued in another buffer.
        let (wrote_ns, ..) =
            from.wrote.iter().find(|(.., at)| *at == seq).expect("its first byte was written");
        let (arrived_ns, _) = to.arrived.iter().find(|(_, at)| *at == end).expect("its last segment arrived");
        let (read_ns, ..) = to.read.iter().find(|(.., at)| *at == end).expect("its last byte was read");
        assert!(wrote_ns <= arrived_ns && arrived_ns <= read_ns, "{wrote_ns} {arrived_ns} {read_ns}");
    }
}

#[test]
fn both_ends_of_a_ping_pong_report_the_same_bytes() {
    let work = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; REQUEST];
            for _ in 0..ROUNDS {
                stream.read_exact(&mut request).unwrap();
                stream.write_all(&[1; RESPONSE]).unwrap();
            }
            own_tid()
        };
        thread::scope(|scope| {
            let server = scope.spawn(serve);
            let mut stream = TcpStream::connect(at).unwrap();
            let mut response = [0; RESPONSE];
            for _ in 0..ROUNDS {
                stream.write_all(&[2; REQUEST]).unwrap();
                stream.read_exact(&mut response).unwrap();
            }
            let client_port = stream.local_addr().unwrap().port();
            (own_tid(), server.join().unwrap(), client_port, at.port())
        })
    };
    let settings = Settings { tgids: vec![std::process::id()], ..Settings::default() };
    let Some((events, ended, (client, server, client_port, server_port))) = while_streaming(&settings, work)
    else {
        return;
    };
    assert_eq!(ended.counts.lost, 0);
    let clients_end = end_of(&events, client_port, server_port);
    let servers_end = end_of(&events, server_port, client_port);
    check(&clients_end, &servers_end, REQUEST as u32, client, server);
    check(&servers_end, &clients_end, RESPONSE as u32, server, client);
}

#[test]
fn foreign_sockets_are_not_reported() {
    let work = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[0; 10]).unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        [client.local_addr(), server.local_addr()].map(|at| at.unwrap().port())
    };
    // The first process of this machine has nothing to do with it.
    let settings = Settings { tgids: vec![1], ..Settings::default() };
    let Some((events, _, ports)) = while_streaming(&settings, work) else { return };
    let told = events.iter().filter(|event| match event.what {
        What::Arrived(at) | What::Read { at, .. } | What::Wrote { at, .. } => ports.contains(&at.local_port),
        _ => false,
    });
    assert_eq!(told.count(), 0);
}
