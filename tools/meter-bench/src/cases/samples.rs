//! Cost of the samples of calls: one engine with them and one without, on the same requests, in turns.

use crate::floor::thread_cpu_us;
use crate::workload::Workload;
use serde::Serialize;
use spangap_meter::engine::{Meter, Settings};

/// Interval between passes in milliseconds of the meter's clock: an interval of the samples comprises many
/// passes, as in reality it comprises many requests.
const PASS_MS: u64 = 1_000;

/// CPU time per span of this thread, microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct SamplesFigure {
    /// Passes of each.
    pub rounds: u32,
    /// Median without samples.
    pub without_us_per_span: f64,
    /// Median with them.
    pub with_us_per_span: f64,
    /// Median of the differences of neighbouring rounds.
    pub cost_us_per_span: f64,
    /// First and third quartile of these differences.
    pub cost_quartiles_us: [f64; 2],
}

/// Walks and joins the workload in turns; the first round of each warms up.
pub fn run(workload: &Workload, rounds: u32) -> SamplesFigure {
    let spans = workload.spans().max(1) as f64;
    let meter = |sampled_calls| Meter::new(Settings { sampled_calls, ..Settings::default() });
    let meters = [meter(0), meter(Settings::default().sampled_calls)];
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
                    let _ = meters[which].ingest(request, now_ms);
                }
                meters[which].tick(now_ms);
            });
            if round > 0 {
                times[which].push(took_us / spans);
            }
        }
    }
    let [without, with] = &times;
    let differences = with.iter().zip(without).map(|(with, without)| with - without).collect();
    let [low, cost, high] = quartiles(differences);
    SamplesFigure {
        rounds,
        without_us_per_span: quartiles(without.clone())[1],
        with_us_per_span: quartiles(with.clone())[1],
        cost_us_per_span: cost,
        cost_quartiles_us: [low, high],
    }
}

/// The three quartiles of some values.
pub(super) fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}
