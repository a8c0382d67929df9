//! What users see of a graded draw: the JSON shapes, and how runs add up to them.

use super::standing::{Standing, Stands};
use super::{Tally, floor_ns, tally};
use crate::draw::Drawn;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was made, acted and was judged.
    Judged,
    /// Whatever was drawn for it, it did not act.
    DidNotAct,
    /// It cannot be made here.
    Unavailable,
    /// Making it failed.
    Failed,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number in the draw; of a folder that was there and not drawn, its place.
    pub number: u64,
    /// What was made, as `spangap lab run` takes it.
    pub run: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
    /// What is to blame; empty where nothing is.
    pub truth: Vec<String>,
    /// What the fault costs a call, mean, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_ns: Option<u64>,
    /// Median of all calls, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ns: Option<u64>,
    /// What was said of it.
    pub said: Vec<Said>,
    /// Times that something else was drawn for it, since what was drawn did not act: why, each time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drawn_again: Vec<String>,
    /// Why it was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its folder, where it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Seconds that it took to make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
}

/// What a judge said of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Said {
    /// Who.
    pub judge: String,
    /// What evidence was taken away before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_away: Option<&'static str>,
    /// What, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// How that stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// Of a right culprit: whether it rests on the calls that were longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounded: Option<bool>,
    /// Those who are named and not to blame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub innocents: Vec<String>,
    /// The share by construction, and the interval that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Shares>,
    /// Its reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds that it took, with the gathering of the evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_s: Option<f64>,
    #[serde(skip)]
    pub(super) stands: Option<Stands>,
}

/// A share by construction beside an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// By construction.
    pub constructed: f64,
    /// Lower end of the 90 % interval that was given.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What a judge is worth, with all evidence or with some taken away.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Who.
    pub judge: String,
    /// What was taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_away: Option<&'static str>,
    /// Runs on which it failed.
    pub failed: u64,
    /// All runs.
    #[serde(flatten)]
    pub all: Tally,
    /// By what was wrong: `nothing`, `near miss`, `one fault`, `two faults`.
    pub parts: Vec<Part>,
    /// By what was made.
    pub runs: Vec<PerRun>,
}

/// Runs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Which.
    pub part: &'static str,
    /// How they stand.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Runs of one scenario or near miss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PerRun {
    /// Which.
    pub run: String,
    /// How they stand.
    #[serde(flatten)]
    pub tally: Tally,
    /// The smallest excess of a call from which on the judge was right in nine of ten runs, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<u64>,
}

/// How many runs came to what; all but `drawn_again` sum to `graded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Runs that were to be graded.
    pub planned: u64,
    /// Those that were, until the end or an interrupt.
    pub graded: u64,
    /// Those that were judged.
    pub judged: u64,
    /// Those that did not act, whatever was drawn.
    pub did_not_act: u64,
    /// Those that cannot be made here.
    pub unavailable: u64,
    /// Those whose making failed.
    pub failed: u64,
    /// Times that something else was drawn for a run.
    pub drawn_again: u64,
}

/// Something of the distribution that this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotDrawn {
    /// A stack.
    pub what: String,
    /// What is missing, and what brings it.
    pub why: String,
    /// Runs for which it was drawn; tonic took its place.
    pub runs: u64,
}

/// All of it: what `spangap lab grade --draw N --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct DrawReport {
    /// The judge in question.
    pub judge: String,
    /// Seed of the draw; absent where folders were graded that are of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether it was ended before its end.
    pub interrupted: bool,
    /// Load averages of the machine, of 1, 5 and 15 minutes, when it began and when it ended.
    pub load: [Vec<f64>; 2],
    /// How many runs came to what.
    pub runs: Counts,
    /// What was not drawn, and why.
    pub not_drawn: Vec<NotDrawn>,
    /// What each judge is worth: the one in question first, then the dumb ones, then what it is worth with less.
    pub scores: Vec<Score>,
    /// Every run.
    pub rows: Vec<Row>,
}

/// How many runs came to what.
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

/// What each judge is worth, in the order in which they first spoke.
pub fn scores(rows: &[Row]) -> Vec<Score> {
    let mut who: Vec<(&str, Option<&'static str>)> = Vec::new();
    for said in rows.iter().flat_map(|row| &row.said) {
        let one = (said.judge.as_str(), said.taken_away);
        if !who.contains(&one) {
            who.push(one);
        }
    }
    // With less evidence comes last.
    who.sort_by_key(|(_, taken_away)| taken_away.is_some());
    who.into_iter().map(|(judge, taken_away)| score(rows, judge, taken_away)).collect()
}

fn score(rows: &[Row], judge: &str, taken_away: Option<&'static str>) -> Score {
    let is_of = |said: &&Said| said.judge == judge && said.taken_away == taken_away;
    let said: Vec<(&Row, &Said)> =
        rows.iter().flat_map(|row| row.said.iter().filter(is_of).map(move |said| (row, said))).collect();
    let stands: Vec<(&Row, &Stands)> =
        said.iter().filter_map(|(row, said)| Some((*row, said.stands.as_ref()?))).collect();
    let of = |is: &dyn Fn(&Row) -> bool| {
        let some: Vec<&Stands> =
            stands.iter().filter(|(row, _)| is(row)).map(|(_, stands)| *stands).collect();
        tally(some.iter().copied())
    };
    let part = |part: &'static str| Part { part, tally: of(&|row| part_of(row) == part) };
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
        parts: PARTS.map(part).into_iter().filter(|part| part.tally.right.of > 0).collect(),
        runs: names.into_iter().map(per_run).collect(),
    }
}

/// What was wrong in a run.
const PARTS: [&str; 4] = ["nothing", "near miss", "one fault", "two faults"];

fn part_of(row: &Row) -> &'static str {
    match row.truth.len() {
        0 if !row.run.ends_with(crate::scenario::NEAR_MISS) => PARTS[0],
        2 => PARTS[3],
        _ if row.run.ends_with(crate::scenario::NEAR_MISS) => PARTS[1],
        _ => PARTS[2],
    }
}
