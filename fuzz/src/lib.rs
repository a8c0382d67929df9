//! Assertions shared by fuzz targets: those that read a file, and those that parse pieces of a connection.

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message;
use spangap_meter::ingest::delivery::SKIPPED_KEPT;
use spangap_meter::ingest::file::read_from;
use spangap_meter::ingest::wire::WalkError;
use spangap_model::Side;
use spangap_wire::app::{Context, Parser, Sink};
use spangap_wire::exchange::Mark;
use spangap_wire::tcp::{Chunk, Hole};
use std::ops::ControlFlow;

/// Reads `bytes` to the end, and checks the report against the packets returned.
pub fn read(bytes: &[u8], translated: bool) {
    let mut spans = 0;
    let mut sink = |request: &[u8]| {
        let decoded = TracesData::decode(request);
        assert!(decoded.is_ok() || !translated, "a reader handed over what does not decode");
        let decoded = decoded.map_err(|_| WalkError { offset: 0, expected: "an OTLP request" })?;
        let scopes = decoded.resource_spans.iter().flat_map(|spans| &spans.scope_spans);
        let count: u64 = scopes.map(|scope| scope.spans.len() as u64).sum();
        spans += count;
        Ok(count)
    };
    let on_progress = &mut |_| ControlFlow::Continue(());
    if let Ok(report) = read_from("input".into(), Box::new(bytes), None, &mut sink, on_progress) {
        assert_eq!(report.spans, spans);
        assert!(report.skipped.len() <= SKIPPED_KEPT);
        assert!(report.skipped.len() as u64 <= report.skipped_places);
    }
}

/// Feeds `input` to a parser in pieces of both directions, and checks its bounds. The first byte of a piece
/// gives its sender and whether it is missing, the second its length.
pub fn pieces(mut parser: impl Parser, input: &[u8]) {
    let context = Context { connection: 1, from_start: input.len() % 3 > 0 };
    let (mut sink, mut offsets) = (Sink::default(), [1u64 << 32; 2]);
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
}
