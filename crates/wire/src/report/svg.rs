//! A ladder as a picture: both ends as lines downwards, packets as arrows between them, waits shaded.
//!
//! The distance between two events grows with the square root of the time between them, and is never too small for
//! their text: a stall of 40 ms and steps of 50 us are both to be read.

use super::crossing::{Crossing, Way, crossings};
use super::ladder_text::{between, carries, finding_title};
use super::legs_bar::place_of;
use super::{CallReport, LadderReport, RungReport};
use spangap_model::duration::format_ns;
use spangap_model::evidence::Finding;
use spangap_model::{Leg, Side};
use spangap_report::svg::{Anchor, Picture, Rect, text};
use spangap_report::wrap::wrapped;

/// Width of the picture.
const WIDTH: f64 = 1_040.0;
/// Where the lines of client and server are.
const LINES: [f64; 2] = [372.0, 668.0];
/// Where the lines begin.
const TOP: f64 = 44.0;
/// Pixels that are shared out by the square roots of the times between events.
const STRETCH: f64 = 260.0;
/// Height of a line of text.
const TEXT: f64 = 15.0;
/// Least distance between events of different ends, so that every arrow falls.
const STEP: f64 = 12.0;
/// Characters of a note's line, and how many lines a note may have.
const NOTE: usize = 36;
/// See [`NOTE`].
const NOTE_LINES: usize = 3;
/// Packets drawn; a page is no archive.
const MOST: usize = 150;

/// Where the events of a ladder are.
struct Layout<'a> {
    ladder: &'a LadderReport,
    /// By place in the ladder.
    y: Vec<f64>,
    bottom: f64,
}

fn line_of(side: Side) -> f64 {
    LINES[side.index()]
}

