//! One call as text: a row for each packet with its time at both taps, its legs as bars, its findings.

use super::crossing::{Crossing, Way, crossings};
use super::outcome;
use super::words::{leg_words, part_words};
use super::{CallReport, CaptureReport, DissectReport, LadderReport, RungReport};
use spangap_model::Side;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Finding, HostPart, HostTime, Missing};
use spangap_report::figures::{bounded, bytes_on_link, counted, percent_of};
use spangap_report::times::{date, time_of_day};
use spangap_report::wrap::wrapped;

/// Width of an arrow, columns.
const ARROW: usize = 32;
/// Width of the picture to the left of the notes, columns.
const PICTURE: usize = 20 + ARROW + 20;
/// Width of the longest leg bar, columns.
const BAR: usize = 40;
/// A pause between packets is reported if it takes at least one part in this many of the call.
const PAUSE_SHARE: i64 = 10;

/// The call at an index of the report, with its ladder if it has one, in lines of at most `width` columns as far
/// as words permit.
pub fn write(report: &DissectReport, place: usize, width: usize) -> String {
    let Some(call) = report.calls.get(place) else { return String::new() };
    let mut text = head(call, width);
    match &call.ladder {
        Some(ladder) if !ladder.packets.is_empty() => {
            text += "\n";
            text += &packets(ladder, call, &report.captures, width);
        }
        _ => {}
    }
    text += "\n";
    text += &legs(call);
    for finding in &call.findings {
        text += &finding_text(finding, &report.captures, width);
    }
    for doubt in &call.doubts {
        text += &format!("{}\n", wrapped(&format!("Doubtful: {doubt}."), width, 2));
    }
    text
}

/// `/shop.v1.Cart/Add, 40.5 ms, OK`
pub(super) fn title(call: &CallReport) -> String {
    let method = call.method.clone().unwrap_or_else(|| match call.protocol {
        "turns" | "tls" => format!("a turn of {}", if call.protocol == "tls" { "TLS" } else { "bytes" }),
        _ => "a method that could not be read".into(),
    });
    format!("{method}, {}, {}", outcome::duration(call), outcome::words(call))
}

/// `10.0.0.1:40312 -> 10.0.0.2:50051 (connection 1), stream 5`
pub(super) fn route(call: &CallReport) -> String {
    let ends = match (&call.client, &call.server) {
        (Some(client), Some(server)) => format!("{client} -> {server}, "),
        _ => String::new(),
    };
    let connection = call.connection.map_or(String::new(), |number| format!("connection {number}, "));
    let what = if matches!(call.protocol, "grpc" | "http2") { "stream" } else { "exchange" };
    let turn = call.turn.map_or(String::new(), |turn| format!(", turn {turn}"));
    format!("{ends}{connection}{what} {}{turn}", call.stream_id)
}

/// Facts of the call other than its time.
pub(super) fn particulars(call: &CallReport) -> String {
    let mut all = vec![format!("request {}", bytes_on_link(call.request_bytes))];
    all.extend(call.response_bytes.map(|count| format!("response {}", bytes_on_link(count))));
    all.extend(call.deadline_ns.map(|ns| format!("deadline {}", format_ns(ns))));
    if call.in_flight > 1 {
        all.push(format!("{} in flight on its connection", counted(u64::from(call.in_flight), "call")));
    }
    all.join(", ")
}

fn head(call: &CallReport, width: usize) -> String {
    let start = format!("{} {} UTC", date(call.start_unix_ns), time_of_day(call.start_unix_ns));
    let mut text = format!("{}\n", wrapped(&title(call), width, 2));
    text += &format!("  {start}, {}\n", route(call));
    text += &format!("  {}\n", particulars(call));
    if let Some(trace) = &call.trace_id {
        text += &format!("  trace {trace}\n");
    }
    if let Some(words) = by_shape(call) {
        text += &format!("  {words}\n");
    }
    text
}

/// The facts recognised by shape, in words.
pub(super) fn by_shape(call: &CallReport) -> Option<String> {
    let names = call.recognised_by_shape.join(", ").replace('_', " ");
    (!names.is_empty())
        .then(|| format!("recognised by the shape of a value, because its name is unknown: {names}"))
}

