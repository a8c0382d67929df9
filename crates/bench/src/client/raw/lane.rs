//! One channel: a connection of its own, its calls in flight, and its reconnection.

use super::books::Accounts;
use super::flights::{Flight, Flights};
use super::outbox::Outbox;
use crate::client::tally::Ended;
use crate::clock;
use crate::contract::record::NO_CONNECTION;
use crate::contract::{Nodelay, Phase};
use crate::raw::frame::{Head, Kind, MAX_HEAD_BYTES, Skipping};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv};
use spangap_model::duration::format_ns;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tonic::Code;

const FIRST_PAUSE_NS: u64 = 10_000_000;
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// A worker whose call failed faster than this pauses for as long.
const REST_NS: u64 = 1_000_000;
/// Maximum number of abandoned calls before the connection is abandoned too.
const MAX_GIVEN_UP: u64 = 65_536;
/// Maximum length of a blocking read.
const PLAIN_READ: Duration = Duration::from_millis(10);

/// A channel.
pub struct Lane {
    channel: u32,
    peer: SocketAddr,
    nodelay: Nodelay,
    timeout_ns: u64,
    link: Link,
    /// Why there is no connection.
    down: String,
    pause_ns: u64,
    /// Number of idle workers, and pausing workers with the end of their pause.
    pub idle: u32,
    resting: VecDeque<(u64, u32)>,
    flights: Flights,
    outbox: Outbox,
    frames: Skipping,
    /// An incomplete frame head.
    kept: Vec<u8>,
}

enum Link {
    Up { stream: TcpStream, id: u16, since_ns: u64 },
    Opening { stream: TcpStream, until_ns: u64 },
    Down { until_ns: u64 },
}

/// Events that a lane's socket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

