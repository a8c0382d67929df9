//! Changes `TCP_NODELAY` of live sockets, and restores it.

use crate::borrow::{self, borrow};
use crate::journal::{Entry, Holder, JournalError, LockedJournal, can_be_changed};
use crate::{Asked, Listing, TcpSocket, processes};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};
use serde::{Deserialize, Serialize};
use spangap_undo::Damage;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Selection of sockets, and the new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeRequest {
    /// Processes, and a port at either end.
    #[serde(flatten)]
    pub of: Asked,
    /// Only connections to this host.
    pub peer: Option<IpAddr>,
    /// Only connections to this port of the peer.
    pub peer_port: Option<u16>,
    /// Value of TCP_NODELAY.
    pub value: bool,
    /// Change only every second of the sockets that lack the value.
    pub half: bool,
}

/// Planned changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Sockets to change.
    pub change: Vec<Entry>,
    /// With `half`, the sockets left unchanged for comparison.
    pub leave: Vec<Entry>,
    /// Number of sockets that already have the value.
    pub already: u64,
    /// Number of sockets that cannot be duplicated.
    pub not_readable: u64,
    /// Reason.
    pub not_readable_because: Option<String>,
}

impl ChangeRequest {
    /// Whether a socket is selected.
    pub fn covers(&self, socket: &TcpSocket) -> bool {
        let Some(peer) = socket.peer else { return false };
        can_be_changed(socket.state)
            && self.peer.is_none_or(|ip| ip.to_canonical() == peer.ip())
            && self.peer_port.is_none_or(|port| port == peer.port())
    }

    /// Plans the changes. Sorted by process and peer, then by both addresses, so that the halves are
    /// reproducible.
    pub fn plan(&self, listing: &Listing) -> Plan {
        let mut plan = Plan::default();
        let mut started = HashMap::new();
        let mut start_ticks = |pid| *started.entry(pid).or_insert_with(|| processes::start_ticks(pid));
        let mut entries = Vec::new();
        for socket in listing.sockets.iter().filter(|socket| self.covers(socket)) {
            let (Some(old), Some(peer)) = (socket.nodelay, socket.peer) else {
                plan.not_readable += 1;
                plan.not_readable_because =
                    plan.not_readable_because.take().or_else(|| socket.not_borrowed_because.clone());
                continue;
            };
            if old == self.value {
                plan.already += 1;
                continue;
            }
            let holders = socket.owners.iter().filter_map(|owner| {
                let start_ticks = start_ticks(owner.pid)?;
                Some(Holder { pid: owner.pid, start_ticks, comm: owner.comm.clone(), fds: owner.fds.clone() })
            });
            entries.push(Entry {
                inode: socket.inode,
                local: socket.local,
                peer,
                accepted: socket.accepted == Some(true),
                old,
                new: self.value,
                holders: holders.collect(),
            });
        }
        entries.sort_by_key(|entry| {
            let port = if entry.accepted { entry.local.port() } else { entry.peer.port() };
            let pid = entry.holders.first().map(|holder| holder.pid);
            (pid, entry.accepted, entry.peer.ip(), port, entry.local, entry.peer, entry.inode)
        });
        for (at, entry) in entries.into_iter().enumerate() {
            if self.half && at % 2 == 1 { plan.leave.push(entry) } else { plan.change.push(entry) }
        }
        plan
    }
}

/// Outcome for one socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// It was changed, and reads back as the new value.
    Changed,
    /// It already had the value.
    Already,
    /// It was closed, or is not the same socket any more.
    Gone(String),
    Failed(String),
}

/// One socket with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub inode: u64,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
    /// A process that had it open.
    pub pid: Option<u32>,
    /// Name of that process.
    pub comm: Option<String>,
    /// A descriptor in that process.
    pub fd: Option<i32>,
    /// Requested value.
    pub to: bool,
    pub became: ChangeOutcome,
}

/// Makes the changes recorded in a journal. Calls `each` after every change; it returns whether to continue.
///
/// # Errors
/// The journal could not be rewritten without the unchanged sockets.
pub fn apply(
    held: LockedJournal,
    mut each: impl FnMut(&Change) -> bool,
) -> Result<Option<LockedJournal>, JournalError> {
    let mut processes = Processes::default();
    let mut changed = std::collections::HashSet::new();
    for entry in &held.journal().entries {
        let change = Change::of(entry, entry.new, processes.set(entry, entry.old, entry.new));
        // A failed change may nevertheless have taken effect.
        if matches!(change.became, ChangeOutcome::Changed | ChangeOutcome::Failed(_)) {
            changed.insert(entry.inode);
        }
        if !each(&change) {
            // The rest was not touched; an undo skips superfluous entries.
            break;
        }
    }
    held.keep(|entry| changed.contains(&entry.inode))
}

/// Result of an undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Every readable socket of the journal.
    pub sockets: Vec<Change>,
    /// Unreadable parts of the journal: their sockets were left alone.
    pub unreadable: Vec<Damage>,
    /// Whether the journal was removed, because nothing is left to do.
    pub journal_removed: bool,
}

impl Undone {
    /// Number of sockets with an outcome.
    pub fn count(&self, what: fn(&ChangeOutcome) -> bool) -> u64 {
        self.sockets.iter().filter(|change| what(&change.became)).count() as u64
    }
}