impl<'a> Layout<'a> {
    fn new(ladder: &'a LadderReport) -> Layout<'a> {
        let rungs = &ladder.packets;
        let gap = |place: usize| {
            let before = place
                .checked_sub(1)
                .map_or(rungs[place].since_start_ns, |before| rungs[before].since_start_ns);
            ((rungs[place].since_start_ns - before).max(0) as f64).sqrt()
        };
        let whole: f64 = (0..rungs.len()).map(gap).sum::<f64>().max(1.0);
        let mut y = Vec::with_capacity(rungs.len());
        // Where the next event of an end has room for its text.
        let mut free = [TOP + 12.0; 2];
        let mut last = TOP + 12.0;
        for (place, rung) in rungs.iter().enumerate() {
            let step = if place == 0 { 0.0 } else { STEP };
            let step = step + if rung.left_out_before > 0 { 2.0 * TEXT } else { 0.0 };
            let here = (last + step + STRETCH * gap(place) / whole).max(free[rung.seen_at.index()]);
            free[rung.seen_at.index()] = here + TEXT * note_lines(rung).len().max(1) as f64 + 2.0;
            y.push(here);
            last = here;
        }
        Layout { ladder, y, bottom: free[0].max(free[1]).max(last + 10.0) }
    }

    /// Where a time is, between the events around it.
    fn at(&self, since_start_ns: i64) -> f64 {
        let rungs = &self.ladder.packets;
        let after = rungs.partition_point(|rung| rung.since_start_ns < since_start_ns);
        let Some(next) = rungs.get(after) else { return self.bottom };
        let Some(before) = after.checked_sub(1) else { return self.y[after] };
        let (from, to) = (rungs[before].since_start_ns, next.since_start_ns);
        let share = if to > from { (since_start_ns - from) as f64 / (to - from) as f64 } else { 1.0 };
        self.y[before] + share * (self.y[after] - self.y[before])
    }

    /// When the packet of an evidence was, since the call began.
    fn time_of(&self, capture: u8, packet: u64) -> Option<i64> {
        let is = |rung: &&RungReport| (rung.capture, rung.packet) == (capture, packet);
        self.ladder.packets.iter().find(is).map(|rung| rung.since_start_ns)
    }
}

/// The picture; empty when the call has no ladder.
pub(super) fn picture(call: &CallReport, names: [String; 2]) -> String {
    let Some(whole) = call.ladder.as_ref().filter(|ladder| !ladder.packets.is_empty()) else {
        return String::new();
    };
    let mut ladder = whole.clone();
    let cut = ladder.packets.len().saturating_sub(MOST);
    ladder.packets.truncate(MOST);
    ladder.left_out += cut as u64;
    let layout = Layout::new(&ladder);
    let mut svg = String::new();
    for finding in call.findings.iter().take(4) {
        svg += &wait(finding, &layout);
    }
    svg += &lifelines(call, &layout, &names);
    svg += &pauses(call, &layout);
    for crossing in crossings(&ladder) {
        svg += &arrow(&crossing, &layout);
    }
    for (rung, y) in ladder.packets.iter().zip(&layout.y) {
        svg += &event(rung, *y);
    }
    let label = "Packets of the call at both ends";
    Picture { class: "ladder", width: WIDTH, height: layout.bottom + 16.0, label }.in_page(&svg)
}

/// The line of each end, and on it the legs that are its own.
fn lifelines(call: &CallReport, layout: &Layout<'_>, names: &[String; 2]) -> String {
    let mut svg = String::new();
    for side in [Side::Client, Side::Server] {
        let x = line_of(side);
        let captured = layout.ladder.packets.iter().any(|rung| rung.seen_at == side);
        svg += &text(&format!("end {}", side.name()), x, 16.0, Anchor::Middle, side.name());
        svg += &text("small", x, 32.0, Anchor::Middle, &names[side.index()]);
        svg += &format!(
            "<line class=\"life{}\" x1=\"{x}\" x2=\"{x}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\n",
            if captured { "" } else { " unknown" },
            layout.bottom
        );
    }
    let mut from_ns = 0;
    // Times of the server's end can only be placed when the clocks are known, or when it is the only end.
    let placed = layout.ladder.correction_ns.is_some();
    for leg in &call.legs {
        let to_ns = from_ns + leg.ns;
        let side = match (leg.legs.first, place_of(leg.legs)) {
            (Leg::ClientSend, "client") => Some(Side::Client),
            (_, "server") if placed => Some(Side::Server),
            _ => None,
        };
        if let Some(side) = side.filter(|_| leg.ns > 0) {
            let (top, bottom) = (layout.at(from_ns), layout.at(to_ns));
            let bar = Rect { x: line_of(side) - 3.5, y: top, width: 7.0, height: (bottom - top).max(1.0) };
            let told = format!("{} {}", leg.legs, format_ns(leg.ns.unsigned_abs()));
            svg += &bar.told(side.name(), 2.0, &told);
        }
        from_ns = to_ns;
    }
    svg
}

/// What a finding held up, shaded: from its first packet on, for as long as it cost.
fn wait(finding: &Finding, layout: &Layout<'_>) -> String {
    let times = finding.packets().filter_map(|evidence| layout.time_of(evidence.capture, evidence.packet));
    let Some((from, last)) = times.fold(None, |ends: Option<(i64, i64)>, time| {
        Some(ends.map_or((time, time), |(first, last)| (first.min(time), last.max(time))))
    }) else {
        return String::new();
    };
    let until =
        finding.cost_ns.and_then(|ns| i64::try_from(ns).ok()).map_or(last, |ns| from.saturating_add(ns));
    let (top, bottom) = (layout.at(from), layout.at(until.min(last)));
    if bottom - top < TEXT {
        return String::new();
    }
    let middle = (LINES[0] + LINES[1]) / 2.0;
    let wide = LINES[1] - LINES[0];
    let possible = if finding.is_shown() { "" } else { " possible" };
    let title = finding_title(finding);
    let (name, rest) = title.split_once(", ").unwrap_or((&title, ""));
    let y = (top + bottom) / 2.0;
    let shade = Rect { x: LINES[0], y: top, width: wide, height: bottom - top };
    shade.drawn(&format!("wait{possible}"), 0.0)
        + &text("cause", middle, y, Anchor::Middle, name)
        + &text("small cause", middle, y + TEXT, Anchor::Middle, rest)
}

/// Times in which no packet was seen and which took a good part of the call, and packets left out: beside the
/// client's line.
fn pauses(call: &CallReport, layout: &Layout<'_>) -> String {
    let mut svg = String::new();
    let rungs = &layout.ladder.packets;
    for (place, pair) in rungs.windows(2).enumerate() {
        let ns = pair[1].since_start_ns - pair[0].since_start_ns;
        let (top, bottom) = (layout.y[place], layout.y[place + 1]);
        let long = ns > 0 && ns as u64 >= call.duration_ns / 10 && bottom - top >= 3.0 * TEXT;
        let left_out = pair[1].left_out_before;
        let Some(words) = between(long.then_some(ns), left_out) else { continue };
        let y = (top + bottom) / 2.0;
        for x in LINES {
            // The time axis is broken here.
            svg += &format!(
                "<path class=\"break\" d=\"M{:.1} {y:.1}l12 -6M{:.1} {:.1}l12 -6\"/>",
                x - 6.0,
                x - 6.0,
                y + 5.0
            );
        }
        let class = if left_out > 0 { "pause quiet" } else { "pause" };
        svg += &text(class, LINES[0] - 16.0, y + 4.0, Anchor::End, &words);
    }
    svg
}

fn arrow(crossing: &Crossing, layout: &Layout<'_>) -> String {
    let ends = [crossing.sent, crossing.arrived];
    let Some(first) = ends.into_iter().flatten().next() else { return String::new() };
    let rung = &layout.ladder.packets[first];
    let (from, to) = (line_of(crossing.from), line_of(crossing.from.other()));
    let part = |share: f64| from + (to - from) * share;
    let (start, end) = match (crossing.sent, crossing.arrived) {
        (Some(sent), Some(arrived)) => ((from, layout.y[sent]), (to, layout.y[arrived])),
        (Some(sent), None) => ((from, layout.y[sent]), (part(0.62), layout.y[sent] + 5.0)),
        (None, Some(arrived)) => ((part(0.38), layout.y[arrived] - 5.0), (to, layout.y[arrived])),
        (None, None) => return String::new(),
    };
    let kind = match (crossing.way, rung.bytes > 0 || !rung.flags.is_empty()) {
        (Way::Lost, _) => "lost",
        (Way::Unknown, _) => "unknown",
        (Way::Crossed, true) => "data",
        (Way::Crossed, false) => "ack",
    };
    let (x1, y1, x2, y2) = (start.0, start.1, end.0, end.1);
    let mut svg =
        format!("<line class=\"way {kind}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
    svg += &if crossing.way == Way::Lost { cross(end) } else { tip(start, end, kind) };
    // Nearer to the sender, so that labels of arrows that cross do not meet; of a lost one below it, at its cross.
    let (share, above) = if crossing.way == Way::Lost { (0.8, -14.0) } else { (0.34, 5.0) };
    let label = (x1 + (x2 - x1) * share, y1 + (y2 - y1) * share - above);
    svg + &text(&format!("label {kind}"), label.0, label.1, Anchor::Middle, &carries(rung))
}

fn tip((x1, y1): (f64, f64), (x2, y2): (f64, f64), kind: &str) -> String {
    let angle = (y2 - y1).atan2(x2 - x1);
    let corner = |turn: f64| {
        let angle = angle + std::f64::consts::PI + turn;
        (x2 + 9.0 * angle.cos(), y2 + 9.0 * angle.sin())
    };
    let ((ax, ay), (bx, by)) = (corner(0.4), corner(-0.4));
    format!("<path class=\"tip {kind}\" d=\"M{x2:.1} {y2:.1}L{ax:.1} {ay:.1}L{bx:.1} {by:.1}Z\"/>")
}

fn cross((x, y): (f64, f64)) -> String {
    format!(
        "<path class=\"cross\" d=\"M{:.1} {:.1}l12 12M{:.1} {:.1}l12 -12\"/>",
        x - 6.0,
        y - 6.0,
        x - 6.0,
        y + 6.0
    )
}

/// Time, number and notes of a packet, outside of its end's line.
fn event(rung: &RungReport, y: f64) -> String {
    let x = line_of(rung.seen_at);
    let (sign, anchor) = match rung.seen_at {
        Side::Client => (-1.0, Anchor::End),
        Side::Server => (1.0, Anchor::Start),
    };
    let base = y + 4.0;
    let since = format!("{:.3} ms", rung.since_start_ns as f64 / 1e6);
    let mut svg = format!("<circle class=\"event\" cx=\"{x}\" cy=\"{y:.1}\" r=\"2.5\"/>\n");
    svg += &text("figure", x + sign * 14.0, base, anchor, &since);
    svg += &text("small figure", x + sign * 104.0, base, anchor, &format!("#{}", rung.packet));
    for (row, line) in note_lines(rung).iter().enumerate() {
        svg += &text("note", x + sign * 152.0, base + TEXT * row as f64, anchor, line);
    }
    svg
}

fn note_lines(rung: &RungReport) -> Vec<String> {
    if rung.notes.is_empty() {
        return Vec::new();
    }
    let lines = wrapped(&rung.notes.join("; "), NOTE, 0);
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    if lines.len() > NOTE_LINES {
        lines.truncate(NOTE_LINES);
        if let Some(last) = lines.last_mut() {
            *last += " …";
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn names() -> [String; 2] {
        ["10.0.0.1:40312".into(), "10.0.0.2:50051".into()]
    }

    #[test]
    fn the_picture_has_every_packet_and_the_wait() {
        let report = samples::report();
        let svg = picture(&report.calls[0], names());
        assert_eq!(svg.matches("class=\"event\"").count(), 8);
        assert_eq!(svg.matches("class=\"way data\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"way ack\"").count(), 1);
        assert!(svg.contains("class=\"wait\"") && svg.contains(">nagle-delayed-ack<"), "{svg}");
        assert!(svg.contains("without a packet"));
        assert_eq!(picture(&report.calls[2], names()), "", "a call without a ladder has no picture");
    }

    #[test]
    fn every_arrow_falls_and_texts_of_one_end_do_not_meet() {
        let report = samples::report();
        let ladder = report.calls[0].ladder.as_ref().expect("the sample has one");
        let layout = Layout::new(ladder);
        for crossing in crossings(ladder) {
            if let (Some(sent), Some(arrived)) = (crossing.sent, crossing.arrived) {
                assert!(layout.y[arrived] >= layout.y[sent] + STEP);
            }
        }
        for side in [Side::Client, Side::Server] {
            let own: Vec<f64> = (0..layout.y.len())
                .filter(|at| ladder.packets[*at].seen_at == side)
                .map(|at| layout.y[at])
                .collect();
            assert!(own.windows(2).all(|pair| pair[1] - pair[0] >= TEXT), "{own:?}");
        }
        assert!((layout.at(0) - layout.y[0]).abs() < 0.01 && layout.at(i64::MAX) >= layout.y[7]);
    }

    #[test]
    fn a_lost_packet_ends_in_a_cross() {
        let mut report = samples::report();
        let ladder = report.calls[0].ladder.as_mut().expect("the sample has one");
        ladder.packets.retain(|rung| (rung.capture, rung.packet) != (1, 17));
        let svg = picture(&report.calls[0], names());
        assert_eq!(
            (svg.matches("class=\"cross\"").count(), svg.matches("class=\"way lost\"").count()),
            (1, 1)
        );
    }
}
