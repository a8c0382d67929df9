//! `spangap isolate apply`: makes a plan true.

use crate::Outcome;
use clap::Args;

/// Do what a plan says; undone by itself unless confirmed in time
#[derive(Args, Debug)]
pub struct ApplyArgs {}

/// Does it.
pub fn run(_args: ApplyArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate apply is not there yet")
}
