//! Scores of verdicts against truths: correctness per culprit, with confidence intervals.

use serde::Serialize;
use spangap_diagnose::Answer;
use spangap_model::{Cause, Culprit, Legs};
use std::collections::{BTreeMap, BTreeSet};

/// Truth and verdict of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedRun {
    /// The true culprit.
    pub truth: Culprit,
    /// Other correct answers.
    pub also_right: Vec<Culprit>,
    /// For a near miss: the culprit that it resembles.
    pub looks_like: Option<Culprit>,
    /// The leg that was longer.
    pub leg: Option<Legs>,
    /// The judge's answer.
    pub answer: Answer,
    /// The judge's leg.
    pub answer_leg: Option<Legs>,
}

impl JudgedRun {
    /// Whether the verdict names the true culprit, or another correct answer. The side must match if the truth
    /// has one, and is ignored otherwise.
    pub fn is_right(&self) -> bool {
        let Answer::Culprit(named) = self.answer else { return false };
        meant(named, self.truth) || self.also_right.iter().any(|right| meant(named, *right))
    }

    /// Whether an innocent culprit was blamed: any where nothing is wrong, and in a near miss the one that it
    /// resembles.
    pub fn is_false_alarm(&self) -> bool {
        let Answer::Culprit(named) = self.answer else { return false };
        if self.is_right() || named.cause == Cause::None {
            return false;
        }
        self.truth.cause == Cause::None || self.looks_like.is_some_and(|like| meant(named, like))
    }

    /// Whether a false alarm is possible in this run.
    pub fn could_alarm(&self) -> bool {
        self.truth.cause == Cause::None || self.looks_like.is_some()
    }

    /// Whether the leg is right, if both name one: each leg of the verdict is one of those that were longer.
    pub fn leg_is_right(&self) -> Option<bool> {
        let (truth, named) = (self.leg?, self.answer_leg?);
        Some(truth.contains(named.first) && truth.contains(named.last))
    }
}

/// Whether a verdict matches this truth: the side must match if the truth has one, and is ignored otherwise.
pub(super) fn meant(named: Culprit, truth: Culprit) -> bool {
    named.cause == truth.cause && (truth.side.is_none() || named.side == truth.side)
}

/// A proportion, with its 95 % confidence interval (Wilson's).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// How many.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// `count / of`; absent if `of` is 0.
    pub share: Option<f64>,
    /// Lower end of the interval; 0 if nothing is known.
    pub low: f64,
    /// Upper end; 1 if nothing is known.
    pub high: f64,
}

/// Quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.959_963_984_540_054;

impl Share {
    /// `count` of `of`.
    pub fn new(count: u64, of: u64) -> Share {
        if of == 0 {
            return Share { count, of, share: None, low: 0.0, high: 1.0 };
        }
        let (n, share) = (of as f64, count as f64 / of as f64);
        let scale = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        // Exactly 0 and 1 at the ends, whatever the rounding.
        let low = if count == 0 { 0.0 } else { middle - half };
        let high = if count == of { 1.0 } else { middle + half };
        Share { count, of, share: Some(share), low, high }
    }

    /// `3 of 4, 75 % (30-95 %)`; `-` if nothing is known.
    pub fn in_words(&self) -> String {
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        let range = (percent(self.low), percent(self.high));
        self.share.map_or_else(
            || "-".into(),
            |share| {
                format!("{} of {}, {} % ({}-{} %)", self.count, self.of, percent(share), range.0, range.1)
            },
        )
    }
}

/// A cell of the confusion matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Runs with this truth and this verdict.
    pub runs: u64,
    /// Of these, runs whose verdict is right, including by another name.
    pub right: u64,
}

/// Confusion matrix of truths (rows) and verdicts (columns); only those that occur.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Matrix {
    /// Truths.
    pub rows: Vec<String>,
    /// Verdicts, `unknown` last.
    pub columns: Vec<String>,
    /// A row of cells for each truth.
    pub cells: Vec<Vec<Cell>>,
}

/// Scores of one culprit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CulpritScore {
    /// Which.
    pub culprit: String,
    /// Right verdicts among the runs where it was the culprit.
    pub recall: Share,
    /// Right verdicts among the runs where it was named.
    pub precision: Share,
    /// Runs where it was the culprit and the judge was undecided.
    pub unknown: u64,
}

