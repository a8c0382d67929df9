//! Grades one run after the other: makes it (or takes an existing one), asks the judge, records the verdict.

use super::ask::{Judge, JudgeError};
use super::blind;
use super::folders::ExistingRun;
use super::plan::PlannedRun;
use super::report::{Outcome, Row};
use crate::LabError;
use crate::clocks::Retime;
use crate::run;
use crate::undo::{CreatedObject, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// One run to be graded.
pub enum Task {
    /// A run still to be made.
    Make(PlannedRun),
    /// An existing run.
    There(Box<ExistingRun>),
}

impl Task {
    /// Its name, as `spangap lab run` accepts it.
    ///
    /// # Errors
    /// The scenario rejects its settings.
    pub fn name(&self) -> Result<String, LabError> {
        match self {
            Task::Make(planned) => planned.case().map(|case| case.name()),
            Task::There(kept) => Ok(kept.name()),
        }
    }
}

/// Settings of a grading.
pub struct GradingSettings<'a> {
    /// The program `spangap`.
    pub spangap: PathBuf,
    /// Folder of the journals.
    pub state: PathBuf,
    /// The judge.
    pub judge: Judge,
    /// Whether the judge sees only the evidence, under opaque names.
    pub blind: bool,
    /// Shifts recordings to the clock of their host.
    pub retime: &'a Retime<'a>,
    /// Where the folders of runs are kept; without it, none is kept.
    pub keep: Option<PathBuf>,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    /// Receives progress.
    pub tell: &'a dyn Fn(Progress<'_>),
}

/// Progress of a grading.
pub enum Progress<'a> {
    /// The run with this name starts.
    Begins(&'a str),
    /// It has ended.
    Over(&'a Row),
}

/// Grades all tasks in order. Ends early if interrupted, with the results so far.
///
/// # Errors
/// The grading itself cannot continue. Runs that cannot be made, and failing judges, become rows.
pub fn conduct(tasks: &[Task], settings: &GradingSettings<'_>) -> Result<Vec<Row>, LabError> {
    let scratch = Scratch::make(tasks, settings)?;
    let mut rows = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if settings.interrupted.load(Relaxed) {
            break;
        }
        (settings.tell)(Progress::Begins(&task.name()?));
        match one(task, place + 1, &scratch.path, settings) {
            Ok(row) => {
                (settings.tell)(Progress::Over(&row));
                rows.push(row);
            }
            Err(LabError::Interrupted) => break,
            Err(error) => return Err(error),
        }
    }
    scratch.remove()?;
    Ok(rows)
}

fn one(task: &Task, number: usize, scratch: &Path, settings: &GradingSettings<'_>) -> Result<Row, LabError> {
    let kept = match task {
        Task::There(kept) => ExistingRun::clone(kept),
        Task::Make(planned) => {
            let begun = Instant::now();
            let (name, out) = (planned.case()?.name(), place_for(planned, scratch, settings)?);
            match make(planned, &out, settings) {
                Ok(kept) => {
                    let mut row = judge(&kept, number, scratch, settings)?;
                    row.repeat = Some(planned.repeat);
                    row.run_s = Some(begun.elapsed().as_secs_f64() - row.judge_s.unwrap_or(0.0));
                    if settings.keep.is_none() {
                        row.folder = None;
                        fs::remove_dir_all(&out).map_err(LabError::file("remove", &out))?;
                    }
                    return Ok(row);
                }
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => {
                    let outcome = match error {
                        LabError::Unavailable { .. } => Outcome::Unavailable,
                        _ => Outcome::Failed,
                    };
                    let mut row =
                        Row::new(name, planned.scenario.name, planned.near_miss, planned.seed, outcome);
                    row.repeat = Some(planned.repeat);
                    row.error = Some(error.to_string());
                    return Ok(row);
                }
            }
        }
    };
    judge(&kept, number, scratch, settings)
}

/// Folder of a run. Runs that are not kept get an opaque name.
fn place_for(
    planned: &PlannedRun,
    scratch: &Path,
    settings: &GradingSettings<'_>,
) -> Result<PathBuf, LabError> {
    let Some(keep) = &settings.keep else { return Ok(scratch.join("made")) };
    fs::create_dir_all(keep).map_err(LabError::file("make", keep))?;
    let name = planned.case()?.name();
    let mut numbered = (planned.repeat..).map(|number| keep.join(format!("{name}-{number}")));
    Ok(numbered.find(|path| !path.exists()).expect("numbers do not end"))
}

