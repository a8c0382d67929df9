//! Expected figures of a workload, and their differences from the meter's answer.

use serde::Deserialize;
use spangap_meter::report::{PairRow, PairsReport};
use spangap_model::histogram::bucket_index;
use std::path::Path;

use crate::BenchError;

/// Content of a workload, known by construction. Reads the workload tool's `.truth.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    pub spans: u64,
    /// CLIENT spans whose SERVER span is missing.
    pub unpaired: u64,
    /// The pairs with at least one complete call.
    pub pairs: Vec<PairTruth>,
}

/// Exact figures of one pair of services.
#[derive(Clone, Debug, Deserialize)]
pub struct PairTruth {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
    /// Number of complete calls.
    pub count: u64,
    /// Sum of their gaps.
    pub sum_ns: u64,
    /// Median gap, by nearest rank like the others.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest gap.
    pub max_ns: u64,
    /// The calls with the largest gaps, largest first.
    pub worst: Vec<WorstTruth>,
}

/// A call with a large gap.
#[derive(Clone, Debug, Deserialize)]
pub struct WorstTruth {
    /// Client duration minus server duration.
    pub gap_ns: u64,
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub client_span_id: String,
}

impl Truth {
    /// Reads a truth file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Truth, BenchError> {
        let text = std::fs::read_to_string(path).map_err(BenchError::file(path))?;
        serde_json::from_str(&text).map_err(|error| BenchError::Program {
            program: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// All differences between the truth and the meter's report, in words. `sent_times` is the number of
    /// times each batch was sent; repeated spans are duplicates.
    pub fn differences(&self, report: &PairsReport, sent_times: u64) -> Vec<String> {
        let mut found = Differences::default();
        let joined: u64 = self.pairs.iter().map(|pair| 2 * pair.count).sum();
        let spans = &report.spans;
        found.count("spans received", self.spans * sent_times, spans.received);
        found.count("spans joined", joined, spans.joined);
        let waiting = spans.pending + spans.expired_client_only + spans.expired_server_only;
        found.count("spans without mate", self.unpaired, waiting);
        found.count("duplicate spans", self.spans * (sent_times - 1), spans.duplicate);
        found.count("pairs", self.pairs.len() as u64, report.pairs.len() as u64);
        for truth in &self.pairs {
            let name = format!("{} -> {}", truth.client, truth.server);
            match report.pairs.iter().find(|row| row.client == truth.client && row.server == truth.server) {
                Some(row) => found.pair(&name, truth, row),
                None => found.0.push(format!("{name}: expected {} calls, not in the report", truth.count)),
            }
        }
        found.0
    }
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn count(&mut self, what: &str, expected: u64, found: u64) {
        if expected != found {
            self.0.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    /// Quantiles are known to within their bucket, so an adjacent bucket is accepted.
    fn quantile(&mut self, what: &str, expected_ns: u64, found_ns: u64) {
        let bucket = |ns: u64| if ns == 0 { i32::MIN / 2 } else { bucket_index(ns) };
        if (bucket(expected_ns) - bucket(found_ns)).abs() > 1 {
            self.0.push(format!("{what}: expected {expected_ns} ns to within a bucket, found {found_ns} ns"));
        }
    }

    fn pair(&mut self, name: &str, truth: &PairTruth, row: &PairRow) {
        self.count(&format!("{name}: calls"), truth.count, row.calls);
        self.count(&format!("{name}: gaps"), truth.count, row.gap.count);
        self.count(&format!("{name}: sum of gaps"), truth.sum_ns, row.lost_ns_total);
        self.count(&format!("{name}: largest gap"), truth.max_ns, row.gap.max_ns);
        self.quantile(&format!("{name}: p50"), truth.p50_ns, row.gap.p50_ns);
        self.quantile(&format!("{name}: p90"), truth.p90_ns, row.gap.p90_ns);
        self.quantile(&format!("{name}: p99"), truth.p99_ns, row.gap.p99_ns);
        self.quantile(&format!("{name}: p99.9"), truth.p999_ns, row.gap.p999_ns);
        let expected: Vec<_> = truth
            .worst
            .iter()
            .map(|call| (call.gap_ns, call.trace_id.as_str(), call.client_span_id.as_str()))
            .collect();
        let found = row.worst.iter().take(expected.len());
        let found: Vec<_> =
            found.map(|c| (c.gap_ns, c.trace_id.as_str(), c.client_span_id.as_str())).collect();
        if expected != found {
            self.0.push(format!("{name}: worst calls: expected {expected:?}, found {found:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Shape, generate};
    use spangap_meter::engine::{Meter, Settings};
    use spangap_meter::query;

    fn measured(shape: &Shape, times: u64) -> (Truth, PairsReport) {
        let (workload, truth) = generate(shape);
        let meter = Meter::new(Settings::default());
        for batch in &workload.batches {
            for _ in 0..times {
                meter.ingest(&batch.bytes, 0).expect("to be taken");
            }
        }
        let totals = meter.totals();
        let report =
            query::pairs_report(totals.iter().map(|(key, stats)| (key, stats)), &meter.overview(), 0, 0);
        (truth, report)
    }

    #[test]
    fn the_engine_finds_the_truth() {
        let shape = Shape { spans: 20_000, ..Shape::default() };
        for (shape, times) in
            [(shape.clone(), 1), (shape.clone(), 2), (Shape { missing_servers: 0.1, ..shape }, 1)]
        {
            let (truth, report) = measured(&shape, times);
            assert_eq!(truth.differences(&report, times), [""; 0], "{shape:?} {times} times");
        }
    }

    #[test]
    fn each_difference_is_reported() {
        let (truth, report) = measured(&Shape { spans: 20_000, ..Shape::default() }, 1);
        type Change = fn(&mut PairsReport);
        let changes: [(&str, Change); 7] = [
            ("spans received", |r| r.spans.received += 1),
            ("duplicate spans", |r| r.spans.duplicate += 1),
            ("pairs", |r| drop(r.pairs.pop())),
            ("calls", |r| r.pairs[3].calls -= 1),
            ("sum of gaps", |r| r.pairs[0].lost_ns_total += 1),
            ("p99:", |r| r.pairs[0].gap.p99_ns = r.pairs[0].gap.p99_ns * 12 / 10),
            ("worst calls", |r| r.pairs[0].worst.swap(0, 1)),
        ];
        for (name, change) in changes {
            let mut wrong = report.clone();
            change(&mut wrong);
            let found = truth.differences(&wrong, 1);
            assert!(found.iter().any(|text| text.contains(name)), "{name}: {found:?}");
        }
    }
}
