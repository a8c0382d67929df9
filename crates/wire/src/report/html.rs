//! The report as one page that needs no other file and no script: what one would paste into an incident report.

use super::ladder_text::{by_shape, finding_title, particulars, route, times_explained, title};
use super::legs_bar::place_of;
use super::outcome;
use super::table::{calls_title, clock_line, first_finding, head, largest, method};
use super::words::{at_side, leg_words, part_words};
use super::{CallReport, Conclusion, DissectReport, SumsReport, legs_bar, svg};
use spangap_model::Cause;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Finding, Missing};
use spangap_report::figures::{bounded, counted, percent_of};
use spangap_report::html::{self, element, escaped, prose, row};
use spangap_report::times::{date, date_and_second, time_of_day};

const STYLE: &str = include_str!("page.css");
/// Rows of a table; a page is no archive.
const ROWS: usize = 50;

/// The page.
pub fn write(report: &DissectReport) -> String {
    let headline = report.conclusions.first().map_or_else(|| calls_title(report), |first| first.seen.clone());
    let mut page = opening(report);
    for (place, call) in report.calls.iter().enumerate().filter(|(_, call)| call.ladder.is_some()) {
        page += &call_section(report, call, place);
    }
    if report.calls.iter().all(|call| call.ladder.is_none())
        && let Some(call) = report.calls.first()
    {
        page += &call_section(report, call, 0);
    }
    page += &calls_table(report);
    page += &sums_section(report);
    page += &limits(report);
    html::page(&headline, STYLE, &page)
}

fn opening(report: &DissectReport) -> String {
    let mut html = element("p", "kicker", &when(report));
    let mut conclusions = report.conclusions.iter();
    match conclusions.next() {
        Some(first) => {
            let (sentence, rest) = first.seen.split_once(". ").unwrap_or((&first.seen, ""));
            html += &element("h1", "", sentence.trim_end_matches('.'));
            let rest = Conclusion { seen: rest.to_owned(), ..first.clone() };
            html += &prose("lead", &rest.text());
        }
        None => html += &element("h1", "", calls_title(report).trim_end_matches('.')),
    }
    for conclusion in conclusions {
        let class = if conclusion.cause == Cause::None { "also quiet" } else { "also" };
        html += &prose(class, &conclusion.text());
    }
    html
}

/// `spangap dissect · 2026-02-28 12:00:00 UTC, 9.00 s`
fn when(report: &DissectReport) -> String {
    let first = report.captures.iter().filter_map(|capture| capture.first_unix_ns).min();
    let last = report.captures.iter().filter_map(|capture| capture.last_unix_ns).max();
    let (Some(first), Some(last)) = (first, last) else { return "spangap dissect".into() };
    format!("spangap dissect · {} UTC, {}", date_and_second(first), format_ns((last - first).unsigned_abs()))
}

/// What the hosts did in the legs that were recorded.
fn host_parts(call: &CallReport) -> String {
    let mut html = String::new();
    for (leg, host) in call.legs.iter().filter_map(|leg| Some((leg, leg.host.as_ref()?))) {
        let title = format!(
            "{}, {}: {}",
            leg_words(leg.legs),
            bounded(leg.ns, leg.bound_ns),
            host.threads.join(", ")
        );
        html += &element("p", "facts", &title);
        html += "<ul class=\"parts\">\n";
        for part in &host.parts {
            let share = percent_of(part.ns, leg.ns.unsigned_abs());
            html += &element("li", "", &format!("{} ({share}) {}", format_ns(part.ns), part_words(part)));
        }
        html += "</ul>\n";
    }
    html
}

/// The legs over all hops, where there are any.
fn hop_rows(call: &CallReport) -> String {
    if call.path.is_empty() {
        return String::new();
    }
    let mut html = element("p", "facts", &format!("Over its hops: {}", super::hops::way(call)));
    html += "<ul class=\"parts\">\n";
    for [words, time, share] in super::hops::rows(call) {
        html += &element("li", "", &format!("{time} ({share}) {words}"));
    }
    html + "</ul>\n"
}

fn call_section(report: &DissectReport, call: &CallReport, place: usize) -> String {
    let which = match (place, report.selection.trace_ids.is_empty(), report.calls.len()) {
        (0, true, 2..) => "The slowest call: ",
        _ => "",
    };
    let mut html = String::from("<section>\n");
    html += &element("h2", "", &format!("{which}{}", title(call)));
    let start = format!("{} {} UTC", date(call.start_unix_ns), time_of_day(call.start_unix_ns));
    html += &element("p", "facts", &format!("{start} · {} · {}", route(call), particulars(call)));
    if let Some(trace) = &call.trace_id {
        html += &format!("<p class=\"facts\">trace <code>{}</code></p>\n", escaped(trace));
    }
    if let Some(words) = by_shape(call) {
        html += &element("p", "facts", &words);
    }
    html += &legs_bar::picture(call);
    html += &hop_rows(call);
    html += &host_parts(call);
    if let Some(ladder) = call.ladder.as_ref().filter(|ladder| !ladder.packets.is_empty()) {
        let name = |end: &Option<String>| end.clone().unwrap_or_default();
        html += &svg::picture(call, [name(&call.client), name(&call.server)]);
        html += &element(
            "p",
            "caption",
            &format!(
                "Times are since the call began. {} Distances grow with the square root of time, so read the figures.",
                times_explained(ladder)
            ),
        );
    }
    for finding in &call.findings {
        html += &finding_block(finding, report);
    }
    for doubt in &call.doubts {
        html += &element("p", "caption", &format!("Doubtful: {doubt}."));
    }
    html + "</section>\n"
}

