//! `spangap isolate status`: what is applied, and who undid what.

use crate::Outcome;
use clap::Args;

/// Say what is applied, and who undid what of it
#[derive(Args, Debug)]
pub struct StatusArgs {}

/// Does it.
pub fn run(_args: StatusArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate status is not there yet")
}
