//! The report as text: a single run in full, several as a table.

use super::fields::{Field, Load, name_of};
use super::lines::{per_call, time, write_list, write_text};
use super::sweep::{Configuration, Direction, Point, configurations};
use super::{Noise, Progress, Quantiles, Run, Standing, TankReport, single};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

impl Run {
    /// Latency p50 of the run over that of its raw floor; `None` without a floor or with too few calls.
    pub fn floor_ratio(&self) -> Option<f64> {
        let floor = self.floor.as_ref()?.latency.p50_ns.filter(|ns| *ns > 0)?;
        Some(self.latency.p50_ns? as f64 / floor as f64)
    }

    /// Client and target library, in words.
    pub(super) fn libraries(&self) -> String {
        let target = match (&self.target_stack, &self.target_library) {
            (None, None) => "unknown".to_owned(),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (Some(stack), Some(library)) => format!("{stack}, {library}"),
        };
        format!("{} (target: {target})", self.library)
    }
}

impl Display for Progress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let phase = if self.warming_up { " (warm-up)" } else { "" };
        write!(f, "{:.0} s{phase}: {} OK, {} errors", self.elapsed_s, self.ok, self.errors)?;
        write!(f, ", p50 {}, max {}", time(self.latency.p50_ns), time(self.latency.max_ns))?;
        write!(f, ", {} in flight", self.in_flight)
    }
}

impl Display for TankReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.runs.as_slice() {
            [] => writeln!(f, "No run was made.")?,
            [run] => single::write(f, run)?,
            runs => write_runs(f, runs)?,
        }
        write_findings(f, self)?;
        write_noise(f, &self.noise)?;
        for claim in &self.noise.cannot_claim {
            write_text(f, "cannot claim", claim)?;
        }
        if let Some(spans) = &self.spans {
            write_text(f, "spans", &spans.to_string())?;
        }
        if let Some(log) = &self.slow_log {
            write!(f, "slow log   {} in {}", counted(log.written, "line"), log.path)?;
            match log.dropped {
                0 => writeln!(f)?,
                dropped => writeln!(f, ", {dropped} lost")?,
            }
        }
        for missing in &self.not_run {
            write_text(f, "not run", &format!("{}: {}", missing.what, missing.why))?;
        }
        for warning in &self.warnings {
            write_text(f, "warning", warning)?;
        }
        write_run_warnings(f, &self.runs)
    }
}

