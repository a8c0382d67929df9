//! `make bench-host`: what the host probes cost those who are looked at, beside the distribution's tools, and whether
//! `host record` keeps up with a million events a second.

mod flood;
mod observers;
mod pipe;
mod table;

use clap::Parser;
use observers::Observer;
use pipe::Took;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures what the host probes cost those who are looked at.
#[derive(Parser, Debug)]
struct Cli {
    /// The binary
    #[arg(long, default_value = "target/dist/spangap")]
    spangap: PathBuf,
    /// The CPU that the ping-pong is pinned to
    #[arg(long, default_value_t = 1)]
    cpu: u32,
    /// Rounds; each runs every tool once, and without any before and after
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Ping-pongs of a run
    #[arg(long, default_value_t = 300_000)]
    loops: u32,
    /// How long `host record` is flooded, seconds; 0 leaves that out
    #[arg(long, default_value_t = 60)]
    flood_s: u64,
    /// Only tools whose name has this in it
    #[arg(long, default_value = "")]
    only: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program cannot be started, or waited for.
    #[error("{program}: {error}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// It did not do what it should.
    #[error("{program}: expected {expected}, found {found}")]
    Output {
        /// Its name.
        program: String,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
}

/// One tool, with all runs.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its command, shortened.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// At most so much more time, as a ratio.
    pub goal: Option<f64>,
    /// CPU time of the workload with it over that without, run by run.
    pub ratios: Vec<f64>,
    /// The same of wall time, which others on that CPU disturb.
    pub wall_ratios: Vec<f64>,
    /// CPU time of the tool's process over the wall time, run by run; what it makes the kernel do in others is not in it.
    pub own_cpu: Vec<f64>,
    /// Why there are no runs.
    pub not_run: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match bench(&cli) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("spangap-host-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(cli: &Cli) -> Result<String, BenchError> {
    let observers: Vec<Observer> =
        observers::all(&cli.spangap).into_iter().filter(|one| one.name.contains(&cli.only)).collect();
    let mut rows: Vec<Row> = observers.iter().map(Observer::row).collect();
    let mut usecs = Vec::new();
    // What starting `perf` takes is no part of a turn.
    let start = pipe::run(cli.cpu, 1)?.cpu_s;
    let run = || pipe::run(cli.cpu, cli.loops).map(|took| Took { cpu_s: took.cpu_s - start, ..took });
    // Warm caches and clocks, which nobody should get the benefit of.
    run()?;
    for round in 0..cli.rounds {
        let mut before = run()?;
        for (observer, row) in observers.iter().zip(&mut rows).filter(|(_, row)| row.not_run.is_none()) {
            let observed = observer.start().and_then(|running| Ok((run()?, running.stop()?)));
            match observed {
                Ok((with, own_cpu)) => {
                    let after = run()?;
                    row.ratios.push(with.cpu_s / ((before.cpu_s + after.cpu_s) / 2.0));
                    row.wall_ratios.push(with.wall_s / ((before.wall_s + after.wall_s) / 2.0));
                    row.own_cpu.push(own_cpu);
                    usecs.push(after.cpu_s * 1e6 / f64::from(cli.loops));
                    before = after;
                }
                Err(error) => row.not_run = Some(error.to_string()),
            }
        }
        eprintln!("round {} of {} done", round + 1, cli.rounds);
    }
    let flood = if cli.flood_s > 0 { Some(flood::flood(&cli.spangap, cli.flood_s)?) } else { None };
    Ok(match cli.json {
        true => table::json(&rows, &usecs, flood.as_ref()),
        false => table::text(&rows, &usecs, flood.as_ref()),
    })
}
