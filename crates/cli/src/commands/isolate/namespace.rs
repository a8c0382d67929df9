//! Network namespaces: interfaces are only seen, and changed, from inside of theirs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where names of namespaces are kept: by `ip netns`, by Docker.
const NAMED: &[&str] = &["/run/netns", "/var/run/docker/netns"];

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
    for folder in NAMED {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        for named in names.filter(|named| inode(&named.path()) == Some(namespace)) {
            let name = named.file_name().to_string_lossy().into_owned();
            return Entered::By(match *folder {
                "/run/netns" => format!("ip netns exec {}", super::folder::quoted(&name)),
                _ => format!("nsenter --net={}", super::folder::quoted(&named.path().to_string_lossy())),
            });
        }
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let inside = ids.find(|pid| inode(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(namespace));
    inside.map_or(Entered::Gone, |pid| Entered::By(format!("nsenter --net=/proc/{pid}/ns/net")))
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
