//! The report in one sentence.

use super::{RunFinding, Standing};
use crate::report::Run;
use crate::report::fields::{Load, rounded};
use spangap_model::duration::format_ns;

/// Share of failed calls from which on they are the main result.
const FAILING: f64 = 0.05;

/// The main result in one plain sentence; for runs without findings, what they measured.
pub(in crate::report) fn of(runs: &[Run], findings: &[RunFinding]) -> String {
    let sum = |pick: fn(&Run) -> u64| runs.iter().map(pick).sum::<u64>();
    let (calls, ok) = (sum(|run| run.calls), sum(|run| run.ok));
    let failed = calls.saturating_sub(ok);
    if runs.is_empty() {
        return "There was no run, so nothing is known.".into();
    }
    if calls == 0 {
        return "There was no call, so nothing is known.".into();
    }
    if failed as f64 >= FAILING * calls as f64 {
        return format!("{failed} of {calls} calls failed: latency and throughput cover only the others.");
    }
    match findings.first() {
        Some(first) if first.standing == Standing::Shown => first.says.clone(),
        Some(first) => format!("Not proven, but it fits: {}", first.says),
        None => plain(runs),
    }
}

fn plain(runs: &[Run]) -> String {
    let typical = |run: &&Run| run.latency.p50_ns;
    let known = || runs.iter().filter(|run| run.latency.p50_ns.is_some());
    let (Some(fastest), Some(slowest)) = (known().min_by_key(typical), known().max_by_key(typical)) else {
        return "Too few calls succeeded to say how long a typical one takes.".into();
    };
    let p50 = |run: &Run| run.latency.p50_ns.map_or_else(|| "n/a".into(), format_ns);
    if runs.len() > 1 {
        return format!(
            "No cause stands out: p50 lies between {} (at {}) and {} (at {}).",
            p50(fastest),
            Load::of(&fastest.asked),
            p50(slowest),
            Load::of(&slowest.asked)
        );
    }
    let run = fastest;
    let tail =
        run.latency.p99_ns.map_or_else(String::new, |ns| format!(", 99 of 100 less than {}", format_ns(ns)));
    let floor = run.floor_ratio().filter(|ratio| *ratio >= 1.0);
    let floor =
        floor.map_or_else(String::new, |ratio| format!("; p50 is {ratio:.1} times that of raw ping-pong"));
    format!(
        "No cause stands out: at {}, {}/s succeeded and half of the calls took less than {}{tail}{floor}.",
        Load::of(&run.asked),
        rounded(run.throughput_per_s),
        p50(run)
    )
}
