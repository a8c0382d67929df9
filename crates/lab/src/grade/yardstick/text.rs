//! A graded draw as text.

use super::Tally;
use super::report::{DrawReport, JudgeResult, Outcome, Part, PerRun, Row, Score};
use super::standing::Standing;
use crate::grade::score::Share;
use spangap_model::duration::format_ns;
use spangap_report::table::aligned;
use spangap_report::wrap::wrapped;

/// Width of the descriptions of single runs.
const WIDTH: usize = 120;

/// All of it.
pub fn text(report: &DrawReport) -> String {
    let mut text = head(report);
    if report.runs.judged > 0 {
        let (full, less): (Vec<&Score>, Vec<&Score>) =
            report.scores.iter().partition(|score| score.taken_away.is_none());
        text += "\n";
        text += &columns(&full, |score| score.judge.clone());
        if !less.is_empty() {
            text += "\nThe same judge with evidence taken away:\n";
            text += &columns(&less, |score| score.taken_away.unwrap_or("").to_owned());
        }
        if let Some(score) = full.first() {
            text += "\n";
            text += &parts(score);
            text += "\n";
            text += &runs(score);
        }
        text += &wrong(report);
    }
    for (outcome, title) in [
        (Outcome::DidNotAct, "Did not act, whatever was drawn"),
        (Outcome::Unavailable, "Cannot be made here"),
        (Outcome::Failed, "Could not be made"),
    ] {
        text += &without_verdict(report, outcome, title);
    }
    text
}

fn head(report: &DrawReport) -> String {
    let runs = report.runs;
    let load = |load: &[f64]| load.first().map_or("?".to_owned(), |one| format!("{one:.1}"));
    let mut text = format!("judge: {}\n", report.judge);
    text += &format!(
        "draw: {} of {} runs{}{}; load of the machine {} to {}\n",
        runs.graded,
        runs.planned,
        report.seed.map_or(String::new(), |seed| format!(" of seed {seed}")),
        if report.interrupted { " (interrupted)" } else { "" },
        load(&report.load[0]),
        load(&report.load[1]),
    );
    text += &format!(
        "runs: judged {}, did not act {}, not available {}, failed {}; drawn again, since it did not act: {} times\n",
        runs.judged, runs.did_not_act, runs.unavailable, runs.failed, runs.drawn_again
    );
    for one in &report.not_drawn {
        let line = format!("not drawn: {} ({} runs have tonic instead): {}", one.what, one.runs, one.why);
        text += &(wrapped(&line, WIDTH, 2) + "\n");
    }
    text
}

fn columns(scores: &[&Score], name: impl Fn(&Score) -> String) -> String {
    let mut rows =
        vec![std::iter::once(String::new()).chain(scores.iter().map(|score| name(score))).collect()];
    type Of = fn(&Tally) -> &Share;
    let lines: [(&str, Of); 9] = [
        ("right", |tally| &tally.right),
        ("  grounded, of right culprits", |tally| &tally.grounded),
        ("right place, no culprit", |tally| &tally.right_place),
        ("the machine's own noise", |tally| &tally.noise),
        ("unknown", |tally| &tally.unknown),
        ("wrong place, no culprit", |tally| &tally.wrong_place),
        ("\"nothing\", wrongly", |tally| &tally.wrongly_nothing),
        ("innocent named", |tally| &tally.innocent),
        ("90 % intervals that hold", |tally| &tally.held),
    ];
    for (what, of) in lines {
        let cells = scores.iter().map(|score| of(&score.all).in_words());
        rows.push(std::iter::once(what.to_owned()).chain(cells).collect::<Vec<_>>());
    }
    let failed = |score: &&Score| if score.failed == 0 { String::new() } else { score.failed.to_string() };
    if scores.iter().any(|score| score.failed > 0) {
        rows.push(std::iter::once("failed".to_owned()).chain(scores.iter().map(failed)).collect());
    }
    aligned(&rows, |_| true)
}

const COUNTS: [&str; 8] =
    ["runs", "right", "place", "noise", "unknown", "wrong place", "nothing", "innocent"];

fn counts(tally: &Tally) -> Vec<String> {
    let numbers = [
        tally.right.of,
        tally.right.count,
        tally.right_place.count,
        tally.noise.count,
        tally.unknown.count,
        tally.wrong_place.count,
        tally.wrongly_nothing.count,
        tally.innocent.count,
    ];
    numbers.iter().map(|number| if *number == 0 { ".".to_owned() } else { number.to_string() }).collect()
}

