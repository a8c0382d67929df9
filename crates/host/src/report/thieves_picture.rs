//! The worst windows drawn, each as a bar of what the thread did: a picture of its own, and parts of a page.

use super::thieves::{PieceReport, ThievesReport, WindowReport};
use super::thieves_text;
use super::thieves_words::percent;
use spangap_model::duration::format_ns;
use spangap_model::markup::escaped;
use std::fmt::Write;

/// Of a bar, in the picture's own units.
pub(super) const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 44.0;
/// Of a bar with the times below it.
pub(super) const BAR: f64 = HEIGHT + 16.0;
/// Lines of time in it.
const LINES: u64 = 10;
/// Around everything, and the lines of text above a bar and above the legend.
const MARGIN: f64 = 16.0;
const LINE: f64 = 20.0;
/// Who had the CPU longest: so many are named.
const NAMED: usize = 3;
/// A legend's square with its words, per letter and in all.
const LETTER: f64 = 7.0;
const SQUARE: f64 = 34.0;

/// What is drawn.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) colour: &'static str,
    /// On a dark page.
    dark: &'static str,
}

const fn class(name: &'static str, words: &'static str, colour: &'static str, dark: &'static str) -> Class {
    Class { name, words, colour, dark }
}

pub(super) const CLASSES: [Class; 8] = [
    class("running", "running", "#4c9f70", "#4c9f70"),
    class("interrupted", "interrupted by a softirq or an interrupt", "#c8402f", "#e5604f"),
    class("runnable", "runnable behind a task", "#e8923a", "#e8923a"),
    class("behind-interrupt", "runnable behind a softirq or an interrupt", "#b35b8f", "#c678a5"),
    class("throttled", "out of CPU quota", "#7a5bb0", "#9d7fd1"),
    class("stopped", "stopped", "#555555", "#8b949e"),
    class("blocked", "blocked", "#dfe6ea", "#30363d"),
    class("unknown", "not known", "#ffffff", "#0d1117"),
];

fn class_of(piece: &PieceReport) -> &'static str {
    let behind_task = |who: &str| who.ends_with(')') && who.contains("(pid ") || who == "idle CPU";
    match (piece.doing, &piece.who) {
        ("runnable", Some(who)) if !behind_task(who) => "behind-interrupt",
        (doing, _) => {
            CLASSES.iter().map(|class| class.name).find(|class| *class == doing).unwrap_or("unknown")
        }
    }
}

/// The bar of a window and the times below it, from `top` on and to the right of `left`.
pub(super) fn bar(window: &WindowReport, left: f64, top: f64) -> String {
    let mut svg = String::new();
    let x = |ns: u64| ns as f64 * WIDTH / window.duration_ns.max(1) as f64;
    for piece in &window.pieces {
        let words = escaped(&thieves_text::who(piece));
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{HEIGHT}\"><title>{words}, {} from {} on</title></rect>",
            class_of(piece),
            left + x(piece.from_ns),
            x(piece.ns).max(0.3),
            format_ns(piece.ns),
            format_ns(piece.from_ns)
        );
    }
    for line in 0..=LINES {
        let at_ns = window.duration_ns * line / LINES;
        let anchor = match line {
            0 => "start",
            LINES => "end",
            _ => "middle",
        };
        let _ = writeln!(
            svg,
            "<text class=\"time\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{:.2} ms</text>",
            left + x(at_ns),
            top + HEIGHT + 13.0,
            at_ns as f64 / 1e6
        );
    }
    svg
}

/// SVG that needs nothing else, for light and dark pages.
pub fn svg(report: &ThievesReport) -> String {
    let mut drawn = String::new();
    let mut y = MARGIN;
    if report.windows.is_empty() {
        y += LINE;
        text(
            &mut drawn,
            "name",
            MARGIN,
            y,
            &format!("{}: nothing kept a thread from running", report.target),
        );
    }
    for window in &report.windows {
        for (class, words) in [("name", caption(window)), ("", longest(window))] {
            y += LINE;
            text(&mut drawn, class, MARGIN, y, &words);
        }
        y += LINE / 2.0;
        drawn += &bar(window, MARGIN, y);
        y += BAR + LINE / 2.0;
    }
    y = legend(&mut drawn, report, y) + MARGIN;
    let (width, title) = (WIDTH + 2.0 * MARGIN, escaped(&format!("Who took the CPU from {}", report.target)));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\" role=\"img\" \
         aria-label=\"{title}\">\n<style>text{{font:13px system-ui,sans-serif;fill:#24292f}}.time{{font-size:11px;fill:#57606a}}\
         .name{{font-weight:600}}.back{{fill:#fff}}"
    );
    let colours = |of: fn(&Class) -> &'static str| -> String {
        CLASSES.iter().map(|class| format!(".{}{{fill:{}}}", class.name, of(class))).collect()
    };
    let _ = write!(
        svg,
        "{}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.time{{fill:#9198a1}}.back{{fill:#0d1117}}{}}}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{y}\"/>\n",
        colours(|class| class.colour),
        colours(|class| class.dark)
    );
    svg + &drawn + "</svg>\n"
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(words));
}

/// `web (thread 12), at 10:00:00.000000 UTC, for 30.0 ms: kept from running for 29.0 ms (97 %)`
pub(super) fn caption(window: &WindowReport) -> String {
    format!(
        "{} (thread {}), {}, for {}: kept from running for {} ({})",
        window.name,
        window.tid,
        thieves_text::begin(window),
        format_ns(window.duration_ns),
        format_ns(window.denied_ns),
        percent(window.denied_ns, window.duration_ns)
    )
}

/// `behind worker (pid 7) 29.8 ms, behind timer 33.0 us`: what took longest.
fn longest(window: &WindowReport) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for piece in &window.pieces {
        let words = thieves_text::who(piece);
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

/// What the colours mean that are there, in as many lines as it takes; where it ends.
fn legend(svg: &mut String, report: &ThievesReport, top: f64) -> f64 {
    let used = |class: &&Class| {
        let mut pieces = report.windows.iter().flat_map(|window| &window.pieces);
        pieces.any(|piece| class_of(piece) == class.name)
    };
    let (mut x, mut y) = (MARGIN, top + LINE);
    for class in CLASSES.iter().filter(used) {
        let width = SQUARE + class.words.len() as f64 * LETTER;
        if x > MARGIN && x + width > WIDTH + MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\"/>",
            class.name,
            y - 11.0
        );
        text(svg, "", x + 18.0, y, class.words);
        x += width;
    }
    y
}
