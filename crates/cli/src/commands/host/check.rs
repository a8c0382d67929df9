//! `spangap host check`.

use crate::Outcome;
use clap::Args;

/// Look for known traps on this host, without eBPF
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: CheckArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("host check is not there yet (json: {})", args.json)
}
