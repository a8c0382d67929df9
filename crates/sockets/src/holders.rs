//! Processes that use TCP: those with a listening or connected socket.

use crate::{SocketsError, processes};
use spangap_machine::facts::net_tcp::State;
use std::collections::{BTreeSet, HashSet};

/// Processes with a listening or an established socket in the network namespaces selected by `wanted`, which
/// gets their inodes. Processes that this user may not inspect are left out. Cheap enough to poll: it
/// duplicates no descriptor.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn holders(wanted: impl Fn(u64) -> bool) -> Result<BTreeSet<u32>, SocketsError> {
    let mut sockets = HashSet::new();
    let (mut namespaces, mut processes_there) = (HashSet::new(), Vec::new());
    for pid in processes::all()? {
        let Some(namespace) = processes::network_namespace(pid).filter(|namespace| wanted(*namespace)) else {
            continue;
        };
        processes_there.push(pid);
        // An exiting process has no table; another one in its namespace may.
        if !namespaces.contains(&namespace)
            && let Ok(rows) = processes::table(pid)
        {
            namespaces.insert(namespace);
            let alive = rows.iter().filter(|row| matches!(row.state, State::Listen | State::Established));
            sockets.extend(alive.map(|row| row.inode).filter(|inode| *inode != 0));
        }
    }
    let has_one = |pid: &u32| {
        let mut found = false;
        // For an exiting or inaccessible process, what was found so far counts.
        let _partly = processes::sockets(*pid, |_, inode| found |= sockets.contains(&inode));
        found
    };
    Ok(processes_there.into_iter().filter(has_one).collect())
}

/// Inode of a process's network namespace; `None` if it is inaccessible.
pub fn network_namespace(pid: u32) -> Option<u64> {
    processes::network_namespace(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_process_is_a_holder_in_selected_namespaces() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = network_namespace(std::process::id());
        assert!(holders(|namespace| Some(namespace) == own).unwrap().contains(&std::process::id()));
        assert!(holders(|_| false).unwrap().is_empty());
        drop(listener);
    }
}
