//! Processes in `/proc`: descriptors, names, namespaces.

use crate::SocketsError;
use spangap_machine::facts::net_tcp::{self, Row};
use spangap_machine::facts::{descriptors, process_stat};
use spangap_machine::read_here;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Ids of all visible processes.
pub fn all() -> Result<Vec<u32>, SocketsError> {
    let path = Path::new("/proc");
    let error = |source| SocketsError::Read { path: path.to_owned(), source };
    let entries = fs::read_dir(path).map_err(error)?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.collect())
}

/// Calls `each` with descriptor and inode of every socket of a process.
pub fn sockets(pid: u32, mut each: impl FnMut(i32, u64)) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/{pid}/{}", descriptors::FOLDER));
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let link = match fs::read_link(entry.path()) {
            Ok(link) => link,
            // Closed since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(inode) = link.to_str().and_then(descriptors::socket_inode) {
            each(fd, inode);
        }
    }
    Ok(())
}

/// Descriptors of a process by inode.
pub fn sockets_of(pid: u32) -> Result<BTreeMap<u64, Vec<i32>>, SocketsError> {
    let mut found: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
    match sockets(pid, |fd, inode| found.entry(inode).or_default().push(fd)) {
        Ok(()) => Ok(found),
        Err(error) => Err(refused(pid, error)),
    }
}

/// Why the descriptors of a process cannot be read, in words.
pub fn refused(pid: u32, error: io::Error) -> SocketsError {
    let path = PathBuf::from(format!("/proc/{pid}"));
    match fs::metadata(&path) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => SocketsError::NoProcess { pid },
        Ok(process) if error.kind() == io::ErrorKind::PermissionDenied => {
            SocketsError::NotPermitted { pid, owner: format!("user id {}", process.uid()) }
        }
        _ => SocketsError::Read { path: path.join(descriptors::FOLDER), source: error },
    }
}

/// Process name; empty if it is gone.
pub fn comm(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

/// Inode of its network namespace; `None` if it is inaccessible.
pub fn network_namespace(pid: u32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|file| file.ino())
}

/// Whether the process is gone, or the kernel is closing its descriptors. The kernel sets the flag before it
/// begins to.
pub fn is_ending(pid: u32) -> Result<bool, SocketsError> {
    Ok(process_stat::of(pid)?.is_none_or(|stat| stat.is_ending()))
}

/// Start time, in ticks since boot: together with the id, it identifies a process forever.
pub fn start_ticks(pid: u32) -> Option<u64> {
    spangap_undo::guard::start_ticks(pid).ok().flatten()
}

/// Every TCP socket of a process's network namespace, readable by any user.
pub fn table(pid: u32) -> Result<Vec<Row>, SocketsError> {
    let mut all = Vec::new();
    for table in net_tcp::NAMES {
        match read_here(&format!("/proc/{pid}/net/{table}"), net_tcp::parse) {
            Ok(rows) => all.extend(rows),
            // A kernel without IPv6 has no such table.
            Err(error) if error.is_absent() && table == "tcp6" => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}
