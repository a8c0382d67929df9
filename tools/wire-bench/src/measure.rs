//! Runs programs and measures their cost, each below a separate process, so that its memory peak is its own.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Cost of one run of a program.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time, user and system, seconds.
    pub cpu_s: f64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Maximum resident set, bytes.
    pub peak_bytes: u64,
}

/// Failure of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The program cannot be started.
    #[error("{program}: {error}")]
    Start {
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The program failed.
    #[error("{program} failed: {status}")]
    Failed {
        program: String,
        /// Its exit status.
        status: String,
    },
    /// A file of this tool cannot be used.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Unexpected output of the program.
    #[error("{program}: {what}")]
    Output {
        program: String,
        /// What was expected, and what was found.
        what: String,
    },
}

/// Runs a command below a separate process; its standard output goes to `output`.
///
/// # Errors
/// If it cannot be started or fails.
pub fn run(command: &[String], output: &PathBuf) -> Result<Cost, MeasureError> {
    let program = command.first().cloned().unwrap_or_default();
    let start = |error| MeasureError::Start { program: program.clone(), error };
    let file_error = |error| MeasureError::File { path: output.clone(), error };
    let me = std::env::current_exe().map_err(start)?;
    let costs = output.with_extension("cost");
    let status = Command::new(me)
        .arg("once")
        .arg(&costs)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(output).map_err(file_error)?)
        .status()
        .map_err(start)?;
    if !status.success() {
        return Err(MeasureError::Failed { program, status: status.to_string() });
    }
    let text = std::fs::read(&costs).map_err(|error| MeasureError::File { path: costs.clone(), error })?;
    serde_json::from_slice(&text)
        .map_err(|error| MeasureError::Output { program, what: format!("no cost: {error}") })
}

/// The other end of [`run`]: starts the command, waits, and writes its cost.
///
/// # Errors
/// If it cannot be started or fails.
pub fn once(costs: &PathBuf, command: &[String]) -> Result<(), MeasureError> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| MeasureError::Output { program: "once".into(), what: "expected a command".into() })?;
    let start = |error| MeasureError::Start { program: program.clone(), error };
    let began = Instant::now();
    let mut child = Command::new(program);
    child.args(arguments).stderr(Stdio::null());
    let status = child.status().map_err(start)?;
    let wall_s = began.elapsed().as_secs_f64();
    if !status.success() {
        return Err(MeasureError::Failed { program: program.clone(), status: status.to_string() });
    }
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
        .map_err(|error| start(io::Error::from(error)))?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cost = Cost {
        cpu_s: seconds(usage.user_time()) + seconds(usage.system_time()),
        wall_s,
        // The kernel counts in KiB.
        peak_bytes: usage.max_rss() as u64 * 1024,
    };
    let text = serde_json::to_vec(&cost).map_err(|error| start(io::Error::from(error)))?;
    std::fs::write(costs, text).map_err(|error| MeasureError::File { path: costs.clone(), error })
}

/// Median, minimum and maximum of some figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of at least one figure.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let median = *values.get(values.len() / 2)?;
        Some(Spread { median, min: *values.first()?, max: *values.last()? })
    }
}
