//! Which processes talk over TCP: who listens, or has a connection.

use crate::{SocketsError, processes};
use spangap_machine::facts::net_tcp::State;
use std::collections::{BTreeSet, HashSet};

/// Processes with a listening or an established socket of the network namespaces that `wanted` chooses by their inodes. What
/// this user may not look into has none. Made to be asked time and again: it borrows no descriptor.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn holders(wanted: impl Fn(u64) -> bool) -> Result<BTreeSet<u32>, SocketsError> {
    let mut sockets = HashSet::new();
    let (mut namespaces, mut processes_there) = (HashSet::new(), Vec::new());
    for pid in processes::all()? {
        let Some(namespace) = processes::network_namespace(pid).filter(|namespace| wanted(*namespace)) else {
            continue;
        };
        processes_there.push(pid);
        // A process that ends meanwhile has no table; another of its namespace may.
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
        // One that ends, or that this user may not see, has what was found so far.
        let _partly = processes::sockets(*pid, |_, inode| found |= sockets.contains(&inode));
        found
    };
    Ok(processes_there.into_iter().filter(has_one).collect())
}

/// Inode of the network namespace of a process; `None` when it may not be seen.
pub fn network_namespace(pid: u32) -> Option<u64> {
    processes::network_namespace(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_listens_is_one_and_a_namespace_that_is_not_wanted_has_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = network_namespace(std::process::id());
        assert!(holders(|namespace| Some(namespace) == own).unwrap().contains(&std::process::id()));
        assert!(holders(|_| false).unwrap().is_empty());
        drop(listener);
    }
}
