//! Thieves as one page that needs no other file: the verdict, the worst windows drawn, the tables.

use super::thieves::{PieceReport, ThievesReport, WindowReport};
use super::thieves_text;
use super::thieves_words::percent;
use spangap_model::duration::format_ns;
use spangap_model::markup::escaped;
use std::fmt::Write;

/// Of a window's picture, in its own units.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 44.0;
/// Lines of time in it.
const LINES: u64 = 10;

/// What is drawn, and in which colour; the first class that fits counts.
const CLASSES: [(&str, &str, &str); 8] = [
    ("running", "running", "#4c9f70"),
    ("interrupted", "interrupted by a softirq or an interrupt", "#c8402f"),
    ("runnable", "runnable behind a task", "#e8923a"),
    ("behind-interrupt", "runnable behind a softirq or an interrupt", "#b35b8f"),
    ("throttled", "out of CPU quota", "#7a5bb0"),
    ("stopped", "stopped", "#555555"),
    ("blocked", "blocked", "#dfe6ea"),
    ("unknown", "not known", "#ffffff"),
];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:1240px;padding:0 1rem;color:#1d2429}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}pre{overflow-x:auto;font-size:13px}\
svg{display:block;width:100%;height:auto}svg text{font-size:11px;fill:#59656d}\
.legend span{display:inline-block;margin-right:1.2em}.legend i{display:inline-block;width:.9em;height:.9em;margin-right:.4em;\
border:1px solid #9aa5ac;vertical-align:-1px}.window{margin:1rem 0 1.4rem}.window p{margin:.2rem 0}";

/// The page.
pub fn html(report: &ThievesReport) -> String {
    let mut page = String::new();
    let title = escaped(&format!("Who took the CPU from {}", report.target));
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}"
    );
    for (class, _, colour) in CLASSES {
        let _ = write!(page, ".{class}{{fill:{colour};background:{colour}}}");
    }
    let _ = writeln!(page, "</style>\n<h1>{title}</h1>");
    for words in &report.conclusions {
        let _ = writeln!(page, "<p>{}</p>", escaped(words));
    }
    if !report.windows.is_empty() {
        let _ = writeln!(page, "<h2>Worst windows</h2>\n<p class=\"legend\">");
        for (class, words, _) in CLASSES {
            let _ = writeln!(page, "<span><i class=\"{class}\"></i>{words}</span>");
        }
        let _ = writeln!(page, "</p>");
    }
    for window in &report.windows {
        page += &picture(window);
    }
    let text = escaped(&thieves_text::text(report));
    let _ = writeln!(page, "<h2>As a terminal shows it</h2>\n<pre>{text}</pre>\n</html>");
    page
}

fn class(piece: &PieceReport) -> &'static str {
    let behind_task = |who: &str| who.ends_with(')') && who.contains("(pid ") || who == "idle CPU";
    match (piece.doing, &piece.who) {
        ("runnable", Some(who)) if !behind_task(who) => "behind-interrupt",
        (doing, _) => {
            CLASSES.iter().map(|(class, ..)| *class).find(|class| *class == doing).unwrap_or("unknown")
        }
    }
}

fn picture(window: &WindowReport) -> String {
    let x = |ns: u64| ns as f64 * WIDTH / window.duration_ns.max(1) as f64;
    let name = escaped(&window.name);
    let mut svg = format!(
        "<div class=\"window\"><p><b>{name}</b> (thread {}), {}, for {}: kept from running for {} ({})</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"what thread {} did\">\n",
        window.tid,
        thieves_text::begin(window),
        format_ns(window.duration_ns),
        format_ns(window.denied_ns),
        percent(window.denied_ns, window.duration_ns),
        HEIGHT + 16.0,
        window.tid,
    );
    for piece in &window.pieces {
        let words = escaped(&thieves_text::who(piece));
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{:.2}\" y=\"0\" width=\"{:.2}\" height=\"{HEIGHT}\"><title>{words}, {} from {} on</title></rect>",
            class(piece),
            x(piece.from_ns),
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
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{:.2} ms</text>",
            x(at_ns),
            HEIGHT + 13.0,
            at_ns as f64 / 1e6
        );
    }
    svg + "</svg></div>\n"
}