/// How the times of the two taps were aligned, as a sentence.
pub(super) fn times_explained(ladder: &LadderReport) -> String {
    let two = [Side::Client, Side::Server]
        .into_iter()
        .all(|side| ladder.packets.iter().any(|rung| rung.seen_at == side));
    match (two, ladder.correction_ns, ladder.correction_bound_ns) {
        (false, ..) => "Only one end was captured; the other column is empty.".into(),
        (true, Some(0), Some(0)) => "Both taps share one clock.".into(),
        (true, Some(correction), bound) => format!(
            "The server's times are by its own clock {} {}, the midpoint of what the packets allow (± {}).",
            if correction < 0 { "minus" } else { "plus" },
            format_ns(correction.unsigned_abs()),
            format_ns(bound.unwrap_or(0))
        ),
        (true, None, _) => {
            "Each end's times are by its own clock: no packet shows how the two differ, so times of one end cannot \
             be compared with those of the other."
                .into()
        }
    }
}

fn packets(ladder: &LadderReport, call: &CallReport, captures: &[CaptureReport], width: usize) -> String {
    let name = |side: Side| {
        let capture = call.seen_in[side.index()].and_then(|number| captures.get(usize::from(number)));
        capture.map_or_else(|| "not captured".to_owned(), |capture| capture.file.clone())
    };
    let mut text = format!("  CLIENT: {}   SERVER: {}\n", name(Side::Client), name(Side::Server));
    text += &format!("{}\n", wrapped(&format!("  {}", times_explained(ladder)), width, 2));
    text += &format!("{:>11} {:>8}{:ARROW$}{:>11} {:>8}\n", "client ms", "packet", "", "server ms", "packet");
    let mut before: Option<i64> = None;
    let pause = (call.duration_ns as i64 / PAUSE_SHARE).max(1);
    for crossing in crossings(ladder) {
        let rungs = [crossing.sent, crossing.arrived].map(|place| place.map(|place| &ladder.packets[place]));
        let Some(first) = rungs[0].or(rungs[1]) else { continue };
        let now = first.since_start_ns;
        let left_out: u64 = rungs.iter().flatten().map(|rung| rung.left_out_before).sum();
        let paused = before.map(|before| now - before).filter(|ns| *ns >= pause);
        if let Some(words) = between(paused, left_out) {
            text += format!("{:^PICTURE$}", format!("( {words} )")).trim_end();
            text.push('\n');
        }
        let last = rungs.iter().flatten().map(|rung| rung.since_start_ns).max();
        before = before.max(last);
        text += &row(&crossing, rungs, width);
    }
    text
}

/// The gap between two displayed packets: a notable pause, packets left out, or both.
pub(super) fn between(paused_ns: Option<i64>, left_out: u64) -> Option<String> {
    let paused = paused_ns.map(|ns| format_ns(ns.unsigned_abs()));
    match (paused, left_out) {
        (None, 0) => None,
        (Some(paused), 0) => Some(format!("{paused} without a packet")),
        (Some(paused), count) => Some(format!("{paused}, {} left out", counted(count, "packet"))),
        (None, count) => Some(format!("{} left out", counted(count, "packet"))),
    }
}

fn row(crossing: &Crossing, [sent, arrived]: [Option<&RungReport>; 2], width: usize) -> String {
    let (client, server) = match crossing.from {
        Side::Client => (sent, arrived),
        Side::Server => (arrived, sent),
    };
    let cell = |rung: Option<&RungReport>| match rung {
        Some(rung) => format!("{:>11} {:>8}", milliseconds(rung.since_start_ns), format!("#{}", rung.packet)),
        None => " ".repeat(20),
    };
    let what = [sent, arrived].into_iter().flatten().next().map_or(String::new(), carries);
    let picture = format!("{}{}{}", cell(client), arrow(crossing, &what), cell(server));
    let mut notes: Vec<&str> = Vec::new();
    // The two taps, and marks and evidence, may say the same in other words or with slightly different figures.
    let words = |note: &str| -> Vec<String> {
        let words = note.split([' ', ',']).filter(|word| !matches!(*word, "" | "of" | "the"));
        let mut words: Vec<String> =
            words.map(|word| word.replace(|c: char| c.is_ascii_digit(), "")).collect();
        words.sort_unstable();
        words
    };
    for note in [sent, arrived].into_iter().flatten().flat_map(|rung| &rung.notes) {
        if !notes.iter().any(|known| words(known) == words(note)) {
            notes.push(note);
        }
    }
    if crossing.way == Way::Lost {
        notes.push(match crossing.from {
            Side::Client => "not seen at the server",
            Side::Server => "not seen at the client",
        });
    }
    let (picture, notes) = (picture.trim_end(), notes.join("; "));
    let room = width.saturating_sub(PICTURE + 2);
    let mut text = match notes.chars().count() {
        0 => picture.to_owned(),
        count if count <= room => format!("{picture:PICTURE$}  {notes}"),
        // Too long for the same line: below, under the arrow.
        _ => format!(
            "{picture}\n{}{}",
            " ".repeat(22),
            wrapped(&notes, width.saturating_sub(22), 0).replace('\n', &format!("\n{}", " ".repeat(22)))
        ),
    };
    text.push('\n');
    text
}

