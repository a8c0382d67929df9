//! The target of the raw stack: a thread per connection, blocking sockets. All requests that have arrived are
//! answered with one write.

use super::frame::MAX_HEAD_BYTES;
use super::pipeline::{Arrival, Batch, PingDefaults, Pipeline};
use crate::clock;
use crate::contract::message::Connection;
use crate::contract::record::NO_CONNECTION;
use crate::contract::{CallRecord, Nodelay};
use crate::ping::{MAX_PAYLOAD_BYTES, MAX_THINK_NS, UsageResponse};
use crate::process::Used;
use crate::trace::Ids;
use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spangap_model::CallStatus;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Grace period for calls in progress at the end.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of connections; further ones are closed and counted.
const MAX_CONNECTIONS: usize = 8_192;
/// Buffer size of a read.
const READ_BYTES: usize = 256 << 10;
/// Pause after an accept failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Settings of a raw target.
#[derive(Clone, Debug)]
pub struct RawSettings {
    /// `HOST:PORT`; port 0 picks any free one.
    pub listen: String,
    /// Default payload of a response.
    pub response_bytes: u64,
    /// Default delay of a response, in nanoseconds.
    pub think_ns: u64,
    /// `TCP_NODELAY` of connections; set by default: a floor does not wait for ACKs.
    pub nodelay: Nodelay,
}

/// Reason for a missing raw target.
#[derive(Debug, thiserror::Error)]
pub enum RawTargetError {
    /// The address is unusable.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A size above the limit.
    #[error("a response of {0} bytes is too large: expected at most {MAX_PAYLOAD_BYTES}")]
    Payload(u64),
    /// A think time above the limit.
    #[error("a think time of {0} ns is too long: expected at most {MAX_THINK_NS} ns")]
    Think(u64),
    /// No thread can be started.
    #[error("cannot start the thread that accepts connections")]
    Thread(#[source] io::Error),
}

/// Observes connections and calls, on the threads that serve them, which wait for it to return.
pub trait Observer: Send + Sync {
    /// Whether calls with a trace context are recorded.
    fn records(&self) -> bool;
    /// A connection was accepted.
    fn connected(&self, connection: &Connection);
    /// A call with a trace context has ended.
    fn served(&self, call: &CallRecord, connection: &Connection);
}

/// Observes nothing.
impl Observer for () {
    fn records(&self) -> bool {
        false
    }
    fn connected(&self, _: &Connection) {}
    fn served(&self, _: &CallRecord, _: &Connection) {}
}

/// Totals of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawReport {
    /// Pings, however they ended.
    pub calls: u64,
    /// The same by gRPC status name. `CANCELLED`: the caller was gone before its response.
    pub by_status: BTreeMap<String, u64>,
    /// Pings whose trace context had an all-zero id.
    pub malformed_traceparent: u64,
    /// Connections closed because of malformed frames.
    pub malformed_connections: u64,
    /// Reason of the last of them.
    pub last_malformed: Option<String>,
    /// Connections refused because there were too many.
    pub refused_connections: u64,
    /// Whether calls were cut off after the grace period.
    pub cut_off: bool,
}

/// A target that listens but does not serve yet.
pub struct RawTarget {
    settings: RawSettings,
    listener: TcpListener,
    address: SocketAddr,
}

