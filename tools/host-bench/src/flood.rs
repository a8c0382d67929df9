//! `host record` under as many events as this machine can make: how many came, and whether any was lost.

use crate::BenchError;
use crate::pipe::Endless;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What was recorded.
#[derive(Debug, Serialize)]
pub struct Flood {
    /// Ping-pongs that ran, one on each CPU.
    pub loads: usize,
    /// For how long.
    pub wall_s: f64,
    /// Events in the recording.
    pub events: u64,
    /// Those that found no room.
    pub lost: u64,
    /// The fullest that the ring of a CPU has been, as a share.
    pub ring_fullest: f64,
    /// Of the recording process, as a share of one CPU.
    pub own_cpu: f64,
    /// Size of the recording.
    pub file_bytes: u64,
}

/// Records for so long while every CPU switches as fast as it can.
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
    // It may not have been made.
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
