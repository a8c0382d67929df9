//! The worst windows as a stand-alone picture, one bar of activities per window.

use super::{PieceReport, ThievesReport, WindowReport, text};
use spangap_model::Taker;
use spangap_model::duration::format_ns;
use spangap_report::figures::percent_of;
use spangap_report::svg::{self, Anchor, Picture, Rect};

/// Width of a bar, in the picture's units.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 44.0;
/// Height of a bar with its time axis.
const BAR: f64 = HEIGHT + 16.0;
/// Number of grid lines.
const LINES: u64 = 10;
/// Outer margin, and height of the text lines above a bar and above the legend.
const MARGIN: f64 = 16.0;
const LINE: f64 = 20.0;
/// Number of takers named in a caption, longest first.
const NAMED: usize = 3;
/// Width of a letter in the legend, and of the square with its padding.
const LETTER: f64 = 7.0;
const SQUARE: f64 = 34.0;

/// Drawn classes: name, which is also that of the colour, and meaning.
const CLASSES: [(&str, &str); 8] = [
    ("running", "running"),
    ("interrupted", "interrupted by a softirq or an interrupt"),
    ("runnable", "runnable behind a task"),
    ("behind-interrupt", "runnable behind a softirq or an interrupt"),
    ("throttled", "out of CPU quota"),
    ("stopped", "stopped"),
    ("blocked", "blocked"),
    (UNKNOWN, "not known"),
];

/// Drawn in the colour of the page.
const UNKNOWN: &str = "unknown";

/// Style sheet of the bars.
fn style() -> String {
    let colour = |name| if name == UNKNOWN { "ground" } else { name };
    let classes =
        CLASSES.map(|(name, _)| format!(".{name}{{fill:var(--{0});background:var(--{0})}}\n", colour(name)));
    classes.concat() + "text.time{font-size:11px;fill:var(--soft)}\n"
}

/// Class that an activity is drawn as.
pub(super) fn class_of(piece: &PieceReport) -> &'static str {
    let behind_task = |taker: &Taker| matches!(taker, Taker::Task { .. } | Taker::Idle);
    match (piece.doing, &piece.taker) {
        ("runnable", Some(taker)) if !behind_task(taker) => "behind-interrupt",
        (doing, _) => CLASSES.iter().map(|(name, _)| *name).find(|name| *name == doing).unwrap_or(UNKNOWN),
    }
}

/// Bar and time axis of a window, below `top` and to the right of `left`.
fn bar(window: &WindowReport, left: f64, top: f64) -> String {
    let mut svg = String::new();
    let x = |ns: u64| ns as f64 * WIDTH / window.duration_ns.max(1) as f64;
    for piece in &window.pieces {
        let part = Rect { x: left + x(piece.from_ns), y: top, width: x(piece.ns).max(0.3), height: HEIGHT };
        let (who, took) = (text::who(piece), format_ns(piece.ns));
        svg +=
            &part.told(class_of(piece), 0.0, &format!("{who}, {took} from {} on", format_ns(piece.from_ns)));
    }
    for line in 0..=LINES {
        let at_ns = window.duration_ns * line / LINES;
        let anchor = match line {
            0 => Anchor::Start,
            LINES => Anchor::End,
            _ => Anchor::Middle,
        };
        let time = format!("{:.2} ms", at_ns as f64 / 1e6);
        svg += &svg::text("time", left + x(at_ns), top + HEIGHT + 13.0, anchor, &time);
    }
    svg
}

/// Self-contained SVG, for light and dark pages.
pub fn svg(report: &ThievesReport) -> String {
    let mut drawn = String::new();
    let mut y = MARGIN;
    if report.windows.is_empty() {
        y += LINE;
        let words = format!("{}: nothing kept a thread from running", report.target);
        drawn += &svg::text("name", MARGIN, y, Anchor::Start, &words);
    }
    for window in &report.windows {
        for (class, words) in [("name", caption(window)), ("", longest(window))] {
            y += LINE;
            drawn += &svg::text(class, MARGIN, y, Anchor::Start, &words);
        }
        y += LINE / 2.0;
        drawn += &bar(window, MARGIN, y);
        y += BAR + LINE / 2.0;
    }
    y = legend(&mut drawn, report, y) + MARGIN;
    let style =
        "text{font:13px system-ui,sans-serif;fill:var(--text)}.name{font-weight:600}\n".to_owned() + &style();
    let label = title(report);
    Picture { class: "", width: WIDTH + 2.0 * MARGIN, height: y, label: &label }.file(&style, &drawn)
}

/// Title of the picture and the page.
pub(super) fn title(report: &ThievesReport) -> String {
    format!("Who took the CPU from {}", report.target)
}

/// `web (thread 12), at 10:00:00.000000 UTC, for 30.0 ms: kept from running for 29.0 ms (97 %)`
pub(super) fn caption(window: &WindowReport) -> String {
    format!(
        "{} (thread {}), {}, for {}: kept from running for {} ({})",
        window.name,
        window.tid,
        text::begin(window),
        format_ns(window.duration_ns),
        format_ns(window.denied_ns),
        percent_of(window.denied_ns, window.duration_ns)
    )
}

/// `behind worker (pid 7) 29.8 ms, behind timer 33.0 us`: the longest activities.
pub(super) fn longest(window: &WindowReport) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for piece in &window.pieces {
        let words = text::who(piece);
        match sums.iter_mut().find(|(other, _)| *other == words) {
            Some((_, ns)) => *ns += piece.ns,
            None => sums.push((words, piece.ns)),
        }
    }
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let named: Vec<String> =
        sums.iter().take(NAMED).map(|(words, ns)| format!("{words} {}", format_ns(*ns))).collect();
    named.join(", ")
}

/// Draws the legend of the colours in use, in as many lines as needed, and returns its lower edge.
fn legend(svg: &mut String, report: &ThievesReport, top: f64) -> f64 {
    let used = |(name, _): &&(&str, &str)| {
        let mut pieces = report.windows.iter().flat_map(|window| &window.pieces);
        pieces.any(|piece| class_of(piece) == *name)
    };
    let (mut x, mut y) = (MARGIN, top + LINE);
    for (name, words) in CLASSES.iter().filter(used) {
        let width = SQUARE + words.len() as f64 * LETTER;
        if x > MARGIN && x + width > WIDTH + MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        *svg += &Rect { x, y: y - 11.0, width: 12.0, height: 12.0 }.drawn(name, 0.0);
        *svg += &svg::text("", x + 18.0, y, Anchor::Start, words);
        x += width;
    }
    y
}
