//! What every client program does besides calling: the life line, the phases, the messages.
//!
//! ```no_run
//! # use spangap_bench::{clock, client::{session::Session, tally::Ended}, contract::{ClientSettings, Pace}};
//! # fn call() -> Result<(), (tonic::Code, String)> { Ok(()) }
//! # fn report(_: std::sync::Arc<Session>) {}
//! # fn run(settings: &ClientSettings) -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::open(settings, std::io::stdin(), std::io::stdout())?;
//! let tally = session.tally(); // one for each thread
//! // ... connect, or: return Err(session.failed("cannot connect to ..."));
//! session.ready("library 1.0", 1);
//! if session.wait_for_go(report)?.is_some() {
//!     // A closed loop: the time of the send decides. An open one asks with the time at which a call is due.
//!     loop {
//!         let sent_ns = clock::monotonic_ns();
//!         let Some(phase) = session.admit(sent_ns) else { break };
//!         tally.lock().sent(phase, None);
//!         let outcome = call();
//!         let done_ns = clock::monotonic_ns();
//!         let failure = outcome.as_ref().err().map(|(code, reason)| (*code, reason.as_str()));
//!         let ended = Ended { phase, due_ns: None, sent_ns, done_ns, failure };
//!         // One lock will do for many calls that end together.
//!         let slow = tally.lock().ended(&ended);
//!         // session.record(&ended, slow, &Sent { .. }) if session.records()
//!     }
//! }
//! session.finish(); // when every thread has ended
//! # Ok(())
//! # }
//! ```
//!
//! Calls under way when [`Session::give_up_ns`] has come end as `CANCELLED`.

use super::Failed;
use super::plan::Plan;
use super::records::Records;
use super::tally::{Ended, Tally};
use crate::clock;
use crate::contract::record::{CallRecord, NO_CONNECTION};
use crate::contract::{Call, ClientMessage, ClientSettings, Phase, Records as Choice, Stack, message};
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Grace period of calls in flight after a stop.
pub const STOP_GRACE_NS: u64 = 1_000_000_000;

/// The part of a client program that all stacks share.
pub struct Session {
    stack: &'static str,
    calls: u64,
    warmup_ns: u64,
    duration_ns: u64,
    choice: Choice,
    slow_ns: u64,
    stream: bool,
    pub(super) plan: Plan,
    /// Measured calls admitted, if their number is limited.
    admitted: AtomicU64,
    give_up_ns: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    pub(super) tallies: Mutex<Vec<Arc<Tally>>>,
    output: Mutex<Box<dyn Write + Send>>,
    pub(super) records: Option<Records>,
    connections: AtomicU32,
}

/// State of the run.
#[derive(Default)]
pub(super) struct State {
    started: bool,
    /// Whether the life line has ended.
    stopped: bool,
    /// Monotonic time since which no call is in flight.
    pub drained_ns: Option<u64>,
    reporter: Option<std::thread::JoinHandle<()>>,
}

/// Part of a record beyond the call's times and outcome.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Trace it belongs to; zero for none.
    pub trace_id: [u8; 16],
    /// Its span; zero for none.
    pub span_id: [u8; 8],
    /// Wall clock just before the send.
    pub sent_unix_ns: u64,
    /// Id of its connection, or [`NO_CONNECTION`].
    pub connection: u16,
}

impl Session {
    /// Opens the record file, and listens to the life line on a dedicated thread.
    ///
    /// # Errors
    /// The record file cannot be opened or no thread can be started; a message reports that, too.
    pub fn open(
        settings: &ClientSettings,
        life_line: impl io::Read + Send + 'static,
        mut output: impl Write + Send + 'static,
    ) -> Result<Arc<Self>, Failed> {
        let records = match settings.records {
            Choice::None => None,
            Choice::Slow | Choice::All => match Records::create(&settings.record_file) {
                Ok(records) => Some(records),
                Err(error) => {
                    let path = settings.record_file.display();
                    let error = format!("cannot write records to {path}: {error}");
                    say_to(&mut output, &ClientMessage::Failed { error: error.clone() });
                    return Err(Failed(error));
                }
            },
        };
        let session = Arc::new(Session {
            stack: settings.stack.name(),
            calls: settings.calls,
            warmup_ns: settings.warmup_ns,
            duration_ns: settings.duration_ns,
            choice: settings.records,
            slow_ns: settings.slow_ns,
            stream: settings.call == Call::Stream && settings.stack != Stack::Raw,
            plan: Plan::default(),
            admitted: AtomicU64::new(0),
            give_up_ns: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
            tallies: Mutex::default(),
            output: Mutex::new(Box::new(output)),
            records,
            connections: AtomicU32::new(0),
        });
        let listening = session.clone();
        let thread = std::thread::Builder::new().name("life line".into());
        let spawned = thread.spawn(move || listening.listen(io::BufReader::new(life_line)));
        if let Err(error) = spawned {
            return Err(session.failed(format!("cannot listen to the life line: {error}")));
        }
        Ok(session)
    }

