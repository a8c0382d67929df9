//! Creates and removes cgroups, and moves tasks between them.

use super::WriteEffects;
use super::files::{Root, is_absent};
use super::processes;
use crate::topology::Version;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;
use std::io;

/// The group exists.
pub const MADE: &str = "made";
/// The group does not exist.
pub const GONE: &str = "gone";
/// The tasks are in their new group.
pub const MOVED: &str = "moved";
/// The tasks are in their original group.
pub const BACK: &str = "back";

/// Role of a version 2 group for the scheduler: `member`, `root` or `isolated`.
pub const PARTITION: &str = "/cpuset.cpus.partition";

/// Number of passes over a group whose tasks keep forking, before it counts as never empty.
const ROUNDS: u32 = 100;

/// Whether the group exists.
pub fn exists(root: &Root, path: &str) -> io::Result<bool> {
    match fs::symlink_metadata(root.real(path)?) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a group; an existing one is left unchanged.
pub fn make(root: &Root, path: &str) -> io::Result<()> {
    let parent = parent(path)?;
    // Only inside a hierarchy: a folder anywhere else would not be a group.
    if version(root, parent)?.is_none() {
        let said = format!("{parent} is not a cgroup mounted here");
        return Err(io::Error::new(io::ErrorKind::NotFound, said));
    }
    match fs::create_dir(root.real(path)?) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && exists(root, path)? => return Ok(()),
        made => made?,
    }
    if root.is_copy() { in_copy::fill(root, path, parent) } else { Ok(()) }
}

/// Turns a member into a partition before it is isolated. Kernels before 6.2 rebuild the scheduling domains
/// while the siblings' sets are still wide, and so leave all domains unchanged if this is done in one step.
/// Whether this step takes effect does not matter: the read-back after the second step does.
pub fn part(root: &Root, file: &str) -> io::Result<()> {
    if !root.is_copy() && root.read(file)?.is_some_and(|now| now.trim() == "member") {
        let _ = root.write(file, "root");
    }
    Ok(())
}

/// Turns a partition into a member before it is removed. Otherwise these kernels do not give its CPUs
/// scheduling domains again.
fn whole(root: &Root, path: &str) -> io::Result<()> {
    let file = format!("{path}{PARTITION}");
    match root.read(&file)? {
        Some(now) if now.trim() != "member" => root.write(&file, "member"),
        _ => Ok(()),
    }
}

/// Removes a group after moving its tasks to the parent. A missing group is not an error.
pub fn remove(root: &Root, path: &str) -> io::Result<WriteEffects> {
    if !exists(root, path)? {
        return Ok(WriteEffects::default());
    }
    let real = root.real(path)?;
    if root.is_copy() {
        in_copy::empty(&real)?;
        fs::remove_dir(real)?;
        return Ok(WriteEffects::default());
    }
    whole(root, path)?;
    let mut written = WriteEffects::default();
    for round in 1.. {
        match fs::remove_dir(&real) {
            Err(error) if is_absent(&error) => break,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) && round <= ROUNDS => {
                let moved = move_all(root, path, parent(path)?)?;
                written.tasks_moved += moved.tasks_moved;
                written.tasks_refused = moved.tasks_refused;
                // Busy for a reason other than its tasks.
                if moved == WriteEffects::default() && round > 1 {
                    return Err(error);
                }
            }
            removed => return removed.map(|()| written),
        }
    }
    Ok(written)
}

/// Moves all tasks of a group into another, including those forked in the meantime. Kernel threads that cannot
/// be moved are counted.
pub fn move_all(root: &Root, from: &str, to: &str) -> io::Result<WriteEffects> {
    let not_there =
        |path: &str| io::Error::new(io::ErrorKind::NotFound, format!("{path} is not a cgroup mounted here"));
    let file = tasks_file(root, from)?.ok_or_else(|| not_there(from))?;
    let into = format!("{to}/{}", tasks_file(root, to)?.ok_or_else(|| not_there(to))?);
    let mut written = WriteEffects::default();
    let mut refused: HashSet<u32> = HashSet::new();
    for _ in 0..ROUNDS {
        let mut more = false;
        for id in ids(root, &format!("{from}/{file}"))? {
            if refused.contains(&id) {
                continue;
            }
            more = true;
            match root.write(&into, &id.to_string()) {
                Ok(()) => written.tasks_moved += 1,
                Err(error) => match Errno::from_io_error(&error) {
                    // The task has ended.
                    Some(Errno::SRCH) => {}
                    Some(Errno::INVAL) if processes::is_kernels(root, id)? != Some(false) => {
                        refused.insert(id);
                    }
                    _ => return Err(error),
                },
            }
        }
        if !more {
            written.tasks_refused = refused.len() as u64;
            return Ok(written);
        }
    }
    Err(io::Error::other(format!("tasks are created in {from} faster than they can be moved")))
}

