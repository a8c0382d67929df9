//! The established connections of one process to given peers, for tank to observe its client.

use crate::SocketsError;
use crate::borrow::{borrow, canonical, is, process};
use crate::processes;
use crate::tcp_info;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, tcp_congestion, tcp_nodelay};
use spangap_machine::facts::descriptors;
use spangap_machine::facts::net_tcp::{Row, State};
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// An established connection of a process. Unreadable values are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Descriptor in that process.
    pub fd: i32,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
    /// `TCP_NODELAY`.
    pub nodelay: Option<bool>,
    /// Congestion control, such as `cubic`.
    pub congestion_control: Option<String>,
    /// Minimum RTT, as measured by TCP recently.
    pub min_rtt_ns: Option<u64>,
    /// Smoothed RTT.
    pub rtt_ns: Option<u64>,
    /// Retransmitted segments since the connection was opened.
    pub retransmitted_segments: Option<u64>,
}

/// The established connections of process `pid` to any of `peers`, by descriptor. One with several descriptors
/// is listed once. Connections opened or closed meanwhile may be missing.
///
/// # Errors
/// The process is gone or exits meanwhile, or its files under `/proc` are unreadable.
pub fn look(pid: u32, peers: &[SocketAddr]) -> Result<Vec<Socket>, SocketsError> {
    let peers: HashSet<SocketAddr> = peers.iter().copied().map(canonical).collect();
    let mut descriptors = descriptors(pid)?;
    let mut connections = processes::table(pid)?;
    connections.retain(|row| row.state == State::Established && peers.contains(&row.peer));
    let handle = process(pid).ok();
    let mut sockets: Vec<Socket> = connections
        .into_iter()
        .filter_map(|connection| {
            let fd = descriptors.remove(&connection.inode)?;
            let borrowed = handle.as_ref().and_then(|handle| borrow(handle, fd).ok());
            let borrowed = borrowed.filter(|socket| is(socket, connection.local, connection.peer));
            Some(inspect(connection, fd, borrowed))
        })
        .collect();
    sockets.sort_unstable_by_key(|socket| socket.fd);
    if processes::is_ending(pid)? {
        return Err(SocketsError::Ending { pid });
    }
    Ok(sockets)
}

/// Sets `TCP_NODELAY` of a live socket returned by [`look`], and reads it back.
///
/// # Errors
/// The kernel refuses, or the connection does not exist any more.
pub fn set_nodelay(pid: u32, socket: &Socket, on: bool) -> Result<(), SocketsError> {
    let Socket { fd, local, peer, .. } = *socket;
    let refused = |error: Errno| SocketsError::Set { pid, fd, source: error.into() };
    let handle = process(pid).map_err(refused)?;
    let borrowed = match borrow(&handle, fd) {
        Err(Errno::BADF) => None,
        borrowed => Some(borrowed.map_err(refused)?),
    };
    let borrowed = borrowed.filter(|borrowed| is(borrowed, local, peer)).ok_or(SocketsError::Changed {
        pid,
        fd,
        local,
        peer,
    })?;
    set_tcp_nodelay(&borrowed, on).map_err(refused)?;
    let found = tcp_nodelay(&borrowed).map_err(refused)?;
    if found == on { Ok(()) } else { Err(SocketsError::NotTaken { pid, fd, found }) }
}

/// The lowest descriptor of each socket by inode.
fn descriptors(pid: u32) -> Result<BTreeMap<u64, i32>, SocketsError> {
    let mut lowest = BTreeMap::new();
    let read = processes::sockets(pid, |fd, inode| {
        lowest.entry(inode).and_modify(|first: &mut i32| *first = fd.min(*first)).or_insert(fd);
    });
    let path = format!("/proc/{pid}/{}", descriptors::FOLDER).into();
    read.map(|()| lowest).map_err(|source| SocketsError::Read { path, source })
}

