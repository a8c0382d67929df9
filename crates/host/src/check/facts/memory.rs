//! Memory of a process's cgroup: memory pressure, and page faults on its own pages.

use super::super::{Host, Known};
use super::cgroup;
use super::pressure::{self, Pressure};
use spangap_machine::FactError;
use spangap_machine::facts::figures;
use spangap_machine::facts::mountinfo::{CgroupMount, Version};

/// The cgroup that accounts for a process's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub folder: String,
    /// Cgroup version, which decides the file names.
    pub version: Version,
    /// Memory pressure inside the cgroup; version 2 only.
    pub pressure: Known<Pressure>,
    /// I/O pressure inside the cgroup; version 2 only.
    pub io_pressure: Known<Pressure>,
    /// Major faults since the cgroup was created: its own pages, read from disk again.
    pub major_faults: Known<u64>,
    /// How often the cgroup hit its memory limit since it was created.
    pub at_limit: Known<u64>,
    /// OOM kills in the cgroup; version 2 only.
    pub kills: Known<u64>,
}

impl Memory {
    /// File that counts major faults.
    pub fn stat(&self) -> String {
        format!("{}/memory.stat", self.folder)
    }

    /// File that counts how often the limit was hit.
    pub fn limit_file(&self) -> String {
        let file = if self.version == Version::V1 { "memory.failcnt" } else { "memory.events" };
        format!("{}/{file}", self.folder)
    }
}

/// Reads the memory cgroup of a process.
///
/// # Errors
/// The process's cgroup cannot be read, or no memory controller is mounted here.
pub fn of(host: &Host, mounts: &[CgroupMount], pid: u32) -> Known<Memory> {
    let (version, at, below) = cgroup::place(host, mounts, pid, "memory")?;
    let folder = format!("{at}{below}");
    let file = |name: &str| format!("{folder}/{name}");
    let keyed = |name: &str, keys: &[&str]| {
        let path = file(name);
        let text = host.read(&path)?;
        let all = figures::keyed(&text);
        let found = keys.iter().find_map(|key| all.get(key).copied());
        found.ok_or_else(|| FactError::malformed(&path, 0, &text, "a line pgmajfault, max or oom_kill"))
    };
    let pressure = |name: &str| host.parsed(&file(name), pressure::parse);
    let at_limit = match version {
        Version::V1 => host.parsed(&file("memory.failcnt"), figures::number),
        Version::V2 => keyed("memory.events", &["max"]),
    };
    Ok(Memory {
        pressure: pressure("memory.pressure"),
        io_pressure: pressure("io.pressure"),
        major_faults: keyed("memory.stat", &["total_pgmajfault", "pgmajfault"]),
        kills: keyed("memory.events", &["oom_kill"]),
        at_limit,
        version,
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_machine::Kept;

    fn read(text: &str) -> Memory {
        let host = Host::kept(Kept::parse(text).unwrap());
        of(&host, &cgroup::mounts(&host).unwrap(), 7).unwrap()
    }

    #[test]
    fn both_versions() {
        let old = read(
            "=== /proc/self/mountinfo\n1 2 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             === /proc/7/cgroup\n9:memory:/pod\n=== /sys/fs/cgroup/memory/pod/memory.stat\n\
             pgmajfault 3\ntotal_pgmajfault 12\n=== /sys/fs/cgroup/memory/pod/memory.failcnt\n8\n",
        );
        assert_eq!((old.version, &old.major_faults, &old.at_limit), (Version::V1, &Ok(12), &Ok(8)));
        assert_eq!(old.limit_file(), "/sys/fs/cgroup/memory/pod/memory.failcnt");
        assert!(old.pressure.is_err() && old.kills.is_err());
        let new = read(
            "=== /proc/self/mountinfo\n1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n=== /proc/7/cgroup\n0::/pod\n\
             === /sys/fs/cgroup/pod/memory.stat\nanon 1\npgmajfault 4\n\
             === /sys/fs/cgroup/pod/memory.events\nlow 0\nhigh 1\nmax 5\noom 0\noom_kill 2\n\
             === /sys/fs/cgroup/pod/memory.pressure\nsome avg10=1.00 total=70\n",
        );
        assert_eq!((new.version, &new.major_faults, &new.at_limit), (Version::V2, &Ok(4), &Ok(5)));
        assert_eq!((new.kills, new.pressure.unwrap().some_us), (Ok(2), 70));
    }
}