impl Lane {
    /// Takes an open connection.
    ///
    /// # Errors
    /// The kernel refuses a socket option.
    pub fn new(
        channel: u32,
        stream: TcpStream,
        workers: u32,
        request: Head,
        books: &Accounts,
    ) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        let settings = books.settings();
        let mut lane = Lane {
            channel,
            peer,
            nodelay: settings.nodelay,
            timeout_ns: u64::try_from(settings.timeout.as_nanos()).unwrap_or(u64::MAX),
            link: Link::Down { until_ns: 0 },
            down: String::new(),
            pause_ns: FIRST_PAUSE_NS,
            idle: workers,
            resting: VecDeque::new(),
            flights: Flights::default(),
            outbox: Outbox::new(request, settings.split_writes),
            frames: Skipping::default(),
            kept: Vec::with_capacity(MAX_HEAD_BYTES),
        };
        lane.up(stream, books)?;
        Ok(lane)
    }

    fn up(&mut self, stream: TcpStream, books: &Accounts) -> io::Result<()> {
        match self.nodelay {
            // A floor does not wait for ACKs unless asked to.
            Nodelay::On | Nodelay::Default => stream.set_nodelay(true)?,
            Nodelay::Off => stream.set_nodelay(false)?,
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PLAIN_READ))?;
        let id = books.session.connection(self.channel, stream.local_addr()?, self.peer);
        self.link = Link::Up { stream, id, since_ns: clock::monotonic_ns() };
        Ok(())
    }

    /// The socket, if connected.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Up { stream, .. } | Link::Opening { stream, .. } => Some(stream.as_fd()),
            Link::Down { .. } => None,
        }
    }

    /// Events to wait for.
    pub fn interest(&self) -> Interest {
        match self.link {
            Link::Up { .. } => Interest { read: true, write: !self.outbox.is_empty() },
            Link::Opening { .. } => Interest { read: false, write: true },
            Link::Down { .. } => Interest { read: false, write: false },
        }
    }

    /// Calls in flight.
    pub fn live(&self) -> u64 {
        self.flights.live()
    }

    /// Time of the next work that no event announces.
    pub fn wake_ns(&self) -> u64 {
        let oldest = self.flights.oldest_live();
        let deadline_ns = oldest.map_or(u64::MAX, |flight| flight.sent_ns.saturating_add(self.timeout_ns));
        let rested_ns = self.resting.front().map_or(u64::MAX, |(until_ns, _)| *until_ns);
        let link_ns = match self.link {
            Link::Up { .. } => u64::MAX,
            Link::Opening { until_ns, .. } | Link::Down { until_ns } => until_ns,
        };
        deadline_ns.min(rested_ns).min(link_ns)
    }

    /// Whether the only possible next event is a response.
    pub fn only_reads(&self) -> bool {
        matches!(self.link, Link::Up { .. }) && self.outbox.is_empty() && self.flights.live() > 0
    }

    /// Starts this many calls of idle workers at `sent_ns`, which is now. Without a connection they fail at
    /// once. Must be followed by [`flush`](Self::flush).
    pub fn launch(
        &mut self,
        books: &mut Accounts,
        calls: u32,
        phase: Phase,
        due_ns: Option<u64>,
        sent_ns: u64,
    ) {
        self.idle -= calls;
        let sent_unix_ns = if books.session.records() { clock::unix_ns() } else { 0 };
        let lateness_ns = due_ns.map(|due_ns| sent_ns.saturating_sub(due_ns));
        books.tally.lock().sent_many(phase, lateness_ns, calls.into());
        let flight = Flight { phase, due_ns, sent_ns, sent_unix_ns, context: None, times: calls };
        if !matches!(self.link, Link::Up { .. }) {
            let reason = format!("no connection: {}", self.down);
            self.end(books, &flight, calls, sent_ns, Some((Code::Unavailable, &reason)));
            return;
        }
        if books.trace {
            for _ in 0..calls {
                self.flights.push(Flight { context: Some(books.context()), times: 1, ..flight });
            }
        } else {
            self.flights.push(flight);
        }
        self.outbox.push(calls.into());
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self, books: &mut Accounts) {
        let Link::Up { stream, .. } = &self.link else { return };
        let flights = &self.flights;
        let traced = books.trace;
        let context = |queued| if traced { flights.context(queued) } else { None };
        if let Err(error) = self.outbox.flush(stream, context) {
            self.lose(books, &error.to_string());
        }
    }

    /// The socket is, or may be, ready: reads available bytes, or completes the connection. With `wait`, a read
    /// blocks for a few milliseconds.
    pub fn ready(&mut self, books: &mut Accounts, buffer: &mut [u8], wait: bool) {
        match &self.link {
            Link::Up { .. } => self.read(books, buffer, wait),
            Link::Opening { stream, .. } => match rustix::net::sockopt::socket_error(stream) {
                Ok(Ok(())) => self.opened(books),
                Ok(Err(error)) | Err(error) => self.lose(books, &io::Error::from(error).to_string()),
            },
            Link::Down { .. } => {}
        }
    }

    fn opened(&mut self, books: &mut Accounts) {
        let until_ns = clock::monotonic_ns();
        if let Link::Opening { stream, .. } = std::mem::replace(&mut self.link, Link::Down { until_ns })
            && let Err(error) = self.up(stream, books)
        {
            self.lose(books, &error.to_string());
        }
    }

    fn read(&mut self, books: &mut Accounts, buffer: &mut [u8], wait: bool) {
        let Link::Up { stream, .. } = &self.link else { return };
        let kept = self.kept.len();
        buffer[..kept].copy_from_slice(&self.kept);
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let read = match recv(stream, &mut buffer[kept..], flags) {
            Ok((0, _)) => return self.lose(books, "the target closed the connection"),
            Ok((read, _)) => read,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(error) => return self.lose(books, &io::Error::from(error).to_string()),
        };
        let done_ns = clock::monotonic_ns();
        self.expire(books, done_ns);
        let mut left = &buffer[..kept + read];
        loop {
            let (status, mut answers) = match self.frames.next(&mut left) {
                Ok(Some((Head { kind: Kind::Pong, status, .. }, answers))) => (status, answers),
                Ok(None) => break,
                Ok(Some((Head { kind, .. }, _))) => {
                    return self.lose(books, &format!("the target sent a {kind:?}: expected a Pong"));
                }
                Err(error) => return self.lose(books, &format!("not the raw protocol: {error}")),
            };
            let failure = (status != 0).then(|| (Code::from_i32(status.into()), "as the target answered"));
            while answers > 0 {
                let sent = self.flights.calls() - self.outbox.queued();
                let (front, given_up) = match self.flights.front() {
                    Some((front, given_up)) if sent > 0 => (*front, given_up),
                    _ => return self.lose(books, "the target answered a call that was never made"),
                };
                let calls = answers.min(front.times.into()).min(sent) as u32;
                answers -= u64::from(calls);
                self.flights.answered(calls);
                if !given_up {
                    self.end(books, &front, calls, done_ns, failure);
                }
            }
        }
        self.kept.clear();
        self.kept.extend_from_slice(left);
    }

    /// Accounts for ended calls, and frees their workers.
    fn end(
        &mut self,
        books: &mut Accounts,
        flight: &Flight,
        calls: u32,
        done_ns: u64,
        failure: Option<(Code, &str)>,
    ) {
        let Flight { phase, due_ns, sent_ns, .. } = *flight;
        let ended = Ended { phase, due_ns, sent_ns, done_ns, failure };
        let id = if let Link::Up { id, .. } = self.link { id } else { NO_CONNECTION };
        books.ended(&ended, flight, calls, id);
        // An open loop's calls start when due, whatever became of the others.
        if failure.is_some() && due_ns.is_none() && ended.from_send_ns() < REST_NS {
            self.resting.push_back((done_ns + REST_NS, calls));
        } else {
            self.idle += calls;
        }
    }

    /// Ends all calls in flight.
    pub fn end_all(&mut self, books: &mut Accounts, code: Code, reason: &str) {
        let now_ns = clock::monotonic_ns();
        while let Some(flight) = self.flights.oldest_live().copied() {
            let removed = self.flights.give_up(self.outbox.queued());
            self.outbox.retract(removed);
            self.end(books, &flight, flight.times, now_ns, Some((code, reason)));
        }
    }

    fn lose(&mut self, books: &mut Accounts, why: &str) {
        self.end_all(books, Code::Unavailable, why);
        self.flights.clear();
        self.outbox.clear();
        self.frames = Skipping::default();
        self.kept.clear();
        let now_ns = clock::monotonic_ns();
        // A peer that accepts connections only to drop them gets the same pause as one that accepts none.
        if matches!(self.link, Link::Up { since_ns, .. } if now_ns - since_ns > LONGEST_PAUSE_NS) {
            self.pause_ns = FIRST_PAUSE_NS;
        }
        self.down = why.into();
        self.link = Link::Down { until_ns: now_ns + self.pause_ns };
        self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
    }

    /// Ends calls that have timed out, even if their responses are about to be read.
    fn expire(&mut self, books: &mut Accounts, now_ns: u64) {
        while let Some(flight) = self.flights.oldest_live().copied()
            && flight.sent_ns.saturating_add(self.timeout_ns) <= now_ns
        {
            let removed = self.flights.give_up(self.outbox.queued());
            self.outbox.retract(removed);
            let all_sent = removed == 0;
            let what = if all_sent { "no response within" } else { "could not be sent within" };
            let reason = format!("{what} {}", format_ns(self.timeout_ns));
            self.end(books, &flight, flight.times, now_ns, Some((Code::DeadlineExceeded, &reason)));
        }
    }

    /// Does the work due at `now_ns`: calls time out, pauses end, the connection is retried.
    pub fn tick(&mut self, books: &mut Accounts, now_ns: u64) {
        self.expire(books, now_ns);
        if self.flights.given_up() > MAX_GIVEN_UP {
            self.lose(books, &format!("more than {MAX_GIVEN_UP} responses are late"));
        }
        while let Some((until_ns, workers)) = self.resting.front().copied()
            && until_ns <= now_ns
        {
            self.resting.pop_front();
            self.idle += workers;
        }
        match self.link {
            Link::Down { until_ns } if until_ns <= now_ns => {
                if let Err(error) = self.open(now_ns) {
                    self.lose(books, &format!("cannot connect to {}: {error}", self.peer));
                }
            }
            Link::Opening { until_ns, .. } if until_ns <= now_ns => {
                let timeout = format_ns(self.timeout_ns);
                self.lose(books, &format!("cannot connect to {} within {timeout}", self.peer));
            }
            _ => {}
        }
    }

    fn open(&mut self, now_ns: u64) -> io::Result<()> {
        let family = if self.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &self.peer) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let until_ns = now_ns.saturating_add(self.timeout_ns);
        self.link = Link::Opening { stream: socket.into(), until_ns };
        Ok(())
    }
}
