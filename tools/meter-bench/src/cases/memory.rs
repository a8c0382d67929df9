//! Memory of spans whose mates never arrive.

use super::{Bench, payloads, wrong};
use crate::BenchError;
use crate::generate::{Shape, generate};
use crate::payload::Wire;
use crate::send::{Exporter, IN_FLIGHT};
use serde::Serialize;
use std::sync::Arc;

const SPANS_A_PASS: u64 = 1_000_000;

/// Memory of the meter with pending spans.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Number of pending spans.
    pub pending: u64,
    /// Resident bytes before the first span.
    pub start_bytes: u64,
    /// Resident bytes with all of them pending.
    pub resident_bytes: u64,
    /// Peak resident bytes.
    pub peak_bytes: u64,
}

impl Memory {
    /// Resident bytes added per pending span, including the fixed part.
    pub fn bytes_per_span(&self) -> f64 {
        self.resident_bytes.saturating_sub(self.start_bytes) as f64 / self.pending as f64
    }
}

/// Sends `pending` CLIENT spans without SERVER spans, with a time to live that retains them all.
///
/// # Errors
/// The meter fails, or does not retain all of them.
pub async fn run(bench: &Bench, pending: u64) -> Result<Memory, BenchError> {
    let passes = pending.div_ceil(SPANS_A_PASS) as u32;
    let shape = Shape { spans: pending / u64::from(passes), missing_servers: 1.0, ..Shape::default() };
    let workload = Arc::new(generate(&shape).0);
    let meter = bench.start(&["--join-ttl", "30m"])?;
    let (start_bytes, _) = meter.resident_bytes()?;
    let exporter = Exporter::connect(&meter, Wire::GRPC, IN_FLIGHT).await?;
    let sent = exporter.send_all(payloads(&workload, 0..passes, Wire::GRPC), IN_FLIGHT).await?;
    let (resident_bytes, peak_bytes) = meter.resident_bytes()?;
    let spans = meter.pairs().await?.spans;
    if spans.pending != sent.accepted_spans || sent.refused > 0 {
        let reason = format!(
            "holds {} of {} pending spans, evicted {}, refused {} requests",
            spans.pending, sent.accepted_spans, spans.evicted, sent.refused
        );
        return Err(wrong(&meter, reason));
    }
    Ok(Memory { pending: spans.pending, start_bytes, resident_bytes, peak_bytes })
}
