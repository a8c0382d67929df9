//! `spangap capture`: the last packets of an interface, kept until somebody wants them.

use crate::Outcome;
use clap::Args;

/// Keep the last packets of an interface, and write them out when told or when a call was slow
#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// Interface to listen on
    #[arg(long, value_name = "IF")]
    interface: String,
}

/// Captures until told to stop.
pub fn run(args: CaptureArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("cannot capture on {}: not built yet", args.interface)
}
