//! `spangap host`: who took the time on this machine. One file per verb.

mod check;
mod offcpu;
mod own_cpus;
pub(super) mod processes;
mod record;
mod stacks;
pub mod thieves;

use crate::Outcome;
use clap::{Args, Subcommand};

/// Show who took the time on this machine
#[derive(Args, Debug)]
pub struct HostArgs {
    #[command(subcommand)]
    verb: HostVerb,
}

#[derive(Subcommand, Debug)]
enum HostVerb {
    Check(check::CheckArgs),
    Offcpu(offcpu::OffcpuArgs),
    Thieves(thieves::ThievesArgs),
    Stacks(stacks::StacksArgs),
    Record(record::RecordArgs),
}

/// Runs one verb to its end.
pub fn run(args: HostArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        HostVerb::Check(args) => check::run(args),
        HostVerb::Offcpu(args) => offcpu::run(args),
        HostVerb::Thieves(args) => thieves::run(args),
        HostVerb::Stacks(args) => stacks::run(args),
        HostVerb::Record(args) => record::run(args),
    }
}
