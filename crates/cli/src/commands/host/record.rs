//! `spangap host record`.

use crate::Outcome;
use clap::Args;

/// Record who ran where and when, to be laid over calls by `spangap dissect --host`
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: RecordArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("host record is not there yet (json: {})", args.json)
}
