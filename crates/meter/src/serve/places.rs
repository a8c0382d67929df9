//! The connection slots of one port: their number, their owners, and the choice of one to close.
//!
//! Many agents may share one address, so a peer has no limit of its own. When all slots are taken, connections that have
//! never had a request make room first, then the peer with the most connections gives one up, an idle one first.

use rustc_hash::FxHashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The other end of a connection: an IPv4 address, or the /64 network of an IPv6 address, which belongs to
/// one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl Peer {
    /// An unknown peer.
    pub const NOBODY: Peer = Peer::of_v4([0; 4]);

    /// The peer of this address.
    pub fn of(address: IpAddr) -> Peer {
        match address.to_canonical() {
            IpAddr::V4(address) => Peer(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Peer(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }

    /// Whether it is on this host: no other address of the /64 network of `::1` is in use.
    pub fn is_loopback(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_unspecified(),
        }
    }

    /// The peer of an IPv4 address.
    pub const fn of_v4([a, b, c, d]: [u8; 4]) -> Peer {
        Peer(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) if network.is_unspecified() => f.write_str("::1"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// Deadlines of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For the first request of a connection and, over HTTP/1, for the head of every further one.
    pub head: Duration,
    /// For a connection without a request.
    pub idle: Duration,
    /// For the whole body of a request.
    pub body: Duration,
    /// After this long, a request that is still arriving must make room for others if there is none.
    pub slow_after: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            body: Duration::from_secs(60),
            slow_after: Duration::from_secs(1),
        }
    }
}

/// Deadline for the next piece of a body, and for room to write the next piece of an answer.
const STALL: Duration = Duration::from_secs(20);

impl Deadlines {
    /// How long a body or an answer may make no progress.
    pub fn stall(&self) -> Duration {
        STALL.min(self.body)
    }
}

/// Why the meter ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No request came in time, or not all of its head.
    NoRequest,
    /// It had no request for too long.
    Idle,
    /// The peer did not read its answer.
    NotReading,
    /// Another connection needed its place.
    ForRoom,
    /// TLS was expected, and the handshake failed.
    NoTls,
}

/// Counts of one port since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFigures {
    /// Connections open now.
    pub open: u64,
    /// Maximum number of open connections.
    pub limit: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Ended by [`Reason::NoRequest`].
    pub closed_no_request: u64,
    /// Ended by [`Reason::Idle`].
    pub closed_idle: u64,
    /// Ended by [`Reason::NotReading`].
    pub closed_not_reading: u64,
    /// Ended by [`Reason::ForRoom`].
    pub closed_for_room: u64,
    /// Ended by [`Reason::NoTls`].
    pub closed_no_tls: u64,
    /// Connections closed as soon as they were accepted, because no other could be closed for them.
    pub refused: u64,
    /// How often the system could not accept, such as for lack of file descriptors.
    pub accept_errors: u64,
}

/// The connections of one port.
#[derive(Debug)]
pub struct Port {
    /// `otlp_grpc`, `otlp_http` or `http`.
    pub name: &'static str,
    /// Deadlines of this port's connections and requests.
    pub deadlines: Deadlines,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    limit: usize,
    began: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: FxHashMap<u64, Arc<Connection>>,
    next: u64,
    figures: PortFigures,
}

/// No time.
const NONE: u64 = u64::MAX;

/// One connection, as its task, its requests and its port see it. Times are milliseconds since the port opened.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    /// Who is at the other end.
    pub peer: Peer,
    began: Instant,
    opened_ms: u64,
    /// Whether its first bytes are those of HTTP/2.
    is_http2: AtomicBool,
    requests: AtomicU64,
    /// Requests in progress, until their answers are written.
    active: AtomicU64,
    /// Since when `active` is zero, or since when it is not.
    since_ms: AtomicU64,
    /// Time of the first byte after the last request.
    head_ms: AtomicU64,
    /// Answers being written, and when the last of their bytes left.
    writing: AtomicU64,
    written_ms: AtomicU64,
    /// Notified to end, in order to make room.
    room: Notify,
}

