//! An experiment with the remedy on the live pair: the plan, the blocks as they end, their result, and the
//! undo. The meter orders and judges the changes; this is its client.

use super::live::{Case, pause, say};
use super::meter::{Refusal, plain};
use crate::input_line;
use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::Value;
use spangap_cases::experiment::lever::Lever;
use spangap_cases::experiment::shapes::{ArmRow, ExperimentReport, PlanReport, StartExperiment};
use spangap_cases::report::CaseReport;
use spangap_diagnose::hunt::Hunt;
use spangap_diagnose::hunt::verdict::{Effect, Experiment};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_report::wrap::wrapped;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Allowance beyond the announced time of an experiment: spans arrive late, hosts confirm, and a busy machine
/// is slow.
const GRACE: Duration = Duration::from_secs(90);
/// A meter silent for this long during an experiment is considered gone.
const LOST: Duration = Duration::from_secs(30);
/// Maximum number of connections and settings listed individually.
const SOME: usize = 4;
/// Width of the text.
const COLUMNS: usize = 100;

/// When to try the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Ask first, and say what would be changed
    Ask,
    /// Do not ask
    Auto,
    /// Never
    None,
}

/// The user's choice, and whether it was explicit.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentChoice {
    /// Mode.
    pub mode: Mode,
    /// Whether it was given explicitly: a denial is then an error.
    pub is_told: bool,
}

impl ExperimentChoice {
    /// The default is to ask, at a terminal only.
    pub fn new(told: Option<Mode>, json: bool) -> ExperimentChoice {
        let is_asked = !json && io::stdin().is_terminal() && io::stderr().is_terminal();
        let default = if is_asked { Mode::Ask } else { Mode::None };
        ExperimentChoice { mode: told.unwrap_or(default), is_told: told.is_some() }
    }
}

/// Explains why recorded files allow no experiment, if one was requested or would be possible.
pub fn none_of_files(wish: ExperimentChoice, hunt: &Hunt) {
    if wish.mode == Mode::None {
        return;
    }
    let first = hunt.culprits.first().map(|one| one.culprit);
    let lever = first.and_then(|culprit| Lever::of(culprit.cause));
    match (first, &lever) {
        (Some(culprit), None) if wish.is_told => say(&wrapped(
            &format!(
                "no experiment: nothing that spangap can change and undo while calls run would remedy {culprit}, \
                 and recorded files have no calls in flight"
            ),
            COLUMNS,
            9,
        )),
        _ if wish.is_told || lever.is_some() => say(&wrapped(
            "no experiment: recorded files have no calls in flight; `spangap hunt 'CLIENT->SERVER' --meter URL \
             --experiment ask` tries the remedy on the live pair",
            COLUMNS,
            9,
        )),
        _ => {}
    }
}

/// Tries the remedy of a case, if it has one and the user agrees. `None` if nothing was changed, for a reason
/// that has been printed.
///
/// # Errors
/// The meter denies an explicit request, goes away, or never reports the end.
pub fn of_case(case: &Case, wish: ExperimentChoice) -> anyhow::Result<Option<ExperimentReport>> {
    if wish.mode == Mode::None {
        return Ok(None);
    }
    let path = format!("/api/v1/cases/{}/experiment", case.id);
    let plan: PlanReport = match case.meter.get(&path) {
        Ok(plan) => plan,
        Err(error) => return not_planned(error, wish),
    };
    announce(&plan);
    if wish.mode == Mode::Ask && !is_agreed(case)? {
        say("nothing was changed");
        return Ok(None);
    }
    let start = StartExperiment { plan: plan.plan.clone() };
    let _started: Value = case.meter.post(&path, &start)?;
    follow(case, &plan, &path).map(Some)
}

/// Having nothing to try is a result; a denial of an explicit request is an error.
fn not_planned(error: anyhow::Error, wish: ExperimentChoice) -> anyhow::Result<Option<ExperimentReport>> {
    let Some(refusal) = error.downcast_ref::<Refusal>() else { return Err(error) };
    let why = plain(&refusal.said);
    if refusal.is_denied() && wish.is_told {
        bail!("--experiment needs a token of the role `change` in --token-file: {why}");
    }
    say(&wrapped(&format!("no experiment: {why}"), COLUMNS, 9));
    Ok(None)
}

/// Prints the exact changes.
fn announce(plan: &PlanReport) {
    say(&wrapped(&format!("experiment: {}", plain(&plan.words)), COLUMNS, 9));
    for one in plan.connections.iter().take(SOME) {
        let (local, peer) = (plain(&one.local), plain(&one.peer));
        say(&format!("  {local} to {peer}, of {} ({})", plain(&one.comm), one.pid));
    }
    for one in plan.values.iter().take(SOME) {
        say(&format!("  {}: {} to {}", plain(&one.place), plain(one.from.trim()), plain(&one.to)));
    }
    let more = plan.connections.len().saturating_sub(SOME) + plan.values.len().saturating_sub(SOME);
    if more > 0 {
        say(&format!("  and {more} more"));
    }
}

