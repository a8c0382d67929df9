//! Ratios with their components, and their goals.

use crate::programs::Sample;
use serde::Serialize;
use std::fmt;

/// `raw`: maximum deviation of its median latency from that of the plainest program.
const RAW_P50_WITHIN: f64 = 0.05;
/// Maximum lateness of 99 % of an open loop's calls.
const LATENESS_P99_NS: f64 = 100_000.0;

/// Metric of a row's goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Calls per second of wall time.
    Throughput,
    /// Calls per second of the client's CPU time.
    CallsPerCpuSecond,
}

impl Sample {
    fn per_s(&self) -> f64 {
        self.calls / self.seconds
    }

    fn per_cpu_s(&self) -> f64 {
        self.calls / self.cpu_s
    }

    fn metric(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Throughput => self.per_s(),
            Metric::CallsPerCpuSecond => self.per_cpu_s(),
        }
    }
}

/// Comparison of our stack with another program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Our stack.
    pub ours: String,
    /// The other program.
    pub theirs: String,
    /// Calls in flight.
    pub in_flight: u32,
    /// Metric of the goal.
    pub metric: Metric,
    /// Minimum ratio, if there is a goal.
    pub goal: Option<f64>,
    /// Our runs.
    pub our_samples: Vec<Sample>,
    /// Their runs; the n-th ran beside our n-th.
    pub their_samples: Vec<Sample>,
}

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }
}

impl Row {
    /// Ratios of the paired runs.
    fn ratio(&self, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(
            self.our_samples.iter().zip(&self.their_samples).map(|(ours, theirs)| of(ours) / of(theirs)),
        )
    }

    fn p50_ratio(&self) -> Option<Spread> {
        self.ratio(|sample| sample.p50_ns.unwrap_or(f64::NAN))
    }
}

/// Open loop, 1,000 calls a second.
#[derive(Debug, Serialize)]
pub struct Lateness {
    pub stack: &'static str,
    /// Median time from due to sent.
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub max_ns: f64,
    /// Lateness of an exact sleep of 1 ms on this machine, p99: the lower bound for any stack that does not
    /// busy-wait.
    pub timer_p99_ns: f64,
}

/// All measurements.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Comparisons.
    pub rows: Vec<Row>,
    /// Open loops.
    pub lateness: Vec<Lateness>,
    /// The goals for these figures.
    pub goals: Vec<Goal>,
    /// What could not be measured here, and why.
    pub not_run: Vec<String>,
}

/// One goal.
#[derive(Debug, PartialEq, Serialize)]
pub struct Goal {
    goal: String,
    wanted: String,
    found: String,
    reached: bool,
}

impl Figures {
    /// Compares the figures with the goals.
    pub fn judge(&mut self) {
        let mut goals = Vec::new();
        for row in &self.rows {
            let what = format!("{} / {}, {} in flight", row.ours, row.theirs, row.in_flight);
            if let Some((goal, ratio)) = row.goal.zip(row.ratio(|sample| sample.metric(row.metric))) {
                let unit = if row.metric == Metric::Throughput { "calls/s" } else { "calls per CPU s" };
                goals.push(Goal {
                    goal: what.clone(),
                    wanted: format!(">= {goal} of {unit}"),
                    found: format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max),
                    reached: ratio.median >= goal,
                });
            }
            if let Some(ratio) = row.p50_ratio().filter(|_| row.ours == "raw") {
                goals.push(Goal {
                    goal: what,
                    wanted: format!("p50 within {:.0} %", RAW_P50_WITHIN * 100.0),
                    found: format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max),
                    reached: (ratio.median - 1.0).abs() <= RAW_P50_WITHIN,
                });
            }
        }
        for late in &self.lateness {
            goals.push(Goal {
                goal: format!("{}, open loop, 1000/s", late.stack),
                wanted: "p99 lateness <= 100 us".into(),
                found: format!("{:.0} us (timer {:.0} us)", late.p99_ns / 1e3, late.timer_p99_ns / 1e3),
                reached: late.p99_ns <= LATENESS_P99_NS,
            });
        }
        self.goals = goals;
    }

    /// One document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            writeln!(
                f,
                "{:13} {:14} {:>4}  {:>10} {:>10} {:>18}  {:>18}  {:>6}",
                "OURS", "AGAINST", "N", "calls/s", "theirs", "RATIO [min..max]", "PER CPU SECOND", "p50"
            )?;
        }
        for row in &self.rows {
            let median = |samples: &[Sample]| {
                Spread::of(samples.iter().map(Sample::per_s)).map_or(0.0, |spread| spread.median)
            };
            let show = |spread: Option<Spread>| {
                spread.map_or("n/a".into(), |s| format!("{:.2} [{:.2}..{:.2}]", s.median, s.min, s.max))
            };
            let p50 = row.p50_ratio().map_or("n/a".into(), |spread| format!("{:.2}", spread.median));
            let (ours, theirs) = (median(&row.our_samples), median(&row.their_samples));
            let (ratio, cpu) = (show(row.ratio(Sample::per_s)), show(row.ratio(Sample::per_cpu_s)));
            writeln!(
                f,
                "{:13} {:14} {:>4}  {ours:>10.0} {theirs:>10.0} {ratio:>18}  {cpu:>18}  {p50:>6}",
                row.ours, row.theirs, row.in_flight
            )?;
        }
        for late in &self.lateness {
            writeln!(
                f,
                "lateness {:13} p50 {:.1} us, p99 {:.1} us, max {:.1} us; an exact sleep of 1 ms: p99 {:.1} us",
                late.stack,
                late.p50_ns / 1e3,
                late.p99_ns / 1e3,
                late.max_ns / 1e3,
                late.timer_p99_ns / 1e3
            )?;
        }
        writeln!(f)?;
        for goal in &self.goals {
            writeln!(
                f,
                "{:5}  {:38} {:24} {}",
                if goal.reached { "PASS" } else { "SHORT" },
                goal.goal,
                goal.wanted,
                goal.found
            )?;
        }
        for not_run in &self.not_run {
            writeln!(f, "not run: {not_run}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(calls: f64, cpu_s: f64, p50_ns: f64) -> Sample {
        Sample { calls, seconds: 1.0, cpu_s, p50_ns: Some(p50_ns) }
    }

    fn row(ours: &[Sample], theirs: &[Sample]) -> Row {
        let (our_samples, their_samples) = (ours.to_vec(), theirs.to_vec());
        Row {
            ours: "raw".into(),
            theirs: "x".into(),
            in_flight: 1,
            metric: Metric::Throughput,
            goal: Some(0.9),
            our_samples,
            their_samples,
        }
    }

    #[test]
    fn goals_are_decided_by_the_median_of_the_pairs() {
        let mut figures = Figures::default();
        figures.rows.push(row(
            &[sample(90.0, 1.0, 105.0), sample(10.0, 1.0, 100.0), sample(99.0, 1.0, 104.0)],
            &[sample(100.0, 1.0, 100.0); 3],
        ));
        figures.rows.push(row(&[sample(89.0, 1.0, 94.0)], &[sample(100.0, 1.0, 100.0)]));
        figures.lateness.push(Lateness {
            stack: "raw",
            p50_ns: 1.0,
            p99_ns: 100_001.0,
            max_ns: 2e9,
            timer_p99_ns: 5e4,
        });
        figures.judge();
        let reached: Vec<bool> = figures.goals.iter().map(|goal| goal.reached).collect();
        assert_eq!(reached, [true, true, false, false, false], "{figures}");
    }
}
