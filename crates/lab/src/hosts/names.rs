//! Names on the two hosts: `ip netns exec` lays the files of a host's folder in `/etc/netns` over those of `/etc`.

use crate::LabError;
use crate::undo::journal::NAMES;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Writes them for one host.
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
    // Only what is there can be laid over.
    if Path::new("/etc/resolv.conf").exists() {
        put("resolv.conf", "# No name server: names are in /etc/hosts.\n")?;
    }
    Ok(())
}

/// Another run that ends may remove the parent, while it is empty, at any time.
fn make(folder: &Path) -> io::Result<()> {
    loop {
        match fs::create_dir_all(NAMES).and_then(|()| fs::create_dir(folder)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            made => return made,
        }
    }
}