fn finding_block(finding: &Finding, report: &DissectReport) -> String {
    let mut html = format!("<div class=\"finding{}\">\n", if finding.is_shown() { "" } else { " possible" });
    html += &element("h3", "", &finding_title(finding));
    if let Some(missing) = finding.certainty.missing().map(Missing::words) {
        html += &element("p", "", &format!("Not known: {missing}."));
    }
    if !finding.note.is_empty() {
        html += &element("p", "", &finding.note);
    }
    html += "<table class=\"evidence\">\n";
    for evidence in finding.packets() {
        let file =
            report.captures.get(usize::from(evidence.capture)).map_or("", |capture| capture.file.as_str());
        html += &row(
            "td",
            &[file, &format!("#{}", evidence.packet), &time_of_day(evidence.time_unix_ns), &evidence.what],
            |column| column == 1 || column == 2,
        );
    }
    html + "</table>\n</div>\n"
}

fn calls_table(report: &DissectReport) -> String {
    if report.calls.len() < 2 {
        return String::new();
    }
    let figures = |column| [1, 6].contains(&column);
    let mut html = String::from("<section>\n");
    html += &element("h2", "", &calls_title(report));
    html += "<table>\n<thead>";
    html += &row(
        "th",
        &[
            "Start, UTC",
            "Duration",
            "Method",
            "Status",
            "Connection",
            "Largest leg",
            "",
            "Finding (? possible)",
        ],
        figures,
    );
    html += "</thead>\n<tbody>\n";
    for call in report.calls.iter().take(ROWS) {
        let [leg, value] = largest(call);
        let connection = call.connection.map_or("-".into(), |number| number.to_string());
        let (start, duration) = (time_of_day(call.start_unix_ns), outcome::duration_cell(call));
        html += &row(
            "td",
            &[
                &start,
                &duration,
                &method(call),
                &outcome::cell(call),
                &connection,
                &leg,
                &value,
                &first_finding(call),
            ],
            figures,
        );
    }
    html += "</tbody>\n</table>\n";
    if report.calls.len() > ROWS {
        html += &element(
            "p",
            "caption",
            &format!("… and {} more; the JSON has them all.", report.calls.len() - ROWS),
        );
    }
    html + "</section>\n"
}

fn sums_section(report: &DissectReport) -> String {
    if report.totals.calls == 0 {
        return String::new();
    }
    let mut html = String::from("<section>\n");
    html += &element("h2", "", "Where the time of all calls went");
    for pair in report.pairs.iter().take(ROWS) {
        let connections = counted(pair.connections, "connection");
        html += &element("h3", "", &format!("{} → {}, {connections}", pair.client, pair.server));
        html += &sums_block(&pair.sums);
    }
    if report.connections.len() > 1 {
        html += &connections_table(report);
    }
    for connection in &report.connections {
        for note in connection.notes.iter().take(5) {
            html += &element(
                "p",
                "caption",
                &format!("Connection {}: {}.", connection.connection, note.trim_end_matches('.')),
            );
        }
    }
    html + "</section>\n"
}

fn sums_block(sums: &SumsReport) -> String {
    let time = |ns: Option<u64>| ns.map_or("-".into(), format_ns);
    let mut html = element(
        "p",
        "facts",
        &format!(
            "{} · p50 {} · p99 {} · max {} · {} together",
            counted(sums.calls, "call"),
            time(sums.p50_ns),
            time(sums.p99_ns),
            time(sums.max_ns),
            format_ns(sums.total_ns)
        ),
    );
    html += "<table class=\"sums\">\n";
    for leg in &sums.legs {
        let share = 100.0 * leg.total_ns.max(0) as f64 / sums.total_ns.max(1) as f64;
        html += &format!(
            "<tr><td>{}</td><td class=\"figure\">{}</td><td class=\"figure\">{}</td><td class=\"bar\"><svg \
             viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\"><rect class=\"{}\" width=\"{:.2}\" \
             height=\"4\"/></svg></td></tr>\n",
            escaped(&leg_words(leg.leg)),
            bounded(leg.total_ns, leg.bound_ns),
            percent_of(leg.total_ns, sums.total_ns),
            place_of(leg.leg),
            share.clamp(0.2, 100.0)
        );
    }
    for cause in &sums.causes {
        let calls = match (cause.calls, cause.possible) {
            (0, possible) => format!("possible in {}", counted(possible, "call")),
            (calls, 0) => counted(calls, "call"),
            (calls, possible) => format!("{}, possible in {possible} more", counted(calls, "call")),
        };
        let (cost, share) = match cause.cost_ns {
            0 => (String::new(), String::new()),
            ns => (format_ns(ns), percent_of(ns, sums.total_ns)),
        };
        html += &format!(
            "<tr class=\"cause\"><td>{}</td><td class=\"figure\">{cost}</td><td class=\"figure\">{share}</td>\
             <td>{}</td></tr>\n",
            escaped(&format!("{}{}", cause.cause, at_side(cause.side))),
            escaped(&calls)
        );
    }
    html + "</table>\n"
}

