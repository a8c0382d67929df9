//! Names of existing objects, from `/proc` and `/sys`.

use super::{DeviceName, Names, TaskName};
use spangap_machine::facts::{cpu_table, process_cgroup};
use spangap_machine::read_here;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of cgroup names; a normal host has hundreds.
const MAX_CGROUPS: usize = 100_000;

impl Names {
    /// Reads the names of all threads, cgroups, interrupts and interfaces of this host. Objects that vanish
    /// meanwhile, or cannot be read, stay unnamed.
    pub fn of_this_host() -> Names {
        let mut found = Names { cgroups: cgroups(), irqs: irqs(), ..Names::default() };
        let hierarchy = Hierarchy::of_this_host();
        for process in numbers_in(Path::new("/proc")) {
            let folder = Path::new("/proc").join(process.to_string());
            let cgroup_id = hierarchy.cgroup_of(&folder);
            for tid in numbers_in(&folder.join("task")) {
                let Ok(comm) = fs::read(folder.join(format!("task/{tid}/comm"))) else { continue };
                let comm = super::text(comm.strip_suffix(b"\n").unwrap_or(&comm));
                found.tasks.insert(tid, TaskName { comm, tgid: process, cgroup_id });
            }
        }
        for interface in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let index = fs::read_to_string(interface.path().join("ifindex"));
            if let Some(index) = index.ok().and_then(|text| text.trim().parse().ok()) {
                let name = interface.file_name().to_string_lossy().into_owned();
                found.devices.insert(index, DeviceName { name, network: None });
            }
        }
        let mut names = Names::default();
        names.absorb(found);
        names
    }
}

fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The cgroup hierarchy that holds the CPU quotas.
struct Hierarchy {
    root: &'static str,
    /// Controller; empty for version 2.
    controller: &'static str,
}

impl Hierarchy {
    fn of_this_host() -> Hierarchy {
        if fs::exists("/sys/fs/cgroup/cpu/tasks").unwrap_or(false) {
            Hierarchy { root: "/sys/fs/cgroup/cpu", controller: "cpu" }
        } else {
            Hierarchy { root: "/sys/fs/cgroup", controller: "" }
        }
    }

    fn cgroup_of(&self, process: &Path) -> u64 {
        let path = process.join(process_cgroup::NAME);
        let places = read_here(&path.to_string_lossy(), process_cgroup::parse).unwrap_or_default();
        let place = places.iter().find(|one| match self.controller {
            "" => one.is_v2(),
            controller => one.has(controller),
        });
        // A cgroup's id is the inode of its folder.
        place
            .and_then(|place| fs::metadata(format!("{}{}", self.root, place.path)).ok())
            .map_or(0, |folder| folder.ino())
    }
}

/// All cgroups by id.
pub(super) fn cgroups() -> std::collections::BTreeMap<u64, String> {
    let root = Path::new(Hierarchy::of_this_host().root);
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(inode) = fs::metadata(&folder).map(|folder| folder.ino()) else { continue };
        let below = folder.strip_prefix(root).unwrap_or(&folder).to_string_lossy();
        found.insert(inode, format!("/{below}"));
        if found.len() >= MAX_CGROUPS {
            break;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    found
}

/// Device names of each numbered interrupt.
fn irqs() -> std::collections::BTreeMap<u32, String> {
    let table = read_here(cpu_table::INTERRUPTS, cpu_table::parse).unwrap_or_default();
    table.rows.iter().filter_map(|row| Some((row.name.parse().ok()?, row.devices()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_its_names() {
        let names = Names::of_this_host();
        let tid = std::process::id();
        let task = names.task(tid).expect("this process is in /proc");
        assert_eq!(task.tgid, tid);
        assert_eq!(names.tgid(1), Some(1));
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(task.comm, comm.trim_end());
        if task.cgroup_id != 0 {
            let path = names.cgroup(task.cgroup_id).expect("its cgroup has a path");
            assert!(fs::read_to_string("/proc/self/cgroup").unwrap().contains(path), "{path}");
        }
        assert!(names.devices.values().any(|device| device.name == "lo"));
    }
}
