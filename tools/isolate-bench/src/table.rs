//! The measurements for people and scripts.

use crate::Measured;
use crate::flood::Flood;
use crate::scale::Scale;
use crate::spread::Spread;
use std::fmt::Write;

/// One JSON document.
pub fn json(measured: &Measured) -> String {
    // Contains only figures and names, all of which can be serialised.
    serde_json::to_string_pretty(measured).unwrap_or_default()
}

/// The tables.
pub fn text(measured: &Measured) -> String {
    let mut out = String::new();
    match &measured.flood {
        None => {}
        Some(Err(why)) => {
            let _ = writeln!(out, "not run: the flood: {why}\n");
        }
        Some(Ok(measured)) => flood(&mut out, measured),
    }
    for measured in &measured.scale {
        scale(&mut out, measured);
    }
    out
}

fn spread(figures: Spread, unit: &str) -> String {
    let Spread { median, least, most } = figures;
    let digits = if median < 10.0 { 2 } else { 0 };
    format!("{median:.digits$} {unit} ({least:.digits$}..{most:.digits$})")
}

fn flood(out: &mut String, flood: &Flood) {
    let _ = writeln!(out, "A ping-pong at 1,000 calls/s on CPU 1, and a flood steered there\n");
    let _ = writeln!(out, "{:<22}{:>26}{:>28}{:>26}", "", "p99", "p99.9", "CPU a call");
    for state in &flood.states {
        let us = |figures: Spread| spread(figures.times(1e-3), "us");
        let _ = writeln!(
            out,
            "{:<22}{:>26}{:>28}{:>26}",
            state.name,
            us(state.p99_ns),
            us(state.p999_ns),
            us(state.cpu_per_call_ns)
        );
    }
    let verdict = if flood.gain.median >= flood.goal { "met" } else { "MISSED" };
    let _ = writeln!(
        out,
        "\np99 flooded over p99 applied: {}; at least {}: {verdict}",
        spread(flood.gain, "times"),
        flood.goal
    );
    let _ = match &flood.blamed {
        Ok([before, after]) => writeln!(
            out,
            "host thieves: of the time that the target wanted, softirqs for the flood's device took {:.1} %, applied {:.1} %\n",
            before * 100.0,
            after * 100.0
        ),
        Err(why) => writeln!(out, "not run: host thieves: {why}\n"),
    };
}

fn scale(out: &mut String, scale: &Scale) {
    let Scale { version, cpus, containers, files, changes, verbs } = scale;
    let _ = writeln!(
        out,
        "A copy with {cpus} CPUs and {containers} containers, cpusets v{version}: {files} files, {changes} changes\n"
    );
    let _ = writeln!(out, "{:<10}{:>24}{:>24}{:>24}{:>8}   goal", "", "wall", "CPU", "floor", "ratio");
    for verb in verbs {
        let goal = match verb.goal_s {
            Some(goal) if verb.wall_s.median < goal => format!("< {goal} s: met"),
            Some(goal) => format!("< {goal} s: MISSED"),
            None => String::new(),
        };
        let ms = |figures: Spread| spread(figures.times(1e3), "ms");
        let ratio = verb.wall_s.median / verb.floor_s.median;
        let _ = writeln!(
            out,
            "{:<10}{:>24}{:>24}{:>24}{ratio:>8.1}   {goal}",
            verb.name,
            ms(verb.wall_s),
            ms(verb.cpu_s),
            ms(verb.floor_s)
        );
    }
    out.push('\n');
    for verb in verbs {
        let _ = writeln!(out, "floor of {}: {}", verb.name, verb.floor);
    }
    out.push('\n');
}
