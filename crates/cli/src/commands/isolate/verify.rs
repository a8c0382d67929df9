//! `spangap isolate verify`: whether an applied plan holds, and what it does.

use crate::Outcome;
use clap::Args;

/// Look whether an applied plan holds, what it does, and what it costs
#[derive(Args, Debug)]
pub struct VerifyArgs {}

/// Does it.
pub fn run(_args: VerifyArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate verify is not there yet")
}
