//! `/proc/PID/cgroup`: in which group of each hierarchy a process or a thread is.

use crate::{FactError, Known};

/// Its name in the folder of a process or a thread.
pub const NAME: &str = "cgroup";

/// The group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Controllers of the hierarchy, or its name (`name=systemd`); none: that of version 2.
    pub controllers: Vec<String>,
    /// The group, from the root of the namespace that is seen here: `/..` is outside of it. One that was removed while it
    /// had processes is named `/GROUP (deleted)`, so that it is not taken for a new one of its name.
    pub path: String,
}

impl Membership {
    /// Whether it is in the hierarchy of version 2.
    pub fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Whether it is in a hierarchy of version 1 with this controller, or of this name.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// Reads all of them.
///
/// # Errors
/// A line that is of another form.
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
