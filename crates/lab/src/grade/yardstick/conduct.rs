//! Grades a draw: makes each run (or takes an existing one), and asks the judge in question and the naive ones,
//! with all evidence and with some removed.

use super::known::known;
use super::report::{JudgeResult, MissingStack, Outcome, Row, Shares};
use super::standing::{Known, excess_ns, stands};
use crate::LabError;
use crate::clocks::Retime;
use crate::draw::DrawnRun;
use crate::grade::ask::{Judge, JudgeError};
use crate::grade::conclusion::Conclusion;
use crate::grade::conduct::Scratch;
use crate::grade::folders::ExistingRun;
use crate::grade::take_away::TakeAway;
use crate::grade::{baselines, blind};
use crate::{folder, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Maximum number of attempts per run, until one acts.
const ATTEMPTS: u64 = 4;

/// A run to be graded.
pub enum Task {
    /// A run of a draw, still to be made.
    Draw {
        /// Its seed.
        seed: u64,
        /// Number of the run.
        number: u64,
        /// Only this attempt; `None` for as many as needed.
        attempt: Option<u64>,
    },
    /// An existing run.
    There(Box<ExistingRun>),
}

/// Settings of a graded draw.
pub struct DrawSettings<'a> {
    /// The program `spangap`.
    pub spangap: PathBuf,
    /// Folder of the journals.
    pub state: PathBuf,
    /// Who is asked.
    pub judge: Judge,
    /// Evidence to remove in additional passes.
    pub take_away: Vec<TakeAway>,
    /// Missing stacks, and why.
    pub missing: Vec<(String, String)>,
    /// Shifts recordings to the clock of their host.
    pub retime: &'a Retime<'a>,
    /// Where the folders of runs are kept, or exist already; without it, none is kept.
    pub out: Option<PathBuf>,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    /// Receives progress.
    pub tell: &'a dyn Fn(Progress<'_>),
}

/// Progress of a grading.
pub enum Progress<'a> {
    /// A run of this name begins.
    Begins(&'a str),
    /// It is over.
    Over(&'a Row),
}

/// Grades all tasks in order. Ends early if interrupted, with the results so far.
///
/// # Errors
/// The grading itself cannot continue. Runs that cannot be made, and failing judges, become rows.
pub fn conduct(
    tasks: &[Task],
    settings: &DrawSettings<'_>,
) -> Result<(Vec<Row>, Vec<MissingStack>), LabError> {
    let makes = tasks.iter().any(|task| matches!(task, Task::Draw { .. }));
    let scratch = Scratch::of(makes, &settings.state, &settings.spangap)?;
    let mut not_drawn: Vec<MissingStack> = Vec::new();
    let mut rows = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if settings.interrupted.load(Relaxed) {
            break;
        }
        let graded = match task {
            Task::There(kept) => {
                (settings.tell)(Progress::Begins(&kept.name()));
                let number = kept.truth.drawn.as_ref().map_or(place as u64 + 1, |drawn| drawn.number);
                judged(Row::new(number, kept.name()), kept, scratch.path(), settings)
            }
            Task::Draw { seed, number, attempt } => {
                drawn((*seed, *number, *attempt), scratch.path(), settings, &mut not_drawn)
            }
        };
        match graded {
            Ok(row) => {
                (settings.tell)(Progress::Over(&row));
                rows.push(row);
            }
            Err(LabError::Interrupted) => break,
            Err(error) => return Err(error),
        }
    }
    scratch.remove()?;
    Ok((rows, not_drawn))
}

/// Draws until a run acts.
fn drawn(
    (seed, number, only): (u64, u64, Option<u64>),
    scratch: &Path,
    settings: &DrawSettings<'_>,
    not_drawn: &mut Vec<MissingStack>,
) -> Result<Row, LabError> {
    let begun = Instant::now();
    let mut again = Vec::new();
    let mut row = None;
    let attempts = only.map_or(1..=ATTEMPTS, |attempt| attempt..=attempt);
    for attempt in attempts {
        let mut drawn = DrawnRun::draw(seed, number, attempt);
        replace_what_is_missing(&mut drawn, settings, not_drawn);
        let name = drawn.case()?.name();
        (settings.tell)(Progress::Begins(&name));
        let out = match &settings.out {
            Some(out) => out.join(format!("{number:04}")),
            None => scratch.join("made"),
        };
        let made = there(&out, &drawn)?.map_or_else(|| make(&drawn, &out, settings), Ok);
        let mut one = Row::new(number, name);
        one.drawn = Some(drawn);
        match made {
            Ok(kept) if kept.truth.acted => {
                one = judged(one, &kept, scratch, settings)?;
                if settings.out.is_none() {
                    one.folder = None;
                    fs::remove_dir_all(&out).map_err(LabError::file("remove", &out))?;
                }
                row = Some(one);
                break;
            }
            Ok(kept) => {
                let failed = kept.truth.proof.iter().filter(|claim| !claim.holds);
                let failed = failed
                    .map(|claim| format!("{} {}, expected {}", claim.what, claim.measured, claim.expected));
                let failed = failed.collect::<Vec<_>>().join("; ");
                fs::remove_dir_all(&out).map_err(LabError::file("remove", &out))?;
                one.outcome = Outcome::DidNotAct;
                one.error = Some(failed.clone());
                again.push(failed);
            }
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error @ LabError::Unavailable { .. }) => {
                one.outcome = Outcome::Unavailable;
                one.error = Some(error.to_string());
                row = Some(one);
                break;
            }
            Err(error) => {
                one.outcome = Outcome::Failed;
                one.error = Some(error.to_string());
                again.push(error.to_string());
            }
        }
        row = Some(one);
    }
    let mut row = row.expect("there is an attempt");
    if row.outcome != Outcome::Judged && !again.is_empty() {
        // The row itself reports the last one.
        again.pop();
    }
    row.drawn_again = again;
    row.run_s = Some(begun.elapsed().as_secs_f64());
    Ok(row)
}