/// All scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Share of right verdicts.
    pub right: Share,
    /// Share of `unknown` verdicts.
    pub unknown: Share,
    /// Share of right legs, among verdicts that name one where the truth has one.
    pub legs: Share,
    /// Share of false alarms, among healthy and near-miss runs.
    pub false_alarms: Share,
    /// Each culprit that was true or named.
    pub culprits: Vec<CulpritScore>,
    /// The confusion matrix.
    pub matrix: Matrix,
}

/// Adds up.
pub fn score(runs: &[JudgedRun]) -> Score {
    let sides = Sides::of(runs);
    let mut cells: BTreeMap<(Culprit, Answer), Cell> = BTreeMap::new();
    for run in runs {
        let cell = cells.entry((run.truth, sides.column(run.answer))).or_default();
        cell.runs += 1;
        cell.right += u64::from(run.is_right());
    }
    let share = |of: &dyn Fn(&JudgedRun) -> bool, is: &dyn Fn(&JudgedRun) -> bool| {
        let among = runs.iter().filter(|run| of(run));
        Share::new(among.clone().filter(|run| is(run)).count() as u64, among.count() as u64)
    };
    Score {
        right: share(&|_| true, &JudgedRun::is_right),
        unknown: share(&|_| true, &|run| run.answer == Answer::Unknown),
        legs: share(&|run| run.leg_is_right().is_some(), &|run| run.leg_is_right() == Some(true)),
        false_alarms: share(&JudgedRun::could_alarm, &JudgedRun::is_false_alarm),
        culprits: culprits(&cells),
        matrix: matrix(&cells),
    }
}

/// Causes whose side matters. A verdict's side is dropped where no truth requires it, so that equal verdicts
/// share a column.
struct Sides {
    asked: BTreeSet<Cause>,
    not_asked: BTreeSet<Cause>,
}

impl Sides {
    fn of(runs: &[JudgedRun]) -> Sides {
        let (mut asked, mut not_asked) = (BTreeSet::new(), BTreeSet::new());
        for run in runs {
            for culprit in [run.truth].iter().chain(&run.also_right).chain(&run.looks_like) {
                let to = if culprit.side.is_some() { &mut asked } else { &mut not_asked };
                to.insert(culprit.cause);
            }
        }
        Sides { asked, not_asked }
    }

    fn column(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Culprit(Culprit { cause, .. })
                if self.not_asked.contains(&cause) && !self.asked.contains(&cause) =>
            {
                Answer::Culprit(Culprit::of(cause))
            }
            answer => answer,
        }
    }
}

type Cells = BTreeMap<(Culprit, Answer), Cell>;

fn culprits(cells: &Cells) -> Vec<CulpritScore> {
    let named = cells.keys().filter_map(|(_, answer)| match answer {
        Answer::Culprit(culprit) => Some(*culprit),
        Answer::Unknown => None,
    });
    let all: BTreeSet<Culprit> = cells.keys().map(|(truth, _)| *truth).chain(named).collect();
    let sum = |is: &dyn Fn(Culprit, Answer) -> bool| {
        cells.iter().filter(|((truth, answer), _)| is(*truth, *answer)).fold(
            Cell::default(),
            |sum, (_, cell)| Cell { runs: sum.runs + cell.runs, right: sum.right + cell.right },
        )
    };
    all.into_iter()
        .map(|culprit| {
            let to_blame = sum(&|truth, _| truth == culprit);
            let blamed = sum(&|_, answer| answer == Answer::Culprit(culprit));
            CulpritScore {
                culprit: culprit.to_string(),
                recall: Share::new(to_blame.right, to_blame.runs),
                precision: Share::new(blamed.right, blamed.runs),
                unknown: sum(&|truth, answer| truth == culprit && answer == Answer::Unknown).runs,
            }
        })
        .collect()
}

fn matrix(cells: &Cells) -> Matrix {
    let rows: BTreeSet<Culprit> = cells.keys().map(|(truth, _)| *truth).collect();
    let columns: BTreeSet<Answer> = cells.keys().map(|(_, answer)| *answer).collect();
    let cell = |row: &Culprit, column: &Answer| cells.get(&(*row, *column)).copied().unwrap_or_default();
    Matrix {
        rows: rows.iter().map(ToString::to_string).collect(),
        columns: columns.iter().map(ToString::to_string).collect(),
        cells: rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect(),
    }
}

#[cfg(test)]
mod tests;
