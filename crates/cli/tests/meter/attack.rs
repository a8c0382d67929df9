//! Senders that hold on to what they were given: each attack over a real socket, beside a sender that behaves
//! well.

use super::client::{open, read_answer, request};
use super::grpc::sender;
use super::process::{Meter, PATIENCE, until};
use super::sdk;
use super::spans::calls;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use spangap_meter::report::{Changes, PortReport};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

const PROTOBUF: &str = "application/x-protobuf";
const MIB: usize = 1 << 20;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// The well-behaved sender: one request over gRPC and one over HTTP, which must both be accepted, a request
/// to the API, and the OpenTelemetry SDK.
async fn is_served(meter: &Meter, client: &str) {
    // Calls of its own, so that they are not counted as duplicates.
    let first = 10_000 * u64::from(client.as_bytes()[0]);
    let numbers = |from: u64| first + from..first + from + 100;
    sender(meter).await.export(calls(client, "cart", numbers(0))).await.expect("gRPC is served");
    let (address, body) = (meter.otlp_http, calls(client, "cart", numbers(100)).encode_to_vec());
    let send = move || request(address, "POST", "/v1/traces", &[("Content-Type", PROTOBUF)], &body).status;
    assert_eq!(tokio::task::spawn_blocking(send).await.expect("no panic"), 200, "HTTP is served");
    assert_eq!(meter.pair(client, "cart", 200).calls, 200);
    tokio::task::block_in_place(|| sdk::is_served(meter, client));
}

fn port(meter: &Meter, name: &str) -> PortReport {
    meter.coverage().ports.into_iter().find(|port| port.port == name).expect("every port is in the coverage")
}

fn body_of(meter: &Meter, bytes: usize) -> TcpStream {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: meter\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {bytes}\r\n\r\n"
    );
    open(meter.otlp_http, &head)
}

