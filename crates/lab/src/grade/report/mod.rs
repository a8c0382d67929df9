//! What users see of a grading: the JSON shapes here, and made of them the table and the page.

pub mod page;
#[cfg(test)]
mod samples;
pub mod table;

use super::folders::Kept;
use super::score::{Judged, Score, score};
use serde::Serialize;
use std::path::PathBuf;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// There is a verdict.
    Judged,
    /// Its fault did not act, or its near miss had it: it proves nothing, and the judge was not asked.
    DidNotAct,
    /// It cannot be made here.
    Unavailable,
    /// Making it failed.
    Failed,
    /// The judge failed, or what it said is no verdict.
    JudgeFailed,
    /// The judge took too long.
    JudgeTimedOut,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was made, as `spangap lab run` takes it.
    pub run: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Whether its near miss.
    pub near_miss: bool,
    /// Which repeat, from 1; absent for a folder that was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Its seed.
    pub seed: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Its folder, where it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// The name under which the judge saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged_as: Option<String>,
    /// What was to blame; absent when it was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<String>,
    /// What else is right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_right: Vec<String>,
    /// Of a near miss: what it looks like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_like: Option<String>,
    /// The leg that was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<String>,
    /// Whom the judge blames; `none`, `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The leg that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict_leg: Option<String>,
    /// Its reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether that is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<bool>,
    /// Whether the leg is, where both name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg_right: Option<bool>,
    /// Whether somebody was blamed who is not to blame, in a healthy or near-miss run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_alarm: Option<bool>,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds that it took to make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
    /// Seconds that the judge took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_s: Option<f64>,
    #[serde(skip)]
    judged: Option<Judged>,
}

impl Row {
    /// One without more to tell.
    pub fn new(run: String, scenario: &str, near_miss: bool, seed: u64, outcome: Outcome) -> Row {
        Row {
            run,
            scenario: scenario.to_owned(),
            near_miss,
            repeat: None,
            seed,
            outcome,
            folder: None,
            judged_as: None,
            truth: None,
            also_right: Vec::new(),
            looks_like: None,
            leg: None,
            verdict: None,
            verdict_leg: None,
            why: None,
            right: None,
            leg_right: None,
            false_alarm: None,
            error: None,
            run_s: None,
            judge_s: None,
            judged: None,
        }
    }

    /// One of a run that was made.
    pub fn of(kept: &Kept) -> Row {
        let truth = &kept.truth;
        let culprit = match &truth.side {
            Some(side) => format!("{} ({side})", truth.culprit),
            None => truth.culprit.clone(),
        };
        Row {
            folder: Some(kept.folder.clone()),
            truth: Some(culprit),
            also_right: truth.also_right.clone(),
            looks_like: truth.looks_like.clone(),
            leg: truth.leg.clone(),
            ..Row::new(kept.name(), &truth.scenario, truth.near_miss, truth.seed, Outcome::Judged)
        }
    }

    /// Notes the verdict.
    pub fn judged(&mut self, judged: Judged, why: Option<String>) {
        self.outcome = Outcome::Judged;
        self.verdict = Some(judged.answer.to_string());
        self.verdict_leg = judged.answer_leg.map(|leg| leg.to_string());
        self.why = why;
        self.right = Some(judged.is_right());
        self.leg_right = judged.leg_is_right();
        self.false_alarm = judged.could_alarm().then(|| judged.is_false_alarm());
        self.judged = Some(judged);
    }
}

/// How many runs came to what; they sum to `graded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Runs that were to be graded.
    pub planned: u64,
    /// Runs that were, until the end or an interrupt.
    pub graded: u64,
    /// Those with a verdict.
    pub judged: u64,
    /// Those whose fault did not act.
    pub did_not_act: u64,
    /// Those that cannot be made here.
    pub unavailable: u64,
    /// Those whose making failed.
    pub failed: u64,
    /// Those on which the judge failed.
    pub judge_failed: u64,
    /// Those on which it took too long.
    pub judge_timed_out: u64,
}

/// What a grading is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The judge's command.
    pub judge: String,
    /// Whether it saw the evidence alone.
    pub blind: bool,
    /// Seed of the order and of the runs.
    pub seed: u64,
    /// Runs of each; absent when folders were graded that were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Whether it was ended before its end.
    pub interrupted: bool,
}

/// All of it: what `spangap lab grade --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradeReport {
    /// What was graded, and how.
    #[serde(flatten)]
    pub setting: Setting,
    /// How many runs came to what.
    pub runs: Counts,
    /// Verdicts against truths.
    #[serde(flatten)]
    pub score: Score,
    /// Every run, in the order in which they were graded.
    pub rows: Vec<Row>,
}

impl GradeReport {
    /// Adds up.
    pub fn new(setting: Setting, planned: usize, rows: Vec<Row>) -> GradeReport {
        let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count() as u64;
        let runs = Counts {
            planned: planned as u64,
            graded: rows.len() as u64,
            judged: count(Outcome::Judged),
            did_not_act: count(Outcome::DidNotAct),
            unavailable: count(Outcome::Unavailable),
            failed: count(Outcome::Failed),
            judge_failed: count(Outcome::JudgeFailed),
            judge_timed_out: count(Outcome::JudgeTimedOut),
        };
        let judged: Vec<Judged> = rows.iter().filter_map(|row| row.judged.clone()).collect();
        GradeReport { setting, runs, score: score(&judged), rows }
    }
}
