//! What is seen from here: interfaces only from inside of their network namespace, and with its `/sys`; cgroups only
//! where they are mounted.

use anyhow::bail;
use spangap_isolate::journal::Journal;
use spangap_isolate::place::Place;
use spangap_machine::facts::{mountinfo, net_dev};
use spangap_machine::read_here;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where names of namespaces are kept: by `ip netns`, by Docker.
const NAMED: &[&str] = &["/run/netns", "/var/run/docker/netns"];
/// In a network namespace without a name: its interfaces are in a `/sys` that was mounted inside.
const WITH_ITS_SYS: &str = r#"unshare --mount sh -c 'mount -t sysfs sysfs /sys && exec "$@"' sh"#;

/// The namespace of this process, by inode; `None` where the kernel does not tell.
pub fn own() -> Option<u64> {
    inode(Path::new("/proc/self/ns/net"))
}

/// How another one is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entered {
    /// A command that goes before another one.
    By(String),
    /// Nothing has a name or a process for it: it is gone, and its interfaces with it.
    Gone,
}

/// How a namespace is entered.
pub fn entered(namespace: u64) -> Entered {
    let of_process = |pid: u32| inode(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(namespace);
    if of_process(1) {
        return Entered::By("nsenter --target 1 --net --mount".to_owned());
    }
    for folder in NAMED {
        let mut names = fs::read_dir(folder).into_iter().flatten().flatten();
        if let Some(named) = names.find(|named| inode(&named.path()) == Some(namespace)) {
            let (name, path) = (named.file_name(), named.path());
            return Entered::By(match *folder {
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
    inside
        .map_or(Entered::Gone, |pid| Entered::By(format!("nsenter --net=/proc/{pid}/ns/net {WITH_ITS_SYS}")))
}

/// Whether a place is of an interface, or of its namespace.
pub fn is_of_interface(place: &Place) -> bool {
    match place {
        Place::Queues { .. } => true,
        Place::File { path } => path.starts_with("/sys/class/net/") || path.starts_with("/proc/sys/net/"),
        _ => false,
    }
}

/// The `/sys` that is mounted here must show the interfaces of this process' network namespace.
pub fn sys_is_ours() -> anyhow::Result<()> {
    let folder = Path::new("/sys/class/net");
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    // Beside the interfaces there may be a file.
    let listed = listed.filter(|entry| entry.path().is_dir());
    let listed: BTreeSet<String> =
        listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let table = read_here(&format!("/proc/self/net/{}", net_dev::NAME), net_dev::rx_packets);
    let ours: BTreeSet<String> = table.unwrap_or_default().into_keys().collect();
    // One may come or go between the two readings; of another namespace almost everything differs.
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

/// Every cgroup of a journal must be below a mounted hierarchy: else it would pass for gone.
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
    fn our_own_is_entered_through_one_of_its_processes() {
        let own = own().expect("/proc is there");
        assert!(matches!(entered(own), Entered::By(command) if !command.is_empty()));
        assert_eq!(entered(1), Entered::Gone);
    }
}
