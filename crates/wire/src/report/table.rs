//! The text report: captures, slowest calls, where the time went, conclusions.

use super::outcome;
use super::words::leg_words;
use super::{
    CallReport, CaptureReport, CauseSumReport, ClockReport, ConnectionReport, DissectReport, PairReport,
    SumsReport,
};
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Coverage, Interval};
use spangap_report::cut::keep_end;
use spangap_report::figures::{bounded, bytes_on_link, counted, percent_of};
use spangap_report::table::aligned;
use spangap_report::times::{date, time_of_day};
use spangap_report::wrap::wrapped;

/// Maximum pairs shown; the JSON has all pairs and connections.
const PAIRS: usize = 10;
/// Maximum connections shown per pair.
const CONNECTIONS: usize = 8;
/// Width of the longest bar, columns.
const BAR: f64 = 24.0;
/// Minimum width at which the table of calls includes trace ids.
const WIDE: usize = 150;

/// The whole report except the ladders, for a terminal of `width` columns.
pub fn write(report: &DissectReport, width: usize) -> String {
    let mut text = String::new();
    for paragraph in head(report) {
        text += &format!("{}\n", wrapped(&paragraph, width, 2));
    }
    text += "\n";
    text += &calls(report, width);
    text += &places(report, width);
    text += &super::hops::section(report);
    if report.totals.calls > 0 {
        text += "\nWhere the time of all calls went\n";
        text += &pairs(report, width);
    }
    text
}

/// Limits and conclusions, at the end of the output, since that is what a terminal shows.
pub fn write_conclusions(report: &DissectReport, width: usize) -> String {
    let caveats: Vec<&str> = report.caveats.iter().map(String::as_str).collect();
    let words: Vec<String> = report.conclusions.iter().map(super::Conclusion::text).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut text = String::new();
    for (title, paragraphs) in [("What these figures cannot tell", caveats), ("In words", words)] {
        if paragraphs.is_empty() {
            continue;
        }
        text += if text.is_empty() { "" } else { "\n" };
        text += &format!("{title}\n");
        for paragraph in paragraphs {
            text += &format!("{}\n", wrapped(&format!("  {paragraph}"), width, 2));
        }
    }
    text
}

/// What was read, in paragraphs.
pub(super) fn head(report: &DissectReport) -> Vec<String> {
    let mut paragraphs = Vec::new();
    if report.interrupted {
        paragraphs.push("Interrupted: this is what had been read by then.".into());
    }
    paragraphs.extend(report.warnings.iter().map(|warning| format!("Warning: {warning}")));
    for capture in &report.captures {
        paragraphs.push(capture_line(capture, report.captures.len() == 1));
        for damage in capture.damage.iter().take(3) {
            paragraphs.push(format!("  at offset {}: {}", damage.offset, damage.what));
        }
        if capture.damaged_places > 3 {
            paragraphs.push(format!("  and {} more places; --json names them", capture.damaged_places - 3));
        }
    }
    paragraphs.extend(report.recordings.iter().map(recording_line));
    paragraphs.extend(clock_line(report));
    paragraphs.push(calls_line(report));
    paragraphs
}

fn capture_line(capture: &CaptureReport, alone: bool) -> String {
    // A single capture shows its end only by assumption.
    let taken = if alone { "taken for the " } else { "" };
    let side = capture.side.map_or(String::new(), |side| format!(" ({taken}{}'s end)", side.name()));
    let mut text = format!("{}{side}: {}", capture.file, counted(capture.packets, "packet"));
    if let (Some(first), Some(last)) = (capture.first_unix_ns, capture.last_unix_ns) {
        let span = format_ns((last - first).unsigned_abs());
        text += &format!(" in {span} from {} {} UTC", date(first), time_of_day(first));
    }
    let mut not: Vec<String> = Vec::new();
    match capture.dropped {
        Some(0) => not.push("none dropped".into()),
        Some(dropped) => not.push(format!("{} dropped while capturing", counted(dropped, "packet"))),
        None => not.push("the file does not say whether packets were dropped".into()),
    }
    let unparsed: u64 = capture.unparsed.values().sum();
    let damaged = (capture.damaged_places > 0).then(|| {
        let places = counted(capture.damaged_places, "place");
        format!("{places} of the file could not be read ({} skipped)", bytes_on_link(capture.damaged_bytes))
    });
    let counted =
        |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", counted(count, "packet")));
    let reasons: Vec<String> = capture.unparsed.iter().map(|(why, count)| format!("{why} {count}")).collect();
    not.extend(damaged);
    not.extend(counted(capture.cut, "cut by the snap length"));
    not.extend(counted(capture.without_time, "without a time, not used"));
    not.extend(counted(unparsed, &format!("without a TCP segment ({})", reasons.join(", "))));
    if capture.resolution_ns >= 1_000 {
        not.push(format!("times to {}", format_ns(u64::from(capture.resolution_ns))));
    }
    format!("{text}; {}.", not.join(", "))
}

