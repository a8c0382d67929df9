//! A real machine, or a copy of one below a folder.

use super::files::Root;
use super::{Kernel, PlaceError, WriteEffects, ethtool, groups, irqbalance, service, threads};
use crate::place::Place;
use crate::topology::Topology;
use spangap_machine::Host;
use std::io;
use std::path::{Path, PathBuf};

/// This machine, or a copy of a machine's files.
///
/// In a copy everything is a file. It has no tasks to move, and no services: starting or stopping one is
/// refused.
#[derive(Clone, Debug)]
pub struct Live {
    root: Root,
}

impl Live {
    /// This machine.
    #[expect(clippy::new_without_default, reason = "a machine is not a default value")]
    pub fn new() -> Live {
        Live { root: Root::machine() }
    }

    /// A copy below a folder.
    pub fn copy(root: impl Into<PathBuf>) -> Live {
        Live { root: Root::copy(root) }
    }

    /// Folder of the copy; `None` for this machine.
    pub fn copied_to(&self) -> Option<&Path> {
        self.root.is_copy().then(|| self.root.path())
    }

    /// The machine's topology, including what is in no file: numbers of queues, and irqbalance's list.
    pub fn topology(&self) -> Topology {
        self.topology_of(&self.files())
    }

    /// The same, from files whose reads are to be recorded.
    pub fn topology_of(&self, files: &Host) -> Topology {
        let mut topology = Topology::read(files);
        for interface in &mut topology.interfaces {
            if interface.queues.is_none() {
                interface.queues = ethtool::queues(&self.root, &interface.name).ok().flatten();
            }
        }
        if let Some(irqbalance) = &mut topology.irqbalance
            && irqbalance.banned.is_none()
        {
            irqbalance.banned = irqbalance::banned(&self.root).ok().flatten();
        }
        topology
    }

    fn value(&self, place: &Place) -> io::Result<Option<String>> {
        let root = &self.root;
        Ok(match place {
            Place::File { path } if is_controllers(path) => {
                root.read(path)?.map(|text| controllers::get(&text))
            }
            Place::File { path } => root.read(path)?,
            Place::Group { path } => groups::exists(root, path)?.then(|| groups::MADE.to_owned()),
            Place::Tasks { from, to } => groups::tasks(root, from, to)?.map(str::to_owned),
            Place::Affinity { tid, start_ticks, .. } => threads::affinity(root, *tid, *start_ticks)?,
            Place::Queues { interface } => {
                ethtool::queues(root, interface)?.map(|queues| queues.now.to_string())
            }
            Place::BannedIrqs => irqbalance::banned(root)?.map(|irqs| irqbalance::words(&irqs)),
            Place::Service { name } => service::get(root, name)?.map(str::to_owned),
        })
    }

    fn write(&self, place: &Place, text: &str) -> io::Result<WriteEffects> {
        let root = &self.root;
        let nothing = |done: io::Result<()>| done.map(|()| WriteEffects::default());
        match place {
            Place::File { path } => {
                meant(root, path)?;
                if root.is_copy() && is_controllers(path) {
                    let old = root.read(path)?.unwrap_or_default();
                    return nothing(root.write(path, &controllers::set(&old, text)));
                }
                if path.ends_with(groups::PARTITION) && text.trim() == "isolated" {
                    groups::part(root, path)?;
                }
                nothing(root.write(path, text))
            }
            Place::Group { path } => match text {
                groups::MADE => nothing(groups::make(root, path)),
                groups::GONE => groups::remove(root, path),
                _ => Err(unexpected("`made` or `gone`")),
            },
            // A copy has no tasks, so all of them are moved.
            Place::Tasks { .. } if root.is_copy() => Ok(WriteEffects::default()),
            Place::Service { .. } if root.is_copy() => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a copy has no services"))
            }
            Place::Tasks { from, to } => match text {
                groups::MOVED => groups::move_all(root, from, to),
                groups::BACK => groups::move_all(root, to, from),
                _ => Err(unexpected("`moved` or `back`")),
            },
            Place::Affinity { tid, start_ticks, .. } => {
                nothing(threads::set_affinity(root, *tid, *start_ticks, text))
            }
            Place::Queues { interface } => {
                let combined = text.trim().parse().map_err(|_| unexpected("a number of queues"))?;
                nothing(ethtool::set_queues(root, interface, combined))
            }
            Place::BannedIrqs => {
                let irqs =
                    irqbalance::parse_words(text).ok_or_else(|| unexpected("numbers of interrupts"))?;
                nothing(irqbalance::ban(root, &irqs))
            }
            Place::Service { name } => nothing(service::set(root, name, text)),
        }
    }
}

