//! What belongs to a run and is not what it measures steps behind what is: programs of equal real-time priority on one CPU
//! take no turns, so that a tank adding up its records would hold up the client it conducts.

use super::Around;
use super::cpus::BEHIND;
use crate::LabError;
use std::fs;
use std::process::Command;

/// Threads of a target that send its spans.
const SHIPPING: &str = "otlp";

/// The tank itself, whose client runs under the same conditions: every thread goes behind the client, and out of its
/// control group, whose quota is the client's.
pub(super) fn conductor(pid: u32, around: &Around) -> Result<(), LabError> {
    if around.fifo.is_some() {
        chrt(&["-a", "-f", "-p", &BEHIND.to_string(), &pid.to_string()])?;
    }
    if let Some(outside) = around.cgroup.as_deref().and_then(|group| group.parent()) {
        // Where the group outside takes no processes the tank stays, and its own work counts into the quota.
        let _ = fs::write(outside.join("cgroup.procs"), pid.to_string());
    }
    Ok(())
}

/// Threads of a target that only send what it has measured.
pub(super) fn shipping(pid: u32, around: &Around) -> Result<(), LabError> {
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
