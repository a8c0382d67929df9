//! The figures of one invocation, as tables and as JSON.

use serde::Serialize;
use spangap_meter_bench::cases::crowd::CrowdFigure;
use spangap_meter_bench::cases::history::HistoryFigure;
use spangap_meter_bench::cases::lanes::LanesFigure;
use spangap_meter_bench::cases::lock::LockFigure;
use spangap_meter_bench::cases::memory::Memory;
use spangap_meter_bench::cases::overload::{OPEN_REQUESTS, Overload};
use spangap_meter_bench::cases::samples::SamplesFigure;
use spangap_meter_bench::cases::spool::SpoolFigure;
use spangap_meter_bench::cases::throughput::Run;
use spangap_meter_bench::goals::Goal;
use std::fmt;

/// All measurements.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Minimum cost of the work on this machine.
    pub floor: Option<FloorFigure>,
    /// One row per protocol and batch size.
    pub throughput: Vec<Throughput>,
    /// Comparisons with the truth.
    pub truth: Vec<TruthFigure>,
    /// Memory of pending spans.
    pub memory: Option<Memory>,
    /// Twice the capacity.
    pub overload: Option<Overload>,
    /// A scraper beside crowds of clients that do not behave.
    pub crowds: Vec<CrowdFigure>,
    /// A query for a whole day.
    pub history: Option<HistoryFigure>,
    /// Cost of the samples of calls.
    pub samples: Option<SamplesFigure>,
    /// Work under locks.
    pub lock: Option<LockFigure>,
    /// Threads that take in spans at once.
    pub lanes: Option<LanesFigure>,
    /// Cost of storing all spans, by encoding.
    pub spool: Vec<SpoolFigure>,
    /// The goals for these figures.
    pub goals: Vec<Goal>,
    /// What could not be measured here, and why.
    pub not_run: Vec<String>,
}

/// CPU time of the minimum work.
#[derive(Debug, Serialize)]
pub struct FloorFigure {
    /// Reading every byte once.
    pub touch_us_per_span: f64,
    /// The zero-copy walk alone.
    pub walk_us_per_span: f64,
}

/// The runs of one row.
#[derive(Debug, Serialize)]
pub struct Throughput {
    /// `grpc`, `http+gzip`.
    pub wire: String,
    /// Maximum number of spans in a request.
    pub batch: usize,
    /// CPU time.
    pub cpu_us_per_span: Spread,
    /// CPU time in user mode.
    pub user_us_per_span: Spread,
    /// Wall time.
    pub spans_per_s: Spread,
    /// Size of the bodies.
    pub wire_bytes_per_span: f64,
}

/// Summary of several runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// One comparison.
#[derive(Debug, Serialize)]
pub struct TruthFigure {
    pub case: &'static str,
    /// Differences from the truth; empty is good.
    pub differences: Vec<String>,
}

impl Figures {
    /// Adds the runs of one row.
    pub fn add_throughput(&mut self, wire: String, batch: usize, runs: Vec<Run>) {
        let spread = |of: fn(&Run) -> f64| Spread::of(runs.iter().map(of));
        self.throughput.push(Throughput {
            wire,
            batch,
            cpu_us_per_span: spread(|run| run.cpu_us_per_span),
            user_us_per_span: spread(|run| run.user_us_per_span),
            spans_per_s: spread(|run| run.spans_per_s),
            wire_bytes_per_span: spread(|run| run.wire_bytes_per_span).median,
        });
    }

    /// Compares the figures with the goals.
    pub fn judge(&mut self) {
        let median = |wire: &str| {
            let row = self.throughput.iter().find(|row| row.wire == wire);
            row.map(|row| row.cpu_us_per_span.median)
        };
        let (grpc, http) = (median("grpc"), median("http"));
        self.goals.extend(grpc.map(Goal::cpu));
        self.goals.extend(grpc.zip(http).map(|(grpc, http)| Goal::http(grpc, http)));
        self.goals.extend(self.memory.as_ref().map(Goal::memory));
        self.goals.extend(self.truth.iter().map(|figure| Goal::truth(figure.case, &figure.differences)));
        self.goals.extend(Goal::crowds(&self.crowds));
        self.goals.extend(self.history.iter().flat_map(Goal::history));
        self.goals.extend(self.lanes.iter().filter_map(Goal::lanes));
        self.goals.extend(self.spool.iter().flat_map(Goal::spool));
        self.goals.extend(self.overload.iter().flat_map(Goal::overload));
    }

