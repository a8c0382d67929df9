//! Services, through systemd.

use super::files::Root;
use super::processes;
use std::io;
use std::process::{Command, Output, Stdio};

const RUNNING: &str = "running";
const STOPPED: &str = "stopped";
/// Exists if systemd is the init process.
const SYSTEMD: &str = "/run/systemd/system";

/// Whether a service runs; `None` if it does not exist.
pub fn get(root: &Root, name: &str) -> io::Result<Option<&'static str>> {
    if root.is_copy() || !with_systemd(root)? {
        let program = name.trim_end_matches(".service");
        let runs = !processes::named(root, program)?.is_empty();
        return Ok(runs.then_some(RUNNING));
    }
    let shown = systemctl(&["show", "--property=LoadState,ActiveState", "--", name])?;
    let text = String::from_utf8_lossy(&shown.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    Ok(match (value("LoadState="), value("ActiveState=")) {
        ("not-found" | "", _) => None,
        (_, "active" | "activating" | "reloading") => Some(RUNNING),
        _ => Some(STOPPED),
    })
}

/// Starts or stops a service.
pub fn set(root: &Root, name: &str, text: &str) -> io::Result<()> {
    let verb = match text {
        RUNNING => "start",
        STOPPED => "stop",
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected `running` or `stopped`")),
    };
    if !with_systemd(root)? {
        let said = format!(
            "there is no systemd here to {verb} it: {verb} it by hand, and plan with --irqbalance leave"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, said));
    }
    let done = systemctl(&[verb, "--", name])?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("systemctl {verb} {name} ended with {}: {}", done.status, said.trim())))
}

fn with_systemd(root: &Root) -> io::Result<bool> {
    Ok(root.real(SYSTEMD)?.is_dir())
}

fn systemctl(arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null());
    command.output().map_err(|error| io::Error::new(error.kind(), format!("cannot run systemctl: {error}")))
}
