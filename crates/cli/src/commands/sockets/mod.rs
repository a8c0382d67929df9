//! `spangap sockets`: live TCP sockets of other processes. One file per verb.

mod folder;
mod keeper;
mod list;
mod set;
mod undo;

use crate::Outcome;
use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::io::{self, BufWriter, Write};

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

/// Prints one document.
fn print_json(document: &impl Serialize) -> anyhow::Result<Outcome> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from);
    written.and_then(|()| writeln!(out)).and_then(|()| out.flush()).or_else(seen_enough)?;
    Ok(Outcome::Done)
}

/// Whoever reads may stop when they have seen enough.
fn seen_enough(error: io::Error) -> anyhow::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error).context("cannot print"),
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
