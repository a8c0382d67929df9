//! `spangap isolate rollback`: undoes an applied plan.

use crate::Outcome;
use clap::Args;

/// Undo an applied plan, from its journal alone
#[derive(Args, Debug)]
pub struct RollbackArgs {}

/// Does it.
pub fn run(_args: RollbackArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate rollback is not there yet")
}
