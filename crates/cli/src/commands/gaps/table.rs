//! Text output of `spangap gaps`: the table, followed by totals and caveats.

use super::Reading;
use crate::output::width;
use spangap_meter::engine::Overview;
use spangap_meter::query::size_note;
use spangap_meter::report::{PairRow, PairsReport};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_report::table::aligned;
use spangap_report::wrap::{COLUMNS, wrapped};
use std::io::{self, Write};

/// Maximum number of worst calls shown for the first pair.
const WORST_SHOWN: usize = 5;
/// Maximum number of skipped places shown; the JSON has all.
const SKIPPED_SHOWN: usize = 20;

/// Prints everything. `all_pairs` includes the rows that `--top` cut off.
pub fn print(
    out: &mut impl Write,
    report: &PairsReport,
    all_pairs: usize,
    overview: &Overview,
    reading: &Reading,
) -> io::Result<()> {
    if report.pairs.is_empty() && all_pairs == 0 {
        writeln!(out, "No call has both of its spans.")?;
    } else {
        print_pairs(out, &report.pairs)?;
        if all_pairs > report.pairs.len() {
            writeln!(out, "… and {} more; --top {all_pairs} shows all", all_pairs - report.pairs.len())?;
        }
    }
    writeln!(out)?;
    if reading.interrupted {
        writeln!(out, "Interrupted: this is what had been read by then.")?;
    }
    print_coverage(out, overview, reading)?;
    if let Some(pair) = report.pairs.first() {
        print_worst(out, pair)?;
    }
    print_skipped(out, reading)
}

/// One row per pair, in the given order: most time lost first.
pub fn print_pairs(out: &mut impl Write, pairs: &[PairRow]) -> io::Result<()> {
    let methods = pairs.iter().any(|pair| pair.method.is_some());
    let mut header = vec!["CLIENT", "SERVER"];
    if methods {
        header.push("METHOD");
    }
    let names = header.len();
    header.extend(["CALLS", "LOST", "GAP p50", "p90", "p99 [95 % interval]", "MAX"]);
    header.extend(["CLIENT p99", "SERVER p99", "NEG"]);
    let mut rows: Vec<Vec<String>> = vec![header.into_iter().map(String::from).collect()];
    for pair in pairs {
        let mut row = vec![pair.client.clone(), pair.server.clone()];
        if methods {
            row.push(pair.method.clone().unwrap_or_default());
        }
        row.push(pair.calls.to_string());
        if pair.calls == 0 {
            // All calls are negative, repeated or excluded: there is no distribution to show.
            row.extend(std::iter::repeat_n("-".to_owned(), 7));
        } else {
            let [low, high] = pair.gap.p99_ci95_ns;
            row.push(format_ns(pair.lost_ns_total));
            row.extend([pair.gap.p50_ns, pair.gap.p90_ns].map(format_ns));
            row.push(format!("{} [{}, {}]", format_ns(pair.gap.p99_ns), format_ns(low), format_ns(high)));
            row.extend([pair.gap.max_ns, pair.client_p99_ns, pair.server_p99_ns].map(format_ns));
        }
        row.push(pair.negative.to_string());
        rows.push(row);
    }
    out.write_all(aligned(&rows, |column| column < names).as_bytes())
}

fn print_coverage(out: &mut impl Write, overview: &Overview, reading: &Reading) -> io::Result<()> {
    let spans = &overview.accounting;
    let files = counted(reading.files, "file");
    let formats = reading.formats.join("; ");
    let formats = if formats.is_empty() { formats } else { format!(" ({formats})") };
    writeln!(out, "{} received from {files}{formats}.", counted(spans.received, "span"))?;
    let share = spans.match_ratio().map_or(String::new(), |ratio| format!(" ({:.1} %)", 100.0 * ratio));
    writeln!(
        out,
        "Of the CLIENT and SERVER spans {} joined{share}, {} client-only, {} server-only, {} duplicate.",
        spans.joined, spans.expired_client_only, spans.expired_server_only, spans.duplicate
    )?;
    let malformed = &overview.malformed;
    let rare = [
        (spans.root, "root SERVER (no parent)"),
        (spans.other_kind, "of other kinds (INTERNAL, PRODUCER, CONSUMER)"),
        (spans.extra_attempts, "further attempts of a call"),
        (spans.evicted, "evicted because --max-pending-bytes was reached"),
        (malformed.bad_id, "malformed: bad id"),
        (malformed.end_before_start, "malformed: end before start"),
        (malformed.no_time, "malformed: no start or end"),
        (malformed.too_long, "malformed: longer than 78 hours"),
        (overview.calls_in_other, "calls of pairs past the limit, in the pair \"other\""),
    ];
    let rare: Vec<String> =
        rare.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !rare.is_empty() {
        paragraph(out, &format!("Besides: {}.", rare.join(", ")))?;
    }
    if let Some(note) = size_note(overview) {
        paragraph(out, &format!("Note: {note}."))?;
    }
    Ok(())
}

/// Wrapped on a terminal; otherwise on one line, for scripts and grep.
fn paragraph(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", wrapped(text, width(usize::MAX, COLUMNS), 0))
}

fn print_worst(out: &mut impl Write, pair: &PairRow) -> io::Result<()> {
    if pair.worst.is_empty() {
        return Ok(());
    }
    let method = pair.method.as_deref().map_or(String::new(), |method| format!(", {method}"));
    writeln!(out, "\nWorst calls of {} -> {}{method}:", pair.client, pair.server)?;
    let header =
        ["TRACE ID", "CLIENT SPAN ID", "STATUS", "GAP", "CLIENT", "SERVER"].map(String::from).to_vec();
    let rows = pair.worst.iter().take(WORST_SHOWN).map(|call| {
        let durations = [call.gap_ns, call.client_ns, call.server_ns].map(format_ns);
        let names = [call.trace_id.clone(), call.client_span_id.clone(), call.status.clone()];
        names.into_iter().chain(durations).collect()
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    out.write_all(aligned(&rows, |column| column < 3).as_bytes())
}

fn print_skipped(out: &mut impl Write, reading: &Reading) -> io::Result<()> {
    if reading.skipped_places == 0 {
        return Ok(());
    }
    let lost = match reading.skipped_spans {
        0 => String::new(),
        spans => format!(", {} known to be lost", counted(spans, "span")),
    };
    writeln!(out, "\nSkipped {}{lost}:", counted(reading.skipped_places, "place"))?;
    for skipped in reading.skipped.iter().take(SKIPPED_SHOWN) {
        writeln!(out, "  {}: {}: {}", skipped.file, skipped.place, skipped.reason)?;
    }
    if reading.skipped.len() > SKIPPED_SHOWN {
        writeln!(out, "  … and more; --json names them")?;
    }
    Ok(())
}