/// Replaces missing stacks with tonic.
fn replace_what_is_missing(
    drawn: &mut DrawnRun,
    settings: &DrawSettings<'_>,
    not_drawn: &mut Vec<MissingStack>,
) {
    let Some(stacks) = &drawn.stacks else { return };
    let lacks = settings.missing.iter().filter(|(name, _)| *name == stacks.target || *name == stacks.client);
    let lacks: Vec<_> = lacks.collect();
    if lacks.is_empty() {
        return;
    }
    for (what, why) in lacks {
        match not_drawn.iter_mut().find(|one| one.what == *what) {
            Some(one) => one.runs += 1,
            None => not_drawn.push(MissingStack { what: what.clone(), why: why.clone(), runs: 1 }),
        }
    }
    drawn.stacks = None;
}

/// A run of the same draw that was made before.
fn there(out: &Path, drawn: &DrawnRun) -> Result<Option<ExistingRun>, LabError> {
    if !out.join(folder::TRUTH).exists() {
        return Ok(None);
    }
    let kept = ExistingRun::read(out)?;
    let of = |one: &DrawnRun| (one.seed, one.number);
    match &kept.truth.drawn {
        Some(other) if of(other) == of(drawn) => Ok(Some(kept)),
        _ => Err(LabError::Parameter(format!("{} is a run of another draw", out.display()))),
    }
}

fn make(drawn: &DrawnRun, out: &Path, settings: &DrawSettings<'_>) -> Result<ExistingRun, LabError> {
    if let Some(parent) = out.parent() {
        fs::create_dir_all(parent).map_err(LabError::file("make", parent))?;
    }
    let how = run::RunSettings {
        spangap: settings.spangap.clone(),
        out: out.to_owned(),
        state: settings.state.clone(),
        seed: drawn.run_seed(),
        clocks: drawn.clocks.clone(),
        drawn: Some(drawn.clone()),
        retime: settings.retime,
        interrupted: settings.interrupted.clone(),
        say: &|_| (),
    };
    let truth = run::run(&drawn.case()?, &how)?;
    Ok(ExistingRun { folder: out.to_owned(), truth })
}

/// Asks every judge about a run that acted.
fn judged(
    mut row: Row,
    kept: &ExistingRun,
    scratch: &Path,
    settings: &DrawSettings<'_>,
) -> Result<Row, LabError> {
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
    let with: Vec<Option<TakeAway>> =
        std::iter::once(None).chain(settings.take_away.iter().copied().map(Some)).collect();
    for taken_away in with {
        let number = row.number as usize;
        let shown = match taken_away {
            None => blind::copy(&kept.folder, scratch, number)?,
            Some(what) => what.copy(&kept.folder, scratch, number)?,
        };
        let said = said(&shown, &known, taken_away, settings);
        fs::remove_dir_all(&shown).map_err(LabError::file("remove", &shown))?;
        row.said.extend(said?);
    }
    Ok(row)
}

fn said(
    shown: &Path,
    known: &Known,
    taken_away: Option<TakeAway>,
    settings: &DrawSettings<'_>,
) -> Result<Vec<JudgeResult>, LabError> {
    let begun = Instant::now();
    let name = settings.judge.name();
    let evidence = match settings.judge.evidence(shown, &settings.interrupted) {
        Err(JudgeError::Interrupted) => return Err(LabError::Interrupted),
        gathered => gathered.map_err(|error| error.to_string()),
    };
    let mut all = Vec::new();
    match settings.judge.conclude(shown, evidence.as_ref().map_err(String::clone), &settings.interrupted) {
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

impl Row {
    fn new(number: u64, run: String) -> Row {
        Row {
            number,
            run,
            outcome: Outcome::Judged,
            drawn: None,
            truth: Vec::new(),
            excess_ns: None,
            median_ns: None,
            said: Vec::new(),
            drawn_again: Vec::new(),
            error: None,
            folder: None,
            run_s: None,
        }
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
