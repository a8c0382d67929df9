//! Results of a graded draw: the JSON shapes, and the sums over runs.

use super::standing::{ClassifiedConclusion, Standing};
use super::{Tally, floor_ns, tally};
use crate::draw::DrawnRun;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Made, acted and judged.
    Judged,
    /// No attempt acted.
    DidNotAct,
    /// Cannot be made here.
    Unavailable,
    /// Making it failed.
    Failed,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number in the draw; for an existing folder that was not drawn, its position.
    pub number: u64,
    /// Name, as `spangap lab run` accepts it.
    pub run: String,
    /// Outcome.
    pub outcome: Outcome,
    /// What was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<DrawnRun>,
    /// True culprits; empty if nothing is wrong.
    pub truth: Vec<String>,
    /// Mean cost of the fault per call, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_ns: Option<u64>,
    /// Median of all calls, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ns: Option<u64>,
    /// Conclusions.
    pub said: Vec<JudgeResult>,
    /// Reasons why earlier attempts did not act.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drawn_again: Vec<String>,
    /// Reason for not being judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Folder, if kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Seconds to make the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
}

/// A judge's conclusion about a run.
#[derive(Clone, Debug, Serialize)]
pub struct JudgeResult {
    /// Judge.
    pub judge: String,
    /// Evidence removed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_away: Option<&'static str>,
    /// Conclusion in short form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Classification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// For a right culprit: whether it is supported by the calls that were longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounded: Option<bool>,
    /// Innocent culprits that are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub innocents: Vec<String>,
    /// The share by construction, and the judge's interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Shares>,
    /// Reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Reason for a missing conclusion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds taken, including the gathering of evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_s: Option<f64>,
    #[serde(skip)]
    pub(super) stands: Option<ClassifiedConclusion>,
}

/// A share by construction and the judge's interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// By construction.
    pub constructed: f64,
    /// Lower end of the judge's 90 % interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Scores of a judge, with all evidence or with some removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Judge.
    pub judge: String,
    /// Removed evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_away: Option<&'static str>,
    /// Runs on which it failed.
    pub failed: u64,
    /// All runs.
    #[serde(flatten)]
    pub all: Tally,
    /// By part of the distribution: `nothing`, `near miss`, `one fault`, `two faults`; then by whether there is a fault, and a
    /// window before it; then those with odd numbers, on which no rule should have been tuned.
    pub parts: Vec<Part>,
    /// By scenario.
    pub runs: Vec<PerRun>,
}

/// Runs of one part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Which.
    pub part: &'static str,
    /// Classifications.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Runs of one scenario or near miss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PerRun {
    /// Which.
    pub run: String,
    /// Classifications.
    #[serde(flatten)]
    pub tally: Tally,
    /// The smallest excess per call from which on the judge was right in nine of ten runs, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<u64>,
}

/// Number of runs by outcome; all but `drawn_again` sum to `graded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Runs to grade.
    pub planned: u64,
    /// Runs graded, up to the end or an interrupt.
    pub graded: u64,
    /// Runs judged.
    pub judged: u64,
    /// Runs without an attempt that acted.
    pub did_not_act: u64,
    /// Runs that cannot be made here.
    pub unavailable: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Number of additional attempts.
    pub drawn_again: u64,
}

/// A part of the distribution that this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingStack {
    /// A stack.
    pub what: String,
    /// What is missing, and how to get it.
    pub why: String,
    /// Runs for which it was drawn, and replaced by tonic.
    pub runs: u64,
}

/// The document of `spangap lab grade --draw N --json`.
#[derive(Clone, Debug, Serialize)]
pub struct DrawReport {
    /// The judge in question.
    pub judge: String,
    /// Seed of the draw; absent if the graded folders stem from several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Load averages of 1, 5 and 15 minutes, at the start and at the end.
    pub load: [Vec<f64>; 2],
    /// Number of runs by outcome.
    pub runs: Counts,
    /// Missing parts of the distribution.
    pub not_drawn: Vec<MissingStack>,
    /// Scores of each judge: the one in question first, then the naive ones, then with evidence removed.
    pub scores: Vec<Score>,
    /// Every run.
    pub rows: Vec<Row>,
}