impl Port {
    /// A port with `limit` places.
    pub fn new(name: &'static str, streams: u32, limit: usize, deadlines: Deadlines) -> Arc<Port> {
        let limit = limit.max(1);
        Arc::new(Port { name, deadlines, streams, limit, began: Instant::now(), open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts so far.
    pub fn figures(&self) -> PortFigures {
        let open = self.open();
        PortFigures { open: open.connections.len() as u64, limit: self.limit as u64, ..open.figures }
    }

    /// A place for a connection that was just accepted; `None` if there is none for it.
    pub fn enter(&self, peer: Peer) -> Option<Arc<Connection>> {
        let mut open = self.open();
        open.figures.accepted += 1;
        if open.connections.len() >= self.limit && !self.make_room(&mut open) {
            open.figures.refused += 1;
            return None;
        }
        let id = open.next;
        open.next += 1;
        let opened_ms = self.began.elapsed().as_millis() as u64;
        let connection = Arc::new(Connection {
            id,
            peer,
            began: self.began,
            opened_ms,
            is_http2: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            active: AtomicU64::new(0),
            since_ms: AtomicU64::new(opened_ms),
            head_ms: AtomicU64::new(NONE),
            writing: AtomicU64::new(0),
            written_ms: AtomicU64::new(opened_ms),
            room: Notify::new(),
        });
        open.connections.insert(id, connection.clone());
        Some(connection)
    }

    /// The system could not accept. One connection fewer frees a file descriptor.
    pub fn accept_failed(&self) {
        let mut open = self.open();
        open.figures.accept_errors += 1;
        self.make_room(&mut open);
    }

    /// Ends the most dispensable connection. First those that have been open for a while and have never had a request:
    /// whoever has many addresses has many of these, and could else displace everybody with two connections. Then those
    /// of the peer with the most: one without a request before one whose request is slow, and the one that has been so for
    /// the longest.
    fn make_room(&self, open: &mut Open) -> bool {
        let slow_ms = self.deadlines.slow_after.as_millis() as u64;
        let now_ms = self.began.elapsed().as_millis() as u64;
        let never_asked =
            |c: &Connection| c.requests.load(Relaxed) == 0 && now_ms.saturating_sub(c.opened_ms) >= slow_ms;
        let mut of_peer = FxHashMap::<(Peer, bool), u32>::default();
        for c in open.connections.values() {
            *of_peer.entry((c.peer, false)).or_default() += 1;
            *of_peer.entry((c.peer, true)).or_default() += u32::from(never_asked(c));
        }
        let rank = |c: &Connection| {
            let is_idle = c.active.load(Relaxed) == 0;
            let since_ms = c.since_ms.load(Relaxed);
            let may_go = is_idle || now_ms.saturating_sub(since_ms) >= slow_ms;
            let never_asked = never_asked(c);
            may_go.then_some((
                never_asked,
                of_peer[&(c.peer, never_asked)],
                is_idle,
                std::cmp::Reverse(since_ms),
                std::cmp::Reverse(c.id),
            ))
        };
        let worst = open.connections.values().filter_map(|c| Some((rank(c)?, c.id))).max();
        let Some(connection) = worst.and_then(|(_, id)| open.connections.remove(&id)) else { return false };
        open.figures.closed_for_room += 1;
        connection.room.notify_one();
        true
    }

    /// The connection has ended, for the given reason or by itself.
    pub fn leave(&self, connection: &Connection, reason: Option<Reason>) {
        let mut open = self.open();
        open.connections.remove(&connection.id);
        match reason {
            Some(Reason::NoRequest) => open.figures.closed_no_request += 1,
            Some(Reason::Idle) => open.figures.closed_idle += 1,
            Some(Reason::NotReading) => open.figures.closed_not_reading += 1,
            Some(Reason::NoTls) => open.figures.closed_no_tls += 1,
            // Counted when it was chosen.
            Some(Reason::ForRoom) | None => {}
        }
    }
}

impl Connection {
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Bytes have come.
    pub fn has_read(&self, bytes: &[u8]) {
        // No HTTP/1 method begins like this: it is the preface of HTTP/2.
        if self.requests.load(Relaxed) == 0 && bytes.starts_with(b"PRI ") {
            self.is_http2.store(true, Relaxed);
        }
        if self.active.load(Relaxed) == 0 && self.head_ms.load(Relaxed) == NONE {
            self.head_ms.store(self.now_ms(), Relaxed);
        }
    }

    /// Bytes have gone.
    pub fn has_written(&self) {
        if self.writing.load(Relaxed) > 0 {
            self.written_ms.store(self.now_ms(), Relaxed);
        }
    }

    /// A request whose head is complete.
    pub fn begin(self: &Arc<Self>) -> InHand {
        self.requests.fetch_add(1, Relaxed);
        self.head_ms.store(NONE, Relaxed);
        if self.active.fetch_add(1, Relaxed) == 0 {
            self.since_ms.store(self.now_ms(), Relaxed);
        }
        InHand { connection: self.clone(), writing: false }
    }

    /// Completes when another connection needs the place.
    pub async fn told_to_go(&self) {
        self.room.notified().await;
    }

    /// The deadline that the connection has missed, or else when to ask again.
    pub fn overdue(&self, deadlines: &Deadlines) -> Result<Duration, Reason> {
        let now_ms = self.now_ms();
        let left = |since_ms: u64, limit: Duration| {
            limit.checked_sub(Duration::from_millis(now_ms.saturating_sub(since_ms))).filter(|d| !d.is_zero())
        };
        if self.writing.load(Relaxed) > 0 {
            return left(self.written_ms.load(Relaxed), deadlines.stall()).ok_or(Reason::NotReading);
        }
        if self.active.load(Relaxed) > 0 {
            // Reading has deadlines of its own, and processing is not limited.
            return Ok(deadlines.stall());
        }
        let http2 = self.is_http2.load(Relaxed);
        // gRPC channels connect before they are needed.
        if self.requests.load(Relaxed) == 0 && !http2 {
            return left(self.opened_ms, deadlines.head).ok_or(Reason::NoRequest);
        }
        let idle = left(self.since_ms.load(Relaxed), deadlines.idle).ok_or(Reason::Idle)?;
        let head_ms = self.head_ms.load(Relaxed);
        // Over HTTP/2, only pings come between requests.
        if head_ms == NONE || http2 {
            return Ok(idle.min(deadlines.head));
        }
        left(head_ms, deadlines.head).map(|left| left.min(idle)).ok_or(Reason::NoRequest)
    }
}

/// A request in progress, until its answer is written or abandoned.
#[derive(Debug)]
pub struct InHand {
    connection: Arc<Connection>,
    writing: bool,
}

impl InHand {
    /// The request is done; its answer is being written.
    pub fn answers(&mut self) {
        self.connection.written_ms.store(self.connection.now_ms(), Relaxed);
        self.connection.writing.fetch_add(1, Relaxed);
        self.writing = true;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        if self.writing {
            self.connection.writing.fetch_sub(1, Relaxed);
        }
        if self.connection.active.fetch_sub(1, Relaxed) == 1 {
            self.connection.since_ms.store(self.connection.now_ms(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(limit: usize, slow_after: Duration) -> Arc<Port> {
        Port::new("test", 256, limit, Deadlines { slow_after, ..Deadlines::default() })
    }

    fn is_open(port: &Port, connection: &Connection) -> bool {
        port.open().connections.contains_key(&connection.id)
    }

    const NAT: Peer = Peer::of_v4([10, 0, 0, 1]);
    const ALONE: Peer = Peer::of_v4([10, 0, 0, 2]);

    #[test]
    fn the_heaviest_peers_oldest_idle_connection_makes_room() {
        let port = port(4, Duration::from_secs(3600));
        let alone = port.enter(ALONE).unwrap();
        let many: Vec<_> = (0..3).map(|_| port.enter(NAT).unwrap()).collect();
        let busy = many[0].begin();
        let new = port.enter(ALONE).unwrap();
        assert!(
            is_open(&port, &alone) && is_open(&port, &new),
            "the oldest of all is the only one of its peer"
        );
        let open: Vec<bool> = many.iter().map(|c| is_open(&port, c)).collect();
        assert_eq!(open, [true, false, true], "the oldest of its peer has a request");
        drop(busy);
        let figures = port.figures();
        assert_eq!((figures.open, figures.accepted, figures.closed_for_room, figures.refused), (4, 5, 1, 0));
    }

    #[test]
    fn without_an_idle_one_a_slow_one_goes_and_else_the_new_one() {
        let patient = port(2, Duration::from_secs(3600));
        let both = [patient.enter(NAT).unwrap(), patient.enter(NAT).unwrap()];
        let _in_hand = both.each_ref().map(Connection::begin);
        assert!(patient.enter(ALONE).is_none());
        assert_eq!(patient.figures().refused, 1);

        let strict = port(2, Duration::ZERO);
        let both = [strict.enter(NAT).unwrap(), strict.enter(NAT).unwrap()];
        let _in_hand = both.each_ref().map(Connection::begin);
        assert!(strict.enter(ALONE).is_some());
        assert_eq!(both.each_ref().map(|c| is_open(&strict, c)), [false, true]);
    }

    /// Whoever has many addresses could otherwise displace every peer with two connections.
    #[test]
    fn connections_that_never_asked_make_room_before_those_of_a_peer_with_several() {
        let port = port(6, Duration::ZERO);
        let silent: Vec<_> = (1..=4).map(|at| port.enter(Peer::of_v4([10, 0, 1, at])).unwrap()).collect();
        let used = [port.enter(NAT).unwrap(), port.enter(NAT).unwrap()];
        used.iter().for_each(|connection| drop(connection.begin()));
        let new = port.enter(NAT).unwrap();
        let another = port.enter(ALONE).unwrap();
        let open = |all: &[Arc<Connection>]| all.iter().map(|c| is_open(&port, c)).collect::<Vec<_>>();
        assert_eq!(open(&silent), [false, false, true, true], "the oldest of those without a request");
        assert_eq!(open(&used), [true, true]);
        assert_eq!(open(&[new, another]), [true, true]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let peer = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), NAT);
        for (text, is_loopback) in [
            ("::1", true),
            ("127.9.9.9", true),
            ("::ffff:127.0.0.1", true),
            ("fe80::1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(peer(text).is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn what_is_overdue() {
        let zero = Deadlines {
            head: Duration::ZERO,
            idle: Duration::ZERO,
            body: Duration::ZERO,
            ..Deadlines::default()
        };
        let long = Deadlines::default();
        let port = port(9, Duration::ZERO);
        let silent = port.enter(ALONE).unwrap();
        assert_eq!(silent.overdue(&zero), Err(Reason::NoRequest));
        assert!(silent.overdue(&long).is_ok());
        let channel = port.enter(ALONE).unwrap();
        channel.has_read(b"PRI * HTTP/2.0\r\n");
        assert_eq!(
            channel.overdue(&Deadlines { idle: long.idle, ..zero }).map_err(|_| ()),
            Ok(Duration::ZERO)
        );
        assert_eq!(channel.overdue(&zero), Err(Reason::Idle));

        let mut request = silent.begin();
        assert!(silent.overdue(&zero).is_ok(), "it works");
        request.answers();
        assert_eq!(silent.overdue(&zero), Err(Reason::NotReading));
        drop(request);
        assert_eq!(silent.overdue(&zero), Err(Reason::Idle));
        silent.has_read(b"POST");
        assert_eq!(silent.overdue(&Deadlines { head: Duration::ZERO, ..long }), Err(Reason::NoRequest));
    }
}
