#![no_main]

use libfuzzer_sys::fuzz_target;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};
use prost::Message;
use spangap_meter::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use spangap_meter::ingest::semconv::SpanKind as WalkedKind;
use spangap_meter::ingest::walk::{Batch, OriginSink, walk};

/// Resources do not matter here.
struct Ignored;

impl OriginSink for Ignored {
    fn resource(&self, _encoded: &[u8]) -> u32 {
        0
    }
    fn method(&self, resource: u32, _method: &str) -> u32 {
        resource
    }
}

/// Ids, kind and times of a span: what both sides must agree on.
type Facts = (Vec<u8>, u64, u64, WalkedKind, u64, u64);

fn facts(span: &Span) -> Facts {
    let word = |id: &[u8]| <[u8; 8]>::try_from(id).map_or(0, u64::from_ne_bytes);
    let kind = match span.kind() {
        SpanKind::Client => WalkedKind::Client,
        SpanKind::Server => WalkedKind::Server,
        _ => WalkedKind::Other,
    };
    let trace = if span.trace_id.len() == 16 { span.trace_id.clone() } else { vec![0; 16] };
    let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    (trace, word(&span.span_id), word(&span.parent_span_id), kind, start, end)
}

fuzz_target!(|request: &[u8]| {
    for methods in [false, true] {
        let mut batch = Batch::default();
        let walked = walk(request, &Interest::new(methods, &RESPONSE_SIZE_ATTRIBUTES), &Ignored, &mut batch);
        // The walk does not look into fields that it skips, so it may accept what prost rejects.
        let Ok(decoded) = TracesData::decode(request) else { continue };
        walked.expect("prost accepts it");
        let scopes = decoded.resource_spans.iter().flat_map(|spans| &spans.scope_spans);
        let expected: Vec<Facts> = scopes.flat_map(|scope| &scope.spans).map(facts).collect();
        let trace = |span: &spangap_meter::ingest::walk::SpanFacts| span.trace_id().to_vec();
        let got: Vec<Facts> =
            batch.spans.iter().map(|s| (trace(s), s.span, s.parent, s.kind, s.start_ns, s.end_ns)).collect();
        assert_eq!(got, expected);
    }
});
