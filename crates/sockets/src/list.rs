//! All properties of TCP sockets, by process or port.

use crate::SocketsError;
use crate::borrow::{self, borrow};
use crate::diag::{self, DiagInfo};
use crate::processes;
use crate::socket::{Owner, PeerSocket, Source, TcpSocket};
use crate::tcp_info::{self, TcpInfo};
use rustix::io::Errno;
use rustix::net::{AddressFamily, ipproto, sockopt};
use serde::Serialize;
use spangap_machine::facts::net_tcp::State;
use spangap_machine::facts::net_tcp::{Family, Row};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Selection of sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// Only of these processes; empty for all.
    pub pids: Vec<u32>,
    /// Only with this port at either end.
    pub port: Option<u16>,
    /// Include listening sockets.
    pub listening: bool,
}

/// Result of listing sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Listing {
    /// Sorted by owner, peer, local address.
    pub sockets: Vec<TcpSocket>,
    /// Sockets closed while they were being read.
    pub vanished: u64,
    /// With a port: connections without a process (any more or yet), by state.
    pub without_owner: BTreeMap<&'static str, u64>,
    /// Processes whose descriptors this user may not read: owners among them are missing.
    pub processes_not_seen: u64,
    /// Why sock_diag failed, if it was needed.
    pub sock_diag_failed: Option<String>,
}

/// RTT from which on the peer's socket is worth reading: a delayed ACK makes it this long.
const SUSPICIOUS_RTT_NS: u64 = 5_000_000;

/// Lists the sockets.
///
/// # Errors
/// A selected process is gone or belongs to another user, or a table cannot be read.
pub fn list(asked: &Asked) -> Result<Listing, SocketsError> {
    let mut of_asked: BTreeSet<u64> = BTreeSet::new();
    for &pid in &asked.pids {
        of_asked.extend(processes::sockets_of(pid)?.into_keys());
    }
    let mut look = Lister::new(asked)?;
    look.choose(&of_asked);
    look.find_owners(&of_asked)?;
    Ok(look.finish())
}

/// State of a listing.
struct Lister<'a> {
    asked: &'a Asked,
    /// Sockets of the relevant namespaces by inode, each with its namespace; only those that processes own.
    rows: HashMap<u64, (Row, u64)>,
    /// Inodes of connections by namespace and both addresses.
    by_ends: HashMap<(u64, SocketAddr, SocketAddr), u64>,
    /// Listening ports, by namespace.
    listened: HashSet<(u64, u16)>,
    chosen: BTreeSet<u64>,
    owners: HashMap<u64, Vec<Owner>>,
    handles: HashMap<u32, Result<OwnedFd, Errno>>,
    own_namespace: Option<u64>,
    /// Read when the first socket cannot be duplicated.
    diag: Option<HashMap<u64, DiagInfo>>,
    listing: Listing,
}

impl<'a> Lister<'a> {
    fn new(asked: &'a Asked) -> Result<Self, SocketsError> {
        let mut look = Lister {
            asked,
            rows: HashMap::new(),
            by_ends: HashMap::new(),
            listened: HashSet::new(),
            chosen: BTreeSet::new(),
            owners: HashMap::new(),
            handles: HashMap::new(),
            own_namespace: processes::network_namespace(std::process::id()),
            diag: None,
            listing: Listing::default(),
        };
        let mut seen = HashSet::new();
        for &pid in &asked.pids {
            let namespace = processes::network_namespace(pid);
            if namespace.is_none_or(|namespace| seen.insert(namespace)) {
                look.take_in(processes::table(pid)?, namespace.unwrap_or(0));
            }
        }
        if asked.pids.is_empty() {
            let own = look.own_namespace.unwrap_or(0);
            seen.insert(own);
            look.take_in(processes::table(std::process::id())?, own);
            for pid in processes::all()? {
                let Some(namespace) = processes::network_namespace(pid) else { continue };
                if !seen.contains(&namespace)
                    // An exiting process has no table; another one in its namespace may.
                    && let Ok(rows) = processes::table(pid)
                {
                    seen.insert(namespace);
                    look.take_in(rows, namespace);
                }
            }
        }
        Ok(look)
    }

