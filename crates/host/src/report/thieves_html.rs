//! Thieves as one page that needs no other file: the verdict, the worst windows drawn, the tables.

use super::thieves::{ThievesReport, WindowReport};
use super::thieves_picture::{BAR, CLASSES, WIDTH, bar, caption};
use super::thieves_text;
use spangap_model::markup::escaped;
use std::fmt::Write;

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
    for class in CLASSES {
        let _ = write!(page, ".{}{{fill:{colour};background:{colour}}}", class.name, colour = class.colour);
    }
    let _ = writeln!(page, "</style>\n<h1>{title}</h1>");
    for words in &report.conclusions {
        let _ = writeln!(page, "<p>{}</p>", escaped(words));
    }
    if !report.windows.is_empty() {
        let _ = writeln!(page, "<h2>Worst windows</h2>\n<p class=\"legend\">");
        for class in CLASSES {
            let _ = writeln!(page, "<span><i class=\"{}\"></i>{}</span>", class.name, class.words);
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

fn picture(window: &WindowReport) -> String {
    let words = escaped(&caption(window));
    // The name of the thread stands out.
    let name = escaped(&window.name);
    let words = words.strip_prefix(&name).map_or(words.clone(), |rest| format!("<b>{name}</b>{rest}"));
    format!(
        "<div class=\"window\"><p>{words}</p>\n<svg viewBox=\"0 0 {WIDTH} {BAR}\" role=\"img\" \
         aria-label=\"what thread {} did\">\n{}</svg></div>\n",
        window.tid,
        bar(window, 0.0, 0.0)
    )
}
