//! `make bench-host`: overhead of the host probes for the observed processes, compared with the
//! distribution's tools, and whether `host record` keeps up with a million events per second.

mod flood;
mod floor;
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
    /// Only attach an empty program at this tracepoint, or at `all` that the probes use, until killed
    #[arg(long, value_name = "TRACEPOINT")]
    floor: Option<String>,
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
}

/// One tool, with all runs.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its command, shortened.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Maximum additional time, as a ratio.
    pub goal: Option<f64>,
    /// CPU time of the workload with the tool divided by that without, per run.
    pub ratios: Vec<f64>,
    /// The same for wall time, which other processes on that CPU disturb.
    pub wall_ratios: Vec<f64>,
    /// CPU time of the tool's process divided by the wall time, per run, without the kernel work it causes in
    /// other processes.
    pub own_cpu: Vec<f64>,
    /// Why there are no runs.
    pub not_run: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.floor {
        Some(tracepoint) => floor::hold(tracepoint).map(|()| String::new()),
        None => bench(&cli),
    };
    match done {
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
    // Starting `perf` is not part of a turn.
    let start = pipe::run(cli.cpu, 1)?.cpu_s;
    let run = || pipe::run(cli.cpu, cli.loops).map(|took| Took { cpu_s: took.cpu_s - start, ..took });
    // Warms caches and clocks, so that no measurement benefits from its position.
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