fn parts(score: &Score) -> String {
    let head = std::iter::once("what was wrong").chain(COUNTS).chain([
        "right",
        "right or place",
        "grounded",
        "held",
    ]);
    let head = head.map(str::to_owned).collect::<Vec<_>>();
    let row = |part: &Part| {
        let Tally { right, right_place, grounded, held, .. } = &part.tally;
        let percent = |count: u64| format!("{:.0} %", count as f64 / right.of.max(1) as f64 * 100.0);
        let of = |share: &Share| format!("{} of {}", share.count, share.of);
        let shares = [percent(right.count), percent(right.count + right_place.count), of(grounded), of(held)];
        std::iter::once(part.part.to_owned()).chain(counts(&part.tally)).chain(shares).collect::<Vec<_>>()
    };
    let all = Part { part: "all", tally: score.all.clone() };
    let rows = std::iter::once(row(&all)).chain(score.parts.iter().map(row));
    aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), |column| column == 0)
}

fn runs(score: &Score) -> String {
    let head = std::iter::once("run").chain(COUNTS).chain(["found from"]);
    let head: Vec<String> = head.map(str::to_owned).collect();
    let row = |one: &PerRun| {
        let floor = one.floor_ns.map_or(String::new(), format_ns);
        std::iter::once(one.run.clone()).chain(counts(&one.tally)).chain([floor]).collect::<Vec<_>>()
    };
    aligned(&std::iter::once(head).chain(score.runs.iter().map(row)).collect::<Vec<_>>(), |column| {
        column == 0
    })
}

/// Every run that the judge in question got wrong with all evidence.
fn wrong(report: &DrawReport) -> String {
    let is_wrong = |said: &&JudgeResult| {
        said.judge == report.judge
            && said.taken_away.is_none()
            && !matches!(said.standing, Some(Standing::Right | Standing::Noise))
    };
    let mut text = String::new();
    for row in &report.rows {
        for said in row.said.iter().filter(is_wrong) {
            text += &(wrapped(&line(row, said), WIDTH, 6) + "\n");
        }
    }
    if text.is_empty() { text } else { format!("\nNot right:\n{text}") }
}

/// `  17 rto: at client_send (wrong place); it is rto, 203 ms a call: ...`
fn line(row: &Row, said: &JudgeResult) -> String {
    let truth = if row.truth.is_empty() { "nothing".to_owned() } else { row.truth.join(" and ") };
    let excess = row.excess_ns.map_or(String::new(), |ns| format!(", {} a call", format_ns(ns)));
    let median = row.median_ns.map_or(String::new(), |ns| format!(" beside a median of {}", format_ns(ns)));
    let what = said.verdict.clone().or(said.error.clone()).unwrap_or_default();
    let standing = said.standing.map_or("failed", standing_in_words);
    let why = said.why.as_ref().map_or(String::new(), |why| format!(". {why}"));
    format!("  {} {}: {what} ({standing}); it is {truth}{excess}{median}{why}", row.number, row.run)
}

fn standing_in_words(standing: Standing) -> &'static str {
    match standing {
        Standing::Right => "right",
        Standing::RightPlace => "right place",
        Standing::Noise => "the machine's own noise",
        Standing::Unknown => "unknown",
        Standing::WrongPlace => "wrong place",
        Standing::WronglyNothing => "wrongly",
        Standing::Innocent => "innocent",
    }
}

fn without_verdict(report: &DrawReport, outcome: Outcome, title: &str) -> String {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.outcome == outcome).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}:\n");
    for row in rows {
        let error = row.error.as_deref().unwrap_or("no reason was given");
        text += &(wrapped(&format!("  {} {}: {error}", row.number, row.run), WIDTH, 6) + "\n");
    }
    text
}

/// Outcome of a run, as a line.
pub fn progress(row: &Row) -> String {
    let said = row.said.first();
    match (row.outcome, said) {
        (Outcome::Judged, Some(said)) => {
            let line = line(row, &JudgeResult { why: None, ..said.clone() });
            line.trim_start().to_owned()
        }
        _ => format!("{} {}: {}", row.number, row.run, row.error.as_deref().unwrap_or("not judged")),
    }
}
