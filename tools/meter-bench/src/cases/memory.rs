//! Memory of spans that wait for mates that never come.

use super::{Bench, payloads, wrong};
use crate::BenchError;
use crate::generate::{Shape, generate};
use crate::payload::Wire;
use crate::send::{Exporter, IN_FLIGHT};
use serde::Serialize;
use std::sync::Arc;

const SPANS_A_PASS: u64 = 1_000_000;

/// What the meter takes for its pending spans.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Spans that wait.
    pub pending: u64,
    /// Resident bytes before the first span.
    pub start_bytes: u64,
    /// Resident bytes with all of them waiting.
    pub resident_bytes: u64,
    /// The most that was ever resident.
    pub peak_bytes: u64,
}

impl Memory {
    /// Resident bytes that came with each pending span, the fixed part included.
    pub fn bytes_per_span(&self) -> f64 {
        self.resident_bytes.saturating_sub(self.start_bytes) as f64 / self.pending as f64
    }
}

/// Sends `pending` CLIENT spans that no SERVER span follows, under a time to live that keeps them all.
///
/// # Errors
/// The meter fails, or does not hold every one of them.
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
