//! What `/proc` says of processes: their descriptors, names, namespaces.

use crate::SocketsError;
use crate::tables::{self, Row};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Ids of all processes that can be seen.
pub fn all() -> Result<Vec<u32>, SocketsError> {
    let path = Path::new("/proc");
    let error = |source| SocketsError::Read { path: path.to_owned(), source };
    let entries = fs::read_dir(path).map_err(error)?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.collect())
}

/// Calls `each` with descriptor and inode of every socket of a process.
pub fn sockets(pid: u32, mut each: impl FnMut(i32, u64)) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let link = match fs::read_link(entry.path()) {
            Ok(link) => link,
            // Closed since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
        if let Some(inode) = inode.and_then(|inode| inode.parse().ok()) {
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
        _ => SocketsError::Read { path: path.join("fd"), source: error },
    }
}

/// Its name, or nothing when it is gone.
pub fn comm(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

/// Number of its network namespace; `None` when it may not be seen.
pub fn network_namespace(pid: u32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|file| file.ino())
}

/// Fields of `/proc/PID/stat` after the name: the state is the first.
fn stat(pid: u32) -> Result<Vec<String>, SocketsError> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let stat = fs::read_to_string(&path).map_err(|source| SocketsError::Read { path, source })?;
    // The name, in parentheses, may hold anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(after_name.split_whitespace().map(str::to_owned).collect())
}

/// Whether the kernel is closing what the process had open. It says so before it begins to.
pub fn is_ending(pid: u32) -> Result<bool, SocketsError> {
    /// PF_EXITING of the kernel's `include/linux/sched.h`.
    const EXITING: u64 = 4;
    let flags = stat(pid)?.get(6).and_then(|flags| flags.parse::<u64>().ok());
    Ok(flags.is_none_or(|flags| flags & EXITING != 0))
}

/// When it was started, in ticks since boot: with its id, this names a process for good.
pub fn start_ticks(pid: u32) -> Option<u64> {
    spangap_undo::guard::start_ticks(pid).ok().flatten()
}

/// Every TCP socket of a process' network namespace.
pub fn table(pid: u32) -> Result<Vec<Row>, SocketsError> {
    let mut rows = rows(&PathBuf::from(format!("/proc/{pid}/net/tcp")))?;
    rows.extend(self::rows(&PathBuf::from(format!("/proc/{pid}/net/tcp6")))?);
    Ok(rows)
}

fn rows(path: &Path) -> Result<Vec<Row>, SocketsError> {
    match fs::read_to_string(path) {
        Ok(text) => {
            tables::rows(&text).map_err(|source| SocketsError::Table { path: path.to_owned(), source })
        }
        // A kernel without IPv6 has no such table.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.ends_with("tcp6") => Ok(Vec::new()),
        Err(source) => Err(SocketsError::Read { path: path.to_owned(), source }),
    }
}
