//! `spangap isolate show`: the CPUs of a machine as a map.

use crate::Outcome;
use clap::Args;

/// Draw the CPUs with what is on them: interrupts, softirqs, pods, slices
#[derive(Args, Debug)]
pub struct ShowArgs {}

/// Does it.
pub fn run(_args: ShowArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!("isolate show is not there yet")
}