impl RawTarget {
    /// Checks the settings and opens the listening socket.
    ///
    /// # Errors
    /// A setting is out of range, or the address is unusable.
    pub fn bind(settings: RawSettings) -> Result<Self, RawTargetError> {
        if settings.response_bytes > MAX_PAYLOAD_BYTES {
            return Err(RawTargetError::Payload(settings.response_bytes));
        }
        if settings.think_ns > MAX_THINK_NS {
            return Err(RawTargetError::Think(settings.think_ns));
        }
        let listen_error = |source| RawTargetError::Listen { listen: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        Ok(RawTarget { settings, listener, address })
    }

    /// Listening address, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until stopped.
    ///
    /// # Errors
    /// No thread can be started, or no descriptor is available.
    pub fn start(self, observer: Arc<dyn Observer>) -> Result<RawServer, RawTargetError> {
        let RawTarget { settings, listener, .. } = self;
        let to_wake = listener.try_clone().map_err(RawTargetError::Thread)?;
        let shared = Arc::new(Shared {
            settings,
            observer,
            stopping: AtomicBool::new(false),
            counts: Counts::default(),
            open: Mutex::default(),
            closed: Condvar::new(),
        });
        let for_thread = shared.clone();
        let accepting = std::thread::Builder::new()
            .name("raw-accept".into())
            .spawn(move || for_thread.accept(&listener))
            .map_err(RawTargetError::Thread)?;
        Ok(RawServer { shared, listener: to_wake, accepting: Some(accepting) })
    }
}

/// A serving target. Dropping it ends it without waiting for calls in progress.
pub struct RawServer {
    shared: Arc<Shared>,
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl RawServer {
    /// Refuses new calls, waits up to 2 s for those in progress, and returns the totals.
    pub fn stop(mut self) -> RawReport {
        self.end_accepting();
        let shared = &self.shared;
        shared.shut_down(Shutdown::Read);
        let cut_off = !shared.wait_until_closed(Some(STOP_GRACE));
        if cut_off {
            shared.shut_down(Shutdown::Both);
            shared.wait_until_closed(None);
        }
        RawReport { cut_off, ..shared.counts.report() }
    }

    fn end_accepting(&mut self) {
        self.shared.stopping.store(true, Relaxed);
        let Some(accepting) = self.accepting.take() else { return };
        // This makes the kernel wake the thread blocked in accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = accepting.join();
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.end_accepting();
        self.shared.shut_down(Shutdown::Both);
    }
}

#[derive(Default)]
struct Counts {
    by_code: [AtomicU64; 17],
    malformed_traceparent: AtomicU64,
    malformed_connections: AtomicU64,
    last_malformed: Mutex<Option<String>>,
    refused_connections: AtomicU64,
    in_progress: AtomicU64,
    peak_in_progress: AtomicU64,
}

impl Counts {
    fn report(&self) -> RawReport {
        let counts = self.by_code.iter().map(|count| count.load(Relaxed)).enumerate();
        let by_status: BTreeMap<String, u64> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(code, count)| (CallStatus::from_grpc(code as u64).name().to_owned(), count))
            .collect();
        RawReport {
            calls: by_status.values().sum(),
            by_status,
            malformed_traceparent: self.malformed_traceparent.load(Relaxed),
            malformed_connections: self.malformed_connections.load(Relaxed),
            last_malformed: self.last_malformed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            refused_connections: self.refused_connections.load(Relaxed),
            cut_off: false,
        }
    }

    fn begun(&self, pings: u64) {
        if pings > 0 {
            let now = self.in_progress.fetch_add(pings, Relaxed) + pings;
            self.peak_in_progress.fetch_max(now, Relaxed);
        }
    }

    fn ended(&self, batch: &Batch) {
        self.in_progress.fetch_sub(batch.pings(), Relaxed);
        for (count, pings) in self.by_code.iter().zip(batch.by_code).filter(|(_, pings)| *pings > 0) {
            count.fetch_add(pings, Relaxed);
        }
    }

    fn usage(&self) -> UsageResponse {
        let used = Used::so_far();
        let in_progress = self.in_progress.load(Relaxed);
        UsageResponse {
            stack: "raw".into(),
            library: super::LIBRARY.into(),
            cpu_ns: used.cpu_ns,
            context_switches: used.context_switches,
            calls: self.by_code.iter().map(|count| count.load(Relaxed)).sum(),
            peak_in_progress: self.peak_in_progress.swap(in_progress, Relaxed).max(in_progress),
            max_streams: 0,
            pid: std::process::id(),
        }
    }
}

struct Shared {
    settings: RawSettings,
    observer: Arc<dyn Observer>,
    stopping: AtomicBool,
    counts: Counts,
    open: Mutex<HashMap<u64, Arc<TcpStream>>>,
    closed: Condvar,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut_down(&self, how: Shutdown) {
        // Fails for connections that the caller has already closed.
        self.open().values().for_each(|stream| drop(stream.shutdown(how)));
    }

    /// Whether all connections closed in time.
    fn wait_until_closed(&self, patience: Option<Duration>) -> bool {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut open = self.open();
        while !open.is_empty() {
            let left = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(left) => left,
                None => STOP_GRACE,
            };
            open = self.closed.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut number = 0;
        while !self.stopping.load(Relaxed) {
            let Ok((stream, peer)) = listener.accept() else {
                if !self.stopping.load(Relaxed) {
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                continue;
            };
            if !self.take(stream, peer, number) {
                self.counts.refused_connections.fetch_add(1, Relaxed);
            }
            number += 1;
        }
    }

    fn take(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, number: u64) -> bool {
        let nodelay = match self.settings.nodelay {
            Nodelay::On | Nodelay::Default => stream.set_nodelay(true),
            Nodelay::Off => stream.set_nodelay(false),
        };
        let (Ok(()), Ok(local)) = (nodelay, stream.local_addr()) else { return false };
        let id = u16::try_from(number).unwrap_or(NO_CONNECTION);
        let connection = Connection { id, channel: None, local, peer };
        let stream = Arc::new(stream);
        let mut open = self.open();
        // A stop sets this before it shuts down the open connections.
        if open.len() >= MAX_CONNECTIONS || self.stopping.load(Relaxed) {
            return false;
        }
        open.insert(number, stream.clone());
        drop(open);
        self.observer.connected(&connection);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(format!("raw-{number}")).spawn(move || {
            Session::new(&shared, &stream, connection).run();
            shared.close(number);
        });
        if thread.is_err() {
            self.close(number);
        }
        thread.is_ok()
    }

    fn close(&self, number: u64) {
        self.open().remove(&number);
        self.closed.notify_all();
    }
}

/// One connection being served.
struct Session<'a> {
    shared: &'a Shared,
    stream: &'a TcpStream,
    connection: Connection,
    pipeline: Pipeline,
    batch: Batch,
}

/// Reason for the end of a wait.
enum WakeReason {
    /// The socket may be readable.
    Readable,
    /// A response is due.
    Due,
    /// The connection is done.
    Over,
}

impl<'a> Session<'a> {
    fn new(shared: &'a Shared, stream: &'a TcpStream, connection: Connection) -> Self {
        let RawSettings { response_bytes, think_ns, .. } = shared.settings;
        let ids = shared.observer.records().then(Ids::new);
        let pipeline = Pipeline::new(PingDefaults { response_bytes, think_ns }, ids, connection.id);
        Session { shared, stream, connection, pipeline, batch: Batch::default() }
    }

