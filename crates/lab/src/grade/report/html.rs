//! The report as one page that needs no other file and no script.

use super::table::which;
use super::{GradeReport, Outcome, Row};
use crate::grade::score::{Cell, Share};
use spangap_diagnose::Answer;
use spangap_report::html::{self, escaped};
use std::collections::BTreeMap;
use std::path::Path;

const STYLE: &str = include_str!("page.css");

/// The page. Folders below `beside`, the folder that the page is written to, are linked from there.
pub fn write(report: &GradeReport, beside: &Path) -> String {
    let score = &report.score;
    let title = match score.right.share {
        Some(_) => format!("{} of {} verdicts are right", score.right.count, score.right.of),
        None => "No run was judged".into(),
    };
    let mut page = opening(report, &title);
    if report.runs.judged > 0 {
        page += &matrix(report);
        page += &culprits(report);
    }
    page += &runs(report, beside);
    html::page(&title, STYLE, &page)
}

fn opening(report: &GradeReport, title: &str) -> String {
    let (setting, counts, score) = (&report.setting, report.runs, &report.score);
    let mut html = format!(
        "<p class=\"kicker\">spangap lab grade · judge <code>{}</code>{} · seed {}{}</p>\n<h1>{title}</h1>\n",
        escaped(&setting.judge),
        if setting.blind { ", blind" } else { "" },
        setting.seed,
        if setting.interrupted { " · ended before its end" } else { "" }
    );
    html += "<dl>\n";
    for (name, value) in [
        ("Right", &score.right),
        ("Cannot tell", &score.unknown),
        ("Leg right, where named", &score.legs),
        ("False alarms, healthy and near-miss runs", &score.false_alarms),
    ] {
        html += &format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", figure(value));
    }
    html += "</dl>\n";
    html += &format!(
        "<p class=\"facts\">{} of {} runs: {} judged; not judged: {} whose fault did not act, {} not available here, \
         {} that could not be made; the judge failed on {} and took too long on {}. Behind a figure in small print: its \
         95 % interval (Wilson).</p>\n",
        counts.graded,
        counts.planned,
        counts.judged,
        counts.did_not_act,
        counts.unavailable,
        counts.failed,
        counts.judge_failed,
        counts.judge_timed_out
    );
    html
}

/// `75 % 3 of 4 · 30–95 %`
fn figure(value: &Share) -> String {
    let Some(share) = value.share else { return "–".into() };
    format!(
        "<b>{:.0} %</b> <small>{} of {} · {:.0}–{:.0} %</small>",
        share * 100.0,
        value.count,
        value.of,
        value.low * 100.0,
        value.high * 100.0
    )
}

/// The share and its interval as a line with a dot.
fn whisker(value: &Share) -> String {
    let Some(share) = value.share else { return String::new() };
    format!(
        "<svg class=\"whisker\" viewBox=\"0 0 110 12\" aria-hidden=\"true\"><path class=\"grid\" d=\"M5 6H105\"/>\
         <path class=\"range\" d=\"M{:.1} 6H{:.1}\"/><circle cx=\"{:.1}\" cy=\"6\" r=\"3.5\"/></svg>",
        5.0 + value.low * 100.0,
        5.0 + value.high * 100.0,
        5.0 + share * 100.0
    )
}

fn matrix(report: &GradeReport) -> String {
    let matrix = &report.score.matrix;
    let mut html = String::from(
        "<section>\n<h2>What was the matter, and what was said of it</h2>\n\
         <p class=\"facts\">A row for each truth, a column for each verdict. The stronger the colour, the larger the share of \
         its row; framed cells are right, also by another name.</p>\n<div class=\"wide\"><table class=\"matrix\">\n<thead><tr>\
         <th></th>",
    );
    for column in &matrix.columns {
        html += &format!("<th scope=\"col\"><span>{}</span></th>", escaped(column));
    }
    html += "<th scope=\"col\"><span class=\"sum\">runs</span></th></tr></thead>\n<tbody>\n";
    for (row, cells) in matrix.rows.iter().zip(&matrix.cells) {
        let all: u64 = cells.iter().map(|cell| cell.runs).sum();
        html += &format!("<tr><th scope=\"row\">{}</th>", escaped(row));
        for (cell, column) in cells.iter().zip(&matrix.columns) {
            html += &matrix_cell(*cell, all, row, column);
        }
        html += &format!("<td class=\"sum\">{all}</td></tr>\n");
    }
    html + "</tbody>\n</table></div>\n</section>\n"
}

fn matrix_cell(cell: Cell, all: u64, row: &str, column: &str) -> String {
    if cell.runs == 0 {
        return "<td></td>".into();
    }
    let kind = match (cell.right, column) {
        (0, Answer::UNKNOWN) => "cannot",
        (0, _) => "wrong",
        _ => "right",
    };
    let share = cell.runs as f64 / all.max(1) as f64;
    // Light figures on a pale ground could not be read.
    let pale = if share < 0.5 { " pale" } else { "" };
    let title = format!("{row}, said to be {column}: {} of {all}", cell.runs);
    format!(
        "<td class=\"{kind}{pale}\" style=\"--share:{:.0}%\" title=\"{}\">{}</td>",
        15.0 + share * 85.0,
        escaped(&title),
        cell.runs
    )
}

fn culprits(report: &GradeReport) -> String {
    let mut html = String::from(
        "<section>\n<h2>Each culprit</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>Culprit</th>\
         <th colspan=\"2\">Found, where it was to blame (recall)</th><th colspan=\"2\">Right, where it was named \
         (precision)</th><th class=\"figure\">Unknown</th></tr></thead>\n<tbody>\n",
    );
    for one in &report.score.culprits {
        html += &format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"figure\">{}</td></tr>\n",
            escaped(&one.culprit),
            whisker(&one.recall),
            figure(&one.recall),
            whisker(&one.precision),
            figure(&one.precision),
            if one.unknown == 0 { String::new() } else { one.unknown.to_string() }
        );
    }
    html + "</tbody>\n</table></div>\n</section>\n"
}

