//! The part of a span's processing under locks, those of a lane and a shard: with one lane, it bounds the throughput of any number of
//! cores.

use super::samples::quartiles;
use crate::floor::thread_cpu_us;
use crate::workload::Workload;
use serde::Serialize;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::ingest::origins::Origins;
use spangap_meter::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use spangap_meter::ingest::walk::{Batch, walk};

/// Interval between passes in milliseconds of the meter's clock.
const PASS_MS: u64 = 1_000;

/// CPU time per span on one thread, microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LockFigure {
    /// Passes.
    pub rounds: u32,
    /// Median of the walk including interned resources, which takes a lock only to read them.
    pub walk_us_per_span: f64,
    /// Median of the complete processing.
    pub ingest_us_per_span: f64,
    /// Median of the differences: the work under the lock.
    pub locked_us_per_span: f64,
    /// First and third quartile of these differences.
    pub locked_quartiles_us: [f64; 2],
}

/// Runs the walk alone and the complete processing in turns; the first round warms up.
pub fn run(workload: &Workload, rounds: u32) -> LockFigure {
    let spans = workload.spans().max(1) as f64;
    let settings = Settings::default();
    let interest = Interest::new(false, &RESPONSE_SIZE_ATTRIBUTES);
    let origins = Origins::new(settings.origin_limits, settings.grouping.part());
    let meter = Meter::new(settings);
    let mut batch = Batch::default();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        let requests: Vec<Vec<u8>> =
            workload.batches.iter().map(|batch| batch.of_pass(round).to_vec()).collect();
        let now_ms = u64::from(round) * PASS_MS + 1;
        // The second one finds the requests in the cache, so the order alternates.
        for turn in 0..2 {
            let which = (turn + round as usize) % 2;
            let took_us = thread_cpu_us(|| {
                for request in &requests {
                    match which {
                        0 => _ = walk(request, &interest, &origins, &mut batch),
                        _ => _ = meter.ingest(request, now_ms),
                    }
                }
            });
            if round > 0 {
                times[which].push(took_us / spans);
            }
        }
        meter.tick(now_ms);
    }
    let [walked, ingested] = &times;
    let differences = ingested.iter().zip(walked).map(|(ingested, walked)| ingested - walked).collect();
    let [low, locked, high] = quartiles(differences);
    LockFigure {
        rounds,
        walk_us_per_span: quartiles(walked.clone())[1],
        ingest_us_per_span: quartiles(ingested.clone())[1],
        locked_us_per_span: locked,
        locked_quartiles_us: [low, high],
    }
}
