//! A query for a whole day of a history with many pairs: its duration, its memory, and its effect on other
//! requests.

use super::{Bench, wrong};
use crate::BenchError;
use crate::generate::Random;
use serde::Serialize;
use spangap_meter::engine::PairMinute;
use spangap_meter::history::{Checkpoint, History, HistoryError, Limits, Waiting};
use spangap_meter::report::PairsReport;
use spangap_model::pair::{KeptSide, WholeSpan};
use spangap_model::shared::SharedBytes;
use spangap_model::{Accounting, CallStatus, KeptCall, PairKey, PairStats};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Calls per pair and minute.
const CALLS: u64 = 64;
/// Different minutes; each row of the history is one of them, with its own name and worst calls.
const MINUTES_MADE: u64 = 1_000;
/// Number of queries.
const QUESTIONS: usize = 5;
/// Interval between the other requests, which must not be delayed.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// Cost of one query for all of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HistoryFigure {
    /// Pairs in the history.
    pub pairs: u64,
    /// Hours in it.
    pub hours: u64,
    pub file_bytes: u64,
    /// Time to read the file once from the page cache.
    pub read_ms: f64,
    /// Median of the queries.
    pub question_ms: f64,
    /// CPU time of the meter for one of them.
    pub question_cpu_ms: f64,
    /// Growth of the peak resident memory.
    pub grown_bytes: u64,
    /// Maximum duration of `/api/v1/coverage` meanwhile.
    pub coverage_ms: f64,
}

