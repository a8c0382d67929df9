//! `spangap isolate confirm`: lets an applied plan stay.

use crate::Outcome;
use clap::Args;

/// Let an applied plan stay
#[derive(Args, Debug)]
pub struct ConfirmArgs {}

/// Does it.
pub fn run(_args: ConfirmArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate confirm is not there yet")
}