    /// A tally for one thread; its counts go into the intervals.
    pub fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::new(self.slow_ns));
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(tally.clone());
        tally
    }

    /// Announces that there will be no run, with the reason that it returns.
    pub fn failed(&self, error: impl Into<String>) -> Failed {
        let error = error.into();
        self.say(&ClientMessage::Failed { error: error.clone() });
        Failed(error)
    }

    /// Announces a new connection of a channel, and assigns its id. Ids end at 65,534: later connections are
    /// unknown.
    pub fn connection(&self, channel: u32, local: SocketAddr, peer: SocketAddr) -> u16 {
        let id = self.connections.fetch_add(1, Ordering::Relaxed);
        match u16::try_from(id).unwrap_or(NO_CONNECTION) {
            NO_CONNECTION => NO_CONNECTION,
            id => {
                let channel = Some(channel);
                self.say(&ClientMessage::Connection(message::Connection { id, channel, local, peer }));
                id
            }
        }
    }

    /// Announces that calls can start.
    pub fn ready(&self, library: &str, channels: u32) {
        self.say(&ClientMessage::Ready { stack: self.stack.into(), library: library.into(), channels });
    }

    /// Waits for `go`, then starts the reporting thread. Returns the monotonic start time, or `None` if the
    /// life line ended first.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn wait_for_go(self: &Arc<Self>, report: fn(Arc<Session>)) -> io::Result<Option<u64>> {
        let mut state = self.lock();
        while !state.started && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.started {
            return Ok(None);
        }
        let session = self.clone();
        let thread = std::thread::Builder::new().name("reporter".into());
        state.reporter = Some(thread.spawn(move || report(session))?);
        Ok(Some(self.plan.start_ns()))
    }

    /// Whether a call sent (closed loop) or due (open loop) at `at_ns` may start, and its phase. Ask once per
    /// call, in the order of their times; a yes counts the call. After the first `None`, every answer is
    /// `None`.
    pub fn admit(&self, at_ns: u64) -> Option<Phase> {
        self.admit_many(at_ns, 1).map(|(phase, _)| phase)
    }

    /// The same for up to `calls` calls (at least 1) at once; returns how many of them may start.
    pub fn admit_many(&self, at_ns: u64, calls: u32) -> Option<(Phase, u32)> {
        let phase = self.plan.phase_at(at_ns)?;
        if self.calls == 0 || phase != Phase::Measured {
            return Some((phase, calls));
        }
        let before = self.admitted.fetch_add(calls.into(), Ordering::Relaxed);
        let left = self.calls.saturating_sub(before);
        if left == 0 {
            return None;
        }
        if left <= calls.into() {
            self.end_calls(at_ns + 1);
        }
        Some((phase, calls.min(left.try_into().unwrap_or(u32::MAX))))
    }

    /// Time from which on no call starts; `u64::MAX` while unknown. It may be moved forward at any time.
    pub fn end_ns(&self) -> u64 {
        self.plan.end_ns()
    }

    /// Monotonic time at which calls in flight must end as `CANCELLED`; `u64::MAX` until the life line ends.
    /// Check it at least every 100 ms.
    pub fn give_up_ns(&self) -> u64 {
        self.give_up_ns.load(Ordering::Relaxed)
    }

    /// Waits until calls in flight must be abandoned (`true`), or all have ended (`false`).
    pub fn wait_to_give_up(&self) -> bool {
        let mut state = self.lock();
        while state.drained_ns.is_none() {
            let left_ns = self.give_up_ns().saturating_sub(clock::monotonic_ns());
            if left_ns == 0 {
                return true;
            }
            state = self.wait(state, left_ns);
        }
        false
    }

    /// Whether records of any calls are written: then the wall clock must be read before each send.
    pub fn records(&self) -> bool {
        self.records.is_some()
    }

    /// Writes the record of an ended call, if requested for such calls.
    pub fn record(&self, call: &Ended<'_>, slow: bool, sent: &Sent) {
        let Some(records) = &self.records else { return };
        let measured = call.phase == Phase::Measured;
        if self.choice == Choice::All || (slow && measured) {
            records.push(&CallRecord {
                trace_id: sent.trace_id,
                span_id: sent.span_id,
                parent_span_id: [0; 8],
                start_unix_ns: sent.sent_unix_ns,
                duration_ns: call.from_send_ns(),
                lateness_ns: call.lateness_ns(),
                status: call.failure.map_or(0, |(code, _)| code as u8),
                measured,
                slow,
                stream: self.stream,
                connection: sent.connection,
            });
        }
    }

    /// Reports the rest, when no call is in flight any more. Must come last.
    pub fn finish(&self) {
        if let Some(records) = &self.records {
            let mut give_up_ns = u64::MAX;
            let failed = records.finish(|| {
                if self.lock().stopped {
                    give_up_ns = give_up_ns.min(clock::monotonic_ns() + STOP_GRACE_NS);
                }
                clock::monotonic_ns() < give_up_ns
            });
            if let Some(why) = failed {
                tell(&why);
            }
        }
        let mut state = self.lock();
        let now_ns = clock::monotonic_ns();
        self.plan.end_by(now_ns);
        state.drained_ns = Some(now_ns);
        let stopped = state.stopped;
        let reporter = state.reporter.take();
        drop(state);
        self.changed.notify_all();
        if reporter.is_some_and(|reporter| reporter.join().is_err()) {
            tell(&"the reporter panicked: figures are missing");
        }
        self.say(&ClientMessage::End { reason: if stopped { "stopped" } else { "done" }.into() });
    }

    /// Follows the life line to its end.
    fn listen(&self, mut life_line: impl BufRead) {
        let mut line = String::new();
        // An unreadable life line counts as ended.
        while matches!(life_line.read_line(&mut line), Ok(1..)) {
            if line.trim_end() == "go" {
                let mut state = self.lock();
                if !state.started {
                    state.started = true;
                    self.plan.start(clock::monotonic_ns(), self.warmup_ns, self.duration_ns);
                    self.changed.notify_all();
                }
            }
            line.clear();
        }
        let mut state = self.lock();
        if state.drained_ns.is_none() {
            state.stopped = true;
            let now_ns = clock::monotonic_ns();
            self.plan.end_by(now_ns);
            self.give_up_ns.store(now_ns + STOP_GRACE_NS, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    /// No call starts after now, or at or after `at_ns` if that is later.
    fn end_calls(&self, at_ns: u64) {
        // The lock keeps the end from moving before what the reporter has reported.
        let _state = self.lock();
        self.plan.end_by(clock::monotonic_ns().max(at_ns));
        self.changed.notify_all();
    }

    pub(super) fn say(&self, message: &ClientMessage) {
        say_to(&mut *self.output(), message);
    }

    fn output(&self) -> MutexGuard<'_, Box<dyn Write + Send>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most for `ns`.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>, ns: u64) -> MutexGuard<'a, State> {
        // Waits beyond the range of the kernel's clock are split.
        let patience = Duration::from_nanos(ns.min(1 << 60));
        self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
    }
}

fn say_to(output: &mut dyn Write, message: &ClientMessage) {
    let mut line = serde_json::to_vec(message).expect("a message is plain data with names as keys");
    line.push(b'\n');
    // If nobody listens, the message is lost; the life line ends then, too.
    let _ = output.write_all(&line).and_then(|()| output.flush());
}

/// Prints a message outside of the protocol. A missing reader is no reason to stop.
fn tell(what: &dyn std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "spangap: {what}");
}

#[cfg(test)]
mod tests;
