//! `spangap lab grade`: a judge's verdicts on runs against the truth.

use super::{StateArgs, clocks};
use crate::Outcome;
use crate::output::{print_json, print_text};
use crate::report_page::Report;
use crate::signals::{self, ASKED_OR_LEFT};
use crate::values::{Duration, wrong_usage};
use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use spangap_lab::grade::ask::{Judge, JudgeKind};
use spangap_lab::grade::conduct::{GradingSettings, Progress, Task};
use spangap_lab::grade::report::{GradeReport, Setting, page, table};
use spangap_lab::grade::take_away::TakeAway;
use spangap_lab::grade::{conduct, folders, plan};
use spangap_lab::scenario::Scenario;
use spangap_lab::{LabError, scenarios};
use std::fmt;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time;

mod draw;

const EXAMPLES: &str = "\
Examples:
  spangap lab grade --blind
      every scenario and its near miss once, judged by spangap itself
  spangap lab grade nagle-client rto --repeats 20 --keep runs --html grade.html
      two scenarios, 20 times each; the folders are kept, and the page links to them
  spangap lab grade --draw 60 --seed 7 --out drawn
      60 runs drawn from the declared distribution, judged by `spangap hunt` and, for comparison, two baseline judges
  spangap lab grade --runs drawn --take-away hosts --take-away spans
      the same runs again, also without recordings of hosts and without spans
  spangap lab grade --runs runs --judge ./mine.sh
      another judge on the same folders, without new runs: `./mine.sh FOLDER` prints
      {\"culprit\": CAUSE, \"none\" or \"unknown\", \"side\": \"client\" or \"server\", \"leg\": LEG, \"why\": TEXT}
      (only the culprit is required; `spangap lab list --json` has the names)";

/// Inject faults, ask a judge for the culprit, and report how often it is right
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GradeArgs {
    /// Scenarios, each with its near miss, or near misses by their names [default: all]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,
    /// `hunt` (what `spangap hunt` says), or a command that gets a run's folder as its last word and prints a verdict
    /// [default: hunt]
    #[arg(long, value_name = "CMD")]
    judge: Option<String>,
    /// Draw N runs from the declared distribution: fault, strength, rate, sizes, stacks, clocks, noise, 0 to 2 faults
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=9_999),
          conflicts_with_all = ["scenarios", "repeats", "set", "runs", "near_misses", "html", "blind"])]
    draw: Option<u64>,
    /// Only this run of the draw, or only this ATTEMPT of it
    #[arg(long, value_name = "NUMBER[.ATTEMPT]", requires = "draw")]
    only: Option<DrawnNumber>,
    /// Also judge drawn runs without this evidence: hosts, spans, client, server, snap, spans-10%, before
    #[arg(long, value_name = "WHAT")]
    take_away: Vec<TakeAway>,
    /// How many existing drawn runs are judged at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", requires = "runs")]
    jobs: Option<NonZeroUsize>,
    /// How long the judge may take for a run
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    judge_limit: Duration,
    /// Show the judge only the evidence, under opaque names
    #[arg(long)]
    blind: bool,
    /// Grade the folders in DIR, left there by `lab run` or `--keep`, instead of making runs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["repeats", "keep", "set"])]
    runs: Option<PathBuf>,
    /// Keep the folders of the runs in DIR. A draw does not repeat runs whose folders are already there
    #[arg(long, value_name = "DIR", visible_alias = "out")]
    keep: Option<PathBuf>,
    /// A parameter of all these scenarios
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seed of the order, and of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Whether to grade the near misses of the scenarios, too
    #[arg(long, value_enum, default_value_t = YesNo::Yes)]
    near_misses: YesNo,
    #[command(flatten)]
    state: StateArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A run of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DrawnNumber {
    number: u64,
    attempt: Option<u64>,
}

impl FromStr for DrawnNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let (first, attempt) = text.split_once('.').map_or((text, None), |(one, two)| (one, Some(two)));
        let only = match (number(first), attempt.map(number)) {
            (Some(number), None) => Some(DrawnNumber { number, attempt: None }),
            (Some(number), Some(Some(attempt))) => Some(DrawnNumber { number, attempt: Some(attempt) }),
            _ => None,
        };
        only.ok_or_else(|| {
            "expected the number of a run, from 1, such as 17, or 17.2 for its second attempt".into()
        })
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum YesNo {
    Yes,
    No,
}

