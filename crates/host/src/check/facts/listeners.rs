//! Listening TCP sockets and the length of their accept queues.

use super::super::{Host, Known};
use spangap_machine::facts::descriptors::{self, socket_inode};
use spangap_machine::facts::net_tcp::{self, State};
use std::collections::BTreeSet;

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub port: u16,
    /// Connections established but not yet accepted.
    pub waiting: u32,
    /// Socket inode.
    pub inode: u64,
    /// Table in `/proc` that lists it.
    pub path: String,
}

/// Reads the listening sockets of a process, or of its whole network namespace if its descriptors are hidden.
///
/// # Errors
/// The socket table cannot be read.
pub fn of(host: &Host, pid: u32) -> Known<Vec<Listener>> {
    let mut all = Vec::new();
    for table in net_tcp::NAMES {
        let path = format!("/proc/{pid}/net/{table}");
        match host.parsed(&path, parse) {
            Ok(listeners) => all.extend(listeners),
            // The kernel lacks IPv6.
            Err(error) if error.is_absent() && table == "tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() {
        return Ok(all);
    }
    if let Ok(own) = sockets(host, pid) {
        all.retain(|listener| own.contains(&listener.inode));
    }
    Ok(all)
}

fn sockets(host: &Host, pid: u32) -> Known<BTreeSet<u64>> {
    let folder = format!("/proc/{pid}/{}", descriptors::FOLDER);
    let names = host.list(&folder)?;
    // A descriptor closed in the meantime is not a socket of the process.
    let links = names.iter().filter_map(|fd| host.link(&format!("{folder}/{fd}")).ok());
    Ok(links.filter_map(|to| socket_inode(&to)).collect())
}

fn parse(path: &str, text: &str) -> Known<Vec<Listener>> {
    let rows = net_tcp::parse(path, text)?.into_iter().filter(|row| row.state == State::Listen);
    let listener = |row: net_tcp::Row| Listener {
        port: row.local.port(),
        waiting: u32::try_from(row.receive_queue).unwrap_or(u32::MAX),
        inode: row.inode,
        path: path.to_owned(),
    };
    Ok(rows.map(listener).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    proptest! {
        #[test]
        fn any_listener(port: u16, waiting: u32, inode: u64) {
            let text = format!("  sl  local\n   0: 00000000:{port:04X} 00000000:0000 0A 00000000:{waiting:08X} 00:00000000 00000000     0        0 {inode} 1 0 20\n   1: 0100007F:0016 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20\n");
            prop_assert_eq!(parse("/p", &text), Ok(vec![Listener { port, waiting, inode, path: "/p".into() }]));
        }
    }

    #[test]
    fn accept_queue_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let seen = of(&Host::below("/"), std::process::id()).unwrap();
        let seen: Vec<_> =
            seen.iter().filter(|seen| seen.port == address.port()).map(|seen| seen.waiting).collect();
        assert_eq!(seen, [3]);
        drop(connections);
    }
}
