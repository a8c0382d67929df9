//! Asks every judge about one run, with all evidence and with some removed.

use super::known::known;
use super::report::{JudgeResult, Outcome, Row, Shares};
use super::standing::{Known, excess_ns, stands};
use crate::LabError;
use crate::grade::ask::{Judge, JudgeError, JudgeKind};
use crate::grade::baselines;
use crate::grade::blind::{self, Means};
use crate::grade::conclusion::Conclusion;
use crate::grade::folders::ExistingRun;
use crate::grade::take_away::TakeAway;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Who is asked about runs, and how. Several threads may ask at once.
#[derive(Clone, Copy)]
pub(super) struct Judging<'a> {
    /// Who is asked.
    pub judge: &'a Judge,
    /// Evidence to remove in additional passes.
    pub take_away: &'a [TakeAway],
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// Temporary place.
    pub scratch: &'a Path,
}

impl Judging<'_> {
    /// Asks every judge about an existing run, the `place`th of all.
    pub fn of_existing(&self, place: usize, kept: &ExistingRun) -> Result<Row, LabError> {
        let number = kept.truth.drawn.as_ref().map_or(place as u64 + 1, |drawn| drawn.number);
        self.of(Row::new(number, kept.name()), kept, place + 1)
    }

    /// Asks every judge about a run, if it acted. The judge sees it under this number.
    pub fn of(&self, mut row: Row, kept: &ExistingRun, shown_as: usize) -> Result<Row, LabError> {
        row.folder = Some(kept.folder.clone());
        if let Some(drawn) = &kept.truth.drawn {
            row.drawn = Some(drawn.clone());
        }
        if !kept.truth.acted {
            row.outcome = Outcome::DidNotAct;
            return Ok(row);
        }
        let known = known(kept)?;
        row.truth = known.faults.iter().map(|fault| fault.culprit.to_string()).collect();
        row.excess_ns = excess_ns(&known);
        let mut took: Vec<u64> = known.calls.iter().map(|(_, ns)| *ns).collect();
        took.sort_unstable();
        row.median_ns = took.get(took.len() / 2).copied();
        // A command may write where it is shown something; the judge of this process only reads.
        let means = if self.judge.who == JudgeKind::Hunt { Means::Link } else { Means::Copy };
        let with: Vec<Option<TakeAway>> =
            std::iter::once(None).chain(self.take_away.iter().copied().map(Some)).collect();
        for taken_away in with {
            let shown = match taken_away {
                None => blind::show(&kept.folder, self.scratch, shown_as, means)?,
                Some(what) => what.show(&kept.folder, self.scratch, shown_as, means)?,
            };
            let said = self.said(&shown, &known, taken_away);
            fs::remove_dir_all(&shown).map_err(LabError::file("remove", &shown))?;
            row.said.extend(said?);
        }
        Ok(row)
    }

    fn said(
        &self,
        shown: &Path,
        known: &Known,
        taken_away: Option<TakeAway>,
    ) -> Result<Vec<JudgeResult>, LabError> {
        let begun = Instant::now();
        let name = self.judge.name();
        let evidence = match self.judge.evidence(shown, self.interrupted) {
            Err(JudgeError::Interrupted) => return Err(LabError::Interrupted),
            gathered => gathered.map_err(|error| error.to_string()),
        };
        let mut all = Vec::new();
        match self.judge.conclude(shown, evidence.as_ref().map_err(String::clone), self.interrupted) {
            Ok(conclusion) => {
                let mut said = JudgeResult::new(name, taken_away, &conclusion, known);
                said.judge_s = Some(begun.elapsed().as_secs_f64());
                all.push(said);
            }
            Err(JudgeError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => all.push(JudgeResult::failed(name, taken_away, error.to_string())),
        }
        if taken_away.is_none() {
            match &evidence {
                Ok((evidence, _)) => {
                    for (name, conclusion) in baselines::NAMES.iter().zip(baselines::conclude(evidence)) {
                        all.push(JudgeResult::new((*name).to_owned(), None, &conclusion, known));
                    }
                }
                Err(error) => all.extend(
                    baselines::NAMES.map(|name| JudgeResult::failed(name.to_owned(), None, error.clone())),
                ),
            }
        }
        Ok(all)
    }
}

impl JudgeResult {
    fn new(
        judge: String,
        taken_away: Option<TakeAway>,
        conclusion: &Conclusion,
        known: &Known,
    ) -> JudgeResult {
        let stands = stands(known, conclusion);
        JudgeResult {
            judge,
            taken_away: taken_away.map(TakeAway::name),
            verdict: Some(conclusion.words()),
            standing: Some(stands.standing),
            grounded: stands.grounded,
            innocents: stands.innocents.iter().map(ToString::to_string).collect(),
            share: stands.share.map(|(interval, constructed)| Shares {
                constructed,
                low: interval.low,
                high: interval.high,
            }),
            why: conclusion.why.clone(),
            error: None,
            judge_s: None,
            stands: Some(stands),
        }
    }

    fn failed(judge: String, taken_away: Option<TakeAway>, error: String) -> JudgeResult {
        JudgeResult {
            judge,
            taken_away: taken_away.map(TakeAway::name),
            verdict: None,
            standing: None,
            grounded: None,
            innocents: Vec::new(),
            share: None,
            why: None,
            error: Some(error),
            judge_s: None,
            stands: None,
        }
    }
}
