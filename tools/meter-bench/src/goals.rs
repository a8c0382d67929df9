//! The meter's goals, and their comparison with the measurements.

use crate::cases::crowd::CrowdFigure;
use crate::cases::history::HistoryFigure;
use crate::cases::lanes::LanesFigure;
use crate::cases::memory::Memory;
use crate::cases::overload::Overload;
use crate::cases::spool::SpoolFigure;
use serde::Serialize;
use std::fmt;

/// Maximum CPU time per span over gRPC, in microseconds.
pub const CPU_US_PER_SPAN: f64 = 1.0;
/// Maximum ratio of the CPU time over HTTP to gRPC.
pub const HTTP_TO_GRPC: f64 = 1.2;
/// Maximum bytes per pending span, beyond [`FIXED_BYTES`].
pub const BYTES_PER_PENDING_SPAN: u64 = 64;
/// The part of the memory that does not depend on the spans.
pub const FIXED_BYTES: u64 = 100 << 20;
/// Maximum time until an API request and a batch are answered after an overload.
pub const RECOVERY_MS: f64 = 1000.0;

/// Maximum duration of a query for a whole day of many pairs.
pub const QUESTION_MS: f64 = 1000.0;
/// Maximum memory of the query.
pub const QUESTION_BYTES: u64 = 200 << 20;
/// Maximum duration of a request without history meanwhile.
pub const OTHERS_MS: f64 = 250.0;

/// Maximum duration of a scrape, or of a request to the API, beside any crowd.
pub const CROWD_MS: f64 = 1000.0;

/// Minimum gain of a second core.
pub const TWO_CORES: f64 = 1.9;

/// Maximum CPU time per span of storing all spans, besides the meter's own.
pub const SPOOL_US_PER_SPAN: f64 = 0.5;
/// Maximum duration of a trace look-up.
pub const LOOKUP_MS: f64 = 50.0;

/// Comparison of a figure with its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalVerdict {
    /// Met.
    Pass,
    /// Not met.
    Short,
}

/// One goal.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub goal: &'static str,
    /// The required value.
    pub wanted: String,
    /// The measured value.
    pub found: String,
    /// The comparison.
    pub verdict: GoalVerdict,
}

impl Goal {
    fn new(goal: &'static str, wanted: String, found: String, reached: bool) -> Goal {
        Goal { goal, wanted, found, verdict: if reached { GoalVerdict::Pass } else { GoalVerdict::Short } }
    }

    /// CPU time per span over gRPC, median in microseconds.
    pub fn cpu(median_us: f64) -> Goal {
        let found = format!("{median_us:.3} us, {:.2} M spans/s/core", 1.0 / median_us);
        Goal::new(
            "CPU per span, OTLP/gRPC",
            format!("<= {CPU_US_PER_SPAN} us"),
            found,
            median_us <= CPU_US_PER_SPAN,
        )
    }

    /// CPU time over HTTP compared with gRPC.
    pub fn http(grpc_us: f64, http_us: f64) -> Goal {
        let ratio = http_us / grpc_us;
        Goal::new(
            "OTLP/HTTP against gRPC",
            format!("<= {HTTP_TO_GRPC}"),
            format!("{ratio:.2}"),
            ratio <= HTTP_TO_GRPC,
        )
    }

    /// Memory of pending spans.
    pub fn memory(memory: &Memory) -> Goal {
        let limit = FIXED_BYTES + BYTES_PER_PENDING_SPAN * memory.pending;
        let beyond = memory.resident_bytes.saturating_sub(FIXED_BYTES) as f64 / memory.pending as f64;
        let found = format!(
            "{} MiB; {:.1} B each with the fixed part, {beyond:.1} B beyond 100 MiB",
            memory.resident_bytes >> 20,
            memory.bytes_per_span()
        );
        let wanted = format!("<= {} MiB", limit >> 20);
        Goal::new("memory of pending spans", wanted, found, memory.resident_bytes <= limit)
    }

    /// One comparison with the truth.
    pub fn truth(goal: &'static str, differences: &[String]) -> Goal {
        let found = match differences {
            [] => "none".to_string(),
            [first, ..] => format!("{}: {first}", differences.len()),
        };
        Goal::new(goal, "no difference".into(), found, differences.is_empty())
    }

    /// What two cores take in with two lanes, compared with one core and one lane; `None` on a machine with one core.
    pub fn lanes(lanes: &LanesFigure) -> Option<Goal> {
        let row = |threads: usize, lanes_of: usize, meters: usize| {
            lanes
                .rows
                .iter()
                .find(move |row| (row.threads, row.lanes, row.meters) == (threads, lanes_of, meters))
        };
        let (row, apart) = (row(2, 2, 1)?, row(2, 1, 2)?);
        let [low, high] = row.speedup_quartiles;
        Some(Goal::new(
            "two cores, two lanes",
            format!(">= {TWO_CORES}"),
            format!(
                "{:.2} ({low:.2} to {high:.2}); two meters that share nothing: {:.2}",
                row.speedup, apart.speedup
            ),
            row.speedup >= TWO_CORES,
        ))
    }

