//! The verdict as a page that needs no other file.

use super::text::{lines, other, owner, title, win};
use spangap_diagnose::hunt::Hunt;
use spangap_diagnose::hunt::verdict::Line;
use spangap_model::duration::format_ns;
use spangap_report::html::{element, page, prose, row};
use spangap_report::svg::{Anchor, Picture, Rect, text};

const STYLE: &str = "
svg.sheet { max-width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg.sheet .owned { fill: var(--bad); } svg.sheet .place { fill: var(--maybe); } svg.sheet .range { fill: var(--soft); }
svg.sheet .soft { fill: var(--soft); }
";
const WIDTH: f64 = 1_040.0;
const FROM: f64 = 340.0;
const TO: f64 = 800.0;
const ROW: f64 = 28.0;
const BAR: f64 = 14.0;

/// The page; `of` is what was looked at.
pub fn write(hunt: &Hunt, of: &str) -> String {
    let mut content = element("p", "kicker", &format!("spangap hunt: {of}, {}", hunt.excess.pair));
    content += &element("h1", "", &title(hunt));
    content += &element("p", "", &hunt.words);
    let shown: Vec<&Line> = lines(&hunt.sheet).collect();
    if !shown.is_empty() {
        content += &element("h2", "", "Who owns it");
        content += &picture(&shown);
        content += &element(
            "p",
            "caption",
            "Shares of the excess. The thin bar is the 90 % interval: blocks of time drawn anew, with the bounds of legs and \
             clocks.",
        );
    }
    for one in &hunt.culprits {
        content += &element("h2", "", &one.culprit.to_string());
        for (head, words) in [("For", &one.speaks_for), ("Against", &one.speaks_against)] {
            for words in words {
                content += &element("p", "", &format!("{head}: {words}"));
            }
        }
        content += &prose("", &format!("Remedy: {} {}", one.remedy, win(one).unwrap_or_default()));
    }
    if let Some(words) = other(hunt) {
        content += &element("p", "", &words);
    }
    for next in &hunt.look_next {
        content += &prose("", next);
    }
    if !hunt.trace_ids.is_empty() {
        content += &element("p", "facts", &format!("Calls that it rests on: {}", hunt.trace_ids.join(", ")));
    }
    if !hunt.beside.is_empty() {
        let rows = hunt.beside.iter().map(|finding| {
            let sure = if finding.is_shown() { "shown" } else { "possible" };
            let cost = finding.cost_ns.map_or(String::new(), format_ns);
            [
                finding.culprit.to_string(),
                finding.instrument.to_string(),
                sure.to_owned(),
                cost,
                finding.note.clone(),
            ]
        });
        let head = ["cause", "instrument", "how sure", "cost", "note"];
        content += &table("Other instruments, of the hosts and not of these calls", &head, rows);
    }
    let cleared = hunt.cleared.iter();
    let cleared = cleared.map(|one| [one.culprit.to_string(), one.would_show.clone(), one.seen.clone()]);
    content += &table("Cleared", &["suspect", "it would have shown", "seen"], cleared);
    let not_looked = hunt.not_looked.iter().map(|one| [one.culprit.to_string(), one.needs.clone()]);
    content += &table("Not looked for", &["suspect", "it needs"], not_looked);
    page(&title(hunt), STYLE, &content)
}

fn table<const COLUMNS: usize>(
    title: &str,
    head: &[&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let rows: String = rows.map(|cells| row("td", &cells, |_| false)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = row("th", head, |_| false);
    format!(
        "<section>\n{}<div class=\"wide\"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</section>\n",
        element("h2", "", title)
    )
}

fn picture(shown: &[&Line]) -> String {
    let mut svg = String::new();
    let x = |share: f64| FROM + (TO - FROM) * share.clamp(0.0, 1.0);
    for (place, line) in shown.iter().enumerate() {
        let top = place as f64 * ROW;
        let base = top + ROW / 2.0 + 4.0;
        svg += &text("", FROM - 12.0, base, Anchor::End, &owner(line));
        let (low, mid, high) = (line.share.low, line.share.mid, line.share.high);
        let class = if line.culprit.is_some() { "owned" } else { "place" };
        let words = format!("{:.0} % ({:.0} to {:.0} %)", mid * 100.0, low * 100.0, high * 100.0);
        let bar = Rect { x: FROM, y: top + (ROW - BAR) / 2.0, width: (x(mid) - FROM).max(1.5), height: BAR };
        svg += &bar.told(class, 2.0, &words);
        let range =
            Rect { x: x(low), y: top + ROW / 2.0 - 1.0, width: (x(high) - x(low)).max(1.0), height: 2.0 };
        svg += &range.drawn("range", 0.0);
        let sign = if line.ns < 0 { "-" } else { "" };
        let figures = format!("{words}, {sign}{} a call", format_ns(line.ns.unsigned_abs()));
        svg += &text("soft", TO + 12.0, base, Anchor::Start, &figures);
    }
    let height = ROW * shown.len() as f64;
    Picture { class: "sheet", width: WIDTH, height, label: "Who owns how much of the excess" }.in_page(&svg)
}
