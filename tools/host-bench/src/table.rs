//! The measurements for people and scripts.

use crate::Row;
use crate::flood::Flood;
use crate::observers::FLOOR;
use std::fmt::Write;

/// Median, minimum and maximum of at least one figure.
fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        *values.get(middle)?
    } else {
        (values.get(middle)? + values.get(middle.checked_sub(1)?)?) / 2.0
    };
    Some((median, *values.first()?, *values.last()?))
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// The cheapest of the distribution's tools, as a ratio.
fn cheapest_peer(rows: &[Row]) -> Option<f64> {
    let peers = rows.iter().filter(|row| !row.ours && row.name != FLOOR);
    let medians = peers.filter_map(|row| spread(&row.ratios)).map(|(median, ..)| median);
    medians.min_by(f64::total_cmp)
}

/// The table.
pub fn text(rows: &[Row], usecs: &[f64], flood: Option<&Flood>) -> String {
    let mut out = String::new();
    if let Some((median, least, most)) = spread(usecs) {
        let _ = writeln!(
            out,
            "perf bench sched pipe on one CPU, with nobody looking on: {median:.2} us of CPU a turn ({least:.2}..{most:.2})\n"
        );
    }
    let _ = writeln!(
        out,
        "{:<24}{:>10}{:>22}{:>12}{:>14}   goal",
        "", "CPU time", "least..most", "wall time", "its own CPU"
    );
    for row in rows {
        let spreads = (spread(&row.ratios), spread(&row.wall_ratios), spread(&row.own_cpu));
        let (Some((median, least, most)), Some((wall, ..)), Some((own, ..))) = spreads else {
            let _ =
                writeln!(out, "{:<24}not run: {}", row.name, row.not_run.as_deref().unwrap_or("no round"));
            continue;
        };
        let goal = match row.goal {
            Some(goal) if median <= goal => format!("{}: met", percent(goal)),
            Some(goal) => format!("{}: MISSED", percent(goal)),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "{:<24}{:>10}{:>22}{:>12}{:>12.1} %   {goal}",
            row.name,
            percent(median),
            format!("{}..{}", percent(least), percent(most)),
            percent(wall),
            own * 100.0
        );
    }
    let offcpu = rows.iter().find(|row| row.ours).and_then(|row| spread(&row.ratios));
    if let (Some((offcpu, ..)), Some(peer)) = (offcpu, cheapest_peer(rows)) {
        let verdict = if offcpu < peer { "met" } else { "MISSED" };
        let _ = writeln!(
            out,
            "\nhost offcpu {} against the cheapest peer's {}: {verdict}",
            percent(offcpu),
            percent(peer)
        );
    }
    if let Some(flood) = flood {
        let Flood { loads, wall_s, events, lost, ring_fullest, own_cpu, file_bytes } = flood;
        let rate = *events as f64 / wall_s;
        let verdict = if *lost == 0 && rate >= 1e6 { "met" } else { "MISSED" };
        let _ = writeln!(
            out,
            "\nhost record under {loads} ping-pongs for {wall_s:.0} s: {:.0} thousand events/s, {lost} lost; rings at most {:.0} % full; its own CPU {:.0} %; {:.1} bytes an event\ngoal 1000 thousand events/s for a minute, none lost: {verdict}",
            rate / 1e3,
            ring_fullest * 100.0,
            own_cpu * 100.0,
            *file_bytes as f64 / (*events).max(1) as f64
        );
    }
    out
}

/// The measurements as JSON.
pub fn json(rows: &[Row], usecs: &[f64], flood: Option<&Flood>) -> String {
    let medians: Vec<_> = rows.iter().map(|row| spread(&row.ratios).map(|(median, ..)| median)).collect();
    let document =
        serde_json::json!({"pipe_us": usecs, "rows": rows, "median_ratios": medians, "flood": flood});
    format!("{document}\n")
}