    /// Cost of storing all spans, and duration of a trace look-up.
    pub fn spool(spool: &SpoolFigure) -> [Goal; 2] {
        let cost = spool.cost_us_per_span;
        [
            Goal::new(
                if spool.gzip { "all spans kept, from gzip" } else { "all spans kept" },
                format!("<= {SPOOL_US_PER_SPAN} us"),
                format!("{cost:.3} us"),
                cost <= SPOOL_US_PER_SPAN,
            ),
            Goal::new(
                if spool.gzip { "a kept trace by its id, from gzip" } else { "a kept trace by its id" },
                format!("<= {LOOKUP_MS} ms"),
                format!(
                    "{:.2} ms, {:.2} at most; CPU time {:.2}, {:.2}",
                    spool.lookup_ms[0], spool.lookup_ms[1], spool.lookup_cpu_ms[0], spool.lookup_cpu_ms[1]
                ),
                spool.lookup_ms[1] <= LOOKUP_MS,
            ),
        ]
    }

    /// The slowest answers beside any crowd.
    pub fn crowds(crowds: &[CrowdFigure]) -> Vec<Goal> {
        let goal = |goal, of: fn(&CrowdFigure) -> f64| {
            let slowest = crowds.iter().max_by(|a, b| of(a).total_cmp(&of(b)))?;
            let found = format!("{:.0} ms beside {}, {} failed", of(slowest), slowest.crowd, slowest.failed);
            let reached = of(slowest) <= CROWD_MS && crowds.iter().all(|crowd| crowd.failed == 0);
            Some(Goal::new(goal, format!("<= {CROWD_MS} ms"), found, reached))
        };
        let goals = [
            goal("beside a crowd: a scrape", |crowd| crowd.scrape_ms[1]),
            goal("beside a crowd: coverage", |crowd| crowd.coverage_ms[1]),
        ];
        goals.into_iter().flatten().collect()
    }

    /// The three goals of a history query.
    pub fn history(history: &HistoryFigure) -> [Goal; 3] {
        let time = history.question_ms;
        let grown = history.grown_bytes;
        let others = history.coverage_ms;
        [
            Goal::new(
                "history: a whole day",
                format!("<= {QUESTION_MS} ms"),
                format!("{time:.0} ms, {:.0} ms of CPU", history.question_cpu_ms),
                time <= QUESTION_MS,
            ),
            Goal::new(
                "history: memory",
                format!("<= {} MiB", QUESTION_BYTES >> 20),
                format!("{} MiB", grown >> 20),
                grown <= QUESTION_BYTES,
            ),
            Goal::new(
                "history: others do not wait",
                format!("<= {OTHERS_MS} ms"),
                format!("coverage within {others:.1} ms"),
                others <= OTHERS_MS,
            ),
        ]
    }

    /// The three goals of an overload.
    pub fn overload(overload: &Overload) -> [Goal; 3] {
        let bound = FIXED_BYTES + overload.pending_bytes_limit;
        let peak = format!("peak {} MiB", overload.peak_bytes >> 20);
        let accounted = format!(
            "{} accepted, {} received, {} in classes; {} refused, {} counted",
            overload.accepted_spans,
            overload.received_spans,
            overload.classified_spans,
            overload.refused_requests,
            overload.refused_counted
        );
        let batch = overload.batch_recovery_ms;
        let recovery = format!(
            "API after {:.1} ms, a batch {}",
            overload.api_recovery_ms,
            batch.map_or("refused".into(), |ms| format!("in {ms:.1} ms"))
        );
        let recovered = overload.api_recovery_ms <= RECOVERY_MS && batch.is_some_and(|ms| ms <= RECOVERY_MS);
        [
            Goal::new(
                "overload: memory",
                format!("<= {} MiB", bound >> 20),
                peak,
                overload.peak_bytes <= bound,
            ),
            Goal::new("overload: every span counted", "all equal".into(), accounted, overload.accounted()),
            Goal::new("overload: recovery", format!("<= {RECOVERY_MS} ms"), recovery, recovered),
        ]
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            GoalVerdict::Pass => "PASS",
            GoalVerdict::Short => "SHORT",
        };
        write!(f, "{verdict:5}  {:32} {:16} {}", self.goal, self.wanted, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_up_to_its_bound() {
        assert_eq!(Goal::cpu(1.0).verdict, GoalVerdict::Pass);
        assert_eq!(Goal::cpu(1.001).verdict, GoalVerdict::Short);
        assert_eq!(Goal::http(0.5, 0.6).verdict, GoalVerdict::Pass);
        assert_eq!(Goal::http(0.5, 0.61).verdict, GoalVerdict::Short);
        let memory = |resident_bytes| Memory { pending: 1000, start_bytes: 0, resident_bytes, peak_bytes: 0 };
        assert_eq!(Goal::memory(&memory((100 << 20) + 64_000)).verdict, GoalVerdict::Pass);
        assert_eq!(Goal::memory(&memory((100 << 20) + 64_001)).verdict, GoalVerdict::Short);
        assert_eq!(Goal::truth("t", &["x".into()]).verdict, GoalVerdict::Short);
    }
}
