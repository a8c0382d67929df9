//! `spangap lab judge`: the culprit in the folder of a run.

use crate::Outcome;
use crate::output::print_text;
use crate::signals::{self, ASKED};
use anyhow::Context;
use clap::Args;
use spangap_lab::grade::ask;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  spangap lab judge lab-nagle-client-1
      {\"culprit\":\"nagle-delayed-ack\",\"side\":\"client\",\"why\":\"91 slow calls took 41.9 ms longer ...\"}";

/// Name the culprit in the folder of a run, in the short form that `spangap lab grade` expects of a judge; asks `spangap hunt`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct JudgeArgs {
    /// Folder of a run; its truth is not read
    folder: PathBuf,
}

pub fn run(args: JudgeArgs) -> anyhow::Result<Outcome> {
    let stop = signals::flag(ASKED)?;
    let verdict = ask::own(&args.folder, Duration::MAX, &stop)?;
    let line = serde_json::to_string(&verdict).context("a verdict is plain data")?;
    print_text(&(line + "\n"))
}
