//! What can be learned about a target without calling it as its clients do: usage, stream limit, sockets.

use crate::{MILLISECOND, Serving, settings};
use spangap_bench::contract::{Nodelay, TargetStack};
use spangap_bench::ping::PingRequest;
use spangap_bench::stream_limit;
use spangap_bench::target::TargetSettings;
use spangap_bench::usage::{self, Protocol};
use spangap_sockets as sockets;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn usage_reports_calls_and_cpu_time() {
    let serving = Serving::start(TargetSettings { max_streams: Some(50), ..settings() }).await;
    let address = serving.address.to_string();
    let ask = async || {
        let address = address.clone();
        let asked = spawn_blocking(move || usage::ask(Protocol::Grpc, &address, PATIENCE)).await.unwrap();
        asked.unwrap().expect("a target of ours")
    };
    let before = ask().await;
    assert_eq!((before.stack.as_str(), before.calls, before.peak_in_progress), ("rust", 0, 0));
    assert!(before.library.starts_with("tonic 0."), "{before:?}");
    assert_eq!((before.max_streams, before.pid), (50, std::process::id()));

    let mut calls = JoinSet::new();
    let client = serving.client().await;
    for _ in 0..30 {
        let mut client = client.clone();
        let ping = PingRequest { think_ns: Some(100 * MILLISECOND), ..PingRequest::default() };
        calls.spawn(async move { client.ping(ping).await.unwrap() });
    }
    calls.join_all().await;
    let after = ask().await;
    assert_eq!(after.calls, 30);
    assert!((1..=30).contains(&after.peak_in_progress), "{after:?}");
    assert!(after.cpu_ns > before.cpu_ns && after.context_switches > before.context_switches, "{after:?}");
    assert_eq!(ask().await.peak_in_progress, 0, "none since the last time it was asked");
    serving.stop().await;
}

/// The window that a server announces for streams, and the amount by which it enlarges the connection's.
fn windows(peer: SocketAddr) -> (Option<u32>, u32) {
    let mut stream = TcpStream::connect(peer).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not 0");
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("a preface and no settings");
    // A PING is answered soon, and a second one after anything that the server sends on its own.
    let ping = b"\0\0\x08\x06\0\0\0\0\0spangap.";
    stream.write_all(ping).expect("it takes a PING");
    let (mut of_stream, mut opened, mut answered) = (None, 0, false);
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
        stream.read_exact(&mut payload).expect("its payload");
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        match header[3] {
            4 => {
                let window = payload.chunks(6).rfind(|setting| setting[..2] == [0, 4]);
                of_stream = window.map(|setting| number(&setting[2..])).or(of_stream);
            }
            6 if answered => return (of_stream, opened),
            6 => {
                answered = true;
                stream.write_all(ping).expect("it takes another");
            }
            8 => opened += number(&payload),
            _ => {}
        }
    }
}

#[tokio::test]
async fn flow_control_windows_are_announced_as_configured() {
    for window in [65_535, 4 << 20] {
        let serving = Serving::start(TargetSettings { window: Some(window), ..settings() }).await;
        let address = serving.address;
        let (of_stream, opened) = spawn_blocking(move || windows(address)).await.unwrap();
        // Unless a server announces otherwise, a stream also begins with 65,535 bytes.
        assert_eq!((of_stream.unwrap_or(65_535), opened), (window, window - 65_535));
        serving.stop().await;
    }
}

#[tokio::test]
async fn a_foreign_server_has_no_usage() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(health).serve_with_incoming(incoming));
    let asked = spawn_blocking(move || usage::ask(Protocol::Grpc, &address, PATIENCE)).await.unwrap();
    assert!(asked.unwrap().is_none());
}

#[tokio::test]
async fn a_configured_stream_limit_is_announced() {
    for max_streams in [None, Some(1), Some(100)] {
        let serving = Serving::start(TargetSettings { max_streams, ..settings() }).await;
        let address = serving.address;
        let announced = spawn_blocking(move || stream_limit::ask(address, PATIENCE)).await.unwrap().unwrap();
        assert_eq!(announced, max_streams);
        serving.stop().await;
    }
}

/// `TCP_NODELAY` of the socket that the target accepted from `caller`.
async fn accepted_nodelay(caller: SocketAddr) -> Option<bool> {
    let look = move || sockets::look(std::process::id(), &[caller]).unwrap();
    // The kernel completes the connection before the target accepts it.
    loop {
        let sockets = spawn_blocking(look).await.unwrap();
        if let [socket] = sockets.as_slice() {
            return socket.nodelay;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn accepted_sockets_have_the_requested_tcp_nodelay() {
    for (stack, nodelay, expected) in [
        (TargetStack::Rust, Nodelay::On, true),
        (TargetStack::Rust, Nodelay::Off, false),
        (TargetStack::Rust, Nodelay::Default, true),
        (TargetStack::Raw, Nodelay::On, true),
        (TargetStack::Raw, Nodelay::Off, false),
        (TargetStack::Raw, Nodelay::Default, true),
    ] {
        let serving = Serving::start(TargetSettings { stack, nodelay, ..settings() }).await;
        let caller = TcpStream::connect(serving.address).unwrap();
        // The accepted socket may be in the table before its options are set: once it answers, they are.
        let address = serving.address.to_string();
        let protocol = if stack == TargetStack::Raw { Protocol::Raw } else { Protocol::Grpc };
        spawn_blocking(move || usage::ask(protocol, &address, PATIENCE)).await.unwrap().unwrap();
        match accepted_nodelay(caller.local_addr().unwrap()).await {
            Some(found) => assert_eq!(found, expected, "{stack} {nodelay}"),
            None => println!("not run: the kernel does not lend descriptors here"),
        }
        drop(caller);
        serving.stop().await;
    }
}

#[tokio::test]
async fn the_raw_target_reports_usage_and_results_like_the_others() {
    let serving = Serving::start(TargetSettings { stack: TargetStack::Raw, ..settings() }).await;
    let address = serving.address.to_string();
    let asked = spawn_blocking(move || usage::ask(Protocol::Raw, &address, PATIENCE)).await.unwrap();
    assert_eq!(asked.unwrap().unwrap().stack, "raw");
    assert_eq!(serving.stop().await, spangap_bench::target::TargetReport::default());
}
