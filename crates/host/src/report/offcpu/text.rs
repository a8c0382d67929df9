//! Off-CPU histograms as text, drawn like bcc's cpudist.

use super::super::wait_times::{QUANTILES, Waits};
use super::{GroupReport, OffcpuReport};
use crate::probes::offcpu::Lost;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use std::fmt::Write;

/// Total width of the bars of all histograms in a row, in stars.
const STARS: usize = 60;
/// Width of the bar of a single histogram, as in cpudist.
const STARS_OF_ONE: usize = 40;

/// The report, with at most `top` groups.
pub fn text(report: &OffcpuReport, top: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "off-CPU time of {} in {}", report.of, format_ns(report.duration_ns));
    if report.groups.is_empty() {
        let _ = writeln!(out, "\nno thread came back to a CPU, or left one");
    }
    for group in report.groups.iter().take(top) {
        of_group(&mut out, group, report.by);
    }
    for halted in &report.halted {
        let _ = writeln!(out, "\n{}. {}.", halted.sentence(), halted.remedy());
    }
    out += &report.reasons.as_ref().map_or_else(String::new, crate::report::waits::text);
    let _ = writeln!(out);
    if report.groups.len() > top {
        let more = report.groups.len() - top;
        let _ =
            writeln!(out, "{more} more, kept less from running: --top {} or --json shows them", top + more);
    }
    if report.groups.iter().any(|group| group.off_cpu_ns > 0) {
        let _ = writeln!(
            out,
            "woken: runnable after it had been blocked; preempted: runnable all the time; quantiles within 4 %, or 8 ns"
        );
    }
    if report.threads_never_ran > 0 {
        let _ = writeln!(
            out,
            "{} never on a CPU: waiting all the time, and in no figure above",
            were(report.threads_never_ran, "thread")
        );
    }
    let _ = writeln!(out, "{}", lost(&report.lost));
    for note in &report.notes {
        let _ = writeln!(out, "{note}");
    }
    match &report.cost {
        Some(cost) => {
            let _ = writeln!(out, "cost: {cost}");
        }
        None => {
            let _ = writeln!(out, "overhead: unknown, because nothing ran during the measurement");
        }
    }
    out
}

fn of_group(out: &mut String, group: &GroupReport, by: &str) {
    let who = match group.pid {
        _ if group.id == 0 => format!("all others: no room for a {by} of their own"),
        Some(pid) if by == "thread" => format!("{} (thread {} of process {pid})", group.name, group.id),
        Some(pid) => format!("{} (process {pid})", group.name),
        None if group.name.is_empty() => format!("cgroup {} (gone)", group.id),
        None => group.name.clone(),
    };
    let _ = write!(
        out,
        "\n{who}: off CPU {}, of it runnable {}",
        format_ns(group.off_cpu_ns),
        format_ns(group.runnable_ns)
    );
    let throttled = group.waits.throttled.sum_ns;
    let _ = match throttled {
        0 => writeln!(out),
        ns => writeln!(out, ", throttled {}", format_ns(ns)),
    };
    let shown: Vec<_> = group.waits.all().into_iter().filter(|(_, waits)| !waits.is_empty()).collect();
    let _ = write!(out, "  {:<10}{:>11}{:>10}{:>10}", "", "waits", "total", "mean");
    for (_, name) in QUANTILES {
        let _ = write!(out, "{name:>10}");
    }
    let _ = writeln!(out, "{:>10}  not ended", "max");
    for (kind, waits) in &shown {
        let _ = writeln!(out, "  {:<10}{}", kind.name(), line(waits));
    }
    let columns: Vec<_> = shown
        .iter()
        .filter(|(_, waits)| waits.count > 0)
        .map(|(kind, waits)| (kind.name(), waits.by_power_of_two.as_slice()))
        .collect();
    out.push_str(&picture(&columns));
}

fn line(waits: &Waits) -> String {
    let mut line = format!("{:>11}", waits.count);
    match waits.quantiles {
        Some(at) => {
            let mean = waits.mean_ns.unwrap_or_default();
            for ns in [waits.sum_ns, mean, at.p50_ns, at.p90_ns, at.p99_ns, at.p999_ns, waits.max_ns] {
                let _ = write!(line, "{:>10}", format_ns(ns));
            }
        }
        None => line += &format!("{:>10}", "-").repeat(QUANTILES.len() + 3),
    }
    match waits.open.waits {
        0 => {}
        1 => {
            let _ = write!(line, "  1, for {}", format_ns(waits.open.max_ns));
        }
        open => {
            let _ = write!(line, "  {open}, the longest for {}", format_ns(waits.open.max_ns));
        }
    }
    line
}

/// Histograms side by side, one row per power of two of microseconds.
fn picture(columns: &[(&str, &[u64])]) -> String {
    let mut out = String::new();
    let Some(rows) = columns.iter().map(|(_, counts)| counts.len()).max() else { return out };
    let first =
        (0..rows).find(|&row| columns.iter().any(|(_, counts)| counts.get(row).is_some_and(|&n| n > 0)));
    let stars = (STARS / columns.len()).min(STARS_OF_ONE);
    let label = |row: usize| {
        let from = if row == 0 { 0 } else { 1_u64 << row };
        format!("{from:>11} -> {:<11}", (2_u64 << row) - 1)
    };
    let _ = write!(out, "  {:>26}", "usecs      ");
    for (name, _) in columns {
        let _ = write!(out, " : {:<9}{:<width$}", name, " distribution", width = stars + 2);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    for row in first.unwrap_or(0)..rows {
        let _ = write!(out, "  {}", label(row));
        for (_, counts) in columns {
            let count = counts.get(row).copied().unwrap_or(0);
            let most = counts.iter().copied().max().unwrap_or(0).max(1);
            // As cpudist does: a bar shorter than one star is empty.
            let filled = (u128::from(count) * stars as u128 / u128::from(most)) as usize;
            let _ = write!(out, " : {count:<9}|{:<stars$}|", "*".repeat(filled));
        }
        out.push('\n');
    }
    out
}

fn were(count: u64, what: &str) -> String {
    format!("{} {}", counted(count, what), if count == 1 { "was" } else { "were" })
}

fn lost(lost: &Lost) -> String {
    let Lost { switches, begun_before, collisions, clocks, without_group } = *lost;
    let begun = match begun_before {
        0 => String::new(),
        _ => format!(
            "{} not counted, because already open when the measurement began; ",
            were(begun_before, "wait")
        ),
    };
    let mut parts = Vec::new();
    for (count, noun, what) in [
        (switches, "switch", "left out by the kernel"),
        (collisions, "wait", "whose entry another thread took"),
        (clocks, "wait", "in which the clocks of two CPUs contradict each other"),
        (without_group, "thread", "without room for a group, counted among all others"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", counted(count, noun)));
        }
    }
    match parts.is_empty() {
        true => format!("{begun}lost: nothing"),
        false => format!("{begun}lost: {}", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_lost_is_one() {
        let none = Lost { switches: 0, begun_before: 0, collisions: 0, clocks: 0, without_group: 0 };
        assert_eq!(lost(&none), "lost: nothing");
        let one = Lost { switches: 1, begun_before: 1, without_group: 2, ..none };
        assert_eq!(
            lost(&one),
            "1 wait was not counted, because already open when the measurement began; lost: 1 switch left out by \
             the kernel, \
             2 threads without room for a group, counted among all others"
        );
    }
}
