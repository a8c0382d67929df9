//! `spangap sockets set`.

use crate::Outcome;
use clap::Args;

/// Change TCP_NODELAY of live sockets, with an undo
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: SetArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("sockets set is not there yet (json: {})", args.json)
}