fn make(planned: &PlannedRun, out: &Path, settings: &GradingSettings<'_>) -> Result<ExistingRun, LabError> {
    let case = planned.case()?;
    let settings = run::RunSettings {
        spangap: settings.spangap.clone(),
        out: out.to_owned(),
        state: settings.state.clone(),
        seed: planned.seed,
        clocks: Vec::new(),
        drawn: None,
        retime: settings.retime,
        interrupted: settings.interrupted.clone(),
        say: &|_| (),
    };
    let truth = run::run(&case, &settings)?;
    Ok(ExistingRun { folder: out.to_owned(), truth })
}

fn judge(
    kept: &ExistingRun,
    number: usize,
    scratch: &Path,
    settings: &GradingSettings<'_>,
) -> Result<Row, LabError> {
    let mut row = Row::of(kept);
    if !kept.truth.acted {
        row.outcome = Outcome::DidNotAct;
        let failed = kept.truth.proof.iter().filter(|claim| !claim.holds);
        let failed: Vec<String> = failed
            .map(|claim| format!("{} {}, expected {}", claim.what, claim.measured, claim.expected))
            .collect();
        row.error = Some(failed.join("; "));
        return Ok(row);
    }
    let shown = match settings.blind {
        true => blind::show(&kept.folder, scratch, number, blind::Means::Copy)?,
        false => kept.folder.clone(),
    };
    let begun = Instant::now();
    let asked = settings.judge.ask(&shown, &settings.interrupted);
    row.judge_s = Some(begun.elapsed().as_secs_f64());
    if settings.blind {
        row.judged_as = Some(blind::name(number));
        fs::remove_dir_all(&shown).map_err(LabError::file("remove", &shown))?;
    }
    match asked {
        Ok(verdict) => row.judged(kept.judged(Some(&verdict))?, verdict.why),
        Err(JudgeError::Interrupted) => return Err(LabError::Interrupted),
        Err(error) => {
            row.outcome = match error {
                JudgeError::TimedOut(_) => Outcome::JudgeTimedOut,
                _ => Outcome::JudgeFailed,
            };
            // The reader of the error looks for the folder that the judge saw.
            row.error = Some(format!("{}: {error}", shown.display()));
        }
    }
    Ok(row)
}

/// Temporary place of runs. Recorded in a journal like a run itself, so that `spangap lab clean` finds the
/// remains of a killed grading; existing folders can also be graded by a user who may not write a journal.
pub(super) struct Scratch {
    path: PathBuf,
    undo: Option<Undo>,
}

impl Scratch {
    fn make(tasks: &[Task], settings: &GradingSettings<'_>) -> Result<Scratch, LabError> {
        let makes = tasks.iter().any(|task| matches!(task, Task::Make(_)));
        Scratch::of(makes, &settings.state, &settings.spangap)
    }

    /// A place for runs that are made, or that exist.
    pub(super) fn of(makes: bool, state: &Path, spangap: &Path) -> Result<Scratch, LabError> {
        let mut undo = match Undo::kept(state, spangap) {
            Ok(undo) => Some(undo),
            Err(error) if makes => return Err(error),
            Err(_) => None,
        };
        let id =
            undo.as_ref().map_or_else(|| format!("{:016x}", fastrand::u64(..)), |undo| undo.id().to_owned());
        let path = std::env::temp_dir().join(format!("lab-{id}"));
        if let Some(undo) = &mut undo {
            undo.about_to_make(CreatedObject::Folder { path: path.clone() })?;
        }
        fs::create_dir(&path).map_err(LabError::file("make", &path))?;
        Ok(Scratch { path, undo })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn remove(mut self) -> Result<(), LabError> {
        match self.undo.take() {
            Some(undo) => undo.everything(),
            None => fs::remove_dir_all(&self.path).map_err(LabError::file("remove", &self.path)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a journal undoes, or was removed, no longer exists.
        if self.undo.is_none() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
