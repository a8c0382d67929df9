//! Control groups with a limit on CPU time or memory, of version 1 or 2, whichever this machine has.

use super::{Stage, Surroundings};
use crate::LabError;
use crate::undo::{CreatedObject, Undo};
use spangap_machine::facts::cpu_stat::{self, Throttled};
use spangap_machine::facts::mountinfo::{self, CgroupMount, Version};
use spangap_machine::read_here;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// CPU time of a group per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time, over all CPUs.
    pub time: Duration,
    /// Period. The kernel accepts 1 ms to 1 s.
    pub period: Duration,
}

/// A control group with a [`Quota`]. Removed through the journal, after its processes.
#[derive(Clone, Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the group to a program's surroundings.
    pub fn around(&self, around: Surroundings) -> Surroundings {
        Surroundings { cgroup: Some(self.path.clone()), ..around }
    }

    /// Number of periods in which it has used up its quota.
    ///
    /// # Errors
    /// The group is gone.
    pub fn throttled(&self) -> Result<u64, LabError> {
        Ok(self.stat()?.throttled)
    }

    /// Total throttled time of its run queues, in nanoseconds, over all CPUs.
    ///
    /// # Errors
    /// The group is gone.
    pub fn throttled_ns(&self) -> Result<u64, LabError> {
        Ok(self.stat()?.ns)
    }

    fn stat(&self) -> Result<Throttled, LabError> {
        let path = self.path.join(cpu_stat::NAME);
        // Groups with a quota have such lines.
        Ok(read_here(&path.to_string_lossy(), cpu_stat::throttled)?.unwrap_or_default())
    }
}

impl Stage<'_> {
    /// Creates a control group with a quota. Programs enter it by [`Surroundings::cgroup`]: they start inside.
    ///
    /// # Errors
    /// As for [`Group::make`].
    pub fn cgroup(&mut self, name: &str, quota: Quota) -> Result<Group, LabError> {
        Group::make(self.undo, name, quota)
    }

    /// Creates a control group with a memory limit, page cache included, and returns the surroundings of a
    /// program that starts inside.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if memory cannot be limited here, or not by this user.
    pub fn memory_limit(&mut self, name: &str, bytes: u64) -> Result<Surroundings, LabError> {
        let limit = |version| match version {
            Version::V1 => vec![("memory.limit_in_bytes", bytes.to_string())],
            Version::V2 => vec![("memory.max", bytes.to_string())],
        };
        let path = Group::folder(self.undo, &format!("memory-{name}"), "memory", "a limit on memory", limit)?;
        Ok(Surroundings { cgroup: Some(path), ..Surroundings::default() })
    }
}

impl Group {
    /// Journals and creates a group.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if quotas are not available here, or not to this user.
    pub fn make(undo: &mut Undo, name: &str, quota: Quota) -> Result<Group, LabError> {
        let path = Group::folder(undo, name, "cpu", "a CPU quota", |version| settings(version, quota))?;
        Ok(Group { path })
    }

    /// A group below the one with the controller; writes these files in this order.
    fn folder(
        undo: &mut Undo,
        name: &str,
        controller: &str,
        what: &str,
        settings: impl FnOnce(Version) -> Vec<(&'static str, String)>,
    ) -> Result<PathBuf, LabError> {
        let mounts = read_here(mountinfo::PATH, mountinfo::cgroups)?;
        let unavailable = |why: String| LabError::Unavailable { what: what.to_owned(), why };
        let (version, root) = place(mounts, controller).ok_or_else(|| {
            unavailable(format!(
                "no file system with control groups of the controller `{controller}` is mounted"
            ))
        })?;
        if version == Version::V2 {
            // Not ours to enable: it would restrict other groups below the root, and stay.
            let path = root.join("cgroup.subtree_control");
            let enabled = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
            if !enabled.split_whitespace().any(|enabled| enabled == controller) {
                return Err(unavailable(format!(
                    "the controller `{controller}` is not enabled for groups below {}; `echo +{controller} >{}` does",
                    root.display(),
                    path.display()
                )));
            }
        }
        let path = root.join(format!("spangap-lab-{}-{name}", undo.id()));
        undo.about_to_make(CreatedObject::Cgroup { path: path.clone() })?;
        fs::create_dir(&path).map_err(|error| unavailable(format!("{}: {error}", path.display())))?;
        for (file, text) in settings(version) {
            let file = path.join(file);
            fs::write(&file, text).map_err(|error| unavailable(format!("{}: {error}", file.display())))?;
        }
        Ok(path)
    }
}

/// Files and values, in this order. Within its quota, a group takes precedence over others: only the quota
/// should hold it up, not the machine's other load.
fn settings(version: Version, quota: Quota) -> Vec<(&'static str, String)> {
    let (time, period) = (quota.time.as_micros(), quota.period.as_micros());
    match version {
        Version::V1 => {
            let shares = ("cpu.shares", "262144".to_owned());
            vec![shares, ("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", time.to_string())]
        }
        Version::V2 => vec![("cpu.weight", "10000".to_owned()), ("cpu.max", format!("{time} {period}"))],
    }
}

/// Location of a controller's groups. If both versions are mounted, version 1 has the controller if it is
/// mounted there at all.
fn place(mounts: Vec<CgroupMount>, controller: &str) -> Option<(Version, PathBuf)> {
    let mounts = mounts.into_iter().filter(|mount| mount.version == Version::V2 || mount.has(controller));
    let found = mounts.min_by_key(|mount| mount.version);
    found.map(|mount| (mount.version, PathBuf::from(mount.point)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
29 27 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:8 - cgroup2 cgroup2 rw
30 27 0:27 / /sys/fs/cgroup/systemd rw,nosuid shared:9 - cgroup cgroup rw,xattr,name=systemd
33 27 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
34 27 0:31 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset
";
    const UNIFIED: &str = "\
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
29 24 0:26 / /sys/fs/cgroup rw,nosuid shared:8 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn the_controller_is_where_it_is_mounted() {
        let place =
            |text: &str| place(mountinfo::cgroups(mountinfo::PATH, text).expect("they are mounts"), "cpu");
        assert_eq!(place(HYBRID), Some((Version::V1, "/sys/fs/cgroup/cpu,cpuacct".into())));
        assert_eq!(place(UNIFIED), Some((Version::V2, "/sys/fs/cgroup".into())));
        assert_eq!(place("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), None);
    }

    #[test]
    fn a_quota_as_each_version_takes_it() {
        let quota = Quota { time: Duration::from_millis(20), period: Duration::from_millis(100) };
        let one = settings(Version::V1, quota);
        assert_eq!(one[1..], [("cpu.cfs_period_us", "100000".into()), ("cpu.cfs_quota_us", "20000".into())]);
        assert_eq!(settings(Version::V2, quota)[1..], [("cpu.max", "20000 100000".into())]);
    }
}
