//! What came of a run: distributions, the JSON that scripts read, the table that people read.

use crate::otlp::SpanCounts;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use spangap_model::duration::format_ns;
use std::collections::BTreeMap;
use std::fmt;

/// Durations to three significant digits, with the exact largest one and the exact mean.
#[derive(Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    max_ns: u64,
    sum_ns: u128,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("3 is between 0 and 5, all that is asked of it");
        Distribution { histogram, max_ns: 0, sum_ns: 0 }
    }
}

impl Distribution {
    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        // Refused only without memory for more buckets; the largest value has one already, then.
        if self.histogram.record(ns).is_err() {
            self.histogram.saturating_record(ns);
        }
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    /// Durations added.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.max_ns = 0;
        self.sum_ns = 0;
    }

    /// The quantile `one_in` durations exceed: 100 for p99. `None` when fewer than `one_in` were added, since
    /// the answer would be the largest one under another name.
    fn exceeded_by_one_in(&self, one_in: u64) -> Option<u64> {
        if self.count() < one_in {
            return None;
        }
        let quantile = 1.0 - 1.0 / one_in as f64;
        Some(self.histogram.value_at_quantile(quantile).min(self.max_ns))
    }

    /// The figures that are reported.
    pub fn quantiles(&self) -> Quantiles {
        let some = |value| (self.count() > 0).then_some(value);
        Quantiles {
            p50_ns: self.exceeded_by_one_in(2),
            p90_ns: self.exceeded_by_one_in(10),
            p99_ns: self.exceeded_by_one_in(100),
            p999_ns: self.exceeded_by_one_in(1_000),
            p9999_ns: self.exceeded_by_one_in(10_000),
            max_ns: some(self.max_ns),
            mean_ns: some((self.sum_ns / u128::from(self.count().max(1))) as u64),
        }
    }
}

/// Quantiles of a distribution; null where there were too few values: fewer than 2 for p50, 10 for p90, 100 for
/// p99, 1,000 for p999, 10,000 for p9999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Quantiles {
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub p9999_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub mean_ns: Option<u64>,
}

/// `spangap tank --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TankReport {
    /// Who was called, as given.
    pub target: String,
    /// One entry per run.
    pub runs: Vec<Run>,
    /// What the machine itself added.
    pub noise: Noise,
    /// Spans sent by OTLP, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
    /// The log of slow calls, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_log: Option<SlowLogReport>,
    /// What makes these figures less than they seem.
    pub warnings: Vec<String>,
}

/// One run: one stack, one way of calling, one rate. Every figure is of the measured time alone, after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// gRPC implementation that called.
    pub stack: String,
    /// Kind of call.
    pub call: String,
    /// How calls share connections.
    pub channels: String,
    /// Calls that were due per second.
    pub rate_per_s: f64,
    /// Measured time.
    pub duration_s: f64,
    /// Time before it, in which calls were made and not counted.
    pub warmup_s: f64,
    /// Calls that were due; the sum of `calls` and `skipped_overload`.
    pub scheduled: u64,
    /// Calls made, whatever came of them.
    pub calls: u64,
    /// Calls made that returned OK.
    pub ok: u64,
    /// Calls made that did not, by gRPC status name.
    pub errors: BTreeMap<String, u64>,
    /// Calls not made because as many as allowed were still waiting for their response.
    pub skipped_overload: u64,
    /// OK calls per second.
    pub throughput_per_s: f64,
    /// From the intended time to the response, of OK calls: includes what a stall did to the calls queued behind.
    pub latency: Quantiles,
    /// From the actual send to the response, of the same calls.
    pub latency_from_send: Quantiles,
    /// From the intended time to the actual send, of all calls made.
    pub lateness: Quantiles,
    /// Connections opened, warm-up included.
    pub connections: u64,
    /// From which duration, counted from the send, a call is slow.
    pub slow_over_ns: u64,
    /// Slow calls, whatever came of them.
    pub slow: u64,
    /// CPU time of the tank's process, all threads.
    pub cpu_client_s: f64,
    /// Context switches of the tank's process, voluntary or not.
    pub context_switches: u64,
}

/// How exact the tank's own timing was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// How late the pacing thread woke, before anything was done for the call.
    pub pacer_lateness: Quantiles,
    /// Timer slack of the pacing thread, if the kernel told.
    pub timer_slack_ns: Option<u64>,
}

/// What became of the log of slow calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowLogReport {
    /// The file.
    pub path: String,
    /// Lines written.
    pub written: u64,
    /// Lines lost.
    pub dropped: u64,
}

/// One second of a run, for the progress line.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the schedule began.
    pub elapsed_s: f64,
    /// Whether this is still warm-up.
    pub warming_up: bool,
    /// Calls that ended with OK in this second.
    pub ok: u64,
    /// Calls that ended otherwise in this second.
    pub errors: u64,
    /// Latency from the intended time, this second's OK calls.
    pub latency: Quantiles,
    /// Calls waiting for their response.
    pub in_flight: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |ns: Option<u64>| ns.map_or_else(|| "n/a".to_owned(), format_ns);
        let phase = if self.warming_up { " (warm-up)" } else { "" };
        write!(f, "{:.0} s{phase}: {} OK, {} errors", self.elapsed_s, self.ok, self.errors)?;
        write!(f, ", p50 {}, max {}", show(self.latency.p50_ns), show(self.latency.max_ns))?;
        write!(f, ", {} in flight", self.in_flight)
    }
}

