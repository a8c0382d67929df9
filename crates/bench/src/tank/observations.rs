//! Observations from outside the client: its sockets in the kernel, and the target's own account.

use crate::contract::{Channels, Nodelay, Stack};
use crate::ping::UsageResponse;
use crate::report::{Asked, Sockets, Streams};
use crate::stream_limit;
use crate::usage::{self, Protocol};
use spangap_sockets::{self as sockets, Socket};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time limit for the target's response to side requests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Observations so far.
#[derive(Default)]
pub struct Observations {
    pid: u32,
    /// Possible addresses of the target; if empty, nothing is observed.
    peers: Vec<SocketAddr>,
    raw: bool,
    per_call: bool,
    nodelay: Option<bool>,
    limit: Option<Option<u32>>,
    /// The last valid check.
    last: Option<Vec<Socket>>,
    /// Every connection ever observed, by its local address, in its latest state.
    sockets: BTreeMap<SocketAddr, Socket>,
    most_at_once: u64,
    forced: bool,
    before: Option<UsageResponse>,
    after: Option<UsageResponse>,
    over: bool,
    warnings: Vec<String>,
}

impl Observations {
    /// Observes nothing.
    pub fn none() -> Self {
        Observations::default()
    }

    /// Observes the client's connections to these addresses, and queries the target there.
    pub fn new(asked: &Asked, peers: Vec<SocketAddr>, limit: Option<Option<u32>>) -> Self {
        let nodelay = match asked.nodelay {
            Nodelay::On => Some(true),
            Nodelay::Off => Some(false),
            Nodelay::Default => None,
        };
        let (raw, per_call) = (asked.stack == Stack::Raw, asked.channels == Channels::PerCall);
        Observations { peers, raw, per_call, nodelay, limit, ..Observations::default() }
    }

    /// Sets the process to observe.
    pub fn of_process(&mut self, pid: u32) {
        self.pid = pid;
    }

    /// Checks the sockets, and sets `TCP_NODELAY` on new connections if the client did not. If somebody changes
    /// it on a known connection, they want to see the effect: it stays, and the report says so. The check is
    /// valid if the client cannot have ended by then, that is before `until`: an ending client closes its
    /// connections.
    pub fn look(&mut self, until: Option<Instant>) {
        if self.peers.is_empty() {
            return;
        }
        let looked = sockets::look(self.pid, &self.peers);
        if until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        match looked {
            Ok(mut found) => {
                found.iter_mut().for_each(|socket| self.set_nodelay(socket));
                self.most_at_once = self.most_at_once.max(found.len() as u64);
                self.sockets.extend(found.iter().map(|socket| (socket.local, socket.clone())));
                self.last = Some(found);
            }
            // A client that ended by itself was checked before.
            Err(_) if self.last.is_some() => {}
            Err(error) => self.warn(format!("the client's connections cannot be seen: {}", chain(&error))),
        }
    }

