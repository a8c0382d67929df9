//! `spangap host thieves`.

use crate::Outcome;
use clap::Args;

/// Show who had the CPUs while the threads of a process wanted them
#[derive(Args, Debug)]
pub struct ThievesArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: ThievesArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("host thieves is not there yet (json: {})", args.json)
}
