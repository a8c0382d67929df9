//! Thieves as one page that needs no other file: the verdict, the worst windows drawn, the tables.

use super::picture::{BAR, CLASSES, WIDTH, bar, caption, style, title};
use super::{ThievesReport, WindowReport, text};
use spangap_report::html::{element, escaped, page};
use spangap_report::svg::Picture;

const STYLE: &str = "\
svg { display: block; width: 100%; height: auto; }
.legend span { display: inline-block; margin-right: 1.2em; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; border: 1px solid var(--soft); vertical-align: -1px; }
.window { margin: 1rem 0 1.4rem; }
.window p { margin: .2rem 0; }
";

/// The page.
pub fn html(report: &ThievesReport) -> String {
    let mut html = element("h1", "", &title(report));
    for words in &report.conclusions {
        html += &element("p", "", words);
    }
    if !report.windows.is_empty() {
        html += "<h2>Worst windows</h2>\n<p class=\"legend\">\n";
        for (name, words) in CLASSES {
            html += &format!("<span><i class=\"{name}\"></i>{words}</span>\n");
        }
        html += "</p>\n";
    }
    for window in &report.windows {
        html += &picture(window);
    }
    html += "<h2>As a terminal shows it</h2>\n";
    html += &element("pre", "", &text::text(report));
    page(&title(report), &(STYLE.to_owned() + &style()), &html)
}

fn picture(window: &WindowReport) -> String {
    let words = escaped(&caption(window));
    // The name of the thread stands out.
    let name = escaped(&window.name);
    let words = words.strip_prefix(&name).map_or(words.clone(), |rest| format!("<b>{name}</b>{rest}"));
    let label = format!("what thread {} did", window.tid);
    let picture = Picture { class: "", width: WIDTH, height: BAR, label: &label };
    format!("<div class=\"window\"><p>{words}</p>\n{}</div>\n", picture.in_page(&bar(window, 0.0, 0.0)))
}
