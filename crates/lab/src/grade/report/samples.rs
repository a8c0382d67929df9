//! A made-up report for tests.

use super::{GradeReport, Outcome, Row, Setting};
use crate::grade::score::JudgedRun;
use spangap_diagnose::Answer;
use spangap_model::Culprit;

fn judged(run: &str, truth: &str, said: &str) -> Row {
    let (scenario, near_miss) = match run.strip_suffix("-near-miss") {
        Some(scenario) => (scenario, true),
        None => (run, false),
    };
    let mut row = Row::new(run.into(), scenario, near_miss, 1, Outcome::Judged);
    row.repeat = Some(1);
    row.truth = Some(truth.into());
    row.looks_like = near_miss.then(|| "rto".into());
    row.folder = Some(format!("/kept/{run} & co").into());
    let judged = JudgedRun {
        truth: truth.parse().expect("a culprit"),
        also_right: Vec::new(),
        looks_like: near_miss.then(|| "rto".parse().expect("a culprit")),
        leg: (truth == "rto").then(|| "request_wire".parse().expect("a leg")),
        answer: said.parse::<Culprit>().map_or(Answer::Unknown, Answer::Culprit),
        answer_leg: "request_wire".parse().ok(),
    };
    row.judged(judged, Some("it <looked> like that".into()));
    row
}

fn other(run: &str, outcome: Outcome, error: &str) -> Row {
    let mut row = Row::new(run.into(), run, false, 1, outcome);
    row.repeat = Some(1);
    row.error = Some(error.into());
    row
}

/// Four verdicts, two of them right, and three runs without one.
pub(in crate::grade) fn report() -> GradeReport {
    let rows = vec![
        judged("healthy", "none", "none"),
        judged("rto-near-miss", "none", "tail-loss"),
        judged("rto", "rto", "rto (client)"),
        judged("slow-server", "server-app", "unknown"),
        other("flood", Outcome::Unavailable, "no NAPI thread <here>"),
        other("stop", Outcome::DidNotAct, "stops 0, expected at least 3"),
        other("nagle-client", Outcome::JudgeTimedOut, "killed"),
    ];
    let setting =
        Setting { judge: "./judge.sh".into(), blind: true, seed: 1, repeats: Some(1), interrupted: true };
    GradeReport::new(setting, 8, rows)
}