/// Whether the tasks of one group were moved into the other; `None` if the original group is gone.
pub fn tasks(root: &Root, from: &str, to: &str) -> io::Result<Option<&'static str>> {
    let Some(file) = tasks_file(root, from)? else { return Ok(None) };
    let Some(into) = tasks_file(root, to)? else { return Ok(Some(BACK)) };
    // A copy has no tasks, so all of them are moved.
    if root.is_copy() || !ids(root, &format!("{to}/{into}"))?.is_empty() {
        return Ok(Some(MOVED));
    }
    for id in ids(root, &format!("{from}/{file}"))? {
        if processes::is_kernels(root, id)? == Some(false) {
            return Ok(Some(BACK));
        }
    }
    Ok(Some(MOVED))
}

/// Cgroup version of a group; `None` if it is not a group. A copy may lack some of its files.
fn version(root: &Root, path: &str) -> io::Result<Option<Version>> {
    let has = |files: &[&str]| -> io::Result<bool> {
        for file in files {
            if root.real(&format!("{path}/{file}"))?.symlink_metadata().is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if has(&["tasks", "cpuset.sched_load_balance", "cpuset.cpu_exclusive"])? {
        return Ok(Some(Version::V1));
    }
    let v2 = ["cgroup.procs", "cgroup.controllers", "cgroup.subtree_control", "cpuset.cpus.effective"];
    Ok(has(&v2)?.then_some(Version::V2))
}

/// The file that lists a group's tasks: threads in version 1, processes in version 2; `None` if it is not a
/// group.
fn tasks_file(root: &Root, path: &str) -> io::Result<Option<&'static str>> {
    for file in ["tasks", "cgroup.procs"] {
        match fs::symlink_metadata(root.real(&format!("{path}/{file}"))?) {
            Ok(_) => return Ok(Some(file)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn ids(root: &Root, path: &str) -> io::Result<Vec<u32>> {
    let text = root.read(path)?.unwrap_or_default();
    // 0 stands for a task of another pid namespace, which cannot be addressed here.
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|id| *id != 0).collect())
}

fn parent(path: &str) -> io::Result<&str> {
    let parent = path.trim_end_matches('/').rsplit_once('/').map(|(parent, _)| parent);
    parent.filter(|parent| !parent.is_empty()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "expected the folder of a cgroup below its mount")
    })
}

/// For a copy: what the kernel would do when a group is created or removed.
mod in_copy {
    use super::{Root, Version, version};
    use std::fs;
    use std::io;
    use std::path::Path;

    const V1: &[(&str, &str)] = &[
        ("tasks", ""),
        ("cgroup.procs", ""),
        ("cpuset.cpus", "\n"),
        ("cpuset.mems", "\n"),
        ("cpuset.effective_cpus", "\n"),
        ("cpuset.cpu_exclusive", "0\n"),
        ("cpuset.sched_load_balance", "1\n"),
    ];
    const V2: &[(&str, &str)] = &[
        ("cgroup.procs", ""),
        ("cpuset.cpus", "\n"),
        ("cpuset.mems", "\n"),
        ("cpuset.cpus.effective", "\n"),
        ("cpuset.cpus.partition", "member\n"),
    ];
    /// Version 2, if the kernel has it.
    const EXCLUSIVE: (&str, &str) = ("cpuset.cpus.exclusive", "\n");

    /// Creates the files that the kernel gives a new group.
    pub fn fill(root: &Root, path: &str, parent: &str) -> io::Result<()> {
        let real = root.real(path)?;
        if version(root, parent)? == Some(Version::V1) {
            return write_all(&real, V1);
        }
        write_all(&real, V2)?;
        if beside(&root.real(parent)?, EXCLUSIVE.0)? { write_all(&real, &[EXCLUSIVE]) } else { Ok(()) }
    }

    fn write_all(folder: &Path, files: &[(&str, &str)]) -> io::Result<()> {
        files.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
    }

    fn beside(parent: &Path, file: &str) -> io::Result<bool> {
        for entry in fs::read_dir(parent)? {
            if entry?.path().join(file).exists() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a group's own files.
    pub fn empty(folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let own = V1.iter().chain(V2).chain([&EXCLUSIVE]).any(|(file, _)| name == *file);
            if own && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_in_a_copy_has_its_files() {
        for (of_root, file) in
            [("tasks", "cpuset.cpu_exclusive"), ("cgroup.controllers", "cpuset.cpus.partition")]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let mount = folder.path().join("sys/fs/cgroup");
            fs::create_dir_all(mount.join("kubepods")).expect("it is ours");
            let root = Root::copy(folder.path());
            let path = "/sys/fs/cgroup/spangap-net";
            assert!(make(&root, path).is_err(), "that is no cgroup yet");
            fs::write(mount.join(of_root), "1\n2\n").expect("it is ours");
            make(&root, path).expect("a group");
            make(&root, path).expect("it is there already");
            assert_eq!(root.read(&format!("{path}/cpuset.cpus")).expect("it is there").as_deref(), Some(""));
            assert!(root.read(&format!("{path}/{file}")).expect("it is there").is_some());
            let exclusive = format!("{path}/cpuset.cpus.exclusive");
            assert_eq!(root.read(&exclusive).expect("that is no error"), None, "the kernel has no such file");
            remove(&root, path).expect("it is empty");
            remove(&root, path).expect("it is gone already");
            assert!(!exists(&root, path).expect("that is no error"));
        }
    }
}