/// Restores sockets that are still the same and still have the value that was set. Removes the journal if
/// nothing is left to do; keeps it if a socket could not be restored but may be later, or if part of it is
/// unreadable.
///
/// # Errors
/// The journal cannot be removed.
pub fn undo(held: LockedJournal) -> Result<Undone, JournalError> {
    let mut processes = Processes::default();
    let journal = held.journal();
    let this_boot = !journal.of_another_boot()?;
    let back = |entry: &Entry| {
        let became = match this_boot {
            true => processes.set(entry, entry.new, entry.old),
            false => ChangeOutcome::Gone("it is from before the machine was started".to_owned()),
        };
        Change::of(entry, entry.old, became)
    };
    let sockets: Vec<Change> = journal.entries.iter().map(back).collect();
    // Unreadable parts are of no use after a reboot.
    let all_read = journal.is_whole() || !this_boot;
    let unreadable = journal.damage.clone();
    let all_done =
        all_read && sockets.iter().all(|change| !matches!(change.became, ChangeOutcome::Failed(_)));
    if all_done {
        held.remove()?;
    }
    Ok(Undone { sockets, unreadable, journal_removed: all_done })
}

impl Change {
    fn of(entry: &Entry, to: bool, became: ChangeOutcome) -> Change {
        let first = entry.holders.first();
        Change {
            inode: entry.inode,
            local: entry.local,
            peer: entry.peer,
            pid: first.map(|holder| holder.pid),
            comm: first.map(|holder| holder.comm.clone()),
            fd: first.and_then(|holder| holder.fds.first().copied()),
            to,
            became,
        }
    }
}

/// Pidfds of processes while their sockets are changed, or the reason for a missing one.
#[derive(Default)]
struct Processes(HashMap<(u32, u64), Result<OwnedFd, ChangeOutcome>>);

impl Processes {
    /// Sets a socket that has the value `from`, and reads it back.
    fn set(&mut self, entry: &Entry, from: bool, to: bool) -> ChangeOutcome {
        let socket = match self.find(entry) {
            Ok(socket) => socket,
            Err(why) => return why,
        };
        let failed = |error: Errno| ChangeOutcome::Failed(format!("TCP_NODELAY: {error}"));
        match tcp_nodelay(&socket) {
            Ok(value) if value == to => return ChangeOutcome::Already,
            Ok(value) => debug_assert_eq!(value, from),
            Err(error) => return failed(error),
        }
        if let Err(error) = set_tcp_nodelay(&socket, to) {
            return failed(error);
        }
        match tcp_nodelay(&socket) {
            Ok(value) if value == to => ChangeOutcome::Changed,
            Ok(value) => ChangeOutcome::Failed(format!("TCP_NODELAY reads {value} after it was set to {to}")),
            Err(error) => failed(error),
        }
    }

    /// Finds the very socket, by its inode and both addresses, in a process that had it, preferring its lowest
    /// descriptor.
    fn find(&mut self, entry: &Entry) -> Result<OwnedFd, ChangeOutcome> {
        let mut why = ChangeOutcome::Gone("no process had it".to_owned());
        for holder in &entry.holders {
            match self.find_in(holder, entry) {
                Ok(socket) => return Ok(socket),
                // A failure that may pass takes precedence over a permanent one.
                Err(failed @ ChangeOutcome::Failed(_)) => why = failed,
                Err(gone) if !matches!(why, ChangeOutcome::Failed(_)) => why = gone,
                Err(_) => {}
            }
        }
        Err(why)
    }

    fn find_in(&mut self, holder: &Holder, entry: &Entry) -> Result<OwnedFd, ChangeOutcome> {
        let key = (holder.pid, holder.start_ticks);
        let process =
            self.0.entry(key).or_insert_with(|| hold(holder)).as_ref().map_err(ChangeOutcome::clone)?;
        let try_one = |fd: i32| -> Result<Option<OwnedFd>, ChangeOutcome> {
            match borrow(process, fd) {
                Ok(socket) if borrow::inode(&socket) == Some(entry.inode) => Ok(Some(socket)),
                Ok(_) | Err(Errno::BADF | Errno::SRCH) => Ok(None),
                Err(error) => Err(not_lent(holder.pid, error)),
            }
        };
        let mut found = None;
        for &fd in &holder.fds {
            found = try_one(fd)?;
            if found.is_some() {
                break;
            }
        }
        if found.is_none() {
            // It may have moved to another descriptor.
            let mut moved = Vec::new();
            let _ = processes::sockets(holder.pid, |fd, inode| {
                if inode == entry.inode {
                    moved.push(fd);
                }
            });
            for fd in moved {
                found = found.or(try_one(fd)?);
            }
        }
        let Some(socket) = found else { return Err(ChangeOutcome::Gone("closed".to_owned())) };
        match borrow::ends(&socket) {
            Some(ends) if ends == (entry.local, entry.peer) => Ok(socket),
            Some((local, peer)) => Err(ChangeOutcome::Gone(format!("it now connects {local} and {peer}"))),
            None => Err(ChangeOutcome::Gone("no longer connected".to_owned())),
        }
    }
}

/// Opens a pidfd first and then checks the process's identity, so that its id cannot be reused in between.
fn hold(holder: &Holder) -> Result<OwnedFd, ChangeOutcome> {
    let pid = holder.pid;
    let process = match borrow::process(pid) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Err(ChangeOutcome::Gone(format!("process {pid} has ended"))),
        Err(error) => return Err(not_lent(pid, error)),
    };
    match processes::start_ticks(pid) {
        Some(ticks) if ticks == holder.start_ticks => Ok(process),
        Some(_) => Err(ChangeOutcome::Gone(format!("process {pid} is a different one now"))),
        None => Err(ChangeOutcome::Gone(format!("process {pid} has ended"))),
    }
}

fn not_lent(pid: u32, error: Errno) -> ChangeOutcome {
    match error {
        Errno::PERM | Errno::ACCESS => {
            ChangeOutcome::Failed(format!("borrowing descriptors of process {pid} needs CAP_SYS_PTRACE"))
        }
        error => ChangeOutcome::Failed(format!("borrowing a descriptor of process {pid}: {error}")),
    }
}
