//! `make bench-check`: a short version of the benchmarks, as ratios, compared with the committed ones.
//!
//! Each figure is a ratio to a floor or a peer that ran in the same minute, in many short alternating rounds,
//! or a count of instructions. Unlike a time, it can therefore be compared with one from another day.

mod judge;
mod measures;
mod record;

use clap::Parser;
use judge::{Outcome, judge};
use measures::{Kind, Measured, Programs};
use record::Record;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tells what became slower than the committed figures say.
#[derive(Parser, Debug)]
struct Args {
    /// The committed figures
    #[arg(long, default_value = "tools/bench-check/figures.json")]
    figures: PathBuf,
    /// Folder of the programs to measure
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Folder of the baseline programs
    #[arg(long, default_value = "target/baseline")]
    baselines: PathBuf,
    /// Write the figures measured now, and their row of the table by commit
    #[arg(long)]
    update: bool,
    /// The document with the table by commit
    #[arg(long, default_value = "docs/benchmarks.md")]
    table: PathBuf,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Rounds of each ratio
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(5..=99))]
    rounds: u32,
}

/// Why the check failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{path}: {what}")]
    Content {
        path: PathBuf,
        /// What was expected.
        what: String,
    },
    /// No figure could be compared with a committed one; the table contains the reasons.
    #[error("no figure could be compared, so nothing is known: the table above says why")]
    NothingCompared,
}

fn main() -> ExitCode {
    match check(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("bench-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing became slower.
fn check(args: &Args) -> Result<bool, CheckError> {
    let programs =
        Programs { folder: args.programs.clone(), baselines: args.baselines.clone(), rounds: args.rounds };
    let mut measured: Vec<Measured> = Vec::new();
    for kind in Kind::ALL {
        if args.only.is_empty() || args.only.contains(&kind) {
            eprintln!("bench-check: {}", kind.words());
            measured.extend(measures::measure(kind, &programs));
        }
    }
    let now = Record::of(&measured);
    if args.update {
        let mut record = record::read(&args.figures).unwrap_or_default();
        record.take(now);
        record::write(&args.figures, &record)?;
        record::write_row(&args.table, &record)?;
        println!("{} and the table of {} are written.", args.figures.display(), args.table.display());
        return Ok(true);
    }
    let before = record::read(&args.figures)?;
    let differs = before.differs(&now);
    differs.iter().for_each(|what| println!("Note: {what}"));
    let outcomes: Vec<Outcome> = judge(&before, &now, &measured, &args.only);
    println!("{}", judge::table(&outcomes));
    let slower: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.is_slower()).collect();
    for outcome in &slower {
        println!("{}", outcome.words());
    }
    if slower.is_empty() {
        println!("{}", judge::nothing_slower(&outcomes).ok_or(CheckError::NothingCompared)?);
    }
    Ok(slower.is_empty())
}