    fn take_in(&mut self, rows: Vec<Row>, namespace: u64) {
        for row in rows {
            if row.state == State::Listen {
                self.listened.insert((namespace, row.local.port()));
            }
            if row.inode != 0 {
                self.by_ends.insert((namespace, row.local, row.peer), row.inode);
                self.rows.insert(row.inode, (row, namespace));
            } else if self.asked.pids.is_empty() && self.is_of_port(row.local, Some(row.peer)) {
                *self.listing.without_owner.entry(row.state.name()).or_default() += 1;
            }
        }
    }

    fn is_of_port(&self, local: SocketAddr, peer: Option<SocketAddr>) -> bool {
        let Some(port) = self.asked.port else { return true };
        local.port() == port || peer.is_some_and(|peer| peer.port() == port)
    }

    fn is_wanted(&self, row: &Row) -> bool {
        (self.asked.listening || row.state != State::Listen) && self.is_of_port(row.local, Some(row.peer))
    }

    fn choose(&mut self, of_asked: &BTreeSet<u64>) {
        let wanted = self.rows.iter().filter(|(inode, (row, _))| {
            (self.asked.pids.is_empty() || of_asked.contains(inode)) && self.is_wanted(row)
        });
        self.chosen = wanted.map(|(inode, _)| *inode).collect();
    }

    fn peer_of(&self, inode: u64) -> Option<u64> {
        let (row, namespace) = self.rows.get(&inode)?;
        self.by_ends.get(&(*namespace, row.peer, row.local)).copied().filter(|peer| *peer != inode)
    }

    /// Finds every process that owns a selected socket, or the peer of one.
    fn find_owners(&mut self, of_asked: &BTreeSet<u64>) -> Result<(), SocketsError> {
        let mut looked_for: HashSet<u64> = self.chosen.iter().copied().collect();
        looked_for.extend(self.chosen.iter().filter_map(|inode| self.peer_of(*inode)));
        // A socket in another namespace than its process, or missing in the tables, shows when it is
        // duplicated.
        looked_for.extend(of_asked.iter().filter(|inode| !self.rows.contains_key(inode)));
        if looked_for.is_empty() {
            return Ok(());
        }
        for pid in processes::all()? {
            let mut found: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
            let read = processes::sockets(pid, |fd, inode| {
                if looked_for.contains(&inode) {
                    found.entry(inode).or_default().push(fd);
                }
            });
            let denied = read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
            // An exiting process cannot be inspected, and has closed its sockets.
            if denied && !processes::is_ending(pid).unwrap_or(true) {
                self.listing.processes_not_seen += 1;
            }
            if found.is_empty() {
                continue;
            }
            let comm = processes::comm(pid);
            for (inode, mut fds) in found {
                fds.sort_unstable();
                self.owners.entry(inode).or_default().push(Owner { pid, comm: comm.clone(), fds });
            }
        }
        self.owners.values_mut().for_each(|owners| owners.sort_unstable_by_key(|owner| owner.pid));
        let elsewhere = of_asked.iter().filter(|inode| !self.rows.contains_key(inode));
        self.chosen.extend(elsewhere);
        Ok(())
    }

    fn finish(mut self) -> Listing {
        let mut sockets = Vec::with_capacity(self.chosen.len());
        for inode in std::mem::take(&mut self.chosen) {
            if let Some(socket) = self.inspect(inode) {
                sockets.push(socket);
            }
        }
        self.look_at_peers(&mut sockets);
        sockets.sort_by_key(|socket| {
            let pid = socket.owners.first().map(|owner| owner.pid);
            (pid, socket.state != State::Listen, socket.peer, socket.local, socket.inode)
        });
        self.listing.sockets = sockets;
        self.listing
    }

