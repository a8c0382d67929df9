//! CPU time of a header block and of a small unary call, nanoseconds: `cargo bench -p spangap-wire --bench http2`.

use rustix::time::{ClockId, clock_gettime};
use spangap_model::Side;
use spangap_wire::app::http2::Http2;
use spangap_wire::app::http2::frame::PREFACE;
use spangap_wire::app::http2::hpack::Decoder;
use spangap_wire::app::{Context, Parser, Sink, Texts};
use spangap_wire::exchange::Mark;
use spangap_wire::tcp::Chunk;

const CALLS: u32 = 300_000;

/// CPU time of this thread until now, nanoseconds.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A literal that enters the table.
fn literal(name: &str, value: &[u8], coded: bool) -> Vec<u8> {
    let value_length = value.len() as u8 | if coded { 0x80 } else { 0 };
    [&[0x40, name.len() as u8][..], name.as_bytes(), &[value_length], value].concat()
}

/// A first request with all fields in full, and one that refers to them.
fn requests() -> (Vec<u8>, Vec<u8>) {
    let fields = [
        (":path", "/package.Service/Method"),
        (":authority", "10.0.0.1:50051"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.80.0"),
        ("te", "trailers"),
        ("x-request-class", "interactive"),
    ];
    let first = fields.iter().flat_map(|(name, value)| literal(name, value.as_bytes(), false)).collect();
    (first, vec![0x83, 0x86, 0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe])
}

/// The Huffman code of a `traceparent` of zeros and ones: `0` and `1` are `00000` and `00001`, the dash `010110`.
fn traceparent() -> Vec<u8> {
    let text = "00-10101010101010101010101010101010-1010101010101010-01";
    let mut bits = String::new();
    text.chars().for_each(|digit| {
        bits.push_str(match digit {
            '0' => "00000",
            '1' => "00001",
            _ => "010110",
        });
    });
    bits.push_str(&"1".repeat((8 - bits.len() % 8) % 8));
    (0..bits.len() / 8).map(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).expect("bits")).collect()
}

fn header_blocks() {
    let (first, indexed) = requests();
    let traced =
        [&[0x83, 0x86, 0x04, 0x02, b'/', b'a'][..], &literal("traceparent", &traceparent(), true)].concat();
    for (name, block) in
        [("8 fields, all indexed", &indexed), ("4 fields, one a new Huffman-coded traceparent", &traced)]
    {
        let (mut decoder, mut texts) = (Decoder::new(true), Texts::default());
        decoder.decode(&first, &mut texts, None).expect("a header block");
        let begun_ns = cpu_ns();
        let mut sum = 0;
        for _ in 0..CALLS {
            let head = decoder.decode(std::hint::black_box(block), &mut texts, None).expect("a header block");
            sum += head.path.map_or(0, |id| id.0);
        }
        println!("{name}: {:.1} ns", (cpu_ns() - begun_ns) as f64 / f64::from(CALLS));
        assert!(sum > 0);
    }
}

fn small_calls() {
    let (first, indexed) = requests();
    let (mut parser, mut sink) = (Http2::from_preface(), Sink::default());
    let context = Context { connection: 1, from_start: true };
    let mut offsets = [1 << 32; 2];
    let mut at = Mark::default();
    let mut send = |parser: &mut Http2, sink: &mut Sink, from: Side, bytes: &[u8]| {
        at.seen_ns += 1000;
        at.packet += 1;
        let offset = offsets[from.index()];
        parser.bytes(context, Chunk { from, offset, bytes, at }, sink);
        offsets[from.index()] += bytes.len() as u64;
    };
    let message = [&[0, 0, 0, 0, 32][..], &[7; 32]].concat();
    let answer = literal("content-type", b"application/grpc", false);
    let ends = literal("grpc-status", b"0", false);
    send(&mut parser, &mut sink, Side::Client, PREFACE);
    // Windows of maximum size, so that no call waits for them.
    let update = frame(8, 0, 0, &[0x7f, 0, 0, 0]);
    send(&mut parser, &mut sink, Side::Client, &update);
    send(&mut parser, &mut sink, Side::Server, &update);
    let mut written = Vec::new();
    for call in 0..CALLS {
        let stream = call * 2 + 1;
        let block = if call == 0 { &first } else { &indexed };
        let request = [frame(1, 4, stream, block), frame(0, 1, stream, &message)].concat();
        let (head, tail) = if call == 0 {
            ([&[0x88][..], &answer].concat(), ends.clone())
        } else {
            (vec![0x88, 0xbf], vec![0xbe])
        };
        let response =
            [frame(1, 4, stream, &head), frame(0, 0, stream, &message), frame(1, 5, stream, &tail)].concat();
        written.push((request, response));
    }
    let mut exchanges = 0;
    let begun_ns = cpu_ns();
    for (request, response) in &written {
        send(&mut parser, &mut sink, Side::Client, request);
        send(&mut parser, &mut sink, Side::Server, response);
        exchanges += sink.exchanges.len();
        sink.exchanges.clear();
    }
    println!(
        "a unary call, two chunks, five frames: {:.1} ns",
        (cpu_ns() - begun_ns) as f64 / f64::from(CALLS)
    );
    assert_eq!(exchanges, CALLS as usize);
    assert_eq!(sink.counts, Default::default());
}

fn main() {
    header_blocks();
    small_calls();
}
