//! Places whose values can be changed, and equality of their values.

use serde::{Deserialize, Serialize};
use spangap_model::Cpus;
use std::fmt;

/// A place whose value can be changed. Every value is a text, whose form is documented at each kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Place {
    /// A file below `/proc` or `/sys`; its value is its content without the final newline. For
    /// `cgroup.subtree_control` the value is `+cpuset` or `-cpuset`, whatever other controllers it lists.
    File {
        /// Absolute path on the machine itself.
        path: String,
    },
    /// A cgroup: `made`, or no value if it does not exist. Removing one moves its tasks to the parent first.
    Group {
        /// Absolute path of its folder.
        path: String,
    },
    /// All tasks of one cgroup, moved into another: `moved`, or `back`. Tasks that cannot be moved (kernel
    /// threads bound to a CPU) are counted.
    Tasks {
        /// Folder of the original cgroup.
        from: String,
        /// Folder of the destination.
        to: String,
    },
    /// CPU affinity of one thread, as a list; no value if the thread has ended.
    Affinity {
        tid: u32,
        /// Start time, in ticks since boot: ids are reused.
        start_ticks: u64,
        comm: String,
    },
    /// Number of combined queues of an interface, as set by `ethtool -L IF combined N`.
    Queues { interface: String },
    /// Interrupts that a running irqbalance leaves alone: sorted numbers separated by blanks.
    BannedIrqs,
    /// A service: `running` or `stopped`.
    Service {
        /// Systemd unit, or program name on a machine without systemd.
        name: String,
    },
}

/// Syntax of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// List of CPUs, `0,3-48`.
    List,
    /// Mask of CPUs, `ff,00000003`.
    Mask,
    /// Plain text.
    Text,
}

impl Place {
    pub fn file(path: impl Into<String>) -> Place {
        Place::File { path: path.into() }
    }

    /// Syntax of its values.
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

    /// Whether two texts denote the same value here: `3,0-1` is `0-1,3`, and `00000000,00000002` is `2`.
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

    /// Whether the value found still is the one written. A partition remains the requested one even when it
    /// becomes invalid: it then reads `isolated invalid (why)`, and has no effect.
    pub fn still(&self, written: &str, found: &str) -> bool {
        let asked = match self {
            Place::File { path } if path.ends_with("/cpuset.cpus.partition") => {
                found.split_once(" invalid").map_or(found, |(asked, _)| asked)
            }
            _ => found,
        };
        self.same(written, asked)
    }

    /// Whether the place may vanish in normal operation: threads end, and so do containers.
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

    /// For a file of a cgroup: the cgroup's folder and the file's name.
    pub(crate) fn in_group(&self) -> Option<(&str, &str)> {
        let Place::File { path } = self else { return None };
        let (folder, name) = path.rsplit_once('/')?;
        (name.starts_with("cpuset.") || name.starts_with("cgroup.")).then_some((folder, name))
    }

    /// For a queue of an interface: the interface.
    pub(crate) fn interface(&self) -> Option<&str> {
        let Place::File { path } = self else { return None };
        path.strip_prefix("/sys/class/net/")?.split_once("/queues/").map(|(interface, _)| interface)
    }

    /// For the affinity of an interrupt: its number.
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
        fn sets_are_compared_regardless_of_notation(cpus in prop::collection::vec(0_u32..300, 0..20)) {
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
    fn invalid_partition_is_still_ours_but_differs() {
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
