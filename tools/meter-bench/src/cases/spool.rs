//! Cost of storing all spans: one engine with a spool and one without, on the same requests, in turns. It
//! includes the CPU time of the whole process, because the spool writes in its own thread. Also measures the
//! look-up of traces.

use super::samples::quartiles;
use crate::BenchError;
use crate::floor::thread_cpu_us;
use crate::workload::Workload;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::spool::block::Coding;
use spangap_meter::spool::{Request, Spool, SpoolSettings};
use std::path::Path;
use std::time::Instant;

/// Interval between passes in milliseconds of the meter's clock.
const PASS_MS: u64 = 1_000;
/// Number of look-ups.
const LOOKUPS: usize = 200;

/// CPU time per span, microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct SpoolFigure {
    /// Whether requests arrived compressed with gzip.
    pub gzip: bool,
    /// Passes of each.
    pub rounds: u32,
    /// Median without the spool.
    pub without_us_per_span: f64,
    /// Median with the spool.
    pub with_us_per_span: f64,
    /// Median of the differences of neighbouring rounds.
    pub cost_us_per_span: f64,
    /// First and third quartile of these differences.
    pub cost_quartiles_us: [f64; 2],
    /// Bytes on disk per stored span.
    pub bytes_per_span: f64,
    /// Spans stored at the end.
    pub kept_spans: u64,
    /// Spans not stored.
    pub not_kept: u64,
    /// Files at the end.
    pub segments: u64,
    /// Median and maximum duration of a look-up, milliseconds.
    pub lookup_ms: [f64; 2],
    /// The same in CPU time, which does not depend on the load of the machine.
    pub lookup_cpu_ms: [f64; 2],
}

fn process_cpu_us(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let start = now();
    work();
    now() - start
}

/// Walks, joins and stores the workload in turns; the first round of each warms up.
///
/// # Errors
/// When the folder cannot be used.
pub fn run(workload: &Workload, rounds: u32, gzip: bool, folder: &Path) -> Result<SpoolFigure, BenchError> {
    let spans = workload.spans().max(1) as f64;
    let folder = folder.join("spool");
    let _ = std::fs::remove_dir_all(&folder);
    let settings = SpoolSettings {
        folder: folder.clone(),
        keep_ms: 3_600_000,
        max_bytes: 8 << 30,
        queue_bytes: 64 << 20,
    };
    let opened = std::time::SystemTime::UNIX_EPOCH;
    let spool = Spool::open(settings, move || opened.elapsed().map_or(0, |since| since.as_millis() as u64));
    let spool = spool.map_err(failed)?;
    let meters = [Meter::new(Settings::default()), Meter::new(Settings::default())];
    let mut times = [Vec::new(), Vec::new()];
    let mut ids = Vec::new();
    for round in 0..=rounds {
        let requests: Vec<(Vec<u8>, bytes::Bytes)> = workload
            .batches
            .iter()
            .map(|batch| {
                let plain = batch.of_pass(round).to_vec();
                let arrived = if gzip { compressed(&plain) } else { plain.clone() };
                (plain, arrived.into())
            })
            .collect();
        let now_ms = u64::from(round) * PASS_MS + 1;
        // The second one finds the requests in the cache, so the order alternates.
        for turn in 0..2 {
            let which = (turn + round as usize) % 2;
            let took_us = process_cpu_us(|| {
                let mut ahead = 0;
                for (plain, arrived) in &requests {
                    // A sender waits for its answers; this loop does not, and without a flush the queue would
                    // only measure its speed.
                    ahead += arrived.len();
                    if which == 1 && ahead > 32 << 20 {
                        spool.flush();
                        ahead = 0;
                    }
                    match which {
                        0 => drop(meters[0].ingest(plain, now_ms)),
                        _ => ingest_and_keep(&meters[1], &spool, plain, arrived, gzip, now_ms),
                    }
                }
                meters[which].tick(now_ms);
                if which == 1 {
                    spool.flush();
                }
            });
            if round > 0 {
                times[which].push(took_us / spans);
            }
        }
        let every = (requests.len() * (rounds as usize + 1) / LOOKUPS).max(1);
        for (plain, _) in requests.iter().step_by(every) {
            let _ = spangap_meter::spool::traces::trace_ids(plain, |trace| {
                if ids.len() < LOOKUPS * 2 {
                    ids.push(trace);
                }
            });
        }
    }
    let (mut looked, mut looked_cpu) = (Vec::new(), Vec::new());
    let step = (ids.len() / LOOKUPS).max(1);
    for id in ids.iter().step_by(step) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&id[1].to_ne_bytes());
        let begun = Instant::now();
        let mut kept = None;
        looked_cpu.push(thread_cpu_us(|| kept = Some(spool.find(&bytes))) / 1e3);
        looked.push(begun.elapsed().as_secs_f64() * 1e3);
        let spans = kept.map_or(0, |kept| kept.trace.spans);
        if spans == 0 && spool.figures().not_kept_queue == 0 {
            return Err(failed("a trace that was kept is not found"));
        }
    }
    let figures = spool.figures();
    drop(spool);
    let _ = std::fs::remove_dir_all(&folder);
    let [without, with] = &times;
    let differences = with.iter().zip(without).map(|(with, without)| with - without).collect();
    let [low, cost, high] = quartiles(differences);
    Ok(SpoolFigure {
        gzip,
        rounds,
        without_us_per_span: quartiles(without.clone())[1],
        with_us_per_span: quartiles(with.clone())[1],
        cost_us_per_span: cost,
        cost_quartiles_us: [low, high],
        bytes_per_span: figures.bytes as f64 / figures.spans.max(1) as f64,
        kept_spans: figures.spans,
        not_kept: figures.not_kept_queue + figures.not_kept_disk + figures.not_kept_large,
        segments: figures.segments,
        lookup_ms: middle_and_most(looked),
        lookup_cpu_ms: middle_and_most(looked_cpu),
    })
}

fn middle_and_most(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    [values.get(values.len() / 2), values.last()].map(|value| value.copied().unwrap_or(f64::NAN))
}

fn failed(reason: impl ToString) -> BenchError {
    BenchError::Program { program: "spool".into(), reason: reason.to_string() }
}

fn ingest_and_keep(
    meter: &Meter,
    spool: &Spool,
    plain: &[u8],
    arrived: &bytes::Bytes,
    gzip: bool,
    now_ms: u64,
) {
    let mut digests = Vec::new();
    let Ok(ingested) = meter.ingest_seen(plain, now_ms, |spans| digests = spool.digests(spans)) else {
        return;
    };
    spool.keep(Request {
        bytes: arrived.clone(),
        coding: if gzip { Coding::Gzip } else { Coding::Plain },
        plain_len: plain.len() as u32,
        digests,
        spans: ingested.spans as u32,
        unix_ms: std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64),
    });
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory does not fail.
    let _ = gzip.write_all(plain);
    gzip.finish().unwrap_or_default()
}
