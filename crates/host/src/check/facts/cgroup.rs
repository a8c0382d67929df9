//! A process's cgroups that carry a CPU controller, in both versions: its own first, then its ancestors.

use super::super::{Cpus, FactError, Host, Known};
use super::pressure::{self, Pressure};
use spangap_machine::facts::cpu_stat::{self, Throttled};
use spangap_machine::facts::mountinfo::{self, CgroupMount, Version};
use spangap_machine::facts::{cpu_list, figures, process_cgroup};

/// CPU time that a cgroup may use per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time per period, in microseconds.
    pub quota_us: u64,
    /// Length of the period, in microseconds.
    pub period_us: u64,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Path below the root of its hierarchy.
    pub name: String,
    pub folder: String,
    /// Cgroup version, which decides the file names.
    pub version: Version,
    /// CPU quota; `None` if unlimited.
    pub quota: Known<Option<Quota>>,
    /// Throttling caused by the quota.
    pub throttled: Known<Throttled>,
    /// `cpu.weight` (100 unless set) or `cpu.shares` (1024).
    pub weight: Known<u64>,
    /// CPU pressure inside the cgroup; version 2 only.
    pub pressure: Known<Pressure>,
}

/// CPUs that a process's cpuset allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    /// File that the CPUs were read from.
    pub path: String,
    /// The allowed CPUs.
    pub cpus: Cpus,
}

/// Reads the cgroup mounts.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read.
pub fn mounts(host: &Host) -> Known<Vec<CgroupMount>> {
    host.parsed(mountinfo::PATH, mountinfo::cgroups)
}

/// Locates a process's cgroup in a controller's hierarchy: version, mount folder, path below it.
pub fn place(
    host: &Host,
    mounts: &[CgroupMount],
    pid: u32,
    controller: &str,
) -> Known<(Version, String, String)> {
    let path = format!("/proc/{pid}/{}", process_cgroup::NAME);
    let places = host.parsed(&path, process_cgroup::parse)?;
    let v1 = || {
        Some((
            mounts.iter().find(|mount| mount.has(controller))?,
            places.iter().find(|one| one.has(controller))?,
        ))
    };
    let v2 = || {
        let mount = mounts.iter().find(|mount| mount.version == Version::V2)?;
        Some((mount, places.iter().find(|one| one.is_v2())?))
    };
    let (mount, place) = v1().or_else(v2).ok_or_else(|| FactError::Read {
        path: path.clone(),
        why: format!("no cgroup file system with the controller {controller} is mounted here"),
        absent: true,
    })?;
    // A container sees only part of the hierarchy, and sees it at its own mount.
    let below = mount.below(&place.path).ok_or_else(|| {
        let why = match mount.root.as_str() {
            "/" => format!("{} is outside the cgroup namespace visible here", place.path),
            root => {
                format!("{} is outside what is mounted at {}: {root} and below", place.path, mount.point)
            }
        };
        FactError::Read { path, why, absent: false }
    })?;
    Ok((mount.version, mount.point.clone(), below.to_owned()))
}

/// The file that shows a process to be frozen by its own cgroup or by an ancestor; `None` if it is not frozen,
/// or if that cannot be determined.
pub fn freezer(host: &Host, pid: u32) -> Option<String> {
    let mounts = mounts(host).ok()?;
    // The freezer of version 1, and version 2 alongside it, which has no controller of that name.
    ["freezer", "no controller"].into_iter().find_map(|controller| {
        let (version, at, below) = place(host, &mounts, pid, controller).ok()?;
        let (file, frozen) = match version {
            Version::V1 => ("freezer.state", "FROZEN"),
            Version::V2 => ("cgroup.events", "frozen 1"),
        };
        let path = format!("{at}{below}/{file}");
        host.read(&path).ok()?.lines().any(|line| line.trim() == frozen).then_some(path)
    })
}

/// All cgroups that can limit a process's CPU time.
///
/// # Errors
/// The process's cgroup cannot be read, or is not mounted here.
pub fn of(host: &Host, mounts: &[CgroupMount], pid: u32) -> Known<Vec<Group>> {
    let (version, at, mut below) = place(host, mounts, pid, "cpu")?;
    let mut groups = Vec::new();
    loop {
        groups.push(read(host, version, &at, &below));
        match below.rfind('/') {
            Some(cut) => below.truncate(cut),
            None => return Ok(groups),
        }
    }
}

/// The cpuset of a process.
///
/// # Errors
/// The process's cgroup cannot be read, or has no cpuset controller.
pub fn cpuset(host: &Host, mounts: &[CgroupMount], pid: u32) -> Known<CpuSet> {
    let (version, at, mut below) = place(host, mounts, pid, "cpuset")?;
    let file = if version == Version::V1 { "cpuset.effective_cpus" } else { "cpuset.cpus.effective" };
    loop {
        let path = format!("{at}{below}/{file}");
        match (host.read(&path), below.rfind('/')) {
            (Ok(text), _) => {
                let cpus = cpu_list::list(&path, &text)?;
                return Ok(CpuSet { path, cpus });
            }
            // Version 2: the controller is enabled only in an ancestor.
            (Err(error), Some(cut)) if error.is_absent() => below.truncate(cut),
            (Err(error), _) => return Err(error),
        }
    }
}

