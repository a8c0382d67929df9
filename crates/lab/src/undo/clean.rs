//! From a journal back to the machine as it was.

use super::journal::{MARK, Made, read};
use crate::LabError;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long what was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was found and removed.
#[derive(Debug, Default, Serialize)]
pub struct Cleaned {
    /// Runs that were killed, undone now.
    pub runs: u64,
    /// Runs that still go on, left alone.
    pub going_on: u64,
    /// Processes ended.
    pub processes: u64,
    /// Network namespaces removed.
    pub namespaces: u64,
    /// Control groups removed.
    pub cgroups: u64,
    /// Folders removed.
    pub folders: u64,
}

/// Undoes every run whose journal is in `state` and that does not go on.
///
/// # Errors
/// When something cannot be removed.
pub fn clean(state: &Path) -> Result<Cleaned, LabError> {
    let mut all = Cleaned::default();
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(all),
        Err(error) => return Err(LabError::file("read", state)(error)),
    };
    for entry in entries {
        let path = entry.map_err(LabError::file("read", state))?.path();
        if path.extension().is_none_or(|ending| ending != "journal") {
            continue;
        }
        let Ok(journal) = File::open(&path) else { continue };
        if flock(&journal, FlockOperation::NonBlockingLockExclusive).is_err() {
            all.going_on += 1;
            continue;
        }
        let one = undo(&path)?;
        all.runs += 1;
        all.processes += one.processes;
        all.namespaces += one.namespaces;
        all.cgroups += one.cgroups;
        all.folders += one.folders;
    }
    Ok(all)
}

/// Undoes one run.
pub(super) fn undo(path: &Path) -> Result<Cleaned, LabError> {
    let mut cleaned = Cleaned::default();
    let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    cleaned.processes = end_all(|| marked(id), "processes of the run")?;
    for made in read(path)?.into_iter().rev() {
        match made {
            Made::Namespace { name } => {
                if Path::new("/run/netns").join(&name).exists() {
                    cleaned.processes += end_all(|| inside(&name), "processes in the namespace")?;
                    remove_namespace(&name)?;
                    cleaned.namespaces += 1;
                }
            }
            Made::Cgroup { path } => {
                if path.exists() {
                    cleaned.processes += end_all(|| members(&path), "processes in the control group")?;
                    fs::remove_dir(&path).map_err(LabError::file("remove", &path))?;
                    cleaned.cgroups += 1;
                }
            }
            Made::Folder { path } => match fs::remove_dir_all(&path) {
                Ok(()) => cleaned.folders += 1,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(LabError::file("remove", &path)(error)),
            },
        }
    }
    fs::remove_file(path).map_err(LabError::file("remove", path))?;
    Ok(cleaned)
}

/// Kills processes until there are none; how many there were.
fn end_all(find: impl Fn() -> Vec<Pid>, what: &str) -> Result<u64, LabError> {
    let begun = Instant::now();
    let mut ended = std::collections::BTreeSet::new();
    loop {
        let found = find();
        if found.is_empty() {
            return Ok(ended.len() as u64);
        }
        for pid in found {
            ended.insert(pid.as_raw_nonzero());
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        if begun.elapsed() > PATIENCE {
            return Err(LabError::program("clean", format!("{what} do not end: {ended:?}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with the run's mark in their environment, but for this one.
fn marked(id: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={id}");
    let own = std::process::id();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .filter_map(|pid| Pid::from_raw(pid.try_into().ok()?))
        .collect()
}

fn inside(namespace: &str) -> Vec<Pid> {
    let listed = Command::new("ip").args(["netns", "pids", namespace]).stderr(Stdio::null()).output();
    pids(&listed.map(|output| output.stdout).unwrap_or_default())
}

fn members(group: &Path) -> Vec<Pid> {
    pids(&fs::read(group.join("cgroup.procs")).unwrap_or_default())
}

fn pids(text: &[u8]) -> Vec<Pid> {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

fn remove_namespace(name: &str) -> Result<(), LabError> {
    let removed = Command::new("ip").args(["netns", "del", name]).output();
    let removed = removed.map_err(LabError::file("start", &PathBuf::from("ip")))?;
    if removed.status.success() {
        return Ok(());
    }
    Err(LabError::program("ip netns del", String::from_utf8_lossy(&removed.stderr).trim().to_owned()))
}