/// Writes a history with the meter's own writer, and queries all of it.
///
/// # Errors
/// The history cannot be written, or the meter fails.
pub async fn run(bench: &Bench, pairs: u64, hours: u64) -> Result<HistoryFigure, BenchError> {
    let data = TempDir::new().map_err(BenchError::file(std::env::temp_dir()))?;
    let (path, end_s) = write(data.path(), pairs, hours, u64::MAX)?;
    let (file_bytes, read_ms) = read(&path).map_err(BenchError::file(&path))?;

    let meter = Arc::new(bench.start_over(data, &["--history-size", "64GiB"])?);
    meter.coverage().await?;
    let (resident_before, _) = meter.resident_bytes()?;
    let done = Arc::new(AtomicBool::new(false));
    let probe = tokio::spawn({
        let (meter, done) = (meter.clone(), done.clone());
        async move {
            let mut longest = Duration::ZERO;
            while !done.load(Relaxed) {
                let asked = Instant::now();
                meter.coverage().await?;
                longest = longest.max(asked.elapsed());
                tokio::time::sleep(PROBE_EVERY).await;
            }
            Ok::<_, BenchError>(longest)
        }
    });
    let path = format!("/api/v1/pairs?from={}&to={}", end_s - hours * 3_600, end_s - 1);
    let mut times_ms = Vec::new();
    let mut report = PairsReport::default();
    let cpu_before = meter.cpu_time()?.total_us();
    for _ in 0..QUESTIONS {
        let asked = Instant::now();
        report = meter.get(&path).await?;
        times_ms.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    let cpu_us = meter.cpu_time()?.total_us() - cpu_before;
    done.store(true, Relaxed);
    let coverage = probe.await.map_err(BenchError::peer("the probe"))??;
    let calls: u64 = report.pairs.iter().map(|pair| pair.calls).sum();
    if (report.pairs.len() as u64, calls) != (pairs, pairs * hours * 60 * CALLS) {
        let reason = format!("{} pairs with {calls} calls in {path}", report.pairs.len());
        return Err(wrong(&meter, reason));
    }
    let (_, peak) = meter.resident_bytes()?;
    times_ms.sort_by(f64::total_cmp);
    Ok(HistoryFigure {
        pairs,
        hours,
        file_bytes,
        read_ms,
        question_ms: times_ms[QUESTIONS / 2],
        question_cpu_ms: cpu_us as f64 / 1e3 / QUESTIONS as f64,
        grown_bytes: peak.saturating_sub(resident_before),
        coverage_ms: coverage.as_secs_f64() * 1e3,
    })
}

/// Writes a history up to the previous minute into a folder, kept below a size as a meter keeps it; returns its file, and its end in Unix
/// seconds.
///
/// # Errors
/// The history cannot be written.
pub fn write(folder: &Path, pairs: u64, hours: u64, max_bytes: u64) -> Result<(PathBuf, u64), BenchError> {
    let path = folder.join("history.sqlite");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let end_s = now - now % 60;
    fill(&path, (pairs, hours * 60), max_bytes, end_s).map_err(|error| BenchError::Program {
        program: "the history's writer".into(),
        reason: error.to_string(),
    })?;
    Ok((path, end_s))
}

/// Bytes of the file, and the duration of the second read.
fn read(path: &Path) -> std::io::Result<(u64, f64)> {
    let mut all = (0, 0.0);
    for _ in 0..2 {
        let begun = Instant::now();
        let (mut file, mut buffer, mut bytes) = (std::fs::File::open(path)?, vec![0; 1 << 20], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
        all = (bytes, begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(all)
}

fn fill(path: &Path, (pairs, minutes): (u64, u64), max_bytes: u64, end_s: u64) -> Result<(), HistoryError> {
    let mut random = Random(1);
    let made: Vec<PairStats> = (0..MINUTES_MADE).map(|i| statistics(&mut random, i)).collect();
    let keys: Vec<PairKey> = (0..pairs).map(key).collect();
    let resources: Vec<SharedBytes> = (0..pairs).map(resource).collect();
    let limits = Limits { max_age_s: u64::MAX, max_bytes };
    let start_s = end_s - minutes * 60;
    let mut history = History::open(Some(path), limits, start_s)?;
    let mut waiting = Waiting::new(history.generation(), u64::MAX);
    for unix_s in (start_s..end_s).step_by(60) {
        let rows = keys.iter().zip(&resources).map(|(key, resource)| {
            let mut stats = made[(random.below(MINUTES_MADE)) as usize].clone();
            let largest_ns = stats.gap.max_ns().unwrap_or(0);
            for rank in 0..5 {
                stats.keep_worst(worst_call(&mut random, largest_ns - rank * 1_000, unix_s, resource));
            }
            PairMinute { unix_s, key: key.clone(), stats }
        });
        waiting.push(rows.collect());
        history.checkpoint(&Checkpoint {
            now_unix_s: unix_s + 60,
            closed: &waiting.batches(),
            open: &[],
            settled_before_s: unix_s + 60,
            spans: &Accounting::default(),
            counted: None,
        })?;
        waiting.written(history.generation());
        while history.maintain()? {}
    }
    history.close(end_s)
}

fn key(pair: u64) -> PairKey {
    PairKey {
        client: format!("client-service-{}", pair / 10).into(),
        server: format!("server-service-{pair}").into(),
        method: None,
    }
}

fn resource(pair: u64) -> SharedBytes {
    let text: String =
        (0..12).map(|i| format!("k8s.attribute.{i}=value-{}-{pair};", pair * 7919 % 1013)).collect();
    text.into_bytes().into()
}

/// A minute of one pair: gaps and durations with long tails, legs known.
fn statistics(random: &mut Random, number: u64) -> PairStats {
    let mut stats = PairStats::default();
    for _ in 0..CALLS {
        let gap_ns = random.log_normal(300_000.0 * (1.0 + (number % 20) as f64), 0.6);
        let server_ns = random.log_normal(3_000_000.0, 0.8);
        stats.gap.record(gap_ns);
        stats.client.record(gap_ns + server_ns);
        stats.server.record(server_ns);
        stats.request_leg.record(gap_ns / 3);
        stats.response_leg.record(gap_ns - gap_ns / 3);
        stats.mate_delay.record(random.log_normal(500.0, 1.0) * 1_000_000);
    }
    stats.leg_bound_max_ns = 80_000;
    stats.leg_bound_sum_ns = CALLS as u128 * 50_000;
    stats
}

fn worst_call(random: &mut Random, gap_ns: u64, unix_s: u64, resource: &SharedBytes) -> KeptCall {
    let mut side = || {
        let attributes: String =
            (0..10).map(|i| format!("attribute.{i}={:x};", random.bits() >> 20)).collect();
        KeptSide {
            start_unix_ns: unix_s * 1_000_000_000 + random.below(1_000_000_000),
            duration_ns: gap_ns + random.below(10_000_000),
            host: Some("node-17".into()),
            whole: Some(WholeSpan { resource: resource.clone(), span: attributes.into_bytes().into() }),
        }
    };
    let (client, server) = (side(), side());
    let mut trace_id = [0; 16];
    trace_id.chunks_exact_mut(8).for_each(|half| half.copy_from_slice(&random.bits().to_be_bytes()));
    let client_span_id = random.bits().to_be_bytes();
    KeptCall {
        gap_ns,
        trace_id,
        client_span_id,
        status: CallStatus::from_grpc(0),
        legs: None,
        client,
        server,
    }
}