    fn run(mut self) {
        clock::cut_timer_slack();
        let mut buffer = vec![0; READ_BYTES];
        let mut kept = 0;
        let mut reading = true;
        loop {
            match self.wait(reading) {
                WakeReason::Over => break,
                WakeReason::Due => {}
                WakeReason::Readable => match self.stream.read(&mut buffer[kept..]) {
                    Ok(0) | Err(_) if !self.shared.stopping.load(Relaxed) => break,
                    Ok(0) | Err(_) => reading = false,
                    Ok(read) => match self.feed(&buffer[..kept + read]) {
                        Some(left) => {
                            buffer.copy_within(kept + read - left..kept + read, 0);
                            kept = left;
                        }
                        None => break,
                    },
                },
            }
            if !self.send_due() {
                break;
            }
        }
        self.batch.clear();
        self.pipeline.cancel(&mut self.batch, clock::monotonic_ns());
        self.account();
        // A remaining peer learns of it now, rather than when the last clone is dropped.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until it can read, if `reading`, or until a response is due. With nothing to send, a blocking read
    /// does the waiting.
    fn wait(&self, reading: bool) -> WakeReason {
        let Some(due_ns) = self.pipeline.next_due_ns() else {
            return if reading { WakeReason::Readable } else { WakeReason::Over };
        };
        let flags = if reading && self.pipeline.takes_more() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [PollFd::new(self.stream, flags)];
        let ahead_ns = due_ns.saturating_sub(clock::monotonic_ns());
        let timeout =
            Timespec { tv_sec: (ahead_ns / 1_000_000_000) as i64, tv_nsec: (ahead_ns % 1_000_000_000) as _ };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => WakeReason::Over,
            Ok(_) if fds[0].revents().contains(PollFlags::IN) => WakeReason::Readable,
            Ok(_) | Err(rustix::io::Errno::INTR) => WakeReason::Due,
            Err(_) => WakeReason::Over,
        }
    }

    /// Number of bytes left over, or `None` if the caller does not speak the protocol.
    fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let unix_ns = clock::unix_ns();
        let arrival = Arrival { unix_ns, monotonic_ns: clock::monotonic_ns() };
        let counts = &self.shared.counts;
        let before = self.pipeline.pings_waiting();
        let mut left = bytes;
        let fed = self.pipeline.feed(&mut left, arrival);
        counts.begun(self.pipeline.pings_waiting() - before);
        let malformed = std::mem::take(&mut self.pipeline.malformed_contexts);
        if malformed > 0 {
            counts.malformed_traceparent.fetch_add(malformed, Relaxed);
        }
        if let Err(error) = fed {
            counts.malformed_connections.fetch_add(1, Relaxed);
            let what = format!("{}: {error}", self.connection.peer);
            *counts.last_malformed.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
            return None;
        }
        debug_assert!(left.len() < MAX_HEAD_BYTES);
        Some(left.len())
    }

    /// Sends due responses. Returns whether the connection can continue.
    fn send_due(&mut self) -> bool {
        loop {
            self.batch.clear();
            let now_ns = clock::monotonic_ns();
            let counts = &self.shared.counts;
            let more = self.pipeline.fill(&mut self.batch, now_ns, &|| counts.usage().encode_to_vec());
            let sent = self.batch.bytes.is_empty() || self.stream.write_all(&self.batch.bytes).is_ok();
            if !sent {
                self.batch.cancel();
            }
            self.account();
            if !sent || !more {
                return sent;
            }
        }
    }

    fn account(&self) {
        self.shared.counts.ended(&self.batch);
        for record in &self.batch.records {
            self.shared.observer.served(record, &self.connection);
        }
    }
}

#[cfg(test)]
mod tests;
