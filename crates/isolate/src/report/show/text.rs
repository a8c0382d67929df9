//! The machine as text for a terminal.

use super::{ShowReport, groups, lists, map};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_report::times::span;
use spangap_report::wrap::{NARROWEST, wrap_strictly};

/// Everything in lines of at most `width` columns (80 at least); with `all`, one row per core regardless of
/// their number.
pub fn text(report: &ShowReport, width: usize, all: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    wrap_strictly(&mut text, "", &title(report), width);
    text.push('\n');
    text += &map::text(report, width, all);
    let parts = [
        lists::net(report, width),
        lists::interfaces(report, width),
        groups::text(&report.topology, width),
        lists::movers(&report.topology, width),
        lists::boot(&report.topology, width),
        lists::unknown(report, width),
    ];
    for part in parts.iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        text += part;
    }
    text
}

/// Title, with the period of the figures.
pub(super) fn title(report: &ShowReport) -> String {
    let mut cores: Vec<_> = report.topology.cpus.iter().map(|cpu| cpu.siblings.iter().next()).collect();
    cores.sort_unstable();
    cores.dedup();
    let what = format!("{} in {}", counted(report.cpus.len(), "CPU"), counted(cores.len(), "core"));
    format!("{what}; {}", time(report))
}

/// Period of the figures.
pub(super) fn time(report: &ShowReport) -> String {
    let cut = if report.interrupted { " (interrupted)" } else { "" };
    match (report.since_boot, report.duration_ns) {
        (false, Some(ns)) => format!("figures of {}{cut}", format_ns(ns)),
        (false, None) => format!("figures between two readings, an unknown time apart{cut}"),
        (true, Some(ns)) => format!("one reading: figures are averages since boot, {} ago", span(ns)),
        (true, None) => "one reading: figures are those since boot".to_owned(),
    }
}