/// What a recording covers; `caveats` has what it lacks.
fn recording_line(recording: &Coverage) -> String {
    let side = recording.side.map_or(String::new(), |side| format!(" ({}'s end)", side.name()));
    let mut text = format!("{}{side}: {}", recording.source, counted(recording.seen, "event"));
    if let Some(Interval { from_unix_ns: from, to_unix_ns: to }) = recording.when {
        let span = format_ns((to - from).unsigned_abs());
        text += &format!(" in {span} from {} {} UTC", date(from), time_of_day(from));
    }
    match recording.lost {
        0 => text + "; none lost.",
        lost => format!("{text}; {} lost.", counted(lost, "event")),
    }
}

/// The clocks, as a sentence; `None` for a single capture.
pub(super) fn clock_line(report: &DissectReport) -> Option<String> {
    let [first, second] = report.captures.as_slice() else {
        let pairs = report.clocks.iter().filter_map(|pair| {
            let [first, second] = pair.captures.map(|capture| report.captures.get(usize::from(capture)));
            Some(between(first?, second?, &pair.clock))
        });
        let lines: Vec<String> = pairs.collect();
        return (!lines.is_empty()).then(|| format!("Clocks: {}.", lines.join("; ")));
    };
    let Some(clock) = &report.clock else {
        return Some("Clocks: no packet is in both captures, so they cannot be compared.".into());
    };
    Some(format!("Clocks: {}.", between(first, second, clock)))
}