/// Number of runs by outcome.
pub fn counts(planned: usize, rows: &[Row]) -> Counts {
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count() as u64;
    Counts {
        planned: planned as u64,
        graded: rows.len() as u64,
        judged: count(Outcome::Judged),
        did_not_act: count(Outcome::DidNotAct),
        unavailable: count(Outcome::Unavailable),
        failed: count(Outcome::Failed),
        drawn_again: rows.iter().map(|row| row.drawn_again.len() as u64).sum(),
    }
}

/// Scores of each judge, by first appearance.
pub fn scores(rows: &[Row]) -> Vec<Score> {
    let mut who: Vec<(&str, Option<&'static str>)> = Vec::new();
    for said in rows.iter().flat_map(|row| &row.said) {
        let one = (said.judge.as_str(), said.taken_away);
        if !who.contains(&one) {
            who.push(one);
        }
    }
    // Reduced evidence comes last.
    who.sort_by_key(|(_, taken_away)| taken_away.is_some());
    who.into_iter().map(|(judge, taken_away)| score(rows, judge, taken_away)).collect()
}

fn score(rows: &[Row], judge: &str, taken_away: Option<&'static str>) -> Score {
    let is_of = |said: &&JudgeResult| said.judge == judge && said.taken_away == taken_away;
    let said: Vec<(&Row, &JudgeResult)> =
        rows.iter().flat_map(|row| row.said.iter().filter(is_of).map(move |said| (row, said))).collect();
    let stands: Vec<(&Row, &ClassifiedConclusion)> =
        said.iter().filter_map(|(row, said)| Some((*row, said.stands.as_ref()?))).collect();
    let of = |is: &dyn Fn(&Row) -> bool| {
        let some: Vec<&ClassifiedConclusion> =
            stands.iter().filter(|(row, _)| is(row)).map(|(_, stands)| *stands).collect();
        tally(some.iter().copied())
    };
    let mut names: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
    for (row, stands) in &stands {
        let points = names.entry(&row.run).or_default();
        points.extend(row.excess_ns.map(|excess_ns| (excess_ns, stands.standing == Standing::Right)));
    }
    let per_run = |(run, points): (&str, Vec<(u64, bool)>)| PerRun {
        run: run.to_owned(),
        tally: of(&|row| row.run == run),
        floor_ns: floor_ns(&points),
    };
    Score {
        judge: judge.to_owned(),
        taken_away,
        failed: said.iter().filter(|(_, said)| said.error.is_some()).count() as u64,
        all: of(&|_| true),
        parts: parts(&of),
        runs: names.into_iter().map(per_run).collect(),
    }
}

/// Which runs a sum is of.
type IsOf<'f> = &'f dyn Fn(&Row) -> bool;

/// Sums of runs of which something was wrong or not, and which have an earlier window or none. Those without any run are left out.
fn parts(of: &dyn Fn(IsOf<'_>) -> Tally) -> Vec<Part> {
    let has_earlier = |row: &Row| row.drawn.as_ref().is_some_and(|drawn| drawn.earlier.is_some());
    let has_fault = |row: &Row| [PARTS[2], PARTS[3]].contains(&part_of(row));
    let with = |part: &'static str, is: IsOf<'_>| Part { part, tally: of(is) };
    let mut parts: Vec<Part> = PARTS.map(|part| with(part, &|row| part_of(row) == part)).into();
    parts.extend([
        with("with a fault", &has_fault),
        with("with an earlier window", &has_earlier),
        with("with an earlier window and a fault", &|row| has_earlier(row) && has_fault(row)),
        with("without an earlier window", &|row| !has_earlier(row)),
        with("without an earlier window, with a fault", &|row| !has_earlier(row) && has_fault(row)),
        with("odd numbers", &|row| row.number % 2 == 1),
    ]);
    parts.retain(|part| part.tally.right.of > 0);
    parts
}

/// Parts of the distribution.
const PARTS: [&str; 4] = ["nothing", "near miss", "one fault", "two faults"];

fn part_of(row: &Row) -> &'static str {
    match row.truth.len() {
        0 if !row.run.ends_with(crate::scenario::NEAR_MISS) => PARTS[0],
        2 => PARTS[3],
        _ if row.run.ends_with(crate::scenario::NEAR_MISS) => PARTS[1],
        _ => PARTS[2],
    }
}