    /// `None` if the socket is gone, or not TCP.
    fn inspect(&mut self, inode: u64) -> Option<TcpSocket> {
        let row = self.rows.get(&inode).copied();
        let borrowed = self.borrow(inode);
        let Some((row, namespace)) = row else { return self.without_row(inode, &borrowed.ok()?) };
        let (borrowed, because) = match borrowed {
            Ok(borrowed) => (Some(borrowed), None),
            // Closed by its process, though the kernel may still have it.
            Err(None)
                if !self.asked.pids.is_empty()
                    || self.owners.contains_key(&inode)
                    || self.ask_diag(inode).is_none() =>
            {
                self.listing.vanished += 1;
                return None;
            }
            Err(None) => (None, Some("no process has it open: it is the kernel's, or on its way".to_owned())),
            Err(Some(because)) => (None, Some(because)),
        };
        let direct = borrowed.as_ref().and_then(tcp_info::of);
        let told = match direct {
            Some(_) => None,
            None if Some(namespace) == self.own_namespace => self.ask_diag(inode),
            None => None,
        };
        let source = match (&direct, &told) {
            (Some(_), _) => Source::Descriptor,
            (None, Some(_)) => Source::SockDiag,
            (None, None) => Source::Table,
        };
        let option = borrowed.as_ref();
        let congestion = option.and_then(|socket| sockopt::tcp_congestion(socket).ok());
        let info = direct.or(told.as_ref().map(|told| told.info)).unwrap_or_default();
        // The descriptor was read later than the table.
        let state = info.state.unwrap_or(row.state);
        let listens = state == State::Listen;
        Some(TcpSocket {
            network_namespace: Some(namespace).filter(|namespace| *namespace != 0),
            inode,
            family: row.family,
            local: row.local,
            peer: Some(row.peer).filter(|_| !listens),
            state,
            accepted: (!listens).then(|| self.listened.contains(&(namespace, row.local.port()))),
            owners: self.owners.get(&inode).cloned().unwrap_or_default(),
            uid: Some(row.uid),
            source,
            not_borrowed_because: because,
            nodelay: option.and_then(|socket| sockopt::tcp_nodelay(socket).ok()),
            cork: option.and_then(|socket| sockopt::tcp_cork(socket).ok()),
            quickack: match option.and_then(|socket| sockopt::tcp_quickack(socket).ok()) {
                Some(quickack) => Some(quickack),
                None => row.acks.filter(|_| !listens).map(|acks| !acks.pingpong),
            },
            quick_acks_left: row.acks.filter(|_| !listens).map(|acks| acks.quick_left),
            congestion_control: congestion.or(told.and_then(|told| told.congestion_control)),
            send_queue_bytes: Some(row.send_queue_bytes).filter(|_| !listens),
            receive_queue_bytes: Some(row.receive_queue).filter(|_| !listens),
            timer: row.timer.map(|(timer, _)| timer),
            timer_ns: row.timer.map(|(_, ns)| ns),
            info: TcpInfo { accept_queue_connections: Some(row.receive_queue).filter(|_| listens), ..info },
            peer_socket: None,
            open_undo: None,
        })
    }

    /// A socket missing in its process's tables: of another namespace, or opened since.
    fn without_row(&self, inode: u64, socket: &OwnedFd) -> Option<TcpSocket> {
        let domain = sockopt::socket_domain(socket).ok()?;
        let is_tcp = matches!(domain, AddressFamily::INET | AddressFamily::INET6)
            && sockopt::socket_protocol(socket).ok()? == Some(ipproto::TCP);
        let local = borrow::local(socket).filter(|local| is_tcp && local.port() != 0)?;
        let peer = borrow::ends(socket).map(|(_, peer)| peer);
        let info = tcp_info::of(socket)?;
        let state = info.state?;
        if !self.is_of_port(local, peer) || state == State::Listen && !self.asked.listening {
            return None;
        }
        let family = match (domain, local.is_ipv4()) {
            (AddressFamily::INET, _) => Family::Ipv4,
            (_, true) => Family::Ipv4Mapped,
            (_, false) => Family::Ipv6,
        };
        Some(TcpSocket {
            network_namespace: None,
            inode,
            family,
            local,
            peer,
            state,
            accepted: None,
            owners: self.owners.get(&inode).cloned().unwrap_or_default(),
            uid: None,
            source: Source::Descriptor,
            not_borrowed_because: None,
            nodelay: sockopt::tcp_nodelay(socket).ok(),
            cork: sockopt::tcp_cork(socket).ok(),
            quickack: sockopt::tcp_quickack(socket).ok(),
            quick_acks_left: None,
            congestion_control: sockopt::tcp_congestion(socket).ok(),
            send_queue_bytes: None,
            receive_queue_bytes: None,
            timer: None,
            timer_ns: None,
            info,
            peer_socket: None,
            open_undo: None,
        })
    }

