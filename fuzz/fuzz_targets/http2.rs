//! Any bytes as both directions of an HTTP/2 connection, in chunks and with holes: parsing ends, stays within
//! bounds, and returns every exchange.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_model::Side;
use spangap_wire::app::http2::Http2;
use spangap_wire::app::http2::frame::PREFACE;
use spangap_wire::app::{Context, Parser, Sink};
use spangap_wire::exchange::Mark;
use spangap_wire::tcp::{Chunk, Hole};

fuzz_target!(|bytes: &[u8]| {
    let Some((how, mut rest)) = bytes.split_first() else { return };
    let context = Context { connection: 1, from_start: how & 1 == 0 };
    let (mut parser, mut sink) = (Http2::default(), Sink::default());
    let mut offsets = [1u64 << 32; 2];
    let mut packet = 0;
    if context.from_start {
        parser.bytes(
            context,
            Chunk { from: Side::Client, offset: offsets[0], bytes: PREFACE, at: Mark::default() },
            &mut sink,
        );
        offsets[0] += PREFACE.len() as u64;
    }
    // One byte gives the next chunk's sender and whether it is a hole, the following one its length.
    while let [what, length, after @ ..] = rest {
        packet += 1;
        let at = Mark { seen_ns: packet, ready_ns: packet, packet: packet as u64, ready_packet: packet as u64 };
        let from = if what & 1 == 0 { Side::Client } else { Side::Server };
        let offset = offsets[from.index()];
        if what & 0xc0 == 0xc0 {
            let len = u64::from(*length);
            parser.hole(context, Hole { from, offset, len, at, cut: what & 2 != 0 }, &mut sink);
            offsets[from.index()] += len;
            rest = after;
            continue;
        }
        let (chunk, after) = after.split_at(usize::from(*length).min(after.len()));
        parser.bytes(context, Chunk { from, offset, bytes: chunk, at }, &mut sink);
        offsets[from.index()] += chunk.len() as u64;
        rest = after;
    }
    assert!(parser.memory_bytes() <= (4 << 20) + 64 * bytes.len());
    parser.finish(context, true, &mut sink);
    assert_eq!(parser.open(), 0);
    for exchange in &sink.exchanges {
        assert!(exchange.request.end >= exchange.request.start);
        assert!(exchange.in_flight >= 1);
    }
});
