//! Local ports of a process's TCP sockets, from `/proc`.

use spangap_machine::facts::{descriptors, net_tcp};
use spangap_machine::read_here;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

/// Ports of a process's listening and connected sockets. Unreadable ones are omitted: the stream learns the
/// port of a connection when the process first reads from it.
pub(super) fn of_process(process: &Path) -> BTreeSet<u16> {
    let links = fs::read_dir(process.join(descriptors::FOLDER)).into_iter().flatten().flatten();
    let sockets: HashSet<u64> = links
        .filter_map(|link| descriptors::socket_inode(fs::read_link(link.path()).ok()?.to_str()?))
        .collect();
    if sockets.is_empty() {
        return BTreeSet::new();
    }
    let tables = net_tcp::NAMES.map(|table| process.join("net").join(table));
    let rows =
        tables.into_iter().flat_map(|path| read_here(&path.to_string_lossy(), net_tcp::parse)).flatten();
    rows.filter(|row| sockets.contains(&row.inode)).map(|row| row.local.port()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_and_a_connection_are_found() {
        let four = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let six = std::net::TcpListener::bind("[::1]:0").unwrap();
        let connected = std::net::TcpStream::connect(four.local_addr().unwrap()).unwrap();
        let ports = of_process(Path::new("/proc/self"));
        for port in [four.local_addr(), six.local_addr(), connected.local_addr()].map(|at| at.unwrap().port())
        {
            assert!(ports.contains(&port), "{port} of {ports:?}");
        }
    }
}
