//! CPU time per span of the meter's process, and the wall time.

use super::{Bench, payloads, wrong};
use crate::BenchError;
use crate::payload::{Payload, Wire};
use crate::send::{Exporter, IN_FLIGHT};
use crate::workload::Workload;
use serde::Serialize;
use std::sync::Arc;

/// Sixteen requests of an agent, 4 MB each, exceed the default.
const REQUEST_BUDGET: &str = "--request-budget=128MiB";

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    /// CPU time per span in microseconds, including the kernel.
    pub cpu_us_per_span: f64,
    /// Its part in user mode.
    pub user_us_per_span: f64,
    /// Accepted spans per second of wall time.
    pub spans_per_s: f64,
    /// Bytes of the bodies per span.
    pub wire_bytes_per_span: f64,
}

/// Runs a fresh meter: one pass to warm it up, then `passes` measured ones.
///
/// # Errors
/// The meter fails, or does not count every accepted span.
pub async fn run(
    bench: &Bench,
    workload: &Arc<Workload>,
    wire: Wire,
    passes: u32,
) -> Result<Run, BenchError> {
    // Encoded beforehand: compression is the sender's work, and must not slow the load down.
    let warm_up: Vec<Payload> = payloads(workload, 0..1, wire).collect();
    let measured: Vec<Payload> = payloads(workload, 1..1 + passes, wire).collect();
    let bytes: usize = measured.iter().map(|payload| payload.body.len()).sum();

    let meter = bench.start(&[REQUEST_BUDGET])?;
    let exporter = Exporter::connect(&meter, wire, IN_FLIGHT).await?;
    let warm = exporter.send_all(warm_up.into_iter(), IN_FLIGHT).await?;
    let before = meter.cpu_time()?;
    let sent = exporter.send_all(measured.into_iter(), IN_FLIGHT).await?;
    let after = meter.cpu_time()?;

    let spans = meter.pairs().await?.spans;
    let accepted = warm.accepted_spans + sent.accepted_spans;
    if spans.received != accepted || sent.refused > 0 {
        let reason = format!(
            "received {} of {accepted} accepted spans, refused {} requests",
            spans.received, sent.refused
        );
        return Err(wrong(&meter, reason));
    }
    let per_span = |us: u64| us as f64 / sent.accepted_spans as f64;
    Ok(Run {
        cpu_us_per_span: per_span(after.total_us() - before.total_us()),
        user_us_per_span: per_span(after.user_us - before.user_us),
        spans_per_s: sent.accepted_spans as f64 / sent.seconds,
        wire_bytes_per_span: bytes as f64 / sent.accepted_spans as f64,
    })
}
