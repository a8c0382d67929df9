//! Local ports of the TCP sockets that a process has, from `/proc`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

/// Ports of listening and of connected sockets of a process. What cannot be read has none: the stream finds the port
/// of a connection when the process first reads from it.
pub(super) fn of_process(process: &Path) -> BTreeSet<u16> {
    let links = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let sockets: HashSet<u64> = links
        .filter_map(|link| {
            let target = fs::read_link(link.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect();
    let mut ports = BTreeSet::new();
    if sockets.is_empty() {
        return ports;
    }
    for table in ["net/tcp", "net/tcp6"] {
        let text = fs::read_to_string(process.join(table)).unwrap_or_default();
        let lines = text.lines().skip(1).filter_map(port_and_inode);
        ports.extend(lines.filter(|(_, inode)| sockets.contains(inode)).map(|(port, _)| port));
    }
    ports
}

/// Local port and inode of a line of `/proc/net/tcp`.
fn port_and_inode(line: &str) -> Option<(u16, u64)> {
    let mut words = line.split_ascii_whitespace();
    let port = words.nth(1)?.rsplit_once(':')?.1;
    Some((u16::from_str_radix(port, 16).ok()?, words.nth(7)?.parse().ok()?))
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
