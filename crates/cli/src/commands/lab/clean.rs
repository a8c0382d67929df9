//! `spangap lab clean`: removes what a killed run left.

use super::StateArgs;
use crate::Outcome;
use crate::output::{print_json, print_text};
use clap::Args;
use spangap_lab::undo;

const EXAMPLES: &str = "\
Examples:
  spangap lab clean
      after a run was killed: its namespaces, processes, control groups and half a folder go; runs that still go on stay";

/// Remove what a killed run left
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CleanArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print what was removed as one JSON document
    #[arg(long)]
    json: bool,
}

/// Cleans.
pub fn run(args: CleanArgs) -> anyhow::Result<Outcome> {
    let cleaned = undo::clean(&args.state.state)?;
    if args.json {
        return print_json(&cleaned);
    }
    let undo::Cleaned { runs, going_on, processes, namespaces, cgroups, folders } = cleaned;
    let mut text = match runs {
        0 => "nothing was left\n".to_owned(),
        runs => format!(
            "runs that were killed: {runs}; removed: processes {processes}, namespaces {namespaces}, control groups {cgroups}, folders {folders}\n"
        ),
    };
    if going_on > 0 {
        text += &format!("runs that go on, left alone: {going_on}\n");
    }
    print_text(&text)
}