fn read(host: &Host, version: Version, at: &str, below: &str) -> Group {
    let folder = format!("{at}{below}");
    let file = |name: &str| format!("{folder}/{name}");
    let figure = |name: &str| host.parsed::<i64>(&file(name), figures::number);
    let quota = match version {
        Version::V1 => figure("cpu.cfs_quota_us").and_then(|quota_us| {
            let period_us = figure("cpu.cfs_period_us")?;
            Ok(u64::try_from(quota_us)
                .ok()
                .map(|quota_us| Quota { quota_us, period_us: period_us.max(0) as u64 }))
        }),
        Version::V2 => host.parsed(&file("cpu.max"), cpu_max),
    };
    let throttled = host.parsed(&file(cpu_stat::NAME), cpu_stat::throttled);
    let weight = figure(if version == Version::V1 { "cpu.shares" } else { "cpu.weight" });
    let pressure = host.parsed(&file("cpu.pressure"), pressure::parse);
    // The root of a hierarchy has neither limits nor these files.
    let root = |error: &FactError| below.is_empty() && error.is_absent();
    let quota = if quota.as_ref().is_err_and(root) { Ok(None) } else { quota };
    let name = if below.is_empty() { "/" } else { below };
    Group {
        name: name.to_owned(),
        folder: folder.clone(),
        version,
        quota,
        throttled: throttled.map(Option::unwrap_or_default),
        weight: weight.map(|weight| weight.max(0) as u64),
        pressure,
    }
}

fn cpu_max(path: &str, text: &str) -> Known<Option<Quota>> {
    let bad = || FactError::malformed(path, 0, text, "a quota or max, and a period, in microseconds");
    let (quota, period) = text.trim().split_once(' ').ok_or_else(bad)?;
    let period_us = period.parse().map_err(|_| bad())?;
    if quota == "max" {
        return Ok(None);
    }
    Ok(Some(Quota { quota_us: quota.parse().map_err(|_| bad())?, period_us }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spangap_machine::Kept;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|[0-9]{1,3} [0-9]{1,3}\n") {
            let _ = cpu_max("/p", &text);
        }
    }

    fn groups(tree: &str) -> Vec<Group> {
        let host = Host::kept(Kept::parse(tree).unwrap());
        of(&host, &mounts(&host).unwrap(), 7).unwrap()
    }

    #[test]
    fn version_2_includes_all_ancestors() {
        let groups = groups(
            "=== /proc/self/mountinfo\n1 2 0:3 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
             === /proc/7/cgroup\n0::/a.slice/b.scope\n\
             === /sys/fs/cgroup/a.slice/b.scope/cpu.max\n20000 100000\n\
             === /sys/fs/cgroup/a.slice/b.scope/cpu.stat\nusage_usec 1\nnr_periods 3\nnr_throttled 2\nthrottled_usec 9\n\
             === /sys/fs/cgroup/a.slice/cpu.max\nmax 100000\n\
             === /sys/fs/cgroup/cpu.stat\nusage_usec 1\n",
        );
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/a.slice/b.scope", "/a.slice", "/"]);
        assert_eq!(groups[0].quota, Ok(Some(Quota { quota_us: 20_000, period_us: 100_000 })));
        assert_eq!(groups[0].throttled, Ok(Throttled { periods: 3, throttled: 2, ns: 9_000 }));
        assert_eq!((&groups[1].quota, &groups[2].quota), (&Ok(None), &Ok(None)));
        assert!(groups[1].throttled.as_ref().unwrap_err().is_absent());
    }

    #[test]
    fn hybrid_uses_the_version_that_has_the_controller() {
        let groups = groups(
            "=== /proc/self/mountinfo\n1 2 0:3 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             1 2 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             === /proc/7/cgroup\n4:cpu,cpuacct:/docker/x/y\n0::/z\n\
             === /sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_quota_us\n-1\n=== /sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_period_us\n100000\n",
        );
        assert_eq!(
            (groups[0].folder.as_str(), groups[0].version),
            ("/sys/fs/cgroup/cpu,cpuacct/y", Version::V1)
        );
        assert_eq!(groups[0].quota, Ok(None));
    }

    #[test]
    fn process_outside_the_container_lacks_its_quota() {
        let host = Host::kept(
            Kept::parse(
                "=== /proc/self/mountinfo\n1 2 0:3 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 === /proc/7/cgroup\n4:cpu:/\n\
                 === /sys/fs/cgroup/cpu/cpu.cfs_quota_us\n50000\n=== /sys/fs/cgroup/cpu/cpu.cfs_period_us\n100000\n",
            )
            .unwrap(),
        );
        let error = of(&host, &mounts(&host).unwrap(), 7).unwrap_err().to_string();
        assert!(error.contains("/ is outside what is mounted at /sys/fs/cgroup/cpu: /docker/x"), "{error}");
    }

    #[test]
    fn outside_of_the_namespace() {
        let tree = "=== /proc/self/mountinfo\n1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n=== /proc/7/cgroup\n0::/../other\n";
        let host = Host::kept(Kept::parse(tree).unwrap());
        let error = of(&host, &mounts(&host).unwrap(), 7).unwrap_err();
        assert!(error.to_string().contains("outside the cgroup namespace"), "{error}");
    }
}
