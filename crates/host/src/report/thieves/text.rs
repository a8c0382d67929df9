//! Thieves as text for a terminal.

use super::words::{cpu_list, in_words};
use super::{DidReport, PieceReport, TakerReport, ThievesReport, WindowReport};
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_report::figures::{counted, percent_of};
use spangap_report::table::aligned;
use spangap_report::times::time_of_day;
use spangap_report::wrap::{COLUMNS, wrap};
use std::collections::BTreeMap;

/// Maximum number of takers shown; the JSON has all.
const TAKERS: usize = 15;
/// A window with up to this many activities lists each of them; a longer one is summarised by tenths.
const PIECES: usize = 10;
/// Maximum number of activities listed per tenth.
const PARTS: usize = 3;

/// The report.
pub fn text(report: &ThievesReport) -> String {
    let mut text = looked_at(report) + "\n";
    if !report.threads.is_empty() {
        text += &did(report);
        text += &takers(report);
        text += &windows(report);
    }
    text + &in_words(&report.conclusions, &report.notes, report.cost.as_ref())
}

/// The report in short: what the threads did, so many takers of their CPU, and the first conclusion.
pub fn in_short(report: &ThievesReport, most_takers: usize) -> String {
    let conclusion = report.conclusions.first().map_or(String::new(), |words| {
        let mut text = String::new();
        wrap(&mut text, "  ", words, COLUMNS);
        text
    });
    let mut parts = vec![did(report), table_of_takers(report, most_takers)];
    parts.push(format!("\n{conclusion}"));
    parts.concat().trim_start_matches('\n').to_owned()
}

/// `web: 12 threads for 5.00 s; 1,234 events, none lost`.
pub(super) fn looked_at(report: &ThievesReport) -> String {
    format!(
        "{}: {} for {}; {} events, {} lost",
        report.target,
        counted(report.threads.len(), "thread"),
        format_ns(report.duration_ns),
        grouped(report.events.received),
        match report.events.lost {
            0 => "none".into(),
            lost => grouped(lost),
        }
    )
}

/// Indented columns, the first one left-aligned.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    aligned(rows, |column| column == 0).lines().map(|line| format!("  {line}\n")).collect()
}

/// One activity of threads.
pub(super) struct DidRow {
    /// Name as in [`spangap_model::Doing`].
    pub doing: &'static str,
    /// In words.
    pub words: &'static str,
    pub ns: u64,
    /// Whether it is part of the wanted time.
    pub is_wanted: bool,
}

/// Activities of threads that took any time, and running in any case.
pub(super) fn did_rows(did: &DidReport) -> impl Iterator<Item = DidRow> {
    [
        ("running", "running", did.running_ns, true),
        ("interrupted", "interrupted (nominally running)", did.interrupted_ns, true),
        ("runnable", "runnable (waiting for a CPU)", did.runnable_ns, true),
        ("throttled", "throttled (out of CPU quota)", did.throttled_ns, true),
        ("stopped", "stopped", did.stopped_ns, true),
        ("blocked", "blocked", did.blocked_ns, false),
        ("unknown", "unknown (events lost or not told)", did.unknown_ns, false),
        ("not-seen", "not seen (at begin or end)", did.unseen_ns, false),
    ]
    .into_iter()
    .map(|(doing, words, ns, is_wanted)| DidRow { doing, words, ns, is_wanted })
    .filter(|row| row.ns > 0 || row.doing == "running")
}

fn did(report: &ThievesReport) -> String {
    let mut rows = vec![["What its threads did", "TOTAL", "OF ALL", "OF WANTED"].map(String::from).to_vec()];
    for row in did_rows(&report.did) {
        let share = if row.is_wanted { percent_of(row.ns, report.wanted_ns) } else { String::new() };
        rows.push(vec![row.words.into(), format_ns(row.ns), percent_of(row.ns, report.did.sum_ns), share]);
    }
    format!("\n{}", columns(&rows))
}

fn takers(report: &ThievesReport) -> String {
    let mut text = table_of_takers(report, TAKERS);
    if report.takers.len() > TAKERS {
        let rest: u64 = report.takers[TAKERS..].iter().map(|taker| taker.total_ns).sum();
        let more = report.takers.len() - TAKERS;
        text += &format!("  and {more} more with {} together; --json has them\n", format_ns(rest));
    }
    text
}

