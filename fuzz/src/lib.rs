//! What every fuzz target that reads a file asserts.

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message;
use spangap_meter::ingest::delivery::SKIPPED_KEPT;
use spangap_meter::ingest::file::read_from;
use spangap_meter::ingest::wire::WalkError;
use std::ops::ControlFlow;

/// Reads `bytes` to the end and holds the report to what was handed over.
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
