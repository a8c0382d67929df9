//! `make bench-isolate`: benefit of `spangap isolate` for a ping-pong on a CPU with a flood steered to it,
//! and its duration on a copy of a machine with 256 CPUs and 2,000 containers.

mod copy;
mod flood;
mod programs;
mod scale;
mod spread;
mod table;

use clap::Parser;
use flood::Flood;
use scale::Scale;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures what `isolate` wins under a flood, and how long it takes on a large machine.
#[derive(Parser, Debug)]
struct Cli {
    /// The binary
    #[arg(long, default_value = "target/dist/spangap")]
    spangap: PathBuf,
    /// Rounds; each measures every state once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each state is measured, seconds
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Containers of the copy
    #[arg(long, default_value_t = 2000)]
    containers: usize,
    /// CPUs of the copy
    #[arg(long, default_value_t = 256)]
    cpus: usize,
    /// Only this part: `flood` or `scale`
    #[arg(long)]
    only: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program cannot be started, or waited for.
    #[error("{program}: {error}")]
    Start {
        program: String,
        /// The reason.
        error: std::io::Error,
    },
    /// Its output is wrong.
    #[error("{program}: expected {expected}, found {found}")]
    Output {
        program: String,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
}

/// All measurements.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The ping-pong under a flood, or why it was not run.
    pub flood: Option<Result<Flood, String>>,
    /// The copies, with cpusets of both versions.
    pub scale: Vec<Scale>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match bench(&cli) {
        Ok(measured) if cli.json => println!("{}", table::json(&measured)),
        Ok(measured) => print!("{}", table::text(&measured)),
        Err(error) => {
            eprintln!("spangap-isolate-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn bench(cli: &Cli) -> Result<Measured, BenchError> {
    let wanted = |part| cli.only.as_deref().is_none_or(|only| only == part);
    let flood = match wanted("flood").then(flood::why_not) {
        None => None,
        Some(Some(why)) => Some(Err(why)),
        Some(None) => Some(Ok(flood::measure(&cli.spangap, cli.rounds, cli.seconds)?)),
    };
    let mut scale = Vec::new();
    if wanted("scale") {
        for version in [1, 2] {
            scale.push(scale::measure(&cli.spangap, version, cli.cpus, cli.containers, cli.rounds)?);
        }
    }
    Ok(Measured { flood, scale })
}
