//! `spangap sockets`: live TCP sockets of other processes. One file per verb.

mod list;
mod set;

use crate::Outcome;
use clap::{Args, Subcommand};

/// See and set TCP sockets of running processes
#[derive(Args, Debug)]
pub struct SocketsArgs {
    #[command(subcommand)]
    verb: SocketsVerb,
}

#[derive(Subcommand, Debug)]
enum SocketsVerb {
    List(list::ListArgs),
    Set(set::SetArgs),
}

/// Runs one verb to its end.
pub fn run(args: SocketsArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        SocketsVerb::List(args) => list::run(args),
        SocketsVerb::Set(args) => set::run(args),
    }
}
