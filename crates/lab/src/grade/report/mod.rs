//! Results of a grading: the JSON shapes, from which table and page are made.

pub mod page;
#[cfg(test)]
mod samples;
pub mod table;

use super::folders::ExistingRun;
use super::score::{JudgedRun, Score, score};
use serde::Serialize;
use std::path::PathBuf;

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Judged.
    Judged,
    /// The fault did not act, or the control run showed it: the run proves nothing, and the judge was not
    /// asked.
    DidNotAct,
    /// The run cannot be made here.
    Unavailable,
    /// Making the run failed.
    Failed,
    /// The judge failed, or its output is not a verdict.
    JudgeFailed,
    /// The judge exceeded its time limit.
    JudgeTimedOut,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name, as `spangap lab run` accepts it.
    pub run: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Whether it is the near miss.
    pub near_miss: bool,
    /// Number of the repetition, from 1; absent for an existing folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Its seed.
    pub seed: u64,
    /// Outcome.
    pub outcome: Outcome,
    /// Folder, if kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Name under which the judge saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged_as: Option<String>,
    /// The culprit; absent if the run was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<String>,
    /// Other correct answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_right: Vec<String>,
    /// For a near miss: the culprit that it resembles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_like: Option<String>,
    /// The leg that was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<String>,
    /// The judge's culprit, or `none` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The judge's leg.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict_leg: Option<String>,
    /// The judge's reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the culprit is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<bool>,
    /// Whether the leg is right, if both name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg_right: Option<bool>,
    /// Whether an innocent culprit was blamed, in a healthy or near-miss run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_alarm: Option<bool>,
    /// Reason for a missing verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds to make the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
    /// Seconds that the judge took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_s: Option<f64>,
    #[serde(skip)]
    judged: Option<JudgedRun>,
}

impl Row {
    /// A row without an outcome.
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

    /// A row for an existing run.
    pub fn of(kept: &ExistingRun) -> Row {
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

    /// Records the verdict.
    pub fn judged(&mut self, judged: JudgedRun, why: Option<String>) {
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

/// Number of runs by outcome; they sum to `graded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Runs to grade.
    pub planned: u64,
    /// Runs graded, up to the end or an interrupt.
    pub graded: u64,
    /// Runs with a verdict.
    pub judged: u64,
    /// Runs whose fault did not act.
    pub did_not_act: u64,
    /// Runs that cannot be made here.
    pub unavailable: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs on which the judge failed.
    pub judge_failed: u64,
    /// Runs on which the judge exceeded its time limit.
    pub judge_timed_out: u64,
}

/// Settings of a grading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The judge's command.
    pub judge: String,
    /// Whether it saw only the evidence.
    pub blind: bool,
    /// Seed of the order and of the runs.
    pub seed: u64,
    /// Repetitions; absent for existing folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// The document of `spangap lab grade --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradeReport {
    /// Settings.
    #[serde(flatten)]
    pub setting: Setting,
    /// Number of runs by outcome.
    pub runs: Counts,
    /// Scores.
    #[serde(flatten)]
    pub score: Score,
    /// Rows in the order of grading.
    pub rows: Vec<Row>,
}

impl GradeReport {
    /// Sums up.
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
        let judged: Vec<JudgedRun> = rows.iter().filter_map(|row| row.judged.clone()).collect();
        GradeReport { setting, runs, score: score(&judged), rows }
    }
}
