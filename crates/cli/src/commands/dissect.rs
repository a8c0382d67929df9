//! `spangap dissect`: from captures to where each call's time went.

use crate::Outcome;
use clap::Args;
use std::path::PathBuf;

/// Tell from packet captures where each call's time went
#[derive(Args, Debug)]
pub struct DissectArgs {
    /// Captures: one end, or client's and server's end of the same traffic (pcap, pcapng, .gz, .zst)
    #[arg(required = true, value_name = "CAPTURE", num_args = 1..=2)]
    captures: Vec<PathBuf>,
}

/// Reads, dissects, prints.
pub fn run(args: DissectArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("cannot dissect {:?}: not built yet", args.captures)
}
