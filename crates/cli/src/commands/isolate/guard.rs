//! `spangap isolate guard`: the process that undoes a plan that nobody confirms.

use crate::Outcome;
use clap::Args;

/// Undo a plan at a time unless it is confirmed; started by `isolate apply`
#[derive(Args, Debug)]
pub struct GuardArgs {}

/// Does it.
pub fn run(_args: GuardArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate guard is not there yet")
}
