//! `spangap lab keeper`: undoes a killed run. Started by `lab run`, which holds its standard input.

use crate::Outcome;
use crate::output::print_text;
use crate::signals::{self, ASKED_OR_LEFT};
use anyhow::Context;
use clap::Args;
use spangap_lab::undo::keeper;
use std::path::PathBuf;

/// Undo a run when standard input ends; started by `lab run`
#[derive(Args, Debug)]
pub struct KeeperArgs {
    /// Journal of the run, which need not be there yet
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
}

/// Waits, and undoes the run.
pub fn run(args: KeeperArgs) -> anyhow::Result<Outcome> {
    // A Ctrl-C or the end of the terminal is not meant for the keeper; a service manager stops the run first.
    signals::ignore(ASKED_OR_LEFT)?;
    rustix::process::setsid().context("cannot leave the session")?;
    std::env::set_current_dir("/").context("cannot leave the folder")?;
    print_text(&format!("{}\n", keeper::READY))?;
    keeper::keep(&args.journal, std::io::stdin().lock())?;
    Ok(Outcome::Done)
}