/// Grades.
pub fn run(args: GradeArgs) -> anyhow::Result<Outcome> {
    if let Some(tasks) = draw::tasks(&args)? {
        return draw::run(args, &tasks);
    }
    let chosen = chosen(&args)?;
    let tasks = tasks(&args, &chosen)?;
    let spangap = std::env::current_exe().context("cannot tell where this program is")?;
    let keep = args.keep.as_deref().map(std::path::absolute).transpose().context("no such folder")?;
    let limit = args.judge_limit.std();
    let who = args.judge.as_deref().map_or(JudgeKind::Hunt, JudgeKind::of);
    let judge = Judge { who, limit };
    let interrupted = signals::flag(ASKED_OR_LEFT)?;
    let shown = ProgressDisplay::new(tasks.len());
    let mut setting = Setting {
        judge: judge.name(),
        blind: args.blind,
        seed: args.seed,
        repeats: args.runs.is_none().then_some(args.repeats),
        interrupted: false,
    };
    let settings = GradingSettings {
        spangap,
        state: args.state.state,
        judge,
        blind: args.blind,
        retime: &clocks::retime,
        keep,
        interrupted,
        tell: &|told| shown.tell(&told),
    };
    let rows = conduct(&tasks, &settings)?;
    shown.bar.finish_and_clear();
    setting.interrupted = rows.len() < tasks.len();
    let report = GradeReport::new(setting, tasks.len(), rows);
    if let Some(file) = &args.html {
        let file = std::path::absolute(file).context("no such folder")?;
        let links = page::links(&report, file.parent().unwrap_or(Path::new("/")));
        Report::Grade { title: page::title(&report), links, report: &report }.write(&file)?;
    }
    if args.json { print_json(&report) } else { print_text(&table::text(&report)) }
}

/// Scenarios and near misses, by name.
fn chosen(args: &GradeArgs) -> anyhow::Result<Vec<(&'static Scenario, bool)>> {
    let near_misses = args.near_misses == YesNo::Yes;
    let both = |scenario| [(scenario, false), (scenario, true)];
    let mut chosen: Vec<(&'static Scenario, bool)> = Vec::new();
    for name in &args.scenarios {
        match scenarios::find(name) {
            Some((scenario, false)) => chosen.extend(both(scenario)),
            Some((scenario, true)) if near_misses => chosen.push((scenario, true)),
            Some((_, true)) => {
                return Err(wrong_usage(format!("{name} is a near miss, and --near-misses is no")).into());
            }
            None => {
                let why = format!("there is no scenario {name}; `spangap lab list` has them");
                return Err(wrong_usage(why).into());
            }
        }
    }
    if args.scenarios.is_empty() {
        chosen = scenarios::ALL.iter().copied().flat_map(both).collect();
    }
    chosen.retain(|(_, near_miss)| near_misses || !near_miss);
    // A scenario named twice is graded once.
    let mut seen = std::collections::BTreeSet::new();
    chosen.retain(|(scenario, near_miss)| seen.insert((scenario.name, *near_miss)));
    Ok(chosen)
}

fn tasks(args: &GradeArgs, chosen: &[(&'static Scenario, bool)]) -> anyhow::Result<Vec<Task>> {
    let usage = |error| match error {
        LabError::Parameter(why) => wrong_usage(why).into(),
        error => anyhow::Error::from(error),
    };
    let Some(dir) = &args.runs else {
        let planned = plan::plan(chosen, args.repeats, args.seed, &args.set).map_err(usage)?;
        return Ok(planned.into_iter().map(Task::Make).collect());
    };
    let dir = std::path::absolute(dir).context("no such folder")?;
    let mut found = folders::find(&dir)?;
    // Folders may contain scenarios that this version does not know.
    found.retain(|kept| {
        let named = chosen.iter().any(|(scenario, near_miss)| {
            scenario.name == kept.truth.scenario && *near_miss == kept.truth.near_miss
        });
        named || args.scenarios.is_empty() && (args.near_misses == YesNo::Yes || !kept.truth.near_miss)
    });
    plan::shuffle(&mut found, args.seed);
    Ok(found.into_iter().map(|kept| Task::There(Box::new(kept))).collect())
}

/// Columns taken by the longest run name and the bar next to it.
const WIDE: u16 = 70;

fn columns() -> u16 {
    rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| size.ws_col)
}

/// `, 12s to go`: available once the first run has finished.
fn left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {:#} to go", HumanDuration(state.eta()));
    }
}

/// Progress on a terminal; otherwise a line per run.
struct ProgressDisplay {
    bar: ProgressBar,
}

impl ProgressDisplay {
    fn new(runs: usize) -> ProgressDisplay {
        let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::hidden());
        if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template(match columns() {
                0..WIDE => "{pos}/{len} {wide_msg} {elapsed}{left}",
                _ => "{pos}/{len} {msg} {wide_bar} {elapsed}{left}",
            });
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.with_key("left", left));
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(time::Duration::from_millis(250));
        }
        ProgressDisplay { bar }
    }

    fn tell(&self, told: &Progress<'_>) {
        match told {
            Progress::Begins(name) => self.begins(name),
            Progress::Over(row) => self.over(table::line(row)),
        }
    }

    fn begins(&self, name: &str) {
        self.bar.set_message(name.to_owned());
    }

    fn over(&self, line: String) {
        self.bar.inc(1);
        match self.bar.is_hidden() {
            true => eprintln!("{}/{} {line}", self.bar.position(), self.bar.length().unwrap_or(0)),
            false => self.bar.println(line),
        }
    }
}