fn runs(report: &GradeReport, beside: &Path) -> String {
    let mut scenarios: BTreeMap<(&str, bool), Vec<&Row>> = BTreeMap::new();
    for row in &report.rows {
        scenarios.entry((&row.scenario, row.near_miss)).or_default().push(row);
    }
    let mut html = String::from(
        "<section>\n<h2>Each run</h2>\n<div class=\"wide\"><table class=\"runs\">\n<thead><tr><th>Run</th><th>It is</th>\
         <th>Said to be</th><th>Leg</th><th>Reasons</th></tr></thead>\n",
    );
    for ((scenario, near_miss), mut rows) in scenarios {
        rows.sort_by_key(|row| row.repeat);
        let judged = rows.iter().filter(|row| row.outcome == Outcome::Judged).count();
        let right = rows.iter().filter(|row| row.right == Some(true)).count();
        let like = rows.iter().find_map(|row| row.looks_like.as_deref());
        let title = match (near_miss, like) {
            (true, Some(like)) => format!("near miss of {scenario}, looks like {like}"),
            (true, None) => format!("near miss of {scenario}"),
            (false, _) => scenario.to_owned(),
        };
        html += &format!(
            "<tbody>\n<tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">{} <small>{right} of {judged} right</small></th></tr>\n",
            escaped(&title)
        );
        for row in rows {
            html += &run(row, beside);
        }
        html += "</tbody>\n";
    }
    html + "</table></div>\n</section>\n"
}

fn run(row: &Row, beside: &Path) -> String {
    let name = escaped(&which(row));
    let mut name = match &row.folder {
        Some(folder) => format!("<a href=\"{}\">{name}</a>", escaped(&address(folder, beside))),
        None => name,
    };
    if let Some(shown) = &row.judged_as {
        name += &format!(" <small>{shown}</small>");
    }
    let (class, said) = match (row.outcome, &row.verdict) {
        (Outcome::Judged, Some(verdict)) => {
            let mark = match (row.right, row.false_alarm) {
                (Some(true), _) => ("yes", "✓ right"),
                (_, Some(true)) => ("no", "✗ false alarm"),
                _ if verdict == Answer::UNKNOWN => ("maybe", "cannot tell"),
                _ => ("no", "✗ wrong"),
            };
            (mark.0, format!("{} <small>{}</small>", escaped(verdict), mark.1))
        }
        (Outcome::DidNotAct, _) => ("none", "<small>its fault did not act</small>".into()),
        (Outcome::Unavailable, _) => ("none", "<small>not available here</small>".into()),
        (Outcome::Failed, _) => ("none", "<small>could not be made</small>".into()),
        (Outcome::JudgeTimedOut, _) => ("none", "<small>the judge took too long</small>".into()),
        _ => ("none", "<small>the judge failed</small>".into()),
    };
    let mut truth = escaped(row.truth.as_deref().unwrap_or(""));
    if !row.also_right.is_empty() {
        truth += &format!(" <small>or {}</small>", escaped(&row.also_right.join(", ")));
    }
    let leg = match (&row.leg, &row.verdict_leg, row.leg_right) {
        (Some(leg), Some(said), Some(false)) => format!("✗ {said} <small>it is {leg}</small>"),
        (_, Some(said), Some(true)) => format!("✓ {said}"),
        (Some(leg), None, _) => format!("<small>not named; it is {leg}</small>"),
        (None, Some(said), _) => said.clone(),
        _ => String::new(),
    };
    let why = row.why.as_deref().or(row.error.as_deref()).unwrap_or("");
    format!(
        "<tr class=\"{class}\"><td>{name}</td><td>{truth}</td><td class=\"said\">{said}</td><td>{leg}</td><td \
         class=\"why\">{}</td></tr>\n",
        escaped(why)
    )
}

/// A folder as a link takes it: relative where it lies below the page.
fn address(folder: &Path, beside: &Path) -> String {
    let (text, prefix) = match folder.strip_prefix(beside) {
        Ok(below) => (below, "./"),
        Err(_) => (folder, "file://"),
    };
    let mut address = String::from(prefix);
    for byte in text.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                address.push(char::from(*byte));
            }
            byte => address += &format!("%{byte:02X}"),
        }
    }
    address + "/"
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_links_what_is_kept() {
        let page = write(&samples::report(), Path::new("/kept"));
        for needle in ["http:", "https:", "src=", "url(", "@import", "<script", "<here>", "<looked>"] {
            assert!(!page.contains(needle), "{needle}");
        }
        for expected in [
            "<h1>2 of 4 verdicts are right</h1>",
            "href=\"./rto%20%26%20co/\"",
            "no NAPI thread &lt;here&gt;",
            "near miss of rto, looks like rto <small>0 of 1 right</small>",
            "✗ false alarm",
            "title=\"rto, said to be rto: 1 of 1\"",
        ] {
            assert!(page.contains(expected), "{expected} in\n{page}");
        }
        let elsewhere = write(&samples::report(), Path::new("/pages"));
        assert!(elsewhere.contains("href=\"file:///kept/rto%20%26%20co/\""));
    }

    #[test]
    fn elements_are_closed() {
        let page = write(&samples::report(), Path::new("/"));
        for tag in ["table", "tr", "td", "th", "section", "tbody", "div", "svg", "dl", "p", "small", "a"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
