//! Visibility from this process: interfaces only inside their network namespace and with its `/sys`; cgroups
//! only where they are mounted.

use anyhow::bail;
use spangap_isolate::journal::Journal;
use spangap_isolate::place::Place;
use spangap_machine::facts::{mountinfo, net_dev};
use spangap_machine::read_here;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Folders of named namespaces: of `ip netns`, of Docker.
const NAMED: &[&str] = &["/run/netns", "/var/run/docker/netns"];
/// For a network namespace without a name: its interfaces appear in a `/sys` mounted inside.
const WITH_ITS_SYS: &str = r#"unshare --mount sh -c 'mount -t sysfs sysfs /sys && exec "$@"' sh"#;

/// Inode of this process's namespace; `None` if the kernel does not report it.
pub fn own() -> Option<u64> {
    inode(Path::new("/proc/self/ns/net"))
}

/// How to enter another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceEntry {
    /// A prefix for a command.
    By(String),
    /// It has neither a name nor a process: it is gone, and its interfaces with it.
    Gone,
}

/// Finds out how to enter a namespace.
pub fn entered(namespace: u64) -> NamespaceEntry {
    let of_process = |pid: u32| inode(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(namespace);
    if of_process(1) {
        return NamespaceEntry::By("nsenter --target 1 --net --mount".to_owned());
    }
    for folder in NAMED {
        let mut names = fs::read_dir(folder).into_iter().flatten().flatten();
        if let Some(named) = names.find(|named| inode(&named.path()) == Some(namespace)) {
            let (name, path) = (named.file_name(), named.path());
            return NamespaceEntry::By(match *folder {
                "/run/netns" => format!("ip netns exec {}", super::folder::quoted(&name.to_string_lossy())),
                _ => {
                    format!("nsenter --net={} {WITH_ITS_SYS}", super::folder::quoted(&path.to_string_lossy()))
                }
            });
        }
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let inside = ids.find(|pid| of_process(*pid));
    inside.map_or(NamespaceEntry::Gone, |pid| {
        NamespaceEntry::By(format!("nsenter --net=/proc/{pid}/ns/net {WITH_ITS_SYS}"))
    })
}

/// Whether a place belongs to an interface, or to its namespace.
pub fn is_of_interface(place: &Place) -> bool {
    match place {
        Place::Queues { .. } => true,
        Place::File { path } => path.starts_with("/sys/class/net/") || path.starts_with("/proc/sys/net/"),
        _ => false,
    }
}

/// Checks that the mounted `/sys` shows the interfaces of this process's network namespace.
pub fn sys_is_ours() -> anyhow::Result<()> {
    let folder = Path::new("/sys/class/net");
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    // The folder may also contain files.
    let listed = listed.filter(|entry| entry.path().is_dir());
    let listed: BTreeSet<String> =
        listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let table = read_here(&format!("/proc/self/net/{}", net_dev::NAME), net_dev::rx_packets);
    let ours: BTreeSet<String> = table.unwrap_or_default().into_keys().collect();
    // A few may come or go between the two readings; with another namespace almost all differ.
    if ours.is_empty() || ours.iter().any(|name| name != "lo" && listed.contains(name)) {
        return Ok(());
    }
    if ours.len() == 1 && listed.len() <= 1 {
        return Ok(());
    }
    let names = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
    bail!(
        "{} belongs to another network namespace than this process: it shows {}, while this namespace has {}; `ip \
         netns exec` mounts the right one, and so does `nsenter --net=... {WITH_ITS_SYS} spangap ...`",
        folder.display(),
        names(listed),
        names(ours)
    )
}

/// Checks that every cgroup of a journal is below a mounted hierarchy: otherwise it would appear gone.
pub fn cgroups_are_mounted(journal: &Journal) -> anyhow::Result<()> {
    let hierarchies = read_here(mountinfo::PATH, mountinfo::cgroups).unwrap_or_default();
    let is_mounted = |path: &str| hierarchies.iter().any(|mount| Path::new(path).starts_with(&mount.point));
    for entry in journal.entries() {
        if let Place::Group { path } | Place::Tasks { from: path, .. } = &entry.place
            && !is_mounted(path)
        {
            bail!("{path} is in no cgroup hierarchy mounted here: run outside `ip netns exec`");
        }
    }
    Ok(())
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_entered_through_a_process() {
        let own = own().expect("/proc is there");
        assert!(matches!(entered(own), NamespaceEntry::By(command) if !command.is_empty()));
        assert_eq!(entered(1), NamespaceEntry::Gone);
    }
}
