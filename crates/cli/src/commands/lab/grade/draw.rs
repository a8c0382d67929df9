//! `spangap lab grade --draw`, and the grading of drawn runs from folders.

use super::{GradeArgs, ProgressDisplay, YesNo};
use crate::Outcome;
use crate::commands::lab::clocks;
use crate::output::{print_json, print_text};
use crate::signals::{self, ASKED_OR_LEFT};
use crate::values::wrong_usage;
use anyhow::Context;
use spangap_bench::contract::{Stack, TargetStack};
use spangap_bench::programs::Programs;
use spangap_lab::LabError;
use spangap_lab::draw::distribution::STACKS;
use spangap_lab::grade::ask::{Judge, JudgeKind};
use spangap_lab::grade::folders;
use spangap_lab::grade::yardstick::conduct::{DrawSettings, Progress, Task};
use spangap_lab::grade::yardstick::report::{DrawReport, counts, scores};
use spangap_lab::grade::yardstick::{conduct, text};
use spangap_machine::facts::uptime;
use spangap_machine::read_here;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The tasks of a draw; `None` if the arguments do not ask for one.
pub fn tasks(args: &GradeArgs) -> anyhow::Result<Option<Vec<Task>>> {
    if let Some(runs) = args.draw {
        let task = |number, attempt| Task::Draw { seed: args.seed, number, attempt };
        let tasks = match args.only {
            Some(only) if only.number > runs => {
                let why = format!("--only {}: --draw {runs} has no such run", only.number);
                return Err(wrong_usage(why).into());
            }
            Some(only) => vec![task(only.number, only.attempt)],
            None => (1..=runs).map(|number| task(number, None)).collect(),
        };
        return Ok(Some(tasks));
    }
    let Some(dir) = &args.runs else {
        if args.take_away.is_empty() {
            return Ok(None);
        }
        return Err(wrong_usage("--take-away: expected --draw, or --runs DIR with folders of runs").into());
    };
    let found = folders::find(&std::path::absolute(dir).context("no such folder")?)?;
    let drawn = found.iter().all(|kept| kept.truth.drawn.is_some());
    if !drawn && args.take_away.is_empty() {
        return Ok(None);
    }
    if !args.scenarios.is_empty() || args.near_misses == YesNo::No || args.html.is_some() {
        let why = "folders of a draw are graded whole, as text or --json: without SCENARIO, --near-misses and --html";
        return Err(wrong_usage(why).into());
    }
    Ok(Some(found.into_iter().map(|kept| Task::There(Box::new(kept))).collect()))
}

/// Grades the tasks.
pub fn run(args: GradeArgs, tasks: &[Task]) -> anyhow::Result<Outcome> {
    let spangap = std::env::current_exe().context("cannot tell where this program is")?;
    let out = args.keep.as_deref().map(std::path::absolute).transpose().context("no such folder")?;
    let who = args.judge.as_deref().map_or(JudgeKind::Hunt, JudgeKind::of);
    let judge = Judge { who, limit: args.judge_limit.std() };
    let interrupted = signals::flag(ASKED_OR_LEFT)?;
    let (shown, name) = (ProgressDisplay::new(tasks.len()), judge.name());
    let before = load();
    let settings = DrawSettings {
        spangap,
        state: args.state.state,
        judge,
        take_away: args.take_away,
        jobs: args.jobs.map_or_else(cpus, NonZeroUsize::get),
        missing: missing().context("cannot find the programs of the stacks")?,
        retime: &clocks::retime,
        out,
        interrupted,
        tell: &|told| match told {
            Progress::Begins(name) => shown.begins(name),
            Progress::Over(row) => shown.over(text::progress(row)),
        },
    };
    let (rows, not_drawn) = conduct(tasks, &settings).map_err(|error| match error {
        LabError::Parameter(why) => wrong_usage(why).into(),
        error => anyhow::Error::from(error),
    })?;
    shown.bar.finish_and_clear();
    let report = DrawReport {
        judge: name,
        seed: args.draw.map(|_| args.seed),
        interrupted: rows.len() < tasks.len(),
        load: [before, load()],
        runs: counts(tasks.len(), &rows),
        not_drawn,
        scores: scores(&rows),
        rows,
    };
    if args.json { print_json(&report) } else { print_text(&text::text(&report)) }
}

/// Stacks of the distribution whose programs are missing, and why.
fn missing() -> anyhow::Result<Vec<(String, String)>> {
    let programs = Programs::of_this_binary()?;
    let mut missing = BTreeMap::new();
    for (target, client, _) in STACKS {
        let target_is = target.parse::<TargetStack>().map_err(anyhow::Error::msg)?;
        let client_is = client.parse::<Stack>().map_err(anyhow::Error::msg)?;
        if let Err(why) = programs.target(target_is) {
            missing.insert((*target).to_owned(), why.to_string());
        }
        if let Err(why) = programs.client(client_is) {
            missing.insert((*client).to_owned(), why.to_string());
        }
    }
    Ok(missing.into_iter().collect())
}

/// CPUs that this process may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Load averages of 1, 5 and 15 minutes; empty if the machine does not report them.
fn load() -> Vec<f64> {
    read_here(uptime::LOADAVG, uptime::load).map_or_else(|_| Vec::new(), |load| load.averages.to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::DrawnNumber;
    use super::*;

    #[test]
    fn every_stack_of_the_distribution_has_a_name_that_programs_have() {
        missing().expect("they are stacks");
    }

    #[test]
    fn a_run_and_an_attempt_of_it() {
        assert_eq!("17".parse(), Ok(DrawnNumber { number: 17, attempt: None }));
        assert_eq!("17.2".parse(), Ok(DrawnNumber { number: 17, attempt: Some(2) }));
        for wrong in ["", "0", "1.", "1.0", "x", "1.2.3", "-1"] {
            assert!(wrong.parse::<DrawnNumber>().is_err(), "{wrong}");
        }
    }
}
