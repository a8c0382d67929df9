//! Where a value is that can be changed, and when two of its values are the same.

use serde::{Deserialize, Serialize};
use spangap_model::Cpus;
use std::fmt;

/// Where a value is. Every value is a text; what it may be is said at each kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Place {
    /// A file below `/proc` or `/sys`, with what is in it, without the newline at its end. Of `cgroup.subtree_control`
    /// the value is `+cpuset` or `-cpuset`, whatever other controllers are in it.
    File {
        /// Absolute, as on the machine itself.
        path: String,
    },
    /// A cgroup: `made`, or no value when it is not there. To remove one, its tasks are moved to its parent first.
    Group {
        /// Its folder, absolute.
        path: String,
    },
    /// All tasks of one cgroup moved into another: `moved`, or `back`. Those that cannot be moved (kernel threads that
    /// are bound to a CPU) are counted.
    Tasks {
        /// Folder of the cgroup that they are in before.
        from: String,
        /// Folder of the one they are moved to.
        to: String,
    },
    /// CPUs that one thread may run on, as a list; no value when the thread has ended.
    Affinity {
        /// Thread.
        tid: u32,
        /// When it was started, ticks since boot: ids are used again.
        start_ticks: u64,
        /// Its name.
        comm: String,
    },
    /// How many combined queues an interface has, as `ethtool -L IF combined N` sets it.
    Queues {
        /// Interface.
        interface: String,
    },
    /// The interrupts that a running irqbalance leaves alone: numbers in order, with blanks between them.
    BannedIrqs,
    /// A service: `running` or `stopped`.
    Service {
        /// Its systemd unit, or the name of the program where there is no systemd.
        name: String,
    },
}

/// How the text of a file is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// CPUs as a list, `0,3-48`.
    List,
    /// CPUs as a mask, `ff,00000003`.
    Mask,
    /// As it stands.
    Text,
}

impl Place {
    /// A file.
    pub fn file(path: impl Into<String>) -> Place {
        Place::File { path: path.into() }
    }

    /// How its values are to be read.
    pub fn form(&self) -> Form {
        match self {
            Place::File { path } => match path.rsplit('/').next().unwrap_or(path) {
                "smp_affinity_list" | "cpuset.cpus" | "cpuset.cpus.exclusive" | "cpuset.mems" => Form::List,
                "smp_affinity" | "default_smp_affinity" | "rps_cpus" | "xps_cpus" => Form::Mask,
                _ => Form::Text,
            },
            Place::Affinity { .. } => Form::List,
            _ => Form::Text,
        }
    }

    /// Whether two texts are the same value here: `3,0-1` is `0-1,3`, and `00000000,00000002` is `2`.
    pub fn same(&self, one: &str, other: &str) -> bool {
        let cpus = |text: &str| match self.form() {
            Form::List => Cpus::parse_list(text),
            Form::Mask => Cpus::parse_mask(text),
            Form::Text => None,
        };
        match (cpus(one), cpus(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one.trim() == other.trim(),
        }
    }

    /// Whether what is found here is still what was written. A partition stays the one that was asked for when it
    /// becomes invalid: it reads `isolated invalid (why)` then, and holds nothing.
    pub fn still(&self, written: &str, found: &str) -> bool {
        let asked = match self {
            Place::File { path } if path.ends_with("/cpuset.cpus.partition") => {
                found.split_once(" invalid").map_or(found, |(asked, _)| asked)
            }
            _ => found,
        };
        self.same(written, asked)
    }

    /// Whether this may be gone in the daily course of things: threads end, containers too.
    pub fn comes_and_goes(&self) -> bool {
        match self {
            Place::Affinity { .. } => true,
            Place::File { path } => {
                let name = path.rsplit('/').next().unwrap_or(path);
                name.starts_with("cpuset.") || name.starts_with("cgroup.")
            }
            _ => false,
        }
    }

    /// Of a file of a cgroup: its folder and the file's name.
    pub(crate) fn in_group(&self) -> Option<(&str, &str)> {
        let Place::File { path } = self else { return None };
        let (folder, name) = path.rsplit_once('/')?;
        (name.starts_with("cpuset.") || name.starts_with("cgroup.")).then_some((folder, name))
    }

    /// Of a queue of an interface: the interface.
    pub(crate) fn interface(&self) -> Option<&str> {
        let Place::File { path } = self else { return None };
        path.strip_prefix("/sys/class/net/")?.split_once("/queues/").map(|(interface, _)| interface)
    }

    /// Of the affinity of an interrupt: its number.
    pub(crate) fn irq(&self) -> Option<u32> {
        let Place::File { path } = self else { return None };
        let (number, name) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
        name.starts_with("smp_affinity").then(|| number.parse().ok())?
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path } | Place::Group { path } => f.write_str(path),
            Place::Tasks { from, to } => write!(f, "tasks of {from} -> {to}"),
            Place::Affinity { tid, comm, .. } => write!(f, "affinity of {comm} (thread {tid})"),
            Place::Queues { interface } => write!(f, "ethtool -L {interface} combined"),
            Place::BannedIrqs => f.write_str("interrupts that irqbalance leaves alone"),
            Place::Service { name } => write!(f, "service {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_is_the_same_however_it_is_written(cpus in prop::collection::vec(0_u32..300, 0..20)) {
            let one = Cpus::from_iter(cpus.iter().copied());
            let list = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let mask = format!("00000000,{}", one.mask());
            prop_assert!(Place::file("/proc/irq/9/smp_affinity_list").same(&one.to_string(), &list));
            prop_assert!(Place::file("/sys/class/net/a/queues/rx-0/rps_cpus").same(&one.mask(), &mask));
        }

        #[test]
        fn no_text_panics(path in "\\PC*", one in "\\PC*", other in "\\PC*") {
            let place = Place::file(path);
            let _ = (place.same(&one, &other), place.still(&one, &other), place.in_group(), place.irq());
        }
    }

    #[test]
    fn a_partition_that_became_invalid_is_still_ours_and_not_the_same() {
        let place = Place::file("/sys/fs/cgroup/spangap-net/cpuset.cpus.partition");
        let invalid = "isolated invalid (Cpu list in cpuset.cpus not exclusive)";
        assert!(place.still("isolated", invalid) && !place.same("isolated", invalid));
        assert!(!place.still("root", invalid) && !place.still("isolated", "member"));
        assert!(!Place::file("/x").still("isolated", invalid));
    }

    #[test]
    fn which_interrupt_and_which_group() {
        assert_eq!(Place::file("/proc/irq/146/smp_affinity_list").irq(), Some(146));
        assert_eq!(Place::file("/proc/irq/146/spurious").irq(), None);
        let group = Place::file("/sys/fs/cgroup/cpuset/kubepods/cpuset.cpus");
        assert_eq!(group.in_group(), Some(("/sys/fs/cgroup/cpuset/kubepods", "cpuset.cpus")));
        assert!(group.comes_and_goes() && !Place::BannedIrqs.comes_and_goes());
    }
}