/// Waits for an answer. Ctrl-C and the end of standard input mean no.
fn is_agreed(case: &Case) -> anyhow::Result<bool> {
    eprint!("Do it? [y/N] ");
    let entered = input_line::line()?;
    loop {
        match entered.try_recv() {
            Ok(Some(line)) => return Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes")),
            Ok(None) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) if case.stop.load(Relaxed) => break,
            Err(TryRecvError::Empty) => pause(),
        }
    }
    eprintln!();
    Ok(false)
}

/// Follows the experiment and its blocks to the end. Ctrl-C ends it; then this waits for the undo.
fn follow(case: &Case, plan: &PlanReport, path: &str) -> anyhow::Result<ExperimentReport> {
    let begun = Instant::now();
    let patience = Duration::from_millis(2 * plan.takes_ms) + GRACE;
    let (mut heard, mut told, mut is_ending) = (begun, 0, false);
    loop {
        match case.meter.get::<CaseReport>(&format!("/api/v1/cases/{}", case.id)) {
            Ok(report) => {
                heard = Instant::now();
                let mut tried = report.experiments.into_iter().rev();
                let tried = tried.find(|one| one.plan.plan == plan.plan);
                let tried = tried.context("the case does not list the experiment that was begun")?;
                let over = over(&tried);
                for number in told..over {
                    let words = block(&tried, number);
                    say(&words);
                }
                told = over.max(told);
                if tried.to_unix_ms.is_some() {
                    return Ok(tried);
                }
            }
            Err(error) if heard.elapsed() > LOST => {
                return Err(error.context(
                    "the meter is gone while an experiment runs; the guard on the host undoes the change",
                ));
            }
            Err(_) => {}
        }
        let is_late = begun.elapsed() > patience;
        if (case.stop.load(Relaxed) || is_late) && !is_ending {
            is_ending = true;
            say("ending the experiment; waiting for the host to report that the change is undone");
            // It may have ended by itself; if the meter misses this request, it is sent again below.
            let _ended: anyhow::Result<Value> = case.meter.delete(path);
        }
        if begun.elapsed() > patience + LOST {
            bail!("the experiment does not end; the guard on the host undoes the change");
        }
        pause();
    }
}

/// Number of completed blocks: not all of the plan's, if it ended at its first look.
pub fn over(tried: &ExperimentReport) -> usize {
    let parts = if tried.plan.design == "halves" { 1 } else { 2 };
    let is_over = |at: usize| {
        let (row, later) = (&tried.blocks[at], &tried.blocks[at + 1..]);
        let ms = row.to_unix_ms.saturating_sub(row.from_unix_ms);
        // For blocks of time, of both arms.
        let is_whole = row.from_unix_ms > 0 && 4 * ms >= (4 * parts - 3) * tried.plan.block_ms;
        is_whole || later.iter().any(|row| row.from_unix_ms > 0)
    };
    let over = (0..tried.blocks.len()).rev().find(|at| is_over(*at));
    over.map_or(0, |at| at + 1)
}

/// A block as a line, numbered from 0.
pub fn block(tried: &ExperimentReport, number: usize) -> String {
    let Some(row) = tried.blocks.get(number) else { return String::new() };
    let connections = |number: usize| match tried.plan.design.as_str() {
        "halves" => format!("{} ", counted(number as u64, "connection")),
        _ => String::new(),
    };
    format!(
        "block {} of {}: {}with the remedy {}; {}without {}",
        number + 1,
        tried.blocks.len(),
        connections(row.treated_connections),
        arm(&row.treated),
        connections(row.control_connections),
        arm(&row.control)
    )
}

/// Client durations of an arm, in words.
fn arm(arm: &ArmRow) -> String {
    match arm.calls {
        0 => "no call yet".into(),
        calls => format!(
            "mean {}, p50 {}, p99 {} in {}",
            format_ns(arm.mean_ns),
            format_ns(arm.p50_ns),
            format_ns(arm.p99_ns),
            counted(calls, "call")
        ),
    }
}

/// The result in lines.
pub fn outcome(tried: &ExperimentReport) -> Vec<String> {
    let lacks = tried.lacks.iter().map(|lack| format!("missing: {lack}"));
    let chance = tried.probability.filter(|_| tried.outcome != "undecided").map(|chance| {
        format!(" By chance alone it would be as large with a probability of {:.1} %.", chance * 100.0)
    });
    let undone = if tried.undone {
        "The host reports that every change is undone"
    } else {
        "NOT every undo was confirmed"
    };
    let figures = [
        format!("With the remedy:    {}", arm(&tried.treated)),
        format!("Without the remedy: {}", arm(&tried.control)),
        format!("{}{}", tried.words, chance.unwrap_or_default()),
        format!("{undone}."),
    ];
    lacks.chain(figures).map(|line| plain(&line)).collect()
}

/// The experiment in the form of a verdict's document.
pub fn documented(tried: &ExperimentReport) -> Experiment {
    Experiment {
        lever: tried.lever.clone(),
        predicted_ns: tried.predicted_ns,
        effect_ns: tried.effect_ns.map(|effect| Effect {
            low: effect.low,
            mid: effect.mid,
            high: effect.high,
        }),
        outcome: tried.outcome.clone(),
        probability: tried.probability,
        undone: tried.undone,
        words: tried.words.clone(),
    }
}
