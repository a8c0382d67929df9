//! Twice the meter's capacity: it must stay within its memory, account for every span, and recover at once.
//!
//! A sender needs about as much CPU as the meter, so one core of load cannot offer twice the capacity of one
//! core of meter. Busy neighbours on the meter's core leave it a third of that core; its capacity is then
//! measured first, and twice that is offered.

use super::{Bench, payloads};
use crate::BenchError;
use crate::payload::Wire;
use crate::process::Neighbours;
use crate::send::{Exporter, IN_FLIGHT, Sent};
use crate::workload::Workload;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of open requests: many exporters, each with a few. Together they exceed the meter's budget
/// for requests in progress, so that it must refuse.
pub const OPEN_REQUESTS: usize = 1024;
/// Busy processes on the meter's core.
const NEIGHBOURS: usize = 2;
/// Small enough to fill up within the minute.
const PENDING_LIMIT: &str = "--max-pending-bytes=128MiB";

/// Results of the overload.
#[derive(Clone, Debug, Serialize)]
pub struct Overload {
    /// Spans per second that the meter accepts beside its neighbours, without refusals.
    pub capacity_spans_per_s: f64,
    /// Scheduled spans per second, twice the capacity.
    pub target_spans_per_s: f64,
    /// Spans per second sent, accepted or refused; the rest waited at the sender for an open request to end.
    pub offered_spans_per_s: f64,
    /// Spans per second that were accepted.
    pub accepted_spans_per_s: f64,
    /// Requests refused with a retryable error, according to the sender.
    pub refused_requests: u64,
    /// Requests refused according to the meter.
    pub refused_counted: u64,
    /// Spans accepted according to the sender's answers.
    pub accepted_spans: u64,
    /// Spans received according to the meter.
    pub received_spans: u64,
    /// The sum of the meter's classes.
    pub classified_spans: u64,
    /// Spans evicted because the store was full.
    pub evicted_spans: u64,
    /// Peak resident bytes.
    pub peak_bytes: u64,
    /// The meter's limit of the store of pending spans.
    pub pending_bytes_limit: u64,
    /// Time from the last answer of the overload to the answer of an API request.
    pub api_recovery_ms: f64,
    /// Duration of a batch after that; `None` if it was refused.
    pub batch_recovery_ms: Option<f64>,
}

impl Overload {
    /// Whether every accepted span is in some class, and every refusal was counted.
    pub fn accounted(&self) -> bool {
        self.accepted_spans == self.received_spans
            && self.received_spans == self.classified_spans
            && self.refused_requests == self.refused_counted
    }
}

/// Measures the meter's capacity, and offers twice that for `duration`.
///
/// # Errors
/// The meter fails, or answers with neither acceptance nor refusal.
pub async fn run(
    bench: &Bench,
    workload: &Arc<Workload>,
    duration: Duration,
) -> Result<Overload, BenchError> {
    let wire = Wire::GRPC;
    let meter = bench.start(&[PENDING_LIMIT])?;
    let neighbours = bench.on_meter_cpu(|| Neighbours::start(NEIGHBOURS))?;
    let exporter = Exporter::connect(&meter, wire, OPEN_REQUESTS).await?;
    // Two passes, of which the first warms the meter up.
    let warm = exporter.send_all(payloads(workload, 0..1, wire), IN_FLIGHT).await?;
    let taken = exporter.send_all(payloads(workload, 1..2, wire), IN_FLIGHT).await?;
    let capacity = taken.accepted_spans as f64 / taken.seconds;
    let spans_per_s = 2.0 * capacity;
    let endless = payloads(workload, 2..u32::MAX - 1, wire);
    let sent = exporter.send_at_rate(endless, OPEN_REQUESTS, spans_per_s, duration).await?;

    let stopped = Instant::now();
    meter.coverage().await?;
    let api_recovery_ms = stopped.elapsed().as_secs_f64() * 1e3;
    let probing = Instant::now();
    let probe = payloads(workload, u32::MAX - 1..u32::MAX, wire).take(1);
    let probe: Sent = exporter.send_all(probe, IN_FLIGHT).await?;
    let batch_recovery_ms = (probe.refused == 0).then(|| probing.elapsed().as_secs_f64() * 1e3);

    drop(neighbours);
    let coverage = meter.coverage().await?;
    let (_, peak_bytes) = meter.resident_bytes()?;
    let spans = &coverage.spans;
    let all = [&warm, &taken, &sent, &probe];
    Ok(Overload {
        capacity_spans_per_s: capacity,
        target_spans_per_s: spans_per_s,
        offered_spans_per_s: sent.offered_spans() as f64 / sent.seconds,
        accepted_spans_per_s: sent.accepted_spans as f64 / sent.seconds,
        refused_requests: all.iter().map(|sent| sent.refused).sum(),
        refused_counted: coverage.refused_requests,
        accepted_spans: all.iter().map(|sent| sent.accepted_spans).sum(),
        received_spans: spans.received,
        classified_spans: spans.classified(),
        evicted_spans: spans.evicted,
        peak_bytes,
        pending_bytes_limit: coverage.pending_bytes_limit,
        api_recovery_ms,
        batch_recovery_ms,
    })
}
