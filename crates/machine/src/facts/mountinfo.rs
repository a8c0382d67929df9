//! `/proc/self/mountinfo`: mounts of cgroup hierarchies, their controllers, and the part of the hierarchy that
//! is visible there.

use crate::{FactError, Known};
use serde::Serialize;

/// Mounts that this process sees; another process in another mount namespace sees others.
pub const PATH: &str = "/proc/self/mountinfo";

/// Cgroup version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A hierarchy per controller or set of controllers; also in a hybrid set-up.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Its version, which decides how quotas and cpusets are read.
    pub version: Version,
    /// Where it is mounted.
    pub point: String,
    /// The group visible as the root, named as in `/proc/PID/cgroup`.
    pub root: String,
    /// Controllers, for version 1; those of version 2 are in its `cgroup.controllers`.
    pub controllers: Vec<String>,
}

impl CgroupMount {
    /// Whether it is of version 1 and has this controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Path of a group of this hierarchy relative to the mount point: empty for the root, else with a leading
    /// `/`. `None` if it is not visible here.
    pub fn below<'a>(&self, group: &'a str) -> Option<&'a str> {
        let below = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let below = below.trim_end_matches('/');
        // `/..` is a group outside of this namespace; `/ab` is not below `/a`.
        let inside =
            (below.is_empty() || below.starts_with('/')) && !below.split('/').any(|part| part == "..");
        inside.then_some(below)
    }
}

/// Mount options of a hierarchy that are not controllers, besides those with a value (`name=systemd`).
const FLAGS: &[&str] = &[
    "rw",
    "ro",
    "sync",
    "dirsync",
    "mand",
    "lazytime",
    "seclabel",
    "xattr",
    "clone_children",
    "noprefix",
    "cpuset_v2_mode",
    "none",
    "favordynmods",
];

/// Parses the mounted cgroup hierarchies, in their order.
///
/// # Errors
/// A malformed line.
pub fn cgroups(path: &str, text: &str) -> Known<Vec<CgroupMount>> {
    let mut mounts = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = || FactError::malformed(path, at, line, "a mount, with ` - ` and its file system");
        let (mount, filesystem) = line.split_once(" - ").ok_or_else(bad)?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = fields.next().zip(fields.next()).ok_or_else(bad)?;
        let mut words = filesystem.split(' ');
        let version = match words.next() {
            Some("cgroup") => Version::V1,
            Some("cgroup2") => Version::V2,
            _ => continue,
        };
        let options = words.nth(1).unwrap_or_default().split(',');
        let controllers = match version {
            Version::V1 => options
                .filter(|option| !option.is_empty() && !option.contains('=') && !FLAGS.contains(option))
                .map(str::to_owned)
                .collect(),
            Version::V2 => Vec::new(),
        };
        mounts.push(CgroupMount { version, point: unescaped(point), root: unescaped(root), controllers });
    }
    Ok(mounts)
}

/// A path in which the kernel wrote blanks as `\040`.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid() {
        let text = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,size=4096k
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:14 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
35 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,seclabel,memory
";
        let mounts = cgroups(PATH, text).unwrap();
        let shown: Vec<_> = mounts.iter().map(|mount| (mount.version, mount.controllers.join(","))).collect();
        assert_eq!(
            shown,
            [
                (Version::V2, String::new()),
                (Version::V1, String::new()),
                (Version::V1, "cpu,cpuacct".into()),
                (Version::V1, "blkio".into()),
                // SELinux inserts an option before the controllers.
                (Version::V1, "memory".into()),
            ]
        );
        assert!(mounts[2].has("cpu") && !mounts[2].has("rw") && !mounts[0].has("cpu"));
    }

    #[test]
    fn mounts_of_other_forms() {
        let of = |text: &str| cgroups(PATH, text);
        let spaced = of("1 2 0:3 /docker/x /a\\040b rw - cgroup c rw,cpuset,cpu\n").unwrap();
        assert_eq!((spaced[0].point.as_str(), spaced[0].root.as_str()), ("/a b", "/docker/x"));
        assert_eq!(of("1 2 0:3 / /proc rw - proc\n\n"), Ok(vec![]));
        for bad in ["1 2 0:3 / /x rw", "1 - cgroup c rw", "nonsense"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_below_the_visible_root() {
        let below = |root: &str, group: &'static str| {
            let root = root.to_owned();
            let mount = CgroupMount { version: Version::V2, point: "/m".into(), root, controllers: vec![] };
            mount.below(group)
        };
        assert_eq!((below("/", "/"), below("/", "/a/b")), (Some(""), Some("/a/b")));
        assert_eq!(
            (below("/docker/x", "/docker/x"), below("/docker/x", "/docker/x/y")),
            (Some(""), Some("/y"))
        );
        assert_eq!((below("/docker/x", "/docker/xy"), below("/docker/x", "/")), (None, None));
        assert_eq!((below("/", "/../other"), below("/..", "/a")), (None, None));
    }
}