    /// Duplicates the socket's descriptor. `Err(None)`: nobody owns it any more; otherwise the reason for the
    /// failure.
    fn borrow(&mut self, inode: u64) -> Result<OwnedFd, Option<String>> {
        let Some(owners) = self.owners.get(&inode) else {
            // A selected process may have closed its own socket.
            let hidden = self.asked.pids.is_empty() && self.listing.processes_not_seen > 0;
            return Err(hidden.then(|| "its process is another user's: needs CAP_SYS_PTRACE".to_owned()));
        };
        let mut because = None;
        for owner in owners {
            let handle = self.handles.entry(owner.pid).or_insert_with(|| borrow::process(owner.pid));
            let Ok(handle) = handle else {
                if let Err(error) = handle {
                    because = because.or(reason(*error, owner.pid));
                }
                continue;
            };
            for &fd in &owner.fds {
                match borrow(handle, fd) {
                    Ok(socket) if borrow::inode(&socket) == Some(inode) => return Ok(socket),
                    Ok(_) => {}
                    Err(error) => because = because.or(reason(error, owner.pid)),
                }
            }
        }
        Err(because)
    }

    fn ask_diag(&mut self, inode: u64) -> Option<DiagInfo> {
        if self.diag.is_none() {
            let told = diag::dump();
            self.listing.sock_diag_failed = told.as_ref().err().map(Errno::to_string);
            self.diag = Some(told.unwrap_or_default());
        }
        self.diag.as_ref()?.get(&inode).cloned()
    }

    /// Reads the peers of connections with a suspicious RTT.
    fn look_at_peers(&mut self, sockets: &mut [TcpSocket]) {
        let known: HashMap<u64, (Option<bool>, Option<u64>)> =
            sockets.iter().map(|socket| (socket.inode, (socket.nodelay, socket.info.rtt_ns))).collect();
        for socket in sockets {
            if socket.info.rtt_ns.is_none_or(|rtt| rtt < SUSPICIOUS_RTT_NS) {
                continue;
            }
            let Some(inode) = self.peer_of(socket.inode) else { continue };
            let (nodelay, rtt_ns) = known.get(&inode).copied().unwrap_or_else(|| {
                let borrowed = self.borrow(inode).ok();
                let rtt_ns = borrowed.as_ref().and_then(tcp_info::of).and_then(|info| info.rtt_ns);
                (borrowed.and_then(|socket| sockopt::tcp_nodelay(socket).ok()), rtt_ns)
            });
            let owners = self.owners.get(&inode).cloned().unwrap_or_default();
            socket.peer_socket = Some(PeerSocket { inode, owners, nodelay, rtt_ns });
        }
    }
}

/// Why a descriptor cannot be duplicated; `None` if it, or its process, is gone.
fn reason(error: Errno, pid: u32) -> Option<String> {
    match error {
        Errno::BADF | Errno::SRCH => None,
        Errno::PERM | Errno::ACCESS => {
            Some(format!("borrowing descriptors of process {pid} needs CAP_SYS_PTRACE"))
        }
        Errno::NOSYS => Some("this kernel cannot lend descriptors: it is older than 5.6".to_owned()),
        Errno::MFILE => Some("this program has too many files open".to_owned()),
        error => Some(format!("borrowing a descriptor of process {pid}: {error}")),
    }
}
