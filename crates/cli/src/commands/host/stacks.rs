//! `spangap host stacks`.

use crate::Outcome;
use clap::Args;

/// Sample kernel stacks that are not the application's
#[derive(Args, Debug)]
pub struct StacksArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: StacksArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("host stacks is not there yet (json: {})", args.json)
}