impl fmt::Display for TankReport {
    /// The table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            run.write(f, &self.target)?;
        }
        let pacer = &self.noise.pacer_lateness;
        if let (Some(p50), Some(max)) = (pacer.p50_ns.or(pacer.max_ns), pacer.max_ns) {
            write!(
                f,
                "noise      pacing thread woke {} late at the median, {} at most",
                format_ns(p50),
                format_ns(max)
            )?;
            match self.noise.timer_slack_ns {
                Some(slack) => writeln!(f, " (timer slack {})", format_ns(slack))?,
                None => writeln!(f)?,
            }
        }
        if let Some(spans) = &self.spans {
            writeln!(f, "spans      {spans}")?;
        }
        if let Some(log) = &self.slow_log {
            writeln!(f, "slow log   {} lines in {}", log.written, log.path)?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

impl Run {
    fn write(&self, f: &mut fmt::Formatter<'_>, target: &str) -> fmt::Result {
        write!(
            f,
            "{target}: {} calls due in {:.1} s, {:.1} a second",
            self.scheduled, self.duration_s, self.rate_per_s
        )?;
        writeln!(f, ", after {:.1} s of warm-up", self.warmup_s)?;
        write!(
            f,
            "\ncalls      {} OK ({:.1}/s), {} failed",
            self.ok,
            self.throughput_per_s,
            self.calls - self.ok
        )?;
        if self.calls > self.ok {
            let errors: Vec<_> = self.errors.iter().map(|(name, n)| format!("{name} {n}")).collect();
            write!(f, " ({})", errors.join(", "))?;
        }
        match self.skipped_overload {
            0 => writeln!(f)?,
            skipped => writeln!(f, ", {skipped} not made: too many were waiting")?,
        }
        writeln!(f, "slow       {} took more than {} from send", self.slow, format_ns(self.slow_over_ns))?;
        self.write_quantiles(f)?;
        let cpus = self.cpu_client_s / self.duration_s.max(f64::MIN_POSITIVE);
        let per_call_us = self.cpu_client_s * 1e6 / self.calls.max(1) as f64;
        let switches = self.context_switches as f64 / self.calls.max(1) as f64;
        writeln!(
            f,
            "client     {:.2} s of CPU ({:.1} % of one, {per_call_us:.0} us per call), {switches:.1} context switches per call, {} connection{}",
            self.cpu_client_s,
            cpus * 100.0,
            self.connections,
            if self.connections == 1 { "" } else { "s" }
        )
    }

    fn write_quantiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Pick = fn(&Quantiles) -> Option<u64>;
        let rows: [(&str, u64, Pick); 7] = [
            ("p50", 2, |q| q.p50_ns),
            ("p90", 10, |q| q.p90_ns),
            ("p99", 100, |q| q.p99_ns),
            ("p99.9", 1_000, |q| q.p999_ns),
            ("p99.99", 10_000, |q| q.p9999_ns),
            ("max", 1, |q| q.max_ns),
            ("mean", 1, |q| q.mean_ns),
        ];
        writeln!(f, "\n           {:>10}  {:>10}  {:>10}", "latency", "from send", "lateness")?;
        for (name, needs, pick) in rows {
            let columns = [&self.latency, &self.latency_from_send, &self.lateness].map(pick);
            if columns == [None; 3] {
                writeln!(f, "{name:<10} n/a (needs {needs} call{})", if needs == 1 { "" } else { "s" })?;
                continue;
            }
            let [latency, from_send, lateness] =
                columns.map(|ns| ns.map_or_else(|| "n/a".to_owned(), format_ns));
            writeln!(f, "{name:<10} {latency:>10}  {from_send:>10}  {lateness:>10}")?;
        }
        writeln!(
            f,
            "latency: from when the call was due to its response, OK calls; from send: from when it was"
        )?;
        writeln!(f, "really sent; lateness: how long after its due time it was sent, all calls\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        values.into_iter().for_each(|ns| distribution.record(ns));
        distribution
    }

    #[test]
    fn too_few_values_give_no_quantile() {
        assert_eq!(of([]).quantiles(), Quantiles::default());
        let one = of([7]).quantiles();
        assert_eq!((one.p50_ns, one.max_ns, one.mean_ns), (None, Some(7), Some(7)));
        assert_eq!(of(0..9_999).quantiles().p9999_ns, None);
        assert!(of(0..10_000).quantiles().p9999_ns.is_some());
    }

    #[test]
    fn clearing_forgets() {
        let mut distribution = of([1, 2, 3]);
        distribution.clear();
        assert_eq!((distribution.count(), distribution.quantiles()), (0, Quantiles::default()));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_thousandth(mut values in prop::collection::vec(0u64..1 << 40, 100..300)) {
            let quantiles = of(values.iter().copied()).quantiles();
            values.sort_unstable();
            let rank = (0.99 * values.len() as f64).ceil() as usize - 1;
            let (p99, exact) = (quantiles.p99_ns.unwrap(), values[rank]);
            prop_assert!(p99 >= exact && p99 - exact <= exact / 1000 + 1, "{} {}", p99, exact);
            prop_assert_eq!(quantiles.max_ns, values.last().copied());
            let sum: u128 = values.iter().map(|&v| u128::from(v)).sum();
            prop_assert_eq!(u128::from(quantiles.mean_ns.unwrap()), sum / values.len() as u128);
        }
    }
}
