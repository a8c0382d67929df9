//! `/proc/PID/cgroup`: the group of a process or thread in each hierarchy.

use crate::{FactError, Known};

/// File name in a process's or thread's folder.
pub const NAME: &str = "cgroup";

/// The group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Controllers of the hierarchy, or its name (`name=systemd`); empty for version 2.
    pub controllers: Vec<String>,
    /// The group's path from the root of this cgroup namespace: `/..` is outside of it. A group removed while
    /// it had processes reads `/GROUP (deleted)`, which distinguishes it from a new one with its name.
    pub path: String,
}

impl Membership {
    /// Whether it is in the hierarchy of version 2.
    pub fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Whether it is in a version 1 hierarchy with this controller, or with this name.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// Parses all groups.
///
/// # Errors
/// A malformed line.
pub fn parse(path: &str, text: &str) -> Known<Vec<Membership>> {
    let line = |(at, line): (usize, &str)| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, place) = parts
            .next()
            .zip(parts.next())
            .filter(|(_, place)| place.starts_with('/'))
            .ok_or_else(|| FactError::malformed(path, at, line, "NUMBER:CONTROLLERS:/PATH"))?;
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(Membership { controllers, path: place.to_owned() })
    };
    text.lines().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        let text = "12:pids:/a\n4:cpu,cpuacct:/docker/x:y\n1:name=systemd:/system.slice/b.service\n0::/system.slice (deleted)\n";
        let all = parse("/proc/7/cgroup", text).unwrap();
        let shown: Vec<_> = all.iter().map(|one| (one.controllers.join(","), one.path.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("pids".to_owned(), "/a"),
                ("cpu,cpuacct".into(), "/docker/x:y"),
                ("name=systemd".into(), "/system.slice/b.service"),
                (String::new(), "/system.slice (deleted)"),
            ]
        );
        assert!(all[1].has("cpuacct") && !all[1].is_v2() && all[3].is_v2() && !all[3].has("cpu"));
        for bad in ["nonsense\n", "4:cpu\n", "4:cpu:relative\n"] {
            assert!(parse("/proc/7/cgroup", bad).is_err(), "{bad}");
        }
    }
}
