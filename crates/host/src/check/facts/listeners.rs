//! Listening TCP sockets, with how many connections wait to be accepted.

use super::super::{FactError, Host, Known};
use std::collections::BTreeSet;

/// State `LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Connections that are made and not yet accepted.
    pub waiting: u32,
    /// Its inode.
    pub inode: u64,
    /// The table that it is in.
    pub path: String,
}

/// Reads the listening sockets of a process; all of its network namespace where its descriptors are hidden.
///
/// # Errors
/// Its table of sockets cannot be read.
pub fn of(host: &Host, pid: u32) -> Known<Vec<Listener>> {
    let mut all = Vec::new();
    for table in ["tcp", "tcp6"] {
        let path = format!("/proc/{pid}/net/{table}");
        match host.read(&path) {
            Ok(text) => all.extend(parse(&path, &text)?),
            // A kernel without IPv6.
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
    let folder = format!("/proc/{pid}/fd");
    let names = host.list(&folder)?;
    // A descriptor that was closed meanwhile is no socket of it.
    let links = names.iter().filter_map(|fd| host.link(&format!("{folder}/{fd}")).ok());
    Ok(links.filter_map(|to| to.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect())
}

/// Reads the listening sockets of `/proc/net/tcp` or `tcp6`.
///
/// # Errors
/// The line of a listening socket that is of another form.
pub fn parse(path: &str, text: &str) -> Known<Vec<Listener>> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.get(3) != Some(&LISTEN) {
            continue;
        }
        let listener = || {
            let port = u16::from_str_radix(words.get(1)?.rsplit(':').next()?, 16).ok()?;
            let waiting = u32::from_str_radix(words.get(4)?.split_once(':')?.1, 16).ok()?;
            Some(Listener { port, waiting, inode: words.get(9)?.parse().ok()?, path: path.to_owned() })
        };
        let listener =
            listener().ok_or_else(|| FactError::malformed(path, at, line, "the fields of a socket"))?;
        all.push(listener);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    proptest! {
        #[test]
        fn any_listener(port: u16, waiting: u32, inode: u64) {
            let text = format!("  sl  local\n   0: 00000000:{port:04X} 00000000:0000 0A 00000000:{waiting:08X} 00:00000000 00000000     0        0 {inode} 1 0 20\n   1: 0 0 01 0\n");
            prop_assert_eq!(parse("/p", &text), Ok(vec![Listener { port, waiting, inode, path: "/p".into() }]));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|x\n0: :0 :0 0A [0-9:]* 0 0 0 0 [0-9]*") {
            let _ = parse("/p", &text);
        }
    }

    #[test]
    fn connections_that_wait_to_be_accepted_are_counted() {
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
