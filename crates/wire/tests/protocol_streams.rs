//! The bytes of real connections, split into other pieces, with packets missing, and damaged.

use spangap_model::Side;
use spangap_wire::app::conversation::Conversation;
use spangap_wire::app::{Context, Parser, Sink};
use spangap_wire::decode::Decoder;
use spangap_wire::exchange::{Exchange, Mark};
use spangap_wire::segment::Endpoint;
use spangap_wire::source::Capture;
use spangap_wire::tcp::{Chunk, Hole};
use std::path::PathBuf;

const CONTEXT: Context = Context { connection: 1, from_start: true };

/// A connection's bytes in order of arrival: sender, offset, content.
type Stream = Vec<(Side, u64, Vec<u8>)>;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(name)
}

/// The connection with the most packets, from a capture without loss.
fn stream(name: &str) -> Stream {
    let mut capture = Capture::open(&path(name)).expect("a fixture");
    let (mut decoder, mut connections) = (Decoder::default(), Vec::<(Endpoint, Stream)>::new());
    while let Some(packet) = capture.next() {
        let Ok(segment) = decoder.decode(&packet) else { continue };
        let port = |end: &Endpoint| *end == segment.source || *end == segment.destination;
        let (client, stream) = match connections.iter().position(|(client, _)| port(client)) {
            Some(at) => &mut connections[at],
            None => {
                connections.push((segment.source, Stream::new()));
                connections.last_mut().expect("just pushed")
            }
        };
        let from = if segment.source == *client { Side::Client } else { Side::Server };
        if !segment.payload.is_empty() {
            stream.push((from, u64::from(segment.seq), segment.payload.to_vec()));
        }
    }
    connections.into_iter().map(|(_, stream)| stream).max_by_key(Vec::len).expect("a connection")
}

fn streams() -> Vec<(&'static str, Stream, Sink)> {
    let all = [
        ("http1-keep-alive", false),
        ("http1-pipelined", false),
        ("tls13-http1", true),
        ("tls13-chacha", true),
        ("tls12-http1", true),
        ("tls12-chacha", true),
        ("tls12-cbc", true),
        ("raw-unary", false),
    ];
    all.map(|(name, keys)| (name, stream(&format!("{name}.client.pcapng")), sink(name, keys))).into()
}

fn sink(name: &str, keys: bool) -> Sink {
    let mut sink = Sink::default();
    if keys {
        sink.keys.add(&std::fs::read(path(&format!("{name}.keys"))).expect("a fixture"));
    }
    sink
}

fn mark(time: usize) -> Mark {
    Mark { seen_ns: time as i64, ready_ns: time as i64, packet: time as u64, ready_packet: time as u64 }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn feed(parser: &mut Conversation, sink: &mut Sink, time: usize, piece: &(Side, u64, Vec<u8>), size: usize) {
    let (from, offset, bytes) = piece;
    for (at, bytes) in bytes.chunks(size).enumerate() {
        let chunk = Chunk { from: *from, offset: offset + (at * size) as u64, bytes, at: mark(time) };
        parser.bytes(CONTEXT, chunk, sink);
    }
}

fn exchanges(stream: &Stream, sink: &mut Sink, mut size: impl FnMut() -> usize) -> Vec<Exchange> {
    let mut parser = Conversation::default();
    for (time, piece) in stream.iter().enumerate() {
        feed(&mut parser, sink, time, piece, size());
    }
    parser.finish(CONTEXT, true, sink);
    std::mem::take(&mut sink.exchanges)
}

#[test]
fn any_split_of_the_bytes_gives_the_same_exchanges() {
    let mut random = Random(1);
    for (name, stream, mut sink) in streams() {
        let whole = exchanges(&stream, &mut sink, || usize::MAX);
        assert!(!whole.is_empty(), "{name}");
        for size in 1..20 {
            assert_eq!(exchanges(&stream, &mut sink, || size), whole, "{name} by {size}");
        }
        for _ in 0..20 {
            assert_eq!(exchanges(&stream, &mut sink, || 1 + random.below(400)), whole, "{name}");
        }
    }
}

#[test]
fn a_proxys_header_before_the_first_byte_changes_nothing() {
    let mut random = Random(4);
    let binary = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[7; 12]].concat();
    for (name, stream, mut sink) in streams() {
        let whole = exchanges(&stream, &mut sink, || usize::MAX);
        for header in [&b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n"[..], b"PROXY UNKNOWN\r\n", &binary] {
            let mut behind = stream.clone();
            let first = behind.iter_mut().find(|(from, ..)| *from == Side::Client).expect("a request");
            first.1 -= header.len() as u64;
            first.2.splice(0..0, header.iter().copied());
            for size in [usize::MAX, 1, 2, 3, header.len(), header.len() + 1] {
                assert_eq!(exchanges(&behind, &mut sink, || size), whole, "{name} by {size}");
            }
            for _ in 0..20 {
                assert_eq!(exchanges(&behind, &mut sink, || 1 + random.below(400)), whole, "{name}");
            }
        }
    }
}