    /// One document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(floor) = &self.floor {
            writeln!(
                f,
                "floor, CPU us per span: every byte {:.3}, walk alone {:.3}\n",
                floor.touch_us_per_span, floor.walk_us_per_span
            )?;
        }
        if let Some(samples) = &self.samples {
            let [low, high] = samples.cost_quartiles_us;
            writeln!(
                f,
                "samples, CPU us per span: {:.4} with, {:.4} without; they cost {:.4} ({low:.4} to {high:.4}) in {} rounds\n",
                samples.with_us_per_span,
                samples.without_us_per_span,
                samples.cost_us_per_span,
                samples.rounds
            )?;
        }
        if let Some(lock) = &self.lock {
            let [low, high] = lock.locked_quartiles_us;
            writeln!(
                f,
                "lock, CPU us per span: {:.4} walked, {:.4} ingested; {:.4} ({low:.4} to {high:.4}) under a lock in {} rounds\n",
                lock.walk_us_per_span, lock.ingest_us_per_span, lock.locked_us_per_span, lock.rounds
            )?;
        }
        if let Some(lanes) = &self.lanes {
            writeln!(
                f,
                "{:>7}  {:>6}  {:>6}  {:>28}  {:>10}  {:>9}  {:>22}",
                "threads",
                "lanes",
                "meters",
                "CPU us/span (quartiles)",
                "blocked us",
                "wall",
                "speedup (quartiles)"
            )?;
            for row in &lanes.rows {
                let ([cpu_low, cpu_high], [low, high]) = (row.cpu_quartiles_us, row.speedup_quartiles);
                writeln!(
                    f,
                    "{:>7}  {:>6}  {:>6}  {:>28}  {:>10.4}  {:>8.0}k  {:>22}",
                    row.threads,
                    row.lanes,
                    row.meters,
                    format!("{:.4} ({cpu_low:.4} to {cpu_high:.4})", row.cpu_us_per_span),
                    row.blocked_us_per_span,
                    row.spans_per_s / 1e3,
                    format!("{:.2} ({low:.2} to {high:.2})", row.speedup),
                )?;
            }
            for row in &lanes.simulated {
                writeln!(f, "simulated: {} cores, {} lanes: {:.1}", row.cores, row.lanes, row.speedup)?;
            }
            writeln!(f)?;
        }
        for spool in &self.spool {
            let [low, high] = spool.cost_quartiles_us;
            writeln!(
                f,
                "spool, {} requests, CPU us per span: {:.4} with, {:.4} without; it costs {:.4} ({low:.4} to {high:.4}) in {} \
                 rounds; {:.1} bytes on disk a span; {} spans in {} files, {} not kept; a trace in {:.2} ms, {:.2} at most (CPU time \
                 {:.2}, {:.2})\n",
                if spool.gzip { "gzip" } else { "plain" },
                spool.with_us_per_span,
                spool.without_us_per_span,
                spool.cost_us_per_span,
                spool.rounds,
                spool.bytes_per_span,
                spool.kept_spans,
                spool.segments,
                spool.not_kept,
                spool.lookup_ms[0],
                spool.lookup_ms[1],
                spool.lookup_cpu_ms[0],
                spool.lookup_cpu_ms[1],
            )?;
        }
        if !self.throughput.is_empty() {
            writeln!(
                f,
                "{:10} {:>6}  {:>24}  {:>7}  {:>9}  {:>24}  {:>7}",
                "wire",
                "batch",
                "CPU us/span (min..max)",
                "in user",
                "x walk",
                "wall spans/s (min..max)",
                "B/span"
            )?;
        }
        for row in &self.throughput {
            let (cpu, wall) = (row.cpu_us_per_span, row.spans_per_s);
            let walk = self.floor.as_ref().map_or(f64::NAN, |floor| cpu.median / floor.walk_us_per_span);
            writeln!(
                f,
                "{:10} {:>6}  {:>24}  {:>7.3}  {:>9.1}  {:>24}  {:>7.1}",
                row.wire,
                row.batch,
                format!("{:.3} ({:.3}..{:.3})", cpu.median, cpu.min, cpu.max),
                row.user_us_per_span.median,
                walk,
                format!("{:.0}k ({:.0}..{:.0}k)", wall.median / 1e3, wall.min / 1e3, wall.max / 1e3),
                row.wire_bytes_per_span,
            )?;
        }
        if let Some(o) = &self.overload {
            writeln!(
                f,
                "\noverload: {:.0} spans/s due, twice the {:.0} it takes; {:.0} sent, the rest held back by the sender's \
                 {} open requests; {:.0} accepted; {} evicted, {} requests refused",
                o.target_spans_per_s,
                o.capacity_spans_per_s,
                o.offered_spans_per_s,
                OPEN_REQUESTS,
                o.accepted_spans_per_s,
                o.evicted_spans,
                o.refused_requests
            )?;
        }
        if !self.crowds.is_empty() {
            writeln!(
                f,
                "\n{:30} {:>7}  {:>24}  {:>24}  {:>6}  {:>8}",
                "crowd", "clients", "scrape, ms (max)", "coverage, ms (max)", "failed", "peak MiB"
            )?;
        }
        for crowd in &self.crowds {
            let pair = |[median, max]: [f64; 2]| format!("{median:.1} ({max:.1})");
            writeln!(
                f,
                "{:30} {:>7}  {:>24}  {:>24}  {:>6}  {:>8}",
                crowd.crowd,
                crowd.clients,
                pair(crowd.scrape_ms),
                pair(crowd.coverage_ms),
                crowd.failed,
                crowd.peak_bytes >> 20
            )?;
        }
        if let Some(h) = &self.history {
            writeln!(
                f,
                "\nhistory: {} h of {} pairs in {} MiB; all of it in {:.0} ms, {:.0} ms of CPU, {:.2} times reading the \
                 file's bytes ({:.0} ms)",
                h.hours,
                h.pairs,
                h.file_bytes >> 20,
                h.question_ms,
                h.question_cpu_ms,
                h.question_ms / h.read_ms,
                h.read_ms
            )?;
        }
        for figure in self.truth.iter().filter(|figure| !figure.differences.is_empty()) {
            writeln!(f, "\n{}", figure.case)?;
            for difference in figure.differences.iter().take(20) {
                writeln!(f, "  {difference}")?;
            }
        }
        writeln!(f)?;
        for reason in &self.not_run {
            writeln!(f, "not run: {reason}")?;
        }
        for goal in &self.goals {
            writeln!(f, "{goal}")?;
        }
        Ok(())
    }
}
