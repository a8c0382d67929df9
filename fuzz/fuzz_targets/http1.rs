#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_model::Side;
use spangap_wire::app::http1::Http1;
use spangap_wire::app::{Context, Parser, Sink};
use spangap_wire::exchange::Mark;
use spangap_wire::tcp::{Chunk, Hole};

// The first byte of a piece says who sent it, and whether it is missing; the second how long it is.
fuzz_target!(|input: &[u8]| {
    let context = Context { connection: 1, from_start: input.len() % 3 > 0 };
    let (mut parser, mut sink, mut offsets) = (Http1::default(), Sink::default(), [1u64 << 32; 2]);
    let mut rest = input;
    while let [what, len, after @ ..] = rest {
        let (bytes, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        let from = if what & 1 == 0 { Side::Client } else { Side::Server };
        let (offset, at) = (offsets[from.index()], Mark::default());
        offsets[from.index()] += bytes.len() as u64;
        match what >> 1 & 7 {
            0 if !bytes.is_empty() => {
                let hole = Hole { from, offset, len: bytes.len() as u64, at, cut: what & 64 != 0 };
                parser.hole(context, hole, &mut sink);
            }
            1 if bytes.is_empty() => parser.fin(context, from, &mut sink),
            _ => parser.bytes(context, Chunk { from, offset, bytes, at }, &mut sink),
        }
        assert!(parser.memory_bytes() < 4 << 20);
    }
    parser.finish(context, true, &mut sink);
    assert!(sink.exchanges.len() <= input.len());
});
