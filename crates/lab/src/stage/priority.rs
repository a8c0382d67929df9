//! Lowers the priority of the run's programs that are not measured: real-time programs of equal priority on one
//! CPU do not take turns, so a tank that aggregates its records would block the client that it conducts.

use super::Surroundings;
use super::cpus::BEHIND;
use crate::LabError;
use std::fs;
use std::process::Command;

/// Threads of a target that send its spans.
const SHIPPING: &str = "otlp";

/// The tank itself, whose client runs under the same conditions: every thread gets a priority below the client,
/// and leaves its control group, whose quota is the client's.
pub(super) fn conductor(pid: u32, around: &Surroundings) -> Result<(), LabError> {
    if around.fifo.is_some() {
        chrt(&["-a", "-f", "-p", &BEHIND.to_string(), &pid.to_string()])?;
    }
    if let Some(outside) = around.cgroup.as_deref().and_then(|group| group.parent()) {
        // If the outer group accepts no processes, the tank stays, and its own work counts towards the quota.
        let _ = fs::write(outside.join("cgroup.procs"), pid.to_string());
    }
    Ok(())
}

/// Threads of a target that only export measurements.
pub(super) fn shipping(pid: u32, around: &Surroundings) -> Result<(), LabError> {
    if around.fifo.is_none() {
        return Ok(());
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let named = |name: &str| name.trim_end() == SHIPPING;
    let ships = |path: &std::path::Path| fs::read_to_string(path.join("comm")).is_ok_and(|name| named(&name));
    for thread in threads.filter(|thread| ships(&thread.path())) {
        let tid = thread.file_name().to_string_lossy().into_owned();
        chrt(&["-f", "-p", &BEHIND.to_string(), &tid])?;
    }
    Ok(())
}

fn chrt(arguments: &[&str]) -> Result<(), LabError> {
    let failed = |why: String| LabError::program("chrt", why);
    let output = Command::new("chrt").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