fn connections_table(report: &DissectReport) -> String {
    let figures = |column| [0, 3, 4, 5].contains(&column);
    let mut html = String::from("<table>\n<thead>");
    html += &row(
        "th",
        &["", "Client", "Server", "Calls", "p50", "p99", "Most of the time", "Leading cause"],
        figures,
    );
    html += "</thead>\n<tbody>\n";
    for connection in report.connections.iter().take(ROWS) {
        let sums = &connection.sums;
        let time = |ns: Option<u64>| ns.map_or("-".into(), format_ns);
        let leg = sums.legs.iter().max_by_key(|leg| leg.total_ns).map_or("-".into(), |leg| {
            format!("{} {}", percent_of(leg.total_ns, sums.total_ns), leg_words(leg.leg))
        });
        let cause = sums.causes.iter().find(|cause| cause.calls > 0);
        let cause = cause.map_or("-".into(), |cause| format!("{} {}", cause.cause, format_ns(cause.cost_ns)));
        html += &row(
            "td",
            &[
                &connection.connection.to_string(),
                &connection.client,
                &connection.server,
                &sums.calls.to_string(),
                &time(sums.p50_ns),
                &time(sums.p99_ns),
                &leg,
                &cause,
            ],
            figures,
        );
    }
    html += "</tbody>\n</table>\n";
    let hidden = (report.connections.len().saturating_sub(ROWS)) as u64 + report.connections_left_out;
    if hidden > 0 {
        html += &element("p", "caption", &format!("… and {hidden} more connections."));
    }
    html
}

/// What was read, what these figures cannot tell, and how to make them again.
fn limits(report: &DissectReport) -> String {
    let mut html =
        String::from("<section class=\"limits\">\n<h2>What was read, and what it cannot tell</h2>\n<ul>\n");
    let clock = clock_line(report);
    for paragraph in head(report).iter().filter(|paragraph| Some(*paragraph) != clock.as_ref()) {
        html += &element("li", "", paragraph.trim_start());
    }
    if let Some(clock) = clock {
        html += &element("li", "", &clock);
    }
    for caveat in &report.caveats {
        html += &element("li", "", caveat);
    }
    html += "</ul>\n";
    if let Some(command) = &report.command {
        html += &format!("<p class=\"command\"><code>{}</code></p>\n", escaped(command));
    }
    html + "</section>\n"
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_says_what_matters() {
        let page = write(&samples::report());
        for needle in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(needle), "{needle}");
        }
        for expected in [
            "<h1>2 of the 3 slowest calls waited for a delayed ACK",
            "The slowest call: /shop.v1.Cart/Add, 40.5 ms, OK",
            "<svg class=\"legs\"",
            "<svg class=\"ladder\"",
            "<code>spangap dissect client.pcap server.pcap</code>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(expected), "{expected:?}");
        }
        assert!(page.len() < 60_000, "{}", page.len());
    }

    #[test]
    fn nothing_a_capture_says_becomes_markup() {
        let mut report = samples::report();
        let hostile = "</title><script>alert(\"1\")</script>\u{0}'";
        report.calls[0].method = Some(hostile.into());
        report.calls[0].client = Some(hostile.into());
        report.calls[0].findings[0].note = hostile.into();
        report.calls[0].ladder.as_mut().expect("the sample has one").packets[0].notes = vec![hostile.into()];
        report.connections[0].notes = vec![hostile.into()];
        report.captures[0].file = hostile.into();
        report.caveats = vec![hostile.into()];
        report.command = Some(hostile.into());
        report.conclusions[0].seen = hostile.into();
        let page = write(&report);
        assert!(!page.contains("<script") && !page.contains('\u{0}'));
        assert_eq!(page.matches("</title>").count() - page.matches("<title>").count(), 0);
    }

    #[test]
    fn a_page_of_nothing_and_of_too_much() {
        assert!(write(&DissectReport::default()).contains("<h1>No call was found"));
        let mut report = samples::report();
        report.calls = vec![report.calls[2].clone(); 5_000];
        report.connections = vec![report.connections[0].clone(); 5_000];
        assert!(write(&report).len() < 1_000_000);
    }
}
