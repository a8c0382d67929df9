//! Comparison of two arms: for each load point and metric the ratio, its uncertainty, and a verdict.
//!
//! Nothing here reads a file or a clock.

pub mod arms;
pub mod statistics;
mod words;

use crate::report::Run;
use crate::report::table::median;
use arms::{ArmPair, Difference, PointPair, interleaved};
use serde::Serialize;
use statistics::{Figures, adjusted_probabilities, shift, smallest_probability};

/// Coverage of the intervals, and one minus the rate of false alarms.
pub const CONFIDENCE: f64 = 0.95;

/// A metric of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    ThroughputPerS,
    P50Ns,
    P99Ns,
    P999Ns,
    CpuClientSPerCall,
    CpuTargetSPerCall,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 6] = [
        Metric::ThroughputPerS,
        Metric::P50Ns,
        Metric::P99Ns,
        Metric::P999Ns,
        Metric::CpuClientSPerCall,
        Metric::CpuTargetSPerCall,
    ];

    /// Display name, also accepted by `--metric`.
    pub fn name(self) -> &'static str {
        match self {
            Metric::ThroughputPerS => "throughput",
            Metric::P50Ns => "p50",
            Metric::P99Ns => "p99",
            Metric::P999Ns => "p99.9",
            Metric::CpuClientSPerCall => "cpu-client",
            Metric::CpuTargetSPerCall => "cpu-target",
        }
    }

    /// Value: nanoseconds, seconds or calls per second; `None` if the run lacks it, or has 0, which forms no
    /// ratio.
    pub fn of(self, run: &Run) -> Option<f64> {
        let per_call = |total: f64| (run.calls > 0).then(|| total / run.calls as f64);
        let value = match self {
            Metric::ThroughputPerS => Some(run.throughput_per_s),
            Metric::P50Ns => run.latency.p50_ns.map(|ns| ns as f64),
            Metric::P99Ns => run.latency.p99_ns.map(|ns| ns as f64),
            Metric::P999Ns => run.latency.p999_ns.map(|ns| ns as f64),
            Metric::CpuClientSPerCall => per_call(run.cpu_client_s),
            Metric::CpuTargetSPerCall => run.cpu_target_s.and_then(per_call),
        };
        value.filter(|value| *value > 0.0 && value.is_finite())
    }

    /// Whether it measures speed; the others measure cost.
    pub fn is_speed(self) -> bool {
        !matches!(self, Metric::CpuClientSPerCall | Metric::CpuTargetSPerCall)
    }
}

/// Verdict on arm B against arm A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmVerdict {
    /// More throughput, or less latency.
    Faster,
    /// Less throughput, or more latency.
    Slower,
    /// Less CPU per call.
    Cheaper,
    /// More CPU per call.
    Dearer,
    /// The interval shows how large a difference could have been missed.
    NoDifferenceSeen,
    /// `words` gives the reason.
    CannotTell,
}

/// One metric at one load point.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The varying settings of the runs, and the load.
    pub point: String,
    /// Metric.
    pub metric: Metric,
    /// Number of runs of arm A.
    pub runs_a: usize,
    /// Number of runs of arm B.
    pub runs_b: usize,
    /// Median of arm A's runs that have the metric.
    pub median_a: Option<f64>,
    /// The same for arm B.
    pub median_b: Option<f64>,
    /// B / A: the median of the ratios of all pairs of runs.
    pub ratio: Option<f64>,
    /// Lower bound of its confidence interval for this comparison alone; null with too few runs.
    pub ratio_low: Option<f64>,
    /// Upper bound.
    pub ratio_high: Option<f64>,
    /// Probability that chance alone makes any comparison of this report differ this much; null if not
    /// compared.
    pub adjusted_probability: Option<f64>,
    /// Whether the runs of the arms alternated in time; null if unknown.
    pub interleaved: Option<bool>,
    /// Verdict.
    pub verdict: ArmVerdict,
    /// Verdict in words.
    pub words: String,
    /// Why there is no verdict, if there is none.
    #[serde(skip)]
    pub without_verdict: Option<String>,
}

