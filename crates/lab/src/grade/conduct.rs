//! One run after the other: made (or there already), shown to the judge, its verdict noted.

use super::ask::{Judge, JudgeError};
use super::blind;
use super::folders::Kept;
use super::plan::Planned;
use super::report::{Outcome, Row};
use crate::LabError;
use crate::clocks::Retime;
use crate::run;
use crate::undo::{Made, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// One run to be graded.
pub enum Task {
    /// Still to be made.
    Make(Planned),
    /// There already.
    There(Box<Kept>),
}

impl Task {
    /// What it is, as `spangap lab run` takes it.
    ///
    /// # Errors
    /// When its scenario does not take its settings.
    pub fn name(&self) -> Result<String, LabError> {
        match self {
            Task::Make(planned) => planned.case().map(|case| case.name()),
            Task::There(kept) => Ok(kept.name()),
        }
    }
}

/// How runs are graded.
pub struct Settings<'a> {
    /// The program `spangap`.
    pub spangap: PathBuf,
    /// Where journals are.
    pub state: PathBuf,
    /// Who is asked.
    pub judge: Judge,
    /// Whether the judge sees the evidence alone, under names that say nothing.
    pub blind: bool,
    /// How what was recorded gets the clock of its host.
    pub retime: &'a Retime<'a>,
    /// Where the folders of runs stay; without it, none stays.
    pub keep: Option<PathBuf>,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    /// Told what happens.
    pub tell: &'a dyn Fn(Told<'_>),
}

/// What happens.
pub enum Told<'a> {
    /// The run of this name begins.
    Begins(&'a str),
    /// It is over.
    Over(&'a Row),
}

/// Grades all of them in this order. Ends early when interrupted: what was graded until then is the result.
///
/// # Errors
/// When the grading itself cannot go on. Runs that cannot be made, and judges that fail, are rows.
pub fn conduct(tasks: &[Task], settings: &Settings<'_>) -> Result<Vec<Row>, LabError> {
    let scratch = Scratch::make(tasks, settings)?;
    let mut rows = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if settings.interrupted.load(Relaxed) {
            break;
        }
        (settings.tell)(Told::Begins(&task.name()?));
        match one(task, place + 1, &scratch.path, settings) {
            Ok(row) => {
                (settings.tell)(Told::Over(&row));
                rows.push(row);
            }
            Err(LabError::Interrupted) => break,
            Err(error) => return Err(error),
        }
    }
    scratch.remove()?;
    Ok(rows)
}

fn one(task: &Task, number: usize, scratch: &Path, settings: &Settings<'_>) -> Result<Row, LabError> {
    let kept = match task {
        Task::There(kept) => Kept::clone(kept),
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

/// Where a run's folder is to be. Without a place to stay it has a name that says nothing.
fn place_for(planned: &Planned, scratch: &Path, settings: &Settings<'_>) -> Result<PathBuf, LabError> {
    let Some(keep) = &settings.keep else { return Ok(scratch.join("made")) };
    fs::create_dir_all(keep).map_err(LabError::file("make", keep))?;
    let name = planned.case()?.name();
    let mut numbered = (planned.repeat..).map(|number| keep.join(format!("{name}-{number}")));
    Ok(numbered.find(|path| !path.exists()).expect("numbers do not end"))
}

fn make(planned: &Planned, out: &Path, settings: &Settings<'_>) -> Result<Kept, LabError> {
    let case = planned.case()?;
    let settings = run::Settings {
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
    Ok(Kept { folder: out.to_owned(), truth })
}

fn judge(kept: &Kept, number: usize, scratch: &Path, settings: &Settings<'_>) -> Result<Row, LabError> {
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
        true => blind::copy(&kept.folder, scratch, number)?,
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
            // Who reads of it looks for the folder that the judge saw.
            row.error = Some(format!("{}: {error}", shown.display()));
        }
    }
    Ok(row)
}

/// Where runs are while they are needed. In a journal like a run itself, so that `spangap lab clean` finds what a kill
/// leaves; folders that are there can also be graded by somebody who may not write one.
pub(super) struct Scratch {
    path: PathBuf,
    undo: Option<Undo>,
}

impl Scratch {
    fn make(tasks: &[Task], settings: &Settings<'_>) -> Result<Scratch, LabError> {
        let makes = tasks.iter().any(|task| matches!(task, Task::Make(_)));
        Scratch::of(makes, &settings.state, &settings.spangap)
    }

    /// One for runs that are made, or that are there.
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
            undo.about_to_make(Made::Folder { path: path.clone() })?;
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
        // What is undone from a journal, or was removed, is not there any more.
        if self.undo.is_none() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
