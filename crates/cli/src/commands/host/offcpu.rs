//! `spangap host offcpu`.

use crate::Outcome;
use clap::Args;

/// Show how long threads were off their CPU, blocked and runnable apart
#[derive(Args, Debug)]
pub struct OffcpuArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: OffcpuArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("host offcpu is not there yet (json: {})", args.json)
}
