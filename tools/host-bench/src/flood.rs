//! `host record` under the maximum event rate of this machine: number of events, and losses.

use crate::BenchError;
use crate::pipe::Endless;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Results of the recording.
#[derive(Debug, Serialize)]
pub struct Flood {
    /// Ping-pongs run, one per CPU.
    pub loads: usize,
    /// Duration.
    pub wall_s: f64,
    /// Events in the recording.
    pub events: u64,
    /// Events lost for lack of room.
    pub lost: u64,
    /// Maximum fill of a CPU's ring, as a share.
    pub ring_fullest: f64,
    /// CPU of the recording process, as a share of one CPU.
    pub own_cpu: f64,
    /// Size of the recording.
    pub file_bytes: u64,
}

/// Records for some seconds while every CPU switches at its maximum rate.
pub fn flood(spangap: &Path, seconds: u64) -> Result<Flood, BenchError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let loads = (0..cpus).map(|cpu| Endless::start(cpu as u32)).collect::<Result<Vec<_>, _>>()?;
    let file = std::env::temp_dir().join(format!("spangap-host-bench-{}.flood", std::process::id()));
    let program = || format!("{} host record", spangap.display());
    let output = Command::new(spangap)
        .args(["host", "record", "--json", "--pid", &std::process::id().to_string()])
        .args(["--duration", &format!("{seconds}s"), "--write"])
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| BenchError::Start { program: program(), error })?;
    // It may not exist.
    let _ = std::fs::remove_file(&file);
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong =
        |found: &str| BenchError::Output { program: program(), expected: "its report", found: found.into() };
    let report: Value = serde_json::from_str(&text).map_err(|_| wrong(&text))?;
    let number = |key: &str| report[key].as_u64().ok_or_else(|| wrong(key));
    let wall_s = number("wall_ns")? as f64 / 1e9;
    Ok(Flood {
        loads: loads.len(),
        wall_s,
        events: number("events")?,
        lost: number("lost")?,
        ring_fullest: report["ring_fullest"].as_f64().unwrap_or(f64::NAN),
        own_cpu: number("cpu_ns")? as f64 / 1e9 / wall_s,
        file_bytes: number("file_bytes")?,
    })
}
