//! Cgroups by path and id, of versions 1 and 2.

use crate::kernel::ProbeError;
use spangap_machine::facts::mountinfo::{self, CgroupMount, Version};
use spangap_machine::read_here;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// The unified hierarchy of version 2.
    V2,
    /// A hierarchy of version 1, by one of its controllers as named in `/proc/cgroups`.
    V1(String),
}

/// A cgroup, including all its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Directory.
    pub path: PathBuf,
    /// The kernel's id of it; that of the directory's inode.
    pub id: u64,
    /// Hierarchy it belongs to.
    pub hierarchy: Hierarchy,
}

/// Mount point of a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Directory.
    pub at: PathBuf,
    /// Hierarchy; `None` for one of version 1 without a controller, whose cgroups the programs cannot see.
    pub hierarchy: Option<Hierarchy>,
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ProbeError {
    let what = what.into();
    move |source| ProbeError::Io { what, source }
}

/// All mounted hierarchies, in the order of `/proc/self/mountinfo`.
///
/// # Errors
/// The file cannot be read.
pub fn mounts() -> Result<Vec<Mount>, ProbeError> {
    let mounts = read_here(mountinfo::PATH, mountinfo::cgroups);
    let mounts = mounts.map_err(|error| io_error("cgroups")(io::Error::other(error)))?;
    Ok(mounts.into_iter().map(Mount::of).collect())
}

impl Mount {
    fn of(mount: CgroupMount) -> Mount {
        let hierarchy = match mount.version {
            Version::V2 => Some(Hierarchy::V2),
            Version::V1 => mount.controllers.into_iter().next().map(Hierarchy::V1),
        };
        Mount { at: PathBuf::from(mount.point), hierarchy }
    }
}

impl Cgroup {
    /// Finds a cgroup by its directory, such as `/sys/fs/cgroup/system.slice/db.service`, or by its path below
    /// the mount point, such as `system.slice/db.service`. The latter is searched for first in version 2, then
    /// in the hierarchy of the `cpu` controller, then in the others.
    ///
    /// # Errors
    /// The cgroup does not exist, or its hierarchy has no controllers.
    pub fn find(name: &str) -> Result<Cgroup, ProbeError> {
        let mut mounts = mounts()?;
        let wrong = |why: String| ProbeError::Io {
            what: format!("cgroup {name}"),
            source: io::Error::new(io::ErrorKind::NotFound, why),
        };
        let rank = |mount: &Mount| match &mount.hierarchy {
            Some(Hierarchy::V2) => 0,
            Some(Hierarchy::V1(name)) if name == "cpu" => 1,
            Some(Hierarchy::V1(_)) => 2,
            None => 3,
        };
        let given = Path::new(name);
        let path = if let Ok(path) = given.canonicalize()
            && mounts.iter().any(|mount| path.starts_with(&mount.at))
        {
            path
        } else {
            mounts.sort_by_key(rank);
            let below = name.trim_start_matches('/');
            let found = mounts.iter().map(|mount| mount.at.join(below)).find(|path| path.is_dir());
            let places: Vec<_> = mounts.iter().map(|mount| mount.at.display().to_string()).collect();
            found.ok_or_else(|| wrong(format!("there is none in {}", places.join(", "))))?
        };
        // The deepest mount wins, because the mount of version 2 may contain others.
        let mount = mounts.iter().filter(|mount| path.starts_with(&mount.at));
        let mount = mount.max_by_key(|mount| mount.at.components().count());
        let hierarchy = mount.and_then(|mount| mount.hierarchy.clone()).ok_or_else(|| {
            wrong(
                "its hierarchy has no controller, so the probe cannot see it; name it in another hierarchy"
                    .into(),
            )
        })?;
        let metadata = fs::metadata(&path).map_err(io_error(path.display().to_string()))?;
        Ok(Cgroup { id: metadata.ino(), path, hierarchy })
    }

    /// Directories and ids of this cgroup and its descendants. Those removed meanwhile are omitted.
    pub fn tree(&self) -> Vec<(u64, PathBuf)> {
        let mut found = vec![(self.id, self.path.clone())];
        let mut at = 0;
        while let Some((_, path)) = found.get(at) {
            let below = fs::read_dir(path).into_iter().flatten().flatten();
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below: Vec<_> =
                below.filter_map(|entry| Some((entry.metadata().ok()?.ino(), entry.path()))).collect();
            found.extend(below);
            at += 1;
        }
        found
    }

    /// Ids of the processes in it and its descendants, as far as readable.
    pub fn processes(&self) -> Vec<u32> {
        let read =
            |(_, path): &(u64, PathBuf)| fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        let text: String = self.tree().iter().map(read).collect();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// The hierarchy that groups refer to by default: version 2 if it has the controllers (it is then mounted where
/// all hierarchies are), else that of the `cpu` controller.
///
/// # Errors
/// Neither exists.
pub fn usual() -> Result<Cgroup, ProbeError> {
    let mounts = mounts()?;
    let found = mounts.iter().find(|mount| {
        mount.hierarchy == Some(Hierarchy::V2) && mount.at == Path::new("/sys/fs/cgroup")
            || mount.hierarchy == Some(Hierarchy::V1("cpu".into()))
    });
    let found = found.or_else(|| mounts.iter().find(|mount| mount.hierarchy.is_some()));
    let mount = found.ok_or_else(|| ProbeError::Io {
        what: "cgroups".into(),
        source: io::Error::new(io::ErrorKind::NotFound, "no tree with controllers is mounted"),
    })?;
    Cgroup::find(&mount.at.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_by_their_mounts() {
        let text = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,size=4096k
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:14 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
";
        let mounts = mountinfo::cgroups("/p", text).unwrap();
        let hierarchies: Vec<_> = mounts.into_iter().map(|mount| Mount::of(mount).hierarchy).collect();
        let v1 = |name: &str| Some(Hierarchy::V1(name.into()));
        assert_eq!(hierarchies, [Some(Hierarchy::V2), None, v1("cpu"), v1("blkio")]);
    }

    #[test]
    fn missing_cgroup() {
        let error = Cgroup::find("no/such/cgroup").unwrap_err().to_string();
        assert!(error.starts_with("cgroup no/such/cgroup: there is none in "), "{error}");
    }
}