/// Two arms.
#[derive(Clone, Debug, Serialize)]
pub struct PairComparison {
    /// Name of arm A.
    pub a: String,
    /// Name of arm B.
    pub b: String,
    /// Settings in which they differ.
    pub differs: Vec<Difference>,
    /// Every metric at every load point that both arms have.
    pub rows: Vec<Row>,
    /// Load points of arm A alone.
    pub only_a: Vec<String>,
    /// Load points of arm B alone.
    pub only_b: Vec<String>,
    /// Caveats.
    pub warnings: Vec<String>,
}

/// `spangap bench compare --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Summary, with verdicts before limitations.
    pub summary: String,
    /// Pairs of arms.
    pub pairs: Vec<PairComparison>,
    /// Number of comparisons, for which the verdicts are jointly adjusted.
    pub comparisons: usize,
    /// Coverage of the intervals; 1 minus this bounds the probability of any false verdict.
    pub confidence: f64,
    /// Repetitions that each arm needs for a verdict.
    pub runs_needed: usize,
}

/// Minimum repetitions of each arm for a verdict, when this many pairs of arms are compared.
fn runs_needed(pairs: usize) -> usize {
    let enough = |n: &usize| smallest_probability(*n, *n) * pairs.max(1) as f64 <= 1.0 - CONFIDENCE;
    (2..).find(enough).unwrap_or(usize::MAX)
}

/// Compares the arms of each pair in these metrics.
pub fn compare(pairs: &[ArmPair], metrics: &[Metric]) -> Comparison {
    let needed = runs_needed(pairs.len());
    let compared: Vec<PairComparison> =
        pairs.iter().map(|pair| compare_pair(pair, metrics, pairs.len(), needed)).collect();
    let comparisons = compared.iter().flat_map(|pair| &pair.rows).filter(|row| row.ratio.is_some()).count();
    let summary = words::summary(&compared);
    Comparison { summary, pairs: compared, comparisons, confidence: CONFIDENCE, runs_needed: needed }
}

fn compare_pair(pair: &ArmPair, metrics: &[Metric], pairs: usize, needed: usize) -> PairComparison {
    let points = pair.points();
    let one_sided = |of: fn(&PointPair) -> bool| -> Vec<String> {
        points.iter().filter(|point| of(point)).map(|point| point.name.clone()).collect()
    };
    let only_a = one_sided(|point| point.b.is_empty());
    let only_b = one_sided(|point| point.a.is_empty());
    let both: Vec<&PointPair> =
        points.iter().filter(|point| !point.a.is_empty() && !point.b.is_empty()).collect();
    // Repetition k of every point is one unit: a disturbance affects all its figures.
    let most = |of: fn(&PointPair) -> usize| both.iter().map(|point| of(point)).max().unwrap_or(0);
    let (n, m) = (most(|point| point.a.len()), most(|point| point.b.len()));
    let cells: Vec<(&PointPair, Metric, Figures)> = both
        .iter()
        .flat_map(|point| metrics.iter().map(move |metric| (*point, *metric, figures(point, *metric, n, m))))
        .collect();
    let complete = |(point, _, figures): &&(&PointPair, Metric, Figures)| {
        figures.iter().flatten().count() == point.a.len() + point.b.len()
    };
    let family: Vec<Figures> = cells.iter().filter(complete).map(|cell| cell.2.clone()).collect();
    // Several pairs share the error budget: Bonferroni between pairs, maxT within one.
    let mut adjusted = adjusted_probabilities(&family, n).into_iter().map(|p| (p * pairs as f64).min(1.0));
    let rows = cells
        .iter()
        .map(|cell| {
            let adjusted = if complete(&cell) { adjusted.next() } else { None };
            row(pair, cell.0, cell.1, adjusted, needed)
        })
        .collect();
    let (a, b) = (pair.a.name.clone(), pair.b.name.clone());
    let warnings = warnings(pair, both.is_empty());
    PairComparison { a, b, differs: pair.differs.clone(), rows, only_a, only_b, warnings }
}