fn table_of_takers(report: &ThievesReport, most: usize) -> String {
    if report.takers.is_empty() {
        return String::new();
    }
    let head =
        ["Who had the CPU meanwhile", "TOTAL", "SHARE", "COUNT", "LONGEST", "IT WAITED", "IT RAN", "CPU"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for taker in report.takers.iter().take(most) {
        rows.push(vec![
            name(taker),
            format_ns(taker.total_ns),
            percent_of(taker.total_ns, report.wanted_ns),
            grouped(taker.count),
            format_ns(taker.longest_ns),
            time(taker.while_runnable_ns),
            time(taker.while_running_ns),
            cpu_list(taker.cpus.iter().map(|cpu| cpu.cpu)),
        ]);
    }
    format!("\n{}", columns(&rows))
}

/// A duration, or a dash for none.
pub(super) fn time(ns: u64) -> String {
    if ns == 0 { "-".into() } else { format_ns(ns) }
}

/// Name of a taker, with its cgroup.
pub(super) fn name(taker: &TakerReport) -> String {
    match taker.cgroup.as_deref() {
        Some(path) if path != "/" => format!("{} in {path}", taker.name),
        _ => taker.name.clone(),
    }
}

fn windows(report: &ThievesReport) -> String {
    let mut text = String::new();
    for window in &report.windows {
        text += if text.is_empty() { "\nWorst windows\n" } else { "" };
        text += &format!(
            "  {} (thread {}), {}, for {}: kept from running for {}\n",
            window.name,
            window.tid,
            begin(window),
            format_ns(window.duration_ns),
            format_ns(window.denied_ns)
        );
        text += &time_line(window);
    }
    text
}

/// `at 10:41:14.123456 UTC, 1.20 s after the begin`.
pub(super) fn begin(window: &WindowReport) -> String {
    let after = format!("{} after the begin", format_ns(window.from_ns));
    window
        .from_unix_ns
        .map_or_else(|| after.clone(), |unix_ns| format!("at {} UTC, {after}", time_of_day(unix_ns)))
}

/// Who had the CPU, in words.
pub(super) fn who(piece: &PieceReport) -> String {
    match (&piece.who, piece.doing) {
        (Some(who), "runnable") => format!("behind {who}"),
        (Some(who), _) => who.clone(),
        (None, "throttled") => "out of quota".into(),
        (None, "runnable") => "waiting".into(),
        (None, doing) => doing.into(),
    }
}

fn ms(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

/// `0.00 ms running | 0.21 NET_RX of vx | 0.40 running`, or the activities of each tenth of the window.
fn time_line(window: &WindowReport) -> String {
    if window.pieces.len() <= PIECES {
        let piece = |piece: &PieceReport| format!("{} {}", ms(piece.from_ns), who(piece));
        let pieces: Vec<String> = window.pieces.iter().map(piece).collect();
        return format!("    ms: {}\n", pieces.join(" | "));
    }
    let tenth = window.duration_ns.div_ceil(10).max(1);
    let mut text = String::new();
    let mut from_ns = 0;
    while from_ns < window.duration_ns {
        let to_ns = (from_ns + tenth).min(window.duration_ns);
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        for piece in &window.pieces {
            let ns = (piece.from_ns + piece.ns).min(to_ns).saturating_sub(piece.from_ns.max(from_ns));
            if ns > 0 {
                *parts.entry(who(piece)).or_default() += ns;
            }
        }
        let mut parts: Vec<(String, u64)> = parts.into_iter().collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let told: Vec<String> =
            parts.iter().take(PARTS).map(|(who, ns)| format!("{who} {}", ms(*ns))).collect();
        let rest: u64 = parts.iter().skip(PARTS).map(|(_, ns)| ns).sum();
        let rest = if rest > 0 { format!(", others {}", ms(rest)) } else { String::new() };
        if !told.is_empty() {
            text += &format!("    {}-{} ms: {}{rest}\n", ms(from_ns), ms(to_ns), told.join(", "));
        }
        from_ns = to_ns;
    }
    text
}
