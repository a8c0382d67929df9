//! The report as text.

use super::{GradeReport, Outcome, Row};
use spangap_report::table::aligned;

/// All of it.
pub fn text(report: &GradeReport) -> String {
    let mut text = head(report);
    if report.runs.judged > 0 {
        text += "\nWhat was the matter (rows), what was said of it (columns):\n";
        text += &matrix(report);
        text += "\n";
        text += &culprits(report);
    }
    for (outcome, title) in [
        (Outcome::DidNotAct, "The fault did not act as it should, or its near miss had it (not judged)"),
        (Outcome::Unavailable, "Cannot be made here"),
        (Outcome::Failed, "Could not be made"),
        (Outcome::JudgeFailed, "The judge failed"),
        (Outcome::JudgeTimedOut, "The judge took too long"),
    ] {
        text += &without_verdict(report, outcome, title);
    }
    text
}

fn head(report: &GradeReport) -> String {
    let runs = report.runs;
    let mut text =
        format!("judge: {}{}\n", report.setting.judge, if report.setting.blind { " (blind)" } else { "" });
    text += &format!(
        "runs: {} of {}{}; judged {}, fault did not act {}, not available {}, failed {}, judge failed {}, judge too slow {}\n",
        runs.graded,
        runs.planned,
        if report.setting.interrupted { " (interrupted)" } else { "" },
        runs.judged,
        runs.did_not_act,
        runs.unavailable,
        runs.failed,
        runs.judge_failed,
        runs.judge_timed_out
    );
    if runs.judged > 0 {
        let score = &report.score;
        text += &format!("right: {}\n", score.right.in_words());
        text += &format!("cannot tell: {}\n", score.unknown.in_words());
        text += &format!("leg right, where named: {}\n", score.legs.in_words());
        text += &format!("false alarms on healthy and near-miss runs: {}\n", score.false_alarms.in_words());
    }
    text
}

/// Verdicts are numbered, because their names would not fit above their columns; right ones are starred.
fn matrix(report: &GradeReport) -> String {
    let matrix = &report.score.matrix;
    // Truths get the first numbers, so that right verdicts are on the diagonal.
    let mut names: Vec<&str> = matrix.rows.iter().map(String::as_str).collect();
    let others =
        matrix.columns.iter().map(String::as_str).filter(|name| !matrix.rows.iter().any(|row| row == name));
    names.extend(others);
    let columns: Vec<(usize, usize)> = names
        .iter()
        .enumerate()
        .filter_map(|(number, name)| Some((number, matrix.columns.iter().position(|column| column == name)?)))
        .collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:>3} {:width$} ", "", "");
    for (number, _) in &columns {
        text += &format!("{:>5}", number + 1);
    }
    text += "\n";
    for (number, name) in names.iter().enumerate() {
        text += &format!("{:>3} {name:width$} ", number + 1);
        if let Some(row) = matrix.cells.get(number) {
            for (_, column) in &columns {
                let cell = row[*column];
                let mark = if cell.right > 0 { "*" } else { "" };
                text += &match cell.runs {
                    0 => format!("{:>5}", "."),
                    runs => format!("{:>5}", format!("{mark}{runs}")),
                };
            }
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text + "(* right, also by another name)\n"
}

fn culprits(report: &GradeReport) -> String {
    let head = ["culprit", "found (recall)", "right when named (precision)", "unknown"].map(str::to_owned);
    let rows = report.score.culprits.iter().map(|one| {
        let unknown = if one.unknown == 0 { String::new() } else { one.unknown.to_string() };
        [one.culprit.clone(), one.recall.in_words(), one.precision.in_words(), unknown]
    });
    aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), |_| true)
}

fn without_verdict(report: &GradeReport, outcome: Outcome, title: &str) -> String {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.outcome == outcome).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}:\n");
    for row in rows {
        text += &format!("  {}: {}\n", which(row), row.error.as_deref().unwrap_or("no reason was given"));
    }
    text
}

/// `nagle-client 2`
pub fn which(row: &Row) -> String {
    match row.repeat {
        Some(repeat) => format!("{} {repeat}", row.run),
        None => row.run.clone(),
    }
}

/// Outcome of a run, as a line.
pub fn line(row: &Row) -> String {
    let truth = row.truth.as_deref().unwrap_or("?");
    let said = match (row.outcome, &row.verdict) {
        (Outcome::Judged, Some(verdict)) => {
            let right = if row.right == Some(true) { "right" } else { "wrong" };
            format!("{verdict}: {right}, it is {truth}")
        }
        (Outcome::DidNotAct, _) => "did not act as it should".into(),
        (Outcome::Unavailable, _) => "not available here".into(),
        (Outcome::Failed, _) => "could not be made".into(),
        (Outcome::JudgeTimedOut, _) => "the judge took too long".into(),
        _ => "the judge failed".into(),
    };
    let error = row.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    format!("{}: {said}{error}", which(row))
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_text_has_all_that_counts() {
        let text = text(&samples::report());
        for expected in [
            "judge: ./judge.sh (blind)",
            "runs: 7 of 8 (interrupted); judged 4, fault did not act 1, not available 1, failed 0, judge failed 0, judge too slow 1",
            "right: 2 of 4, 50 % (15-85 %)",
            "false alarms on healthy and near-miss runs: 1 of 2, 50 % (9-91 %)",
            "leg right, where named: 1 of 1, 100 % (21-100 %)",
            "                   1    2    4    5\n",
            "  1 none          *1    .    1    .\n",
            "  2 rto            .   *1    .    .\n",
            "  3 server-app     .    .    .    1\n",
            "  4 tail-loss\n",
            "\ntail-loss   -                         0 of 1, 0 % (0-79 %)\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
        assert!(text.contains("Cannot be made here:\n  flood 1: no NAPI thread"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }

    #[test]
    fn a_line_of_a_run() {
        let report = samples::report();
        assert_eq!(line(&report.rows[0]), "healthy 1: none: right, it is none");
        assert_eq!(line(&report.rows[4]), "flood 1: not available here (no NAPI thread <here>)");
    }
}