/// Logarithms of a metric: `n` entries for the runs of arm A, then `m` for those of arm B.
fn figures(point: &PointPair, metric: Metric, n: usize, m: usize) -> Figures {
    let places = |runs: &[&Run], count: usize| -> Figures {
        (0..count).map(|k| runs.get(k).and_then(|run| metric.of(run)).map(f64::ln)).collect()
    };
    [places(&point.a, n), places(&point.b, m)].concat()
}

fn row(pair: &ArmPair, point: &PointPair, metric: Metric, adjusted: Option<f64>, needed: usize) -> Row {
    let values = |runs: &[&Run]| -> Vec<f64> { runs.iter().filter_map(|run| metric.of(run)).collect() };
    let (a, b) = (values(&point.a), values(&point.b));
    let logarithms = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.ln()).collect() };
    // Runs that have the metric are not a sample of those that lack it.
    let shift = adjusted.and_then(|_| shift(&logarithms(&a), &logarithms(&b), CONFIDENCE));
    let interval = shift.and_then(|shift| shift.interval).map(|(low, high)| (low.exp(), high.exp()));
    let mut row = Row {
        point: point.name.clone(),
        metric,
        runs_a: point.a.len(),
        runs_b: point.b.len(),
        median_a: median(&a),
        median_b: median(&b),
        ratio: shift.map(|shift| shift.estimate.exp()),
        ratio_low: interval.map(|interval| interval.0),
        ratio_high: interval.map(|interval| interval.1),
        adjusted_probability: adjusted,
        interleaved: interleaved(&point.a, &point.b),
        verdict: ArmVerdict::CannotTell,
        words: String::new(),
        without_verdict: None,
    };
    words::judge(&mut row, &pair.b.name, needed, (a.len(), b.len()));
    row
}

fn warnings(pair: &ArmPair, nothing_in_common: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if nothing_in_common {
        warnings.push("no load point is in both arms: there is nothing to compare".into());
    }
    if pair.differs.len() > 1 {
        let fields: Vec<&str> = pair.differs.iter().map(|difference| difference.field).collect();
        warnings.push(format!(
            "{} differ at once: which of them makes the difference cannot be told",
            fields.join(", ")
        ));
    }
    for arm in [&pair.a, &pair.b] {
        let failed: u64 = arm.runs.iter().map(|run| run.calls.saturating_sub(run.ok)).sum();
        let calls: u64 = arm.runs.iter().map(|run| run.calls).sum();
        if failed > 0 {
            warnings
                .push(format!("{}: {failed} of {calls} calls failed; latency is of the others", arm.name));
        }
        let skipped: u64 = arm.runs.iter().map(|run| run.skipped_overload).sum();
        if skipped > 0 {
            warnings.push(format!("{}: {skipped} calls were skipped, and have no latency", arm.name));
        }
        let warned =
            arm.runs.iter().filter(|run| !run.warnings.is_empty() || run.client_error.is_some()).count();
        if warned > 0 {
            warnings.push(format!(
                "{}: {warned} of {} runs carry warnings of their own",
                arm.name,
                arm.runs.len()
            ));
        }
    }
    warnings
}

impl Comparison {
    /// Rows with this verdict, and the pair they belong to.
    pub fn rows_with(&self, verdict: ArmVerdict) -> impl Iterator<Item = (&PairComparison, &Row)> {
        let rows = self.pairs.iter().flat_map(|pair| pair.rows.iter().map(move |row| (pair, row)));
        rows.filter(move |(_, row)| row.verdict == verdict)
    }
}

#[cfg(test)]
mod tests;