#[test]
fn wrong_exchanges_after_missing_packets_are_marked_doubtful() {
    let (mut random, mut found) = (Random(2), 0);
    for (name, stream, mut sink) in streams() {
        let whole: Vec<_> = exchanges(&stream, &mut sink, || usize::MAX);
        for _ in 0..150 {
            let mut lost = Vec::new();
            let mut parser = Conversation::default();
            for (time, piece) in stream.iter().enumerate() {
                let (from, offset, len) = (piece.0, piece.1, piece.2.len() as u64);
                if random.below(25) == 0 {
                    lost.push(time);
                    parser.hole(CONTEXT, Hole { from, offset, len, at: mark(time), cut: false }, &mut sink);
                } else {
                    feed(&mut parser, &mut sink, time, piece, usize::MAX);
                }
            }
            parser.finish(CONTEXT, true, &mut sink);
            for one in std::mem::take(&mut sink.exchanges) {
                let Some(response) = one.response.filter(|_| one.doubts == Default::default()) else {
                    continue;
                };
                found += 1;
                let real = whole.iter().find(|real| real.request.start == one.request.start);
                let real = real.unwrap_or_else(|| panic!("{name} without {lost:?}: none like {one:?}"));
                let start = real.response.map(|response| response.start);
                assert_eq!(start, Some(response.start), "{name} without {lost:?}: {one:?}");
            }
        }
    }
    assert!(found > 2_500, "most exchanges survive: {found}");
}

#[test]
fn damaged_bytes_are_read_without_a_panic() {
    let mut random = Random(3);
    for (name, stream, mut sink) in streams() {
        for _ in 0..1500 {
            let mut parser = Conversation::default();
            let joined = Context { from_start: random.below(4) > 0, ..CONTEXT };
            for (time, (from, offset, bytes)) in stream.iter().take(60).enumerate().skip(random.below(20)) {
                let mut bytes = bytes.clone();
                for _ in 0..random.below(3) {
                    let place = random.below(bytes.len());
                    match random.below(4) {
                        0 => bytes.truncate(place),
                        1 => bytes.extend_from_within(place..),
                        _ if place < bytes.len() => bytes[place] = random.below(256) as u8,
                        _ => {}
                    }
                }
                let chunk = Chunk { from: *from, offset: *offset, bytes: &bytes, at: mark(time) };
                match random.below(20) {
                    0 => {
                        let (len, cut) = (1 + random.below(3000) as u64, random.below(2) == 0);
                        parser.hole(
                            joined,
                            Hole { from: *from, offset: *offset, len, at: mark(time), cut },
                            &mut sink,
                        );
                    }
                    1 => parser.fin(joined, *from, &mut sink),
                    _ => parser.bytes(joined, chunk, &mut sink),
                }
                assert!(parser.memory_bytes() < 1 << 20, "{name}");
            }
            parser.finish(joined, random.below(2) == 0, &mut sink);
            sink.exchanges.clear();
        }
    }
}