/// The file that lists the controllers of a version 2 cgroup's children. Its value here is whether `cpuset` is
/// listed, in the syntax that the kernel accepts: `+cpuset`, `-cpuset`.
fn is_controllers(path: &str) -> bool {
    path.ends_with("/cgroup.subtree_control")
}

mod controllers {
    const CPUSET: &str = "cpuset";

    pub fn get(list: &str) -> String {
        let has = list.split_whitespace().any(|name| name == CPUSET);
        format!("{}{CPUSET}", if has { '+' } else { '-' })
    }

    /// The list as the kernel would print it after `+cpuset` or `-cpuset` was written.
    pub fn set(list: &str, text: &str) -> String {
        let others = list.split_whitespace().filter(|name| *name != CPUSET);
        // The kernel always lists it first.
        let first = (text.trim() == "+cpuset").then_some(CPUSET);
        first.into_iter().chain(others).collect::<Vec<_>>().join(" ")
    }
}

fn unexpected(expected: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("expected {expected}"))
}

/// A plan and a journal are files that name files: only paths that `isolate` deals with are written, whatever
/// they name.
fn meant(root: &Root, path: &str) -> io::Result<()> {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let of_a_cgroup = || {
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let ours = name.starts_with("cpuset.") || name == "cgroup.subtree_control";
        ours && root.real(folder).is_ok_and(|folder| folder.join("cgroup.procs").exists())
    };
    let ours = ["/proc/irq", "/proc/sys/net", "/sys/class/net", "/sys/devices", "/sys/fs/cgroup"];
    if ours.into_iter().any(below) || of_a_cgroup() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "this is not one of the files that isolate changes"))
}

impl Kernel for Live {
    fn files(&self) -> Host {
        Host::below(self.root.path())
    }

    fn topology(&self) -> Topology {
        Live::topology(self)
    }

    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError> {
        self.value(place).map_err(|source| PlaceError::read(place, source))
    }

    fn set(&self, place: &Place, text: &str) -> Result<WriteEffects, PlaceError> {
        self.write(place, text).map_err(|source| PlaceError::write(place, text, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_files_that_isolate_is_about_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("etc")).expect("it is ours");
        fs::write(folder.path().join("etc/passwd"), "root\n").expect("it is ours");
        let copy = Live::copy(folder.path());
        let error = copy.set(&Place::file("/etc/passwd"), "x").expect_err("that is not for us");
        let said = error.to_string();
        assert!(
            said.starts_with("cannot write \"x\" to /etc/passwd: this is not one of the files"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(folder.path().join("etc/passwd")).expect("it is there"), "root\n");
    }

    #[test]
    fn whether_the_children_of_a_group_have_cpusets() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().join("sys/fs/cgroup");
        fs::create_dir_all(&mount).expect("it is ours");
        let file = mount.join("cgroup.subtree_control");
        fs::write(&file, "cpu io memory pids\n").expect("it is ours");
        let (copy, place) = (Live::copy(folder.path()), Place::file("/sys/fs/cgroup/cgroup.subtree_control"));
        let get = || copy.get(&place).expect("it is there");
        assert_eq!(get().as_deref(), Some("-cpuset"));
        copy.set(&place, "+cpuset").expect("it is there");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "cpuset cpu io memory pids\n");
        assert_eq!(get().as_deref(), Some("+cpuset"));
        copy.set(&place, "-cpuset").expect("it is there");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "cpu io memory pids\n");
    }

    #[test]
    fn a_copy_has_no_tasks_and_no_services() {
        let copy = Live::copy("/nowhere");
        let thread = Place::Affinity { tid: 1, start_ticks: 1, comm: "init".into() };
        assert_eq!(copy.get(&thread).expect("that is no error"), None);
        assert!(copy.set(&thread, "0").is_err());
        let tasks =
            Place::Tasks { from: "/sys/fs/cgroup/cpuset".into(), to: "/sys/fs/cgroup/cpuset/a".into() };
        assert_eq!(copy.set(&tasks, "moved").expect("there is none"), WriteEffects::default());
        let said =
            copy.set(&Place::Service { name: "irqbalance".into() }, "stopped").expect_err("there is none");
        let said = said.to_string();
        assert_eq!(said, "cannot write \"stopped\" to service irqbalance: a copy has no services");
    }
}