/// Milliseconds with three decimals: the unit of both columns.
fn milliseconds(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Content of a packet: `57 B`, `ACK +91`, `SYN`.
pub(super) fn carries(rung: &RungReport) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !rung.flags.is_empty() {
        parts.push(rung.flags.clone());
    }
    if rung.bytes > 0 {
        parts.push(format!("{} B", rung.bytes));
    }
    if rung.bytes == 0 && rung.ack.is_some() && !rung.flags.contains("RST") {
        parts.push(match rung.acked_bytes {
            Some(count) if count > 0 => format!("ACK of {count} B"),
            _ => "ACK".into(),
        });
    }
    if parts.is_empty() {
        parts.push("no bytes".into());
    }
    parts.join(" ")
}

/// `  ---- 57 B ------------------>  `, `ARROW` columns wide.
fn arrow(crossing: &Crossing, what: &str) -> String {
    let line = ARROW - 5;
    let dashes = line.saturating_sub(what.chars().count() + 2);
    let (left, right) = (dashes / 2, dashes - dashes / 2);
    let shaft = format!("{} {what} {}", "-".repeat(left), "-".repeat(right));
    let tip = if crossing.way == Way::Lost { 'x' } else { '>' };
    match (crossing.from, tip) {
        (Side::Client, tip) => format!("  {shaft}{tip}  "),
        (Side::Server, '>') => format!("  <{shaft}  "),
        (Side::Server, tip) => format!("  {tip}{shaft}  "),
    }
}

fn legs(call: &CallReport) -> String {
    let names: Vec<String> = call.legs.iter().map(|leg| leg_words(leg.legs)).collect();
    let values: Vec<String> = call.legs.iter().map(|leg| bounded(leg.ns, leg.bound_ns)).collect();
    let widest = |cells: &[String]| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let (name_width, value_width) = (widest(&names), widest(&values));
    let mut text = String::new();
    let mut from_ns = 0;
    for ((leg, name), value) in call.legs.iter().zip(&names).zip(&values) {
        let bar = bar(from_ns, leg.ns, call.duration_ns);
        let share = percent_of(leg.ns, call.duration_ns);
        text += format!("  {name:<name_width$}  {value:>value_width$} {share:>6}  {bar}").trim_end();
        text.push('\n');
        text += &leg.host.as_ref().map_or(String::new(), |host| host_parts(host, leg.ns, name_width));
        from_ns += leg.ns;
    }
    text
}

/// The host's activity in a leg: parts of at least one percent, and the rest in one line.
fn host_parts(host: &HostTime, leg_ns: i64, name_width: usize) -> String {
    let mut rows: Vec<(String, u64)> = Vec::new();
    let (shown, rest): (Vec<&HostPart>, Vec<&HostPart>) =
        host.parts.iter().partition(|part| part.ns.saturating_mul(100) >= leg_ns.unsigned_abs());
    rows.extend(shown.into_iter().map(|part| (part_words(part), part.ns)));
    let rest_ns: u64 = rest.iter().map(|part| part.ns).sum();
    if rest_ns > 0 {
        rows.push((format!("{} smaller parts", rest.len()), rest_ns));
    }
    let mut text = format!("  {:name_width$}  {}\n", "", host.threads.join(", "));
    for (words, ns) in rows {
        let share = percent_of(ns, leg_ns.unsigned_abs());
        text += &format!("  {:name_width$}  {:>10} {share:>6}  {words}\n", "", format_ns(ns));
    }
    text
}

