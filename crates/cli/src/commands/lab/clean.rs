//! `spangap lab clean`: removes the remains of killed runs.

use super::StateArgs;
use crate::Outcome;
use crate::output::{print_json, print_text};
use anyhow::bail;
use clap::Args;
use spangap_lab::undo::{self, CleanReport};

const EXAMPLES: &str = "\
Examples:
  spangap lab clean
      after a run and its keeper were killed: remove its namespaces, processes, control groups and unfinished
      folder; runs in progress stay
  spangap lab clean --json | jq '.runs[].left'
      list what could not be removed, and why
  spangap lab clean --forget
      also rename damaged journals, once everything that can be read from them is removed

Whatever can be read from a damaged journal is removed; the rest is named, and the journal stays until
--forget. Exit code 1 if anything is left behind.";

/// Remove what a killed run left
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CleanArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Rename damaged journals to get them out of the way; they are kept
    #[arg(long)]
    forget: bool,
    /// Print what was removed, what is still running and what could not be removed as one JSON document
    #[arg(long)]
    json: bool,
}

/// Cleans up.
pub fn run(args: CleanArgs) -> anyhow::Result<Outcome> {
    let cleaned = undo::clean(&args.state.state, args.forget)?;
    if args.json {
        print_json(&cleaned)?
    } else {
        print_text(&text(&cleaned))?
    };
    let left: Vec<_> = cleaned.left().map(|left| left.what.as_str()).collect();
    if !left.is_empty() {
        bail!("could not remove: {}", left.join(", "));
    }
    let damaged: Vec<_> = cleaned.damaged().map(|path| path.display().to_string()).collect();
    if !damaged.is_empty() {
        bail!(
            "damaged: {}; what can be read is removed: remove the rest by hand, then `spangap lab clean --forget`",
            damaged.join(", ")
        );
    }
    Ok(Outcome::Done)
}

fn text(cleaned: &CleanReport) -> String {
    let mut text = String::new();
    for run in &cleaned.runs {
        text += &format!("{}: processes ended: {}\n", run.journal.display(), run.processes);
        for made in &run.removed {
            text += &format!("  removed: {made}\n");
        }
        for left in &run.left {
            text += &format!("  could not be removed: {}: {}\n", left.what, left.why);
        }
        for damage in &run.unreadable {
            text += &format!("  damaged: {damage}\n");
        }
        if let Some(path) = &run.set_aside {
            text += &format!("  the damaged journal is kept: {}\n", path.display());
        }
    }
    for journal in &cleaned.going_on {
        text += &format!("{}: still running, or being undone right now; left alone\n", journal.display());
    }
    if text.is_empty() { "nothing was left\n".to_owned() } else { text }
}