fn between(first: &CaptureReport, second: &CaptureReport, clock: &ClockReport) -> String {
    let (low, high) = (clock.offset_low_ns, clock.offset_high_ns);
    let between = |low: u64, high: u64| match (format_ns(low), format_ns(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    let relation = match (low, high) {
        (0, 0) => "the same as".into(),
        (low, high) if low >= 0 => format!("{} ahead of", between(low as u64, high as u64)),
        (low, high) if high <= 0 => format!("{} behind", between(high.unsigned_abs(), low.unsigned_abs())),
        _ => format!(
            "between {} behind and {} ahead of",
            format_ns(low.unsigned_abs()),
            format_ns(high.unsigned_abs())
        ),
    };
    let mut text = format!("that of {} is {relation} that of {}", second.file, first.file);
    text += &rate(clock);
    if clock.stretches.len() > 1 {
        text += &format!("; a clock was stepped or changed its rate: {} stretches", clock.stretches.len());
    }
    text
}

fn rate(clock: &ClockReport) -> String {
    match (clock.skew_low_ppm, clock.skew_high_ppm) {
        // A rate that may be zero is not worth a line.
        (Some(low), Some(high)) if low > 0.0 || high < 0.0 => {
            format!("; its rate differs by {low:.1} to {high:.1} ppm")
        }
        _ => String::new(),
    }
}

fn calls_line(report: &DissectReport) -> String {
    let totals = &report.totals;
    let connections: u64 = report.connections.len() as u64 + report.connections_left_out;
    let mut text = format!("{} on {}", counted(totals.calls, "call"), counted(connections, "connection"));
    let mut besides: Vec<String> = Vec::new();
    let one_end = totals.one_end.client + totals.one_end.server;
    if report.captures.len() > 1 && one_end > 0 {
        let each = (totals.one_end.client, totals.one_end.server);
        besides.push(format!("{one_end} seen at one end only ({} client's, {} server's)", each.0, each.1));
    }
    if totals.failed > 0 {
        besides.push(format!("{} failed", totals.failed));
    }
    for (status, count) in totals.http_statuses.iter().filter(|(status, _)| !(200..300).contains(*status)) {
        besides.push(format!("{count} with HTTP {status}"));
    }
    if totals.status_unknown > 0 {
        besides.push(format!("{} whose status could not be read", totals.status_unknown));
    }
    if totals.unanswered > 0 {
        besides.push(format!("{} without a response", totals.unanswered));
    }
    if totals.cut_by_snap > 0 {
        besides.push(format!("{} cut by snap, so their end is unknown", totals.cut_by_snap));
    }
    if totals.unfinished > 0 {
        besides.push(format!("{} still in flight when the capture ended", totals.unfinished));
    }
    if !besides.is_empty() {
        text += &format!(": {}", besides.join(", "));
    }
    text + "."
}

/// `The 10 slowest of 200 calls`
pub(super) fn calls_title(report: &DissectReport) -> String {
    let shown = report.calls.len() as u64;
    let over =
        report.selection.over_ns.map_or(String::new(), |ns| format!(" that took {} or more", format_ns(ns)));
    let of = match report.selection.trace_ids.as_slice() {
        [] => String::new(),
        [id] => format!(" of trace {id}"),
        ids => format!(" of {} traces", ids.len()),
    };
    match report.matching_calls {
        0 if over.is_empty() && of.is_empty() => "No call was found.".into(),
        0 => format!("No call{of}{over} was found."),
        matching if matching == shown => match shown {
            1 => format!("The one call{of}{over}"),
            _ => format!("All {}{of}{over}, slowest first", counted(shown, "call")),
        },
        matching => format!("The {shown} slowest of {}{of}{over}", counted(matching, "call")),
    }
}

fn calls(report: &DissectReport, width: usize) -> String {
    let mut text = format!("{}\n", calls_title(report));
    if report.calls.is_empty() {
        return text;
    }
    let traces = width >= WIDE && report.calls.iter().any(|call| call.trace_id.is_some());
    let possible =
        report.calls.iter().any(|call| call.findings.first().is_some_and(|first| !first.is_shown()));
    let finding = if possible { "FINDING (? possible)" } else { "FINDING" };
    let mut header: Vec<String> =
        ["START UTC", "DURATION", "METHOD", "CONN", "LARGEST LEG", "", finding].map(String::from).to_vec();
    let endings = report.calls.iter().any(|call| call.ending.is_some());
    if endings {
        header.insert(6, "STATUS".into());
    }
    if traces {
        header.push("TRACE ID".into());
    }
    let cells = |method_width: usize| -> Vec<Vec<String>> {
        let rows = report.calls.iter().map(|call| {
            let [name, value] = largest(call);
            let mut row = vec![
                time_of_day(call.start_unix_ns),
                outcome::duration_cell(call),
                keep_end(&method(call), method_width),
                call.connection.map_or("-".into(), |number| number.to_string()),
                name,
                value,
                first_finding(call),
            ];
            if endings {
                row.insert(6, outcome::cell(call));
            }
            if traces {
                row.push(call.trace_id.clone().unwrap_or_else(|| "-".into()));
            }
            row
        });
        std::iter::once(header.clone()).chain(rows).collect()
    };
    // The method gets the width that the other columns leave.
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let left = |column| [0, 2, 4, 6, 7, 8].contains(&column);
    let full = aligned(&cells(usize::MAX), left);
    let methods = report.calls.iter().map(|call| method(call).chars().count()).max().unwrap_or(0);
    let over = longest(&full).saturating_sub(width);
    text += &if over == 0 { full } else { aligned(&cells(methods.saturating_sub(over).max(12)), left) };
    text
}

/// The method, or the protocol if it is unknown.
pub(super) fn method(call: &CallReport) -> String {
    call.method.clone().unwrap_or_else(|| format!("({})", call.protocol))
}

/// Name and time of the longest leg.
pub(super) fn largest(call: &CallReport) -> [String; 2] {
    if let Some(leg) = call.largest_on_path() {
        return [super::hops::stage_words(leg.hop, leg.leg), bounded(leg.ns, leg.bound_ns)];
    }
    let leg = call.largest_leg();
    leg.map_or(["-".into(), String::new()], |leg| [leg_words(leg.legs), bounded(leg.ns, leg.bound_ns)])
}

/// The most costly finding, and the number of further ones.
pub(super) fn first_finding(call: &CallReport) -> String {
    let Some(first) = call.findings.first() else { return "-".into() };
    let cost = first.cost_ns.map_or(String::new(), |ns| format!(" {}", format_ns(ns)));
    let possible = if first.is_shown() { "" } else { "?" };
    let more = match call.findings.len() - 1 {
        0 => String::new(),
        more => format!(" +{more}"),
    };
    format!("{}{possible}{cost}{more}", first.culprit.cause)
}

/// Places where a trace id was seen as plain bytes.
pub(super) fn places(report: &DissectReport, width: usize) -> String {
    let mut text = String::new();
    for place in report.trace_id_elsewhere.iter().take(10) {
        let file =
            report.captures.get(usize::from(place.capture)).map_or("?", |capture| capture.file.as_str());
        let line = format!(
            "  {file} #{}: the trace id is there ({}), outside every header that could be read.",
            place.packet, place.written
        );
        text += &format!("{}\n", wrapped(&line, width, 4));
    }
    text
}

/// Where the time of each pair's calls went, without its connections.
pub fn pairs_in_short(report: &DissectReport, width: usize) -> String {
    report.pairs.iter().take(PAIRS).map(|pair| sums_of_pair(pair, width)).collect()
}

fn sums_of_pair(pair: &PairReport, width: usize) -> String {
    let title = format!("{} -> {}, {}", pair.client, pair.server, counted(pair.connections, "connection"));
    sums(&title, &pair.sums, width)
}

fn pairs(report: &DissectReport, width: usize) -> String {
    let mut text = String::new();
    for pair in report.pairs.iter().take(PAIRS) {
        text += &sums_of_pair(pair, width);
        let of_pair = |connection: &&ConnectionReport| {
            let client = connection.client.rsplit_once(':').map_or("", |(host, _)| host);
            let client = client.trim_start_matches('[').trim_end_matches(']');
            client == pair.client && connection.server == pair.server
        };
        let connections: Vec<&ConnectionReport> = report.connections.iter().filter(of_pair).collect();
        text += &connection_rows(&connections, pair.connections, width);
    }
    if report.pairs.len() > PAIRS {
        text += &format!("  … and {} more pairs; --json has them all\n", report.pairs.len() - PAIRS);
    }
    text
}

/// A title, quantiles, legs with bars, causes.
fn sums(title: &str, sums: &SumsReport, width: usize) -> String {
    let time = |ns: Option<u64>| ns.map_or("-".into(), format_ns);
    let line = format!(
        "  {title}: {}, p50 {}, p99 {}, max {}, {} together",
        counted(sums.calls, "call"),
        time(sums.p50_ns),
        time(sums.p99_ns),
        time(sums.max_ns),
        format_ns(sums.total_ns)
    );
    let mut text = format!("{}\n", wrapped(&line, width, 4));
    let rows: Vec<Vec<String>> = sums
        .legs
        .iter()
        .map(|leg| {
            let share = leg.total_ns.max(0) as f64 / sums.total_ns.max(1) as f64;
            let columns = (share.min(1.0) * BAR).round() as usize;
            let bar = if columns == 0 && leg.total_ns > 0 { "▏".into() } else { "█".repeat(columns) };
            vec![
                format!("    {}", leg_words(leg.leg)),
                bounded(leg.total_ns, leg.bound_ns),
                percent_of(leg.total_ns, sums.total_ns),
                bar,
            ]
        })
        .collect();
    text += &aligned(&rows, |column| column == 0 || column == 3);
    let rows: Vec<Vec<String>> = sums.causes.iter().map(|cause| cause_row(cause, sums.total_ns)).collect();
    text + &aligned(&rows, |column| column == 0)
}

fn cause_row(cause: &CauseSumReport, total_ns: u64) -> Vec<String> {
    let side = super::words::at_side(cause.side);
    let calls = match (cause.calls, cause.possible) {
        (0, possible) => format!("{} possible", counted(possible, "call")),
        (calls, 0) => counted(calls, "call"),
        (calls, possible) => format!("{} + {possible} possible", counted(calls, "call")),
    };
    let shown = cause.cost_ns > 0;
    vec![
        format!("    {}{side}", cause.cause),
        calls,
        if shown { format_ns(cause.cost_ns) } else { String::new() },
        if shown { percent_of(cause.cost_ns, total_ns) } else { String::new() },
    ]
}

/// A line for each connection of a pair that has several, and the notes of all.
fn connection_rows(connections: &[&ConnectionReport], all: u64, width: usize) -> String {
    let mut text = String::new();
    if all > 1 {
        let mut rows = Vec::new();
        for connection in connections.iter().take(CONNECTIONS) {
            let sums = &connection.sums;
            let largest = sums.legs.iter().max_by_key(|leg| leg.total_ns);
            let largest = largest.map_or("-".into(), |leg| {
                format!("{} {}", percent_of(leg.total_ns, sums.total_ns), leg_words(leg.leg))
            });
            let cause = sums.causes.iter().find(|cause| cause.calls > 0);
            let cause = cause.map_or("-".into(), |cause| {
                // Time before the calls has no cost within them.
                let cost =
                    if cause.cost_ns > 0 { format!(" {}", format_ns(cause.cost_ns)) } else { String::new() };
                format!("{}{cost} in {}", cause.cause, counted(cause.calls, "call"))
            });
            rows.push(vec![
                format!("    connection {} from {}", connection.connection, connection.client),
                counted(sums.calls, "call"),
                sums.p50_ns.map_or("-".into(), |ns| format!("p50 {}", format_ns(ns))),
                sums.p99_ns.map_or("-".into(), |ns| format!("p99 {}", format_ns(ns))),
                largest,
                cause,
            ]);
        }
        text += &aligned(&rows, |column| [0, 4, 5].contains(&column));
        let hidden = all.saturating_sub(connections.len().min(CONNECTIONS) as u64);
        if hidden > 0 {
            let more =
                if hidden == 1 { "1 more connection".into() } else { format!("{} more", grouped(hidden)) };
            text += &format!("    … and {more}\n");
        }
    }
    for connection in connections.iter().take(CONNECTIONS) {
        for note in &connection.notes {
            let line = format!("    connection {}: {}.", connection.connection, note.trim_end_matches('.'));
            text += &format!("{}\n", wrapped(&line, width, 6));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_table_has_captures_calls_sums_and_conclusions() {
        let report = samples::report();
        let text = write(&report, 120) + &write_conclusions(&report, 120);
        println!("{text}");
        for expected in [
            "client.pcap (client's end): 640 packets in 9.00 s from 2026-02-28 12:00:00.000000 UTC; 3 packets dropped",
            "1 place of the file could not be read (77 B skipped)",
            "Clocks: that of server.pcap is 1.48 ms to 1.52 ms ahead of that of client.pcap.",
            "200 calls on 1 connection: 1 seen at one end only (1 client's, 0 server's), 2 failed, 1 still in flight",
            "The 3 slowest of 200 calls",
            "12:00:01.000000   40.5 ms  /shop.v1.Cart/Add     1  client: sending the request   40.1 ms  nagle-delayed-ack 40.0 ms",
            "10.0.0.1 -> 10.0.0.2:50051, 1 connection: 200 calls, p50",
            "    nagle-delayed-ack, client side  60 calls + 2 possible  2.40 s  96 %",
            "In words\n  2 of the 3 slowest calls waited for a delayed ACK",
            "What these figures cannot tell",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn a_narrow_terminal_shortens_methods() {
        let mut report = samples::report();
        report.calls[0].method = Some("/a.rather.long.package.name.v1.Service/Method".into());
        let text = write(&report, 110);
        assert!(text.contains("…") && text.contains("/Method "), "{text}");
    }

    #[test]
    fn an_empty_result_is_reported() {
        let mut report = DissectReport::default();
        assert!(write(&report, 110).contains("No call was found."));
        report.selection.over_ns = Some(20_000_000);
        assert!(write(&report, 110).contains("No call that took 20.0 ms or more was found."));
        report.selection.trace_ids = vec!["ab".repeat(16)];
        assert!(write(&report, 110).contains("No call of trace abababab"), "{}", write(&report, 110));
    }

    #[test]
    fn clocks_in_words() {
        let mut report = samples::report();
        let mut line = |low, high| {
            let clock = report.clock.as_mut().expect("the sample has one");
            (clock.offset_low_ns, clock.offset_high_ns) = (low, high);
            clock_line(&report).expect("two captures")
        };
        assert!(line(0, 0).contains("is the same as that of client.pcap."));
        assert!(line(-3_000, -1_000).contains("is 1.00 us to 3.00 us behind that of"));
        assert!(line(-3_000, 1_000).contains("is between 3.00 us behind and 1.00 us ahead of that of"));
        report.clock = None;
        assert!(clock_line(&report).expect("two captures").contains("cannot be compared"));
        report.captures.truncate(1);
        assert_eq!(clock_line(&report), None);
    }
}
