//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// CPU time per span, by protocol
    Cpu,
    /// The report against the workload's truth
    Truth,
    /// Memory of pending spans
    Memory,
    /// Twice what it can take
    Overload,
    /// A scraper beside crowds of clients that never read
    Crowd,
    /// A day of many pairs, asked for while others ask
    History,
    /// CPU time per span of the samples of calls, in this process
    Samples,
    /// CPU time per span under locks, in this process
    Lock,
    /// What two threads take in with one lane and with several, in this process; more cores by simulation
    Lanes,
    /// CPU time per span of keeping all spans on disk, in this process
    Spool,
}

/// Measures `spangap meter`, the real binary on one core, against its goals.
#[derive(Parser, Debug)]
#[command(version, after_help = "Example:\n  spangap-meter-bench --only cpu --runs 3")]
pub struct Args {
    /// The binary under test
    #[arg(long, default_value = "target/dist/spangap")]
    pub meter: PathBuf,
    /// Sources of the workload tool; without them a generator in here takes its place
    #[arg(long, default_value = "../shared/workload")]
    pub workload: PathBuf,
    /// Folder for the built tool and its files
    #[arg(long, default_value = "target/bench")]
    pub folder: PathBuf,
    /// Only these cases
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Case>,
    /// Runs of each row of the CPU table
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Measured passes over the workload in a run, after one that warms up
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: u32,
    /// Spans in the workload
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub spans: u64,
    /// Pending spans of the memory case
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub pending: u64,
    /// Length of the overload
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Pairs of the history
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub pairs: u64,
    /// Hours of the history
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..))]
    pub hours: u64,
    /// Rounds of the samples, the lock, the lanes and the spool, with them and without
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Measure nothing: write the history of the history case into this folder, for `spangap meter --data`
    #[arg(long, value_name = "FOLDER")]
    pub write_history: Option<PathBuf>,
    /// Keep the written history below this many bytes, as the meter's --history-size does [default: no limit]
    #[arg(long, value_name = "N", requires = "write_history")]
    pub history_bytes: Option<u64>,
    /// One JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Whether this case is selected.
    pub fn runs(&self, case: Case) -> bool {
        self.only.is_empty() || self.only.contains(&case)
    }
}
