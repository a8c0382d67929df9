//! Grades a draw: makes each run (or takes an existing one), and asks the judge in question and the naive ones,
//! with all evidence and with some removed.

use super::judging::Judging;
use super::report::{MissingStack, Outcome, Row};
use crate::LabError;
use crate::clocks::Retime;
use crate::draw::DrawnRun;
use crate::grade::ask::Judge;
use crate::grade::conduct::Scratch;
use crate::grade::folders::ExistingRun;
use crate::grade::take_away::TakeAway;
use crate::{folder, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
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
    /// How many existing runs are judged at a time. Runs that are made have the machine to themselves.
    pub jobs: usize,
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
    let judging = Judging {
        judge: &settings.judge,
        take_away: &settings.take_away,
        interrupted: &settings.interrupted,
        scratch: scratch.path(),
    };
    let mut not_drawn: Vec<MissingStack> = Vec::new();
    let rows = match makes {
        true => one_by_one(tasks, &judging, settings, &mut not_drawn)?,
        false => side_by_side(tasks, &judging, settings)?,
    };
    scratch.remove()?;
    Ok((rows, not_drawn))
}

fn one_by_one(
    tasks: &[Task],
    judging: &Judging<'_>,
    settings: &DrawSettings<'_>,
    not_drawn: &mut Vec<MissingStack>,
) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if settings.interrupted.load(Relaxed) {
            break;
        }
        let graded = match task {
            Task::There(kept) => {
                (settings.tell)(Progress::Begins(&kept.name()));
                judging.of_existing(place, kept)
            }
            Task::Draw { seed, number, attempt } => {
                drawn((*seed, *number, *attempt), judging, settings, not_drawn)
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
    Ok(rows)
}

/// Judges existing runs, several at a time: nothing is being recorded that this could disturb.
fn side_by_side(
    tasks: &[Task],
    judging: &Judging<'_>,
    settings: &DrawSettings<'_>,
) -> Result<Vec<Row>, LabError> {
    let next = AtomicUsize::new(0);
    let (send, receive) = channel();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut failed = None;
    std::thread::scope(|scope| {
        for _ in 0..settings.jobs.clamp(1, tasks.len().max(1)) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while !judging.interrupted.load(Relaxed) {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(Task::There(kept)) = tasks.get(place) else { return };
                    // Nobody listens any more once a run could not be graded.
                    if send.send((place, judging.of_existing(place, kept))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (place, graded) in receive {
            match graded {
                Ok(row) => {
                    (settings.tell)(Progress::Begins(&row.run));
                    (settings.tell)(Progress::Over(&row));
                    rows.push((place, row));
                }
                Err(LabError::Interrupted) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
    });
    rows.sort_by_key(|(place, _)| *place);
    failed.map_or_else(|| Ok(rows.into_iter().map(|(_, row)| row).collect()), Err)
}

/// Draws until a run acts.
fn drawn(
    (seed, number, only): (u64, u64, Option<u64>),
    judging: &Judging<'_>,
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
            None => judging.scratch.join("made"),
        };
        let made = there(&out, &drawn)?.map_or_else(|| make(&drawn, &out, settings), Ok);
        let mut one = Row::new(number, name);
        one.drawn = Some(drawn);
        match made {
            Ok(kept) if kept.truth.acted => {
                one = judging.of(one, &kept, number as usize)?;
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

impl Row {
    pub(super) fn new(number: u64, run: String) -> Row {
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
