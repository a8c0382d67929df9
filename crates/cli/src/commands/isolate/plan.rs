//! `spangap isolate plan`: what to change, and why.

use crate::Outcome;
use clap::Args;

/// Plan what to change, and say why; changes nothing
#[derive(Args, Debug)]
pub struct PlanArgs {}

/// Does it.
pub fn run(_args: PlanArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate plan is not there yet")
}
