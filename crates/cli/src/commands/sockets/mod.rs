//! `spangap sockets`: live TCP sockets of other processes. One file per verb.

mod folder;
mod keeper;
mod list;
mod set;
mod undo;

use crate::Outcome;
use crate::output::{print_json, seen_enough};
use clap::{Args, Subcommand};

/// Show and change TCP sockets of running processes
#[derive(Args, Debug)]
pub struct SocketsArgs {
    #[command(subcommand)]
    verb: SocketsVerb,
}

#[derive(Subcommand, Debug)]
enum SocketsVerb {
    List(list::ListArgs),
    Set(set::SetArgs),
    Undo(undo::UndoArgs),
    #[command(hide = true)]
    Keep(keeper::KeepArgs),
}

/// Runs one verb to its end.
pub fn run(args: SocketsArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        SocketsVerb::List(args) => list::run(args),
        SocketsVerb::Set(args) => set::run(args),
        SocketsVerb::Undo(args) => undo::run(args),
        SocketsVerb::Keep(args) => keeper::run(args),
    }
}