/// The varying fields, and then each configuration's rows.
fn write_runs(f: &mut Formatter<'_>, runs: &[Run]) -> fmt::Result {
    let varying = Field::varying(runs);
    let equal = Field::ALL.into_iter().filter(|field| !varying.contains(field));
    let equal: Vec<String> =
        equal.map(|field| format!("{} {}", field.name(), field.of(&runs[0].asked))).collect();
    write_list(f, "all runs", &equal)?;
    let lengths = |pick: fn(&Run) -> f64| {
        let (low, high) = min_max(runs.iter().map(pick));
        if format!("{low:.1}") == format!("{high:.1}") {
            format!("{low:.1} s")
        } else {
            format!("{low:.1} to {high:.1} s")
        }
    };
    writeln!(
        f,
        "           {} of {}, after {} of warm-up each",
        counted(runs.len(), "run"),
        lengths(|run| run.duration_s),
        lengths(|run| run.warmup_s)
    )?;
    let libraries = |runs: &mut dyn Iterator<Item = &Run>| -> Vec<String> {
        runs.map(Run::libraries).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let of_all = libraries(&mut runs.iter());
    if let [only] = of_all.as_slice() {
        write_text(f, "libraries", only)?;
    }
    for configuration in &configurations(runs, &varying) {
        writeln!(f)?;
        if !varying.is_empty() {
            let named = varying.iter().zip(&configuration.values);
            let named: Vec<String> =
                named.map(|(field, value)| format!("{} {value}", field.name())).collect();
            writeln!(f, "{}", named.join("  "))?;
        }
        if of_all.len() > 1 {
            let mut own = configuration.points.iter().flat_map(|point| &point.runs).copied();
            write_list(f, "libraries", &libraries(&mut own))?;
        }
        write_configuration(f, configuration)?;
    }
    writeln!(
        f,
        "\nconn/chan: TCP connections by the kernel's count at the end / channels made; CPU: us per call, client and target;"
    )?;
    writeln!(
        f,
        "csw: client's context switches per call; floor: p50 over the p50 of raw ping-pong under the same load\n"
    )
}

/// A figure of one run; `None` prints as `n/a`.
type Cell = fn(&Run) -> Option<f64>;
type Show = fn(f64) -> String;

struct Column {
    name: &'static str,
    width: usize,
    cell: Cell,
    show: Show,
}

fn latency(run: &Run, pick: fn(&Quantiles) -> Option<u64>) -> Option<f64> {
    pick(&run.latency).map(|ns| ns as f64)
}

const COLUMNS: [Column; 15] = [
    Column { name: "calls", width: 9, cell: |run| Some(run.calls as f64), show: whole },
    Column { name: "ok/s", width: 8, cell: |run| Some(run.throughput_per_s), show: short },
    Column { name: "p50", width: 7, cell: |run| latency(run, |q| q.p50_ns), show: tight },
    Column { name: "p90", width: 7, cell: |run| latency(run, |q| q.p90_ns), show: tight },
    Column { name: "p99", width: 7, cell: |run| latency(run, |q| q.p99_ns), show: tight },
    Column { name: "p99.9", width: 7, cell: |run| latency(run, |q| q.p999_ns), show: tight },
    Column { name: "p99.99", width: 7, cell: |run| latency(run, |q| q.p9999_ns), show: tight },
    Column { name: "max", width: 7, cell: |run| latency(run, |q| q.max_ns), show: tight },
    Column {
        name: "errors",
        width: 7,
        cell: |run| Some(run.calls.saturating_sub(run.ok) as f64),
        show: whole,
    },
    Column { name: "skipped", width: 8, cell: |run| Some(run.skipped_overload as f64), show: whole },
    Column { name: "conn", width: 5, cell: |run| run.connections.map(|n| n as f64), show: whole },
    Column { name: "/chan", width: 5, cell: |run| Some(f64::from(run.channels_made)), show: slashed },
    Column {
        name: "CPU cl.",
        width: 8,
        cell: |run| per_call(run.cpu_client_s * 1e6, run.calls),
        show: short,
    },
    Column {
        name: "targ",
        width: 6,
        cell: |run| run.cpu_target_s.and_then(|s| per_call(s * 1e6, run.calls)),
        show: short,
    },
    Column {
        name: "csw",
        width: 5,
        cell: |run| per_call(run.context_switches as f64, run.calls),
        show: short,
    },
];
const FLOOR: Column = Column { name: "floor", width: 6, cell: Run::floor_ratio, show: times };

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn slashed(value: f64) -> String {
    format!("/{value:.0}")
}

fn short(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn times(value: f64) -> String {
    format!("{}x", if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") })
}

fn tight(ns: f64) -> String {
    format_ns(ns.round() as u64).replace(' ', "")
}

fn min_max(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Median; of an even number the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

fn write_configuration(f: &mut Formatter<'_>, configuration: &Configuration) -> fmt::Result {
    let runs = || configuration.points.iter().flat_map(|point| point.runs.iter().copied());
    let open = runs().any(|run| run.asked.rate_per_s.is_some());
    let floor = runs().any(|run| run.floor.is_some()).then_some(&FLOOR);
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .chain(floor)
        // A closed loop skips nothing.
        .filter(|column| column.name != "skipped" || open)
        .collect();
    let labels: Vec<String> = configuration.points.iter().map(|point| label(point)).collect();
    let first = labels.iter().map(String::len).max().unwrap_or(0).max(9);
    write!(f, "{:<first$}", if open { "rate/s" } else { "in flight" })?;
    columns.iter().try_for_each(|column| write!(f, " {:>1$}", column.name, column.width - 1))?;
    writeln!(f)?;
    for (point, label) in configuration.points.iter().zip(&labels) {
        write_rows(f, point, label, first, &columns)?;
    }
    write_lateness(f, configuration)?;
    for run in runs().filter(|run| run.calls > run.ok) {
        writeln!(f, "errors     {}, run {}:", Load::of(&run.asked), run.repeat + 1)?;
        single::write_errors(f, run)?;
    }
    Ok(())
}

fn label(point: &Point) -> String {
    let load = match point.load {
        Load::InFlight(n) => n.to_string(),
        Load::RatePerS(rate) => super::fields::rounded(rate),
        Load::Unknown => "unknown".into(),
    };
    match point.direction {
        Some(Direction::Up) => format!("{load} up"),
        Some(Direction::Down) => format!("{load} down"),
        None => load,
    }
}

/// One row for one run; for several the median, and below it the minimum and maximum of each figure.
fn write_rows(
    f: &mut Formatter<'_>,
    point: &Point,
    label: &str,
    first: usize,
    columns: &[&Column],
) -> fmt::Result {
    let values: Vec<Vec<f64>> = columns
        .iter()
        .map(|column| point.runs.iter().filter_map(|run| (column.cell)(run)).collect())
        .collect();
    let row = |f: &mut Formatter<'_>, name: &str, pick: &dyn Fn(&[f64]) -> Option<f64>| {
        write!(f, "{name:<first$}")?;
        for (column, values) in columns.iter().zip(&values) {
            // A figure that some runs lack has no median over all.
            let all = values.len() == point.runs.len();
            let text = pick(values).filter(|_| all).map_or_else(|| "n/a".to_owned(), column.show);
            write!(f, " {text:>0$}", column.width - 1)?;
        }
        writeln!(f)
    };
    row(f, label, &median)?;
    if point.runs.len() > 1 {
        row(f, &format!(" min of {}", point.runs.len()), &|values| values.iter().copied().reduce(f64::min))?;
        row(f, " max", &|values| values.iter().copied().reduce(f64::max))?;
    }
    Ok(())
}

/// Lateness of calls; one line per load, the worst of its repetitions.
fn write_lateness(f: &mut Formatter<'_>, configuration: &Configuration) -> fmt::Result {
    let mut name = "lateness";
    for point in &configuration.points {
        let late: Vec<&Quantiles> = point.runs.iter().filter_map(|run| run.lateness.as_ref()).collect();
        if late.is_empty() {
            continue;
        }
        let worst = |pick: fn(&Quantiles) -> Option<u64>| {
            let values: Option<Vec<u64>> = late.iter().map(|quantiles| pick(quantiles)).collect();
            time(values.and_then(|values| values.into_iter().max()))
        };
        let of = if late.len() > 1 { format!(", worst of {} runs", late.len()) } else { String::new() };
        writeln!(
            f,
            "{name:<10} {:<14} p50 {}, p99 {}, p99.9 {}, max {} after the due time{of}",
            label(point) + ":",
            worst(|q| q.p50_ns),
            worst(|q| q.p99_ns),
            worst(|q| q.p999_ns),
            worst(|q| q.max_ns)
        )?;
        name = "";
    }
    Ok(())
}

/// Findings, before the limitations.
fn write_findings(f: &mut Formatter<'_>, report: &TankReport) -> fmt::Result {
    if !report.verdict.is_empty() {
        write_text(f, "verdict", &report.verdict)?;
    }
    for finding in &report.findings {
        let (standing, says) = match finding.standing {
            Standing::Shown => ("shown", finding.says.clone()),
            Standing::Possible => ("possible", finding.says.clone()),
        };
        let side = finding.side.as_ref().map_or_else(String::new, |side| format!(", {side} side"));
        // The verdict has already stated the first finding.
        let text = if report.verdict.ends_with(&says) {
            format!("{}{side}, as the verdict says", finding.cause)
        } else {
            format!("{says} ({}{side})", finding.cause)
        };
        write_text(f, standing, &text)?;
        let most = 8;
        for line in finding.rests_on.iter().take(most) {
            write_text(f, "  rests on", line)?;
        }
        if let Some(more @ 1..) = finding.rests_on.len().checked_sub(most) {
            write_text(f, "", &format!("and {} (--json has all)", counted(more, "more run")))?;
        }
        write_text(f, "  cleared", &format!("by {}", finding.cleared_by))?;
    }
    Ok(())
}

fn write_noise(f: &mut Formatter<'_>, noise: &Noise) -> fmt::Result {
    let timer = &noise.timer_lateness;
    if timer.max_ns.is_some() {
        write!(f, "noise      a sleep of 1 ms ends {} late at p50", time(timer.p50_ns))?;
        write!(f, ", {} at p99, {} at most", time(timer.p99_ns), time(timer.max_ns))?;
        match noise.timer_slack_ns {
            Some(slack) => writeln!(f, " (timer slack {})", format_ns(slack))?,
            None => writeln!(f, " (timer slack unknown)")?,
        }
    } else {
        writeln!(f, "noise      the lateness of timers was not measured")?;
    }
    if noise.watched_ns > 0 {
        write!(
            f,
            "           a thread that never sleeps was not running for {}",
            format_ns(noise.longest_pause_ns)
        )?;
        writeln!(f, " at the longest, in {}", format_ns(noise.watched_ns))?;
    }
    write!(f, "           reading the clock takes {}", format_ns(noise.clock_read_ns))?;
    writeln!(
        f,
        ", its resolution is {}; {} for the client",
        format_ns(noise.clock_step_ns),
        counted(noise.cpus, "CPU")
    )
}

/// Warnings of runs; one shared by several runs is printed once, with all their names.
fn write_run_warnings(f: &mut Formatter<'_>, runs: &[Run]) -> fmt::Result {
    let varying = Field::varying(runs);
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for run in runs {
        let name = name_of(run, &varying, runs.len() > 1);
        for warning in run.warnings.iter().chain(&run.client_error) {
            match told.iter_mut().find(|(known, _)| known == warning) {
                Some((_, names)) => names.push(name.clone()),
                None => told.push((warning, vec![name.clone()])),
            }
        }
    }
    for (warning, names) in told {
        match names.iter().all(String::is_empty) {
            true => write_text(f, "warning", warning)?,
            false if names.len() == runs.len() => {
                write_text(f, "warning", &format!("{warning} (every run)"))?
            }
            false => write_text(f, "warning", &format!("{warning} ({})", names.join("; ")))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
