//! `spangap`: finds where an RPC's time goes between client and server.
//!
//! `main` parses, dispatches and alone decides the exit code: 0 done, 1 failed, 2 wrong usage,
//! 3 done and found something that `--fail-on` asked for.

// First: its macros hold for what comes after.
#[macro_use]
mod stderr;

mod args;
mod commands;
mod entered;
mod guarded;
mod output;
mod report_page;
mod signals;
mod temporary;
mod web;

use clap::Parser;
use std::process::ExitCode;

/// What a verb that did its work reports to `main`.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 3: done, and found what `--fail-on` asked about.
    Found,
}

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::run(cli.verb) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(3),
        Err(error) if error.is::<clap::Error>() => {
            eprint!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("spangap: {error:#}");
            ExitCode::FAILURE
        }
    }
}
