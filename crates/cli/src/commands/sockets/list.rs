//! `spangap sockets list`.

use crate::Outcome;
use clap::Args;

/// List TCP sockets with what the kernel knows of them
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: ListArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("sockets list is not there yet (json: {})", args.json)
}