fn inspect(connection: Row, fd: i32, borrowed: Option<OwnedFd>) -> Socket {
    let info = borrowed.as_ref().and_then(tcp_info::of).unwrap_or_default();
    Socket {
        fd,
        local: connection.local,
        peer: connection.peer,
        nodelay: borrowed.as_ref().and_then(|socket| tcp_nodelay(socket).ok()),
        congestion_control: borrowed.as_ref().and_then(|socket| tcp_congestion(socket).ok()),
        min_rtt_ns: info.min_rtt_ns,
        rtt_ns: info.rtt_ns,
        retransmitted_segments: info.retransmitted_segments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrow::process_id;
    use rustix::process::{WaitId, WaitIdOptions};
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};

    fn connected(address: &str) -> (TcpListener, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener, stream)
    }

    #[test]
    fn only_connections_to_the_peers_are_listed() {
        let (listener, stream) = connected("127.0.0.1:0");
        let (_other_listener, _other) = connected("127.0.0.1:0");
        let same_socket = stream.try_clone().unwrap();
        stream.set_nodelay(true).unwrap();
        let peer = listener.local_addr().unwrap();
        let sockets = look(std::process::id(), &[peer]).unwrap();
        let [socket] = sockets.as_slice() else { panic!("one socket, not {sockets:?}") };
        assert_eq!((socket.local, socket.peer), (stream.local_addr().unwrap(), peer));
        let first_fd = stream.as_raw_fd().min(same_socket.as_raw_fd());
        assert_eq!((socket.fd, socket.nodelay), (first_fd, Some(true)));
        assert!(socket.congestion_control.as_ref().is_some_and(|name| !name.is_empty()), "{socket:?}");
        assert!(socket.rtt_ns.is_some() && socket.min_rtt_ns <= socket.rtt_ns, "{socket:?}");
        assert_eq!(socket.retransmitted_segments, Some(0));

        set_nodelay(std::process::id(), socket, false).unwrap();
        assert!(!stream.nodelay().unwrap());
        drop((stream, same_socket));
        assert_eq!(look(std::process::id(), &[peer]).unwrap(), []);
    }

    #[test]
    fn both_families_and_the_mixture_of_them() {
        for (listen, connect) in [("[::1]:0", "[::1]"), ("[::]:0", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind(listen) else {
                println!("not run: no IPv6 here");
                return;
            };
            let address = format!("{connect}:{}", listener.local_addr().unwrap().port());
            let client = TcpStream::connect(&address).unwrap();
            let (accepted, mapped) = listener.accept().unwrap();
            for (stream, peer) in [(&client, address.parse().unwrap()), (&accepted, mapped)] {
                let sockets = look(std::process::id(), &[peer]).unwrap();
                let fds: Vec<_> = sockets.iter().map(|socket| (socket.fd, socket.nodelay)).collect();
                assert_eq!(fds, [(stream.as_raw_fd(), Some(false))], "{listen}");
            }
        }
    }

    #[test]
    fn reused_descriptor_is_left_alone() {
        let (listener, stream) = connected("127.0.0.1:0");
        let (_other_listener, other) = connected("127.0.0.1:0");
        let peer = listener.local_addr().unwrap();
        let socket = look(std::process::id(), &[peer]).unwrap().remove(0);
        let moved = Socket { fd: other.as_raw_fd(), ..socket.clone() };
        let error = set_nodelay(std::process::id(), &moved, true).unwrap_err();
        assert!(error.to_string().contains(&peer.to_string()), "{error}");
        assert!(!other.nodelay().unwrap());
        let gone = Socket { fd: i32::MAX, ..socket };
        assert!(matches!(set_nodelay(std::process::id(), &gone, true), Err(SocketsError::Changed { .. })));
        drop(stream);
    }

    #[test]
    fn a_process_that_is_gone_is_named_by_its_path() {
        let error = look(u32::MAX, &[]).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read /proc/{}/fd", u32::MAX));
    }

    /// A child with one connection to `peer`, as a shell opens it.
    fn child_connected_to(peer: SocketAddr) -> (Child, String) {
        let script = format!("exec 3<>/dev/tcp/{}/{}; echo ready; read word", peer.ip(), peer.port());
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    }

    #[test]
    fn a_live_socket_of_another_process_is_seen_and_set() {
        if Command::new("bash").arg("-c").arg(":").status().is_err() {
            println!("not run: no bash here");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let (mut child, line) = child_connected_to(peer);
        assert_eq!(line, "ready\n");
        let seen = |child: &Child| look(child.id(), &[peer]).unwrap();
        let sockets = seen(&child);
        let [socket] = sockets.as_slice() else { panic!("one socket, not {sockets:?}") };
        assert_eq!(socket.fd, 3);
        match socket.nodelay {
            None => println!("not run: this user may not borrow descriptors of its children"),
            Some(nodelay) => {
                assert!(!nodelay, "bash sets nothing");
                set_nodelay(child.id(), socket, true).unwrap();
                assert_eq!(seen(&child)[0].nodelay, Some(true));
            }
        }
        drop(child.stdin.take());
        let id = process_id(child.id()).unwrap();
        rustix::process::waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let ended = look(child.id(), &[peer]);
        assert!(ended.is_err(), "connections that ended with their process are not gone before: {ended:?}");
        child.wait().unwrap();
        assert!(matches!(look(child.id(), &[peer]), Err(SocketsError::Read { .. })));
    }

    #[test]
    fn a_process_in_another_network_namespace_is_seen() {
        let script = "import socket, sys; l = socket.create_server(('127.0.0.1', 0)); \
                      c = socket.create_connection(l.getsockname()); \
                      print(l.getsockname()[1], c.fileno(), flush=True); sys.stdin.read()";
        let inside = format!("ip link set lo up && exec python3 -c \"{script}\"");
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", &inside])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { return println!("not run: no unshare here") };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        if let (Some(port), Some(fd)) = (words.next(), words.next()) {
            let peer = format!("127.0.0.1:{port}").parse().unwrap();
            let sockets = look(child.id(), &[peer]).unwrap();
            let fds: Vec<_> = sockets.iter().map(|socket| (socket.fd, socket.nodelay)).collect();
            assert_eq!(fds, [(fd.parse().unwrap(), Some(false))]);
        } else {
            println!("not run: this user may not make a network namespace, or there is no ip or python3");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
