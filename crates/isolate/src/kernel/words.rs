//! Meaning of the kernel's errors at a place.

use crate::place::Place;
use rustix::io::Errno;
use std::io;

/// Explains an error, unless it is self-explanatory.
pub fn meaning(place: &Place, error: &io::Error) -> Option<String> {
    let errno = Errno::from_io_error(error)?;
    let of_place = match place {
        Place::File { path } => file(path, errno),
        Place::Group { .. } => group(errno),
        Place::Tasks { .. } => tasks(errno),
        Place::Affinity { .. } => affinity(errno),
        Place::Queues { .. } => queues(errno),
        Place::BannedIrqs | Place::Service { .. } => None,
    };
    of_place.map(str::to_owned).or_else(|| rights(errno))
}

/// Missing rights, at any place.
fn rights(errno: Errno) -> Option<String> {
    match errno {
        Errno::PERM | Errno::ACCESS if !rustix::process::geteuid().is_root() => Some("needs root".to_owned()),
        Errno::PERM | Errno::ACCESS => {
            Some("not allowed here, even to root: inside a container, or locked down".to_owned())
        }
        Errno::ROFS => Some("mounted read-only, as inside a container: run it on the host".to_owned()),
        _ => None,
    }
}

fn file(path: &str, errno: Errno) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let no_such_cpu = "a CPU that this machine does not have, or that is not online";
    Some(match (name, errno) {
        ("smp_affinity_list" | "smp_affinity", Errno::IO) => {
            "the kernel keeps this interrupt where it is: it is managed, or bound to one CPU"
        }
        ("smp_affinity_list" | "smp_affinity", Errno::NOSPC) => "these CPUs have no interrupt vector left",
        ("smp_affinity_list" | "smp_affinity", Errno::INVAL) => "none of these CPUs is online",
        (_, Errno::RANGE | Errno::OVERFLOW) => no_such_cpu,
        ("rps_cpus", Errno::INVAL) => "CPUs isolated at boot (isolcpus, nohz_full) are not allowed here",
        ("cpuset.cpus", Errno::BUSY) => {
            "a group below it would lose CPUs that it has, or its tasks would have no CPU"
        }
        ("cpuset.cpus", Errno::ACCESS) => "its parent does not have these CPUs",
        ("cpuset.cpus", Errno::INVAL) => "CPUs that are not online, or that an exclusive group beside it has",
        ("cpuset.cpus" | "cpuset.mems", Errno::NOSPC) => "it has tasks, which need a CPU and memory",
        ("cpuset.cpu_exclusive", Errno::ACCESS) => "its parent is not exclusive",
        ("cpuset.cpu_exclusive", Errno::INVAL) => "a group beside it has some of its CPUs",
        ("cgroup.subtree_control", Errno::BUSY) => {
            "the group has tasks of its own, or groups below it use that"
        }
        (_, Errno::NODEV) => "the cgroup or the device is being removed",
        _ => return None,
    })
}

fn group(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::BUSY => Some("there are groups below it, or tasks that cannot leave it"),
        Errno::NOTEMPTY => Some("there are groups below it"),
        _ => None,
    }
}

fn tasks(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOSPC => Some("their new group has no CPU, or no memory"),
        Errno::BUSY => {
            Some("their new group delegates its controllers to groups below it, and takes no tasks")
        }
        Errno::INVAL => Some("a kernel thread that is bound to its CPU"),
        _ => None,
    }
}

fn affinity(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::INVAL => Some("a kernel thread that is bound to its CPU, or none of these is in its cpuset"),
        Errno::SRCH => Some("the thread has ended"),
        _ => None,
    }
}

fn queues(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::OPNOTSUPP => Some("its driver cannot change the number of queues"),
        Errno::INVAL => {
            Some("more than it has, or in conflict with its other settings (XDP, RSS, AF_XDP rings)")
        }
        Errno::BUSY => Some("it cannot be changed while the interface is up or in use"),
        Errno::NODEV => Some("no such interface in this network namespace"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_explained_by_place() {
        let said = |path: &str, errno: Errno| meaning(&Place::file(path), &errno.into());
        assert!(
            said("/proc/irq/9/smp_affinity_list", Errno::IO).is_some_and(|text| text.contains("managed"))
        );
        assert!(
            said("/proc/irq/9/smp_affinity_list", Errno::OVERFLOW).is_some_and(|text| text.contains("CPU"))
        );
        assert!(said("/sys/x/cpuset.cpus", Errno::BUSY).is_some_and(|text| text.contains("below")));
        assert!(said("/sys/x", Errno::ROFS).is_some_and(|text| text.contains("on the host")));
        assert_eq!(said("/sys/x", Errno::NOMEM), None);
        assert_eq!(meaning(&Place::BannedIrqs, &io::Error::other("said no more")), None);
    }
}