/// A bar as long as the leg's share, starting where the previous legs end.
fn bar(from_ns: i64, ns: i64, duration_ns: u64) -> String {
    if duration_ns == 0 || ns <= 0 {
        return String::new();
    }
    let column =
        |ns: i64| ((ns as f64 / duration_ns as f64) * BAR as f64).round().clamp(0.0, BAR as f64) as usize;
    let (from, to) = (column(from_ns).min(BAR - 1), column(from_ns.saturating_add(ns)));
    // A leg too short for a column is drawn as a thin line to stay visible.
    let short = (ns as f64) * (BAR as f64) < 0.5 * duration_ns as f64;
    let block = if to > from && !short { "█".repeat(to - from) } else { "▏".into() };
    format!("{}{block}", " ".repeat(from))
}

/// `nagle-delayed-ack, client side, 40.0 ms`
pub(super) fn finding_title(finding: &Finding) -> String {
    let side = super::words::at_side(finding.culprit.side);
    let cost = finding.cost_ns.map_or(", cost unknown".into(), |ns| format!(", {}", format_ns(ns)));
    let possible = if finding.is_shown() { "" } else { " (possible, not shown)" };
    format!("{}{side}{cost}{possible}", finding.culprit.cause)
}

fn finding_text(finding: &Finding, captures: &[CaptureReport], width: usize) -> String {
    let mut text = format!("\n{}\n", finding_title(finding));
    if let Some(missing) = finding.certainty.missing().map(Missing::words) {
        text += &format!("  {}\n", wrapped(&format!("not known: {missing}"), width.saturating_sub(2), 2));
    }
    if !finding.note.is_empty() {
        text += &format!("  {}\n", wrapped(&finding.note, width.saturating_sub(2), 2));
    }
    for evidence in finding.packets() {
        let file = captures.get(usize::from(evidence.capture)).map_or("?", |capture| capture.file.as_str());
        let line =
            format!("{file} #{} {}: {}", evidence.packet, time_of_day(evidence.time_unix_ns), evidence.what);
        text += &format!("  {}\n", wrapped(&line, width.saturating_sub(2), 4));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_call_is_shown_packet_by_packet() {
        let text = write(&samples::report(), 0, 110);
        println!("{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/shop.v1.Cart/Add, 40.5 ms, OK");
        for expected in [
            "  2026-02-28 12:00:01.000000 UTC, 10.0.0.1:40312 -> 10.0.0.2:50051, connection 1, stream 5",
            "minus 1.50 ms, the midpoint of what the packets allow (± 20.0 us).",
            "      0.000      #12  ---------- 91 B ----------->        0.052      #15  first request byte",
            "     40.112      #13  <------- ACK of 91 B -------       40.064      #16  delayed ACK",
            "( 40.0 ms without a packet )",
            "  client: sending the request             40.1 ms   99 %  ████████████████████████████████████████",
            "  network: request              50.0 us ± 20.0 us  0.1 %",
            "nagle-delayed-ack, client side, 40.0 ms",
            "  client.pcap #13 12:00:01.040112: a bare ACK ends the wait",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(lines.iter().all(|line| line.chars().count() <= 110 && line.trim_end() == *line), "{text}");
    }

    #[test]
    fn a_narrow_terminal_and_a_lost_packet() {
        let mut report = samples::report();
        let ladder = report.calls[0].ladder.as_mut().expect("the sample has one");
        ladder.packets.retain(|rung| (rung.capture, rung.packet) != (1, 17));
        let text = write(&report, 0, 80);
        assert!(text.contains("57 B -----------x"), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("not seen at the server"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 98), "{text}");
    }

    #[test]
    fn calls_without_a_ladder_show_their_legs() {
        let text = write(&samples::report(), 2, 110);
        assert!(text.contains("server: host and application") && !text.contains("client ms"), "{text}");
        assert_eq!(write(&samples::report(), 9, 110), "");
    }
}
