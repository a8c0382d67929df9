//! Finds and ends processes, whatever state they are in.

use super::MARK;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use spangap_machine::facts::{process_stat, uptime};
use spangap_machine::read_here;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Number and interval of checks of an empty environment.
const LOOKS_AT_EMPTY: u32 = 10;
const LOOK_AT_EMPTY_EVERY: Duration = Duration::from_micros(300);

/// Result of ending processes.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// All processes that were killed.
    pub(super) told: BTreeSet<u32>,
    /// Those that still existed at the end.
    pub(super) left: Vec<u32>,
}

/// Kills the matching `candidates` until there are none, or until `deadline`. `is_meant` is asked again once
/// the process can no longer be confused with another.
///
/// If every generation of a process forks and exits within a millisecond, a scan of all processes finds only
/// dead ones. So the youngest are examined first, each is killed as it is found, and newer ids are examined
/// next.
pub(super) fn end_all(
    deadline: Instant,
    candidates: impl Fn() -> Vec<u32>,
    is_meant: impl Fn(u32) -> bool,
) -> Ended {
    let mut ended = Ended::default();
    let mut found_none = 0;
    loop {
        let mut found = Vec::new();
        let mut end = |pid: u32| {
            let is_killed = is_meant(pid) && kill(pid, &is_meant);
            if is_killed {
                found.push(pid);
            }
            is_killed
        };
        let mut looked_to = newest_id();
        let mut pids = candidates();
        pids.sort_unstable();
        for pid in pids.into_iter().rev() {
            // Ids wrap around at the maximum; the next full scan finds what is missed then.
            if end(pid) {
                looked_to = end_younger(pid.max(looked_to), &mut end, deadline);
            }
        }
        // Once is not enough: during its exec, a process shows an empty environment.
        found_none = if found.is_empty() { found_none + 1 } else { 0 };
        if found_none == 2 {
            return ended;
        }
        ended.told.extend(&found);
        if !found.is_empty() && Instant::now() > deadline {
            ended.left = found;
            return ended;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Ends processes with ids above `id`, as long as there are more; returns the last id.
fn end_younger(mut id: u32, end: &mut impl FnMut(u32) -> bool, deadline: Instant) -> u32 {
    loop {
        let newest = newest_id();
        if newest <= id || Instant::now() > deadline {
            return id;
        }
        for younger in id + 1..=newest {
            end(younger);
        }
        id = newest;
    }
}

/// The most recently assigned process or thread id; zero if the machine does not report it.
fn newest_id() -> u32 {
    read_here(uptime::LOADAVG, uptime::load).ok().and_then(|load| load.newest_id).unwrap_or(0)
}

/// Whether the process was killed: false if it has ended in the meantime, and for single threads.
fn kill(pid: u32, is_meant: impl Fn(u32) -> bool) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return false };
    is_meant(pid) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

/// All processes but this one.
pub(super) fn others() -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != own).collect()
}

/// Whether a process has the run's marker in its environment. A dead one has none.
pub(super) fn is_marked(pid: u32, id: &str) -> bool {
    let wanted = format!("{MARK}={id}");
    for _ in 0..LOOKS_AT_EMPTY {
        // It is gone.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        if !environment.is_empty() {
            return environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
        }
        if !may_be_starting(pid) {
            return false;
        }
        std::thread::sleep(LOOK_AT_EMPTY_EVERY);
    }
    false
}

/// Whether a process without an environment may be in the middle of its exec: its environment is empty then,
/// for less than a millisecond. False for kernel threads and dead processes.
fn may_be_starting(pid: u32) -> bool {
    matches!(process_stat::of(pid), Ok(Some(stat)) if !stat.is_dead() && !stat.is_kernels())
}

/// Identity of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    device: u64,
    inode: u64,
}

impl Space {
    /// The namespace that a file refers to.
    pub(super) fn of(path: &Path) -> Option<Space> {
        let found = fs::metadata(path).ok()?;
        Some(Space { device: found.dev(), inode: found.ino() })
    }

    /// The namespace of a process.
    pub(super) fn around(pid: u32) -> Option<Space> {
        Space::of(Path::new(&format!("/proc/{pid}/ns/net")))
    }
}

/// Processes of a control group.
pub(super) fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
