//! Names on the two hosts: `ip netns exec` mounts the files of a host's folder in `/etc/netns` over those of
//! `/etc`.

use super::{DEVICE, ip};
use crate::LabError;
use crate::undo::journal::NAMES;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Writes the files for one host.
pub(super) fn write(namespace: &str, hosts: &[(&str, &str)]) -> Result<(), LabError> {
    let folder = Path::new(NAMES).join(namespace);
    make(&folder).map_err(LabError::file("make", &folder))?;
    let lines = hosts.iter().map(|(name, address)| format!("{address} {name}\n"));
    let text = format!("127.0.0.1 localhost\n::1 localhost\n{}", lines.collect::<String>());
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(LabError::file("write", &path))
    };
    put("hosts", &text)?;
    // Only an existing file can be mounted over.
    if Path::new("/etc/resolv.conf").exists() {
        put("resolv.conf", "# No name server: names are in /etc/hosts.\n")?;
    }
    Ok(())
}

/// An unused address of the hosts' network, with an unused Ethernet address.
const NOBODY: &str = "10.88.0.77";
const NOBODY_LINK: &str = "02:00:00:00:00:4d";

/// How a host resolves names: at a dead name server first, or only in its `/etc/hosts`.
pub(super) fn look_up(namespace: &str, dead_server_first: bool) -> Result<(), LabError> {
    for path in ["/etc/resolv.conf", "/etc/nsswitch.conf"] {
        // Only an existing file can be mounted over.
        if !Path::new(path).exists() {
            let why = format!("there is no {path}, which would be another one on the host");
            return Err(LabError::Unavailable { what: "a name server that does not answer".into(), why });
        }
    }
    let order = if dead_server_first { "dns files" } else { "files dns" };
    for (name, text) in [
        ("resolv.conf", format!("nameserver {NOBODY}\noptions timeout:1 attempts:1\n")),
        ("nsswitch.conf", format!("hosts: {order}\n")),
    ] {
        let path = Path::new(NAMES).join(namespace).join(name);
        fs::write(&path, text).map_err(LabError::file("write", &path))?;
    }
    // As behind a router: queries leave the host, and no error comes back.
    let to_nobody = ["neigh", "replace", NOBODY, "lladdr", NOBODY_LINK, "dev", DEVICE, "nud", "permanent"];
    ip(&[&["-n", namespace][..], &to_nobody].concat())?;
    Ok(())
}

/// Another run that ends may remove the parent at any time while it is empty.
fn make(folder: &Path) -> io::Result<()> {
    loop {
        match fs::create_dir_all(NAMES).and_then(|()| fs::create_dir(folder)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            made => return made,
        }
    }
}