    fn set_nodelay(&mut self, socket: &mut Socket) {
        let (Some(wanted), Some(found)) = (self.nodelay, socket.nodelay) else { return };
        if wanted == found {
            return;
        }
        if let Some(before) = self.sockets.get(&socket.local) {
            if before.nodelay == Some(wanted) {
                let (value, local) = (if found { "on" } else { "off" }, socket.local);
                self.warn(format!("somebody else turned TCP_NODELAY {value} on {local} during the run"));
            }
            return;
        }
        match sockets::set_nodelay(self.pid, socket, wanted) {
            Ok(()) => {
                self.forced = true;
                socket.nodelay = Some(wanted);
            }
            // A connection that closes meanwhile needs no setting.
            Err(sockets::SocketsError::Changed { .. }) => {}
            Err(error) => self.warn(format!("TCP_NODELAY is not as requested: {}", chain(&error))),
        }
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Queries the target at the start of the measured phase.
    pub fn measured_begins(&mut self) {
        self.before = self.usage();
    }

    /// Queries it for the last time.
    pub fn measured_ends(&mut self) {
        if self.over {
            return;
        }
        self.over = true;
        if self.before.is_some() {
            self.after = self.usage();
        }
        if let (Some(before), Some(after)) = (&self.before, &self.after)
            && before.pid != after.pid
        {
            self.after = None;
            self.warn("the target was restarted during the run: what it used is unknown".into());
        }
    }

    fn usage(&mut self) -> Option<UsageResponse> {
        let in_use = self.last.iter().flatten().next().map(|socket| socket.peer);
        let peer = in_use.or_else(|| self.peers.first().copied())?;
        let protocol = if self.raw { Protocol::Raw } else { Protocol::Grpc };
        usage::ask(protocol, &peer.to_string(), PATIENCE).unwrap_or_else(|error| {
            self.warn(format!("what the target used is unknown: {}", chain(&error)));
            None
        })
    }

    /// Number of connections at the end of the measured phase, or at the last check.
    pub fn connections(&self) -> Option<u64> {
        self.last.as_ref().map(|sockets| sockets.len() as u64)
    }

    /// The kernel's view of the connections. Where every call has its own, most come and go between two checks:
    /// the client reported `told` of them.
    pub fn sockets(&self, told: u64) -> Option<Sockets> {
        let last = self.last.as_ref()?;
        let looked = self.sockets.len() as u64;
        let readable = last.iter().all(|socket| socket.nodelay.is_some());
        let with = |on| last.iter().filter(|socket| socket.nodelay == Some(on)).count() as u64;
        let all = || self.sockets.values();
        let sent_again: Option<Vec<u64>> = all().map(|socket| socket.retransmitted_segments).collect();
        Some(Sockets {
            most_at_once: self.most_at_once,
            seen: if self.per_call { looked.max(told) } else { looked },
            nodelay_on: readable.then(|| with(true)),
            nodelay_off: readable.then(|| with(false)),
            nodelay_forced: self.forced,
            min_rtt_ns: all().filter_map(|socket| socket.min_rtt_ns).min(),
            retransmitted_segments: sent_again.map(|counts| counts.iter().sum()),
            congestion_control: all().find_map(|socket| socket.congestion_control.clone()),
        })
    }

    /// Effect of the stream limit on this many calls in flight.
    pub fn streams(&self, inflight: Option<u32>) -> Option<Streams> {
        let limit_per_connection = self.limit?;
        let queued_by_limit = match (inflight, limit_per_connection, self.connections()) {
            (Some(_), None, _) => Some(0),
            // Each has its own connection.
            (Some(_), Some(1..), _) if self.per_call => Some(0),
            (Some(inflight), Some(limit), Some(connections)) => {
                Some(u64::from(inflight).saturating_sub(u64::from(limit).saturating_mul(connections)))
            }
            _ => None,
        };
        let target_peak_in_progress = self.after.as_ref().map(|usage| usage.peak_in_progress);
        Some(Streams { limit_per_connection, queued_by_limit, target_peak_in_progress })
    }

    /// CPU time that the target's process used in the measured phase.
    pub fn cpu_target_ns(&self) -> Option<u64> {
        self.used(|usage| usage.cpu_ns)
    }

    /// Context switches of the target's process in the measured phase.
    pub fn context_switches_target(&self) -> Option<u64> {
        self.used(|usage| usage.context_switches)
    }

    /// A property that the target reports; `None` if it reported nothing.
    pub fn target(&self, what: fn(&UsageResponse) -> &String) -> Option<String> {
        let said = what(self.after.as_ref().or(self.before.as_ref())?);
        Some(said.clone()).filter(|said| !said.is_empty())
    }

    fn used(&self, figure: fn(&UsageResponse) -> u64) -> Option<u64> {
        figure(self.after.as_ref()?).checked_sub(figure(self.before.as_ref()?))
    }

    /// What could not be observed, and why.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Stream limit announced by a target; `None` if it does not speak HTTP/2, or not in time.
pub fn stream_limit(peers: &[SocketAddr]) -> Option<Option<u32>> {
    peers.iter().find_map(|&peer| stream_limit::ask(peer, PATIENCE).ok())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        text += &format!(": {reason}");
        source = reason.source();
    }
    text
}