/// Reads until the peer has closed the connection, in whichever way.
fn closed(mut stream: &TcpStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return all,
            Err(e) => panic!("not closed: {e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_bodies_do_not_use_the_budget() {
    // Deadlines long enough not to interfere: this test is about the budget alone.
    let meter = Meter::start(&["--slow-after", "1h", "--body-timeout", "1h"]);
    let _announced: Vec<TcpStream> = (0..16).map(|_| body_of(&meter, 15 * MIB)).collect();
    until("their heads are read", || (port(&meter, "otlp_http").accepted >= 16).then_some(()));
    is_served(&meter, "web").await;
    assert_eq!(meter.coverage().refused_requests, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_make_room_for_others() {
    let meter = Meter::start(&["--slow-after", "1ms", "--body-timeout", "1h"]);
    let piece = vec![0; 13 * MIB];
    let slow: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = body_of(&meter, 15 * MIB);
            stream.write_all(&piece).expect("it reads");
            stream
        })
        .collect();
    until("they hold nearly all of the budget", || {
        (meter.coverage().request_bytes >= 39 * MIB as u64).then_some(())
    });
    // More than 4 MiB does not fit beside them.
    let large = calls("large", "cart", 0..20_000);
    assert!(large.encoded_len() > 2 * MIB);
    sender(&meter).await.export(large).await.expect("there is room");
    meter.pair("large", "cart", 20_000);
    is_served(&meter, "web").await;
    let coverage = meter.coverage();
    assert!((1..=3).contains(&coverage.displaced_requests), "{coverage:#?}");
    assert_eq!(coverage.refused_requests, coverage.displaced_requests, "they alone were told to retry");
    assert!(coverage.request_bytes <= coverage.request_bytes_limit);
    drop(slow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_and_a_body_have_deadlines_on_every_port() {
    let meter = Meter::start(&["--head-timeout", "300ms", "--body-timeout", "300ms", "--idle-timeout", "1h"]);
    for (name, address) in
        [("otlp_grpc", meter.otlp_grpc), ("otlp_http", meter.otlp_http), ("http", meter.http)]
    {
        let before = port(&meter, name).closed_no_request;
        // Nothing at all; half a head; half of a second head on a connection that was used.
        let silent = open(address, "");
        let half = open(address, "GET / HTTP/1.1\r\nHost: m");
        let mut second = open(address, "GET /nothing HTTP/1.1\r\nHost: meter\r\n\r\n");
        second.read_exact(&mut [0; 12]).expect("an answer");
        second.write_all(b"GET / HTT").expect("it is open");
        for stream in [&silent, &half, &second] {
            closed(stream);
        }
        until("all three are counted", || (port(&meter, name).closed_no_request >= before + 3).then_some(()));
    }
    // A connection that was used may stay idle for long.
    let mut used = open(meter.http, "GET /healthz HTTP/1.1\r\nHost: meter\r\n\r\n");
    let mut answer = [0; 12];
    used.read_exact(&mut answer).expect("an answer");

    let mut slow = body_of(&meter, MIB);
    slow.write_all(&[0; 100]).expect("it reads");
    let answer = String::from_utf8_lossy(&closed(&slow)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("100 bytes in "), "{answer}");
    until("it is counted", || (meter.coverage().slow_requests == 1).then_some(()));
    used.write_all(b"GET /readyz HTTP/1.1\r\nHost: meter\r\nConnection: close\r\n\r\n").expect("it is open");
    let rest = String::from_utf8_lossy(&closed(&used)).into_owned();
    assert!(rest.contains("ready"), "{rest}");
    is_served(&meter, "web").await;
}

/// A HEADERS frame of a request to the trace service, and the first bytes of a message.
fn begin_grpc(stream: &mut TcpStream, id: u32) {
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &str, value: &str| {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    };
    literal(":path", "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    literal(":authority", "meter");
    literal("content-type", "application/grpc");
    literal("te", "trailers");
    stream.write_all(&frame(1, 4, id, &block)).expect("it reads");
    stream.write_all(&frame(0, 0, id, &[0, 0, 0x10, 0, 0, 7])).expect("it reads");
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn http2(address: SocketAddr) -> TcpStream {
    let mut stream = open(address, "");
    stream.write_all(&[PREFACE, SETTINGS].concat()).expect("it reads");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_over_grpc_has_a_deadline() {
    let meter = Meter::start(&["--body-timeout", "300ms"]);
    let mut slow = http2(meter.otlp_grpc);
    (0..50).for_each(|i| begin_grpc(&mut slow, 1 + 2 * i));
    until("they are counted", || (meter.coverage().slow_requests == 50).then_some(()));
    is_served(&meter, "web").await;
    assert_eq!(meter.coverage().request_bytes, 0, "nothing is held for them");
}

/// A request without a body is charged, too: streams are cheap to open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_requests_have_their_share_of_the_budget() {
    let meter = Meter::start(&["--request-budget", "1MiB", "--slow-after", "1ms", "--body-timeout", "1h"]);
    let mut held: Vec<TcpStream> = (0..4).map(|_| http2(meter.otlp_grpc)).collect();
    for stream in &mut held {
        (0..200).for_each(|i| begin_grpc(stream, 1 + 2 * i));
    }
    until("some are refused or make room for others", || {
        (meter.coverage().refused_requests > 400).then_some(())
    });
    let coverage = meter.coverage();
    assert!(coverage.request_bytes <= coverage.request_bytes_limit, "{coverage:#?}");
    is_served(&meter, "web").await;
}

/// Number of connections opened beyond the limit of 64.
const IDLE: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_on_every_port() {
    let meter = Meter::start(&["--max-connections", "64", "--head-timeout", "1h", "--idle-timeout", "1h"]);
    let mut held = Vec::new();
    for address in [meter.otlp_grpc, meter.otlp_http, meter.http] {
        for i in 0..IDLE {
            held.push(match i % 3 {
                0 => open(address, ""),
                1 => http2(address),
                _ => open(address, "GET /healthz HTTP/1.1\r\nHost: meter\r\n\r\n"),
            });
        }
    }
    is_served(&meter, "web").await;
    for name in ["otlp_grpc", "otlp_http", "http"] {
        let port =
            until("all are accepted", || Some(port(&meter, name)).filter(|p| p.accepted >= IDLE as u64));
        assert_eq!(port.limit, 64);
        assert!(port.open <= 64 && port.closed_for_room >= IDLE as u64 - 64, "{port:?}");
        assert_eq!((port.refused, port.accept_errors), (0, 0), "{port:?}");
    }
}

/// Raises this process's limit of file descriptors, which a meter inherits; whether it suffices for thousands of sockets.
fn many_files() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("it may be raised");
    most.is_none_or(|most| most >= 16_000)
}

/// As many as a port allows by default, and more. Both processes need that many file descriptors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_thousand_idle_connections_silence_no_port() {
    if !many_files() {
        return println!("not run: 4,200 idle connections: the hard limit of file descriptors is too low");
    }
    let meter = Meter::start(&[]);
    let _held: Vec<TcpStream> = (0..4200).map(|_| http2(meter.otlp_grpc)).collect();
    is_served(&meter, "web").await;
    let port = port(&meter, "otlp_grpc");
    assert!(port.open <= 4096 && port.closed_for_room > 100, "{port:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_reads_is_cut() {
    let meter = Meter::start(&["--body-timeout", "500ms", "--idle-timeout", "500ms"]);
    let before = port(&meter, "http");
    let mut deaf = open(meter.http, "");
    deaf.set_nonblocking(true).expect("it can be");
    // As many requests as fit, so that their answers fill every buffer in between.
    let pipelined = b"GET / HTTP/1.1\r\nHost: meter\r\n\r\n".repeat(2000);
    let cut = || {
        let written = deaf.write(&pipelined);
        let now = port(&meter, "http");
        let n = now.closed_not_reading - before.closed_not_reading;
        (n > 0 || matches!(written, Err(e) if e.kind() != ErrorKind::WouldBlock)).then_some(())
    };
    until("it is cut", cut);
    is_served(&meter, "web").await;
}

/// A meter whose scrapes are megabytes long.
fn meter_with_many_pairs() -> Meter {
    let meter = Meter::start(&["--idle-timeout", "1h"]);
    // An answer of several megabytes, which does not fit into any socket buffer.
    for at in 0..10 {
        let pairs = (at * 200..at * 200 + 200).map(|i| calls(&format!("web-{i}"), "cart", i..i + 1));
        let resource_spans = pairs.flat_map(|request| request.resource_spans).collect();
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let sent = request(meter.otlp_http, "POST", "/v1/traces", &[("Content-Type", PROTOBUF)], &body);
        assert_eq!(sent.status, 200);
    }
    meter
}

fn scrape(meter: &Meter) {
    let answer = meter.get("/metrics");
    let whole = answer.body.ends_with(b"\n") && answer.body.len() > 4 * MIB;
    assert!(answer.status == 200 && whole, "{} bytes", answer.body.len());
}

/// Scrapes whose answers are never read, from these loopback addresses.
async fn dawdlers_at(
    addresses: impl Iterator<Item = std::net::Ipv4Addr>,
    meter: &Meter,
) -> Vec<tokio::net::TcpStream> {
    let mut all = Vec::new();
    for address in addresses {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address of loopback");
        let mut stream = socket.connect(meter.http).await.expect("it listens");
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", meter.http);
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.expect("it reads");
        all.push(stream);
    }
    all
}

/// Whoever does not read costs some buffers, and so takes nothing that anybody waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_readers_who_never_read_have_their_answers_side_by_side() {
    let meter = meter_with_many_pairs();
    let addresses = (1..=100).map(|at| [127, 0, 1, at].into());
    let dawdlers = dawdlers_at(addresses, &meter).await;
    for dawdler in &dawdlers {
        let begun = tokio::time::timeout(PATIENCE, dawdler.peek(&mut [0])).await;
        assert!(matches!(begun, Ok(Ok(1))), "{begun:?}");
    }
    scrape(&meter);
    assert_eq!(meter.coverage().displaced_answers, 0);
    meter.pair("web-7", "cart", 1);
    drop(dawdlers);
}

/// More than may read at once: they make room for each other, and for everybody else first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_readers_who_never_read_delays_nobody() {
    if !many_files() {
        return println!("not run: 400 readers: the hard limit of file descriptors is too low");
    }
    let meter = meter_with_many_pairs();
    let dawdlers = dawdlers_at((0..400).map(|_| [127, 0, 0, 2].into()), &meter).await;
    until("the meter has them all", || (port(&meter, "http").accepted > 400).then_some(()));
    scrape(&meter);
    until("some lost their place", || (meter.coverage().displaced_answers > 0).then_some(()));
    scrape(&meter);
    meter.pair("web-7", "cart", 1);
    drop(dawdlers);
}

/// Many pages wait for the same news.
#[test]
fn hundreds_who_wait_for_changes_are_all_told() {
    let meter = Meter::start(&[]);
    let known = meter.api::<Changes>("/api/v1/changes").version;
    let head = format!(
        "GET /api/v1/changes?since={known}&wait=60s HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        meter.http
    );
    let waiting: Vec<TcpStream> = (0..200).map(|_| open(meter.http, &head)).collect();
    until("the meter has them all", || (port(&meter, "http").accepted > 200).then_some(()));
    let body = calls("web", "cart", 0..10).encode_to_vec();
    let sent = request(meter.otlp_http, "POST", "/v1/traces", &[("Content-Type", PROTOBUF)], &body);
    assert_eq!(sent.status, 200);
    for stream in waiting {
        let answer = read_answer(stream);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        assert_ne!(answer.json::<Changes>().version, known);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_frame_floods_do_not_disturb_others() {
    let meter = Meter::start(&[]);
    let floods: [(&str, Vec<u8>); 3] = [
        ("PING", frame(6, 0, 0, &[7; 8]).repeat(4000)),
        ("SETTINGS", SETTINGS.repeat(4000)),
        ("RST_STREAM", Vec::new()),
    ];
    let attackers = floods.into_iter().map(|(name, flood)| {
        let address = meter.otlp_grpc;
        std::thread::spawn(move || {
            let mut stream = http2(address);
            stream.set_nonblocking(true).expect("it can be");
            let mut id = 1;
            for _ in 0..100 {
                let bytes = match name {
                    "RST_STREAM" => (0..100)
                        .flat_map(|_| {
                            id += 2;
                            [frame(1, 5, id, &[0x83, 0x86, 0x84]), frame(3, 0, id, &[0, 0, 0, 8])].concat()
                        })
                        .collect(),
                    _ => flood.clone(),
                };
                // It never reads, so sooner or later nothing more can be written, or the connection is
                // closed.
                match stream.write(&bytes) {
                    Err(e) if e.kind() != ErrorKind::WouldBlock => return,
                    _ => {}
                }
            }
        })
    });
    let attackers: Vec<_> = attackers.collect();
    is_served(&meter, "during").await;
    attackers.into_iter().for_each(|attacker| attacker.join().expect("no panic"));
    is_served(&meter, "after").await;
}

/// Well-behaved senders behind one address are never refused for their number.
#[test]
fn many_agents_behind_one_address_are_served() {
    let meter = Meter::start(&["--max-connections", "32"]);
    for i in 0..100u64 {
        let body = calls("web", "cart", i * 10..i * 10 + 10).encode_to_vec();
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nHost: meter\r\nContent-Type: {PROTOBUF}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = open(meter.otlp_http, &head);
        stream.write_all(&body).expect("it reads");
        assert_eq!(read_answer(stream).status, 200);
    }
    meter.pair("web", "cart", 1000);
    let port = port(&meter, "otlp_http");
    assert_eq!((port.refused, port.accepted), (0, 100), "{port:?}");
}
