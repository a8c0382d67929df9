//! A worker keeps one call in flight.

use super::Shared;
use super::call::{Lane, OpenCall, Outgoing};
use crate::client::session::Sent;
use crate::client::tally::Tally;
use crate::clock;
use crate::contract::Phase;
use crate::contract::record::NO_CONNECTION;
use crate::status::reason;
use crate::trace::{Ids, TraceContext};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status};

/// A call that fails faster than this is followed by a pause of the same length, to spare a dead target.
const FAST_FAILURE: Duration = Duration::from_millis(1);

/// A due call.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Due time, monotonic clock.
    pub due_ns: u64,
    /// Phase it belongs to.
    pub phase: Phase,
}

/// Makes one call after the other.
pub struct Worker {
    shared: Arc<Shared>,
    lane: Lane,
    tally: Arc<Tally>,
    ids: Ids,
    alarm: Alarm,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, lane: Lane, tally: Arc<Tally>) -> Self {
        let alarm = Alarm::new(shared.settings.timeout);
        Worker { shared, lane, tally, ids: Ids::new(), alarm }
    }

    /// The closed loop.
    pub async fn call_one_after_the_other(mut self) {
        while let Some(ended) = self.call(None).await {
            if ended.failed && ended.from_send_ns < FAST_FAILURE.as_nanos() as u64 {
                tokio::time::sleep(FAST_FAILURE).await;
            }
        }
        self.close().await;
    }

    /// One call of the open loop.
    pub async fn call_due(&mut self, due: Due) {
        self.call(Some(due)).await;
    }

    /// Cleans up after the last call.
    pub async fn close(self) {
        self.lane.close().await;
    }

    /// Makes the due call, or one right now; `None` if it is too late for that.
    async fn call(&mut self, due: Option<Due>) -> Option<CallOutcome> {
        let Worker { shared, lane, tally, ids, alarm } = self;
        let Shared { session, settings, request, prepared, .. } = &**shared;
        let context = settings.trace.then(|| ids.root());
        let outgoing = |previous| match prepared {
            Some(call) => Outgoing::prepared(call, context.as_ref(), previous),
            None => Outgoing::new(settings.call, request, context.as_ref(), previous),
        };
        let mut next = outgoing(0);
        let connection = lane.refresh();

        // The wall clock is read second, just before the send, so a server on the same clock never seems to
        // start earlier.
        let sent_ns = clock::monotonic_ns();
        let sent_unix_ns = if session.records() { clock::unix_ns() } else { 0 };
        let (phase, due_ns): (Phase, _) = match due {
            Some(due) => (due.phase, Some(due.due_ns)),
            None => (session.admit(sent_ns)?, None),
        };
        tally.lock().sent(phase, due_ns.map(|due_ns| sent_ns - due_ns));
        let (trace_id, span_id) = match context {
            Some(TraceContext { trace_id, span_id, .. }) => (trace_id, span_id),
            None => ([0; 16], [0; 8]),
        };
        let connection = connection.unwrap_or(NO_CONNECTION);
        let sent = Sent { trace_id, span_id, sent_unix_ns, connection };
        let mut call = OpenCall { session, tally, phase, due_ns, sent_ns, sent, over: false };
        let calling = async {
            let mut attempts = 0;
            loop {
                let ended = match lane.open().await {
                    Ok(opened) => {
                        call.sent.connection = opened.unwrap_or(call.sent.connection);
                        lane.call(next).await
                    }
                    Err(status) => Err(status),
                };
                attempts += 1;
                match ended {
                    Err(status) if status.code() == Code::Unavailable && attempts < settings.attempts => {
                        // A connection lost in the meantime is not the one used next.
                        call.sent.connection = lane.refresh().unwrap_or(NO_CONNECTION);
                        next = outgoing(attempts);
                    }
                    ended => return ended,
                }
            }
        };
        let outcome = alarm.unless_late(sent_ns, calling).await;
        let outcome = outcome.unwrap_or_else(|| {
            lane.give_up();
            Err(Status::deadline_exceeded(format!("no response within {:?}", settings.timeout)))
        });
        let failed = outcome.is_err();
        let from_send_ns = match outcome {
            Ok(()) => call.end(None),
            Err(status) => call.end(Some((status.code(), &reason(&status)))),
        };
        lane.after_attempt().await;
        Some(CallOutcome { failed, from_send_ns })
    }
}

/// Outcome of a call.
struct CallOutcome {
    failed: bool,
    from_send_ns: u64,
}

/// Ends calls that time out. Its timer is set once for many calls: when it fires, it usually finds a call that
/// still has time.
struct Alarm {
    timeout_ns: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn new(timeout: Duration) -> Self {
        Alarm { timeout_ns: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX), timer: None }
    }

    /// Outcome of a call, or `None` if it times out.
    async fn unless_late<T>(&mut self, sent_ns: u64, call: impl Future<Output = T>) -> Option<T> {
        let mut call = pin!(call);
        poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => self.poll(sent_ns, cx).map(|()| None),
        })
        .await
    }

    /// Ready when the call sent at `sent_ns` has timed out.
    fn poll(&mut self, sent_ns: u64, cx: &mut Context<'_>) -> Poll<()> {
        /// Longer waits are split: the runtime's timer has a limited range.
        const LONGEST_NS: u64 = 3_600_000_000_000;
        let mut timer_over = self.timer.is_none();
        loop {
            if timer_over {
                let so_far_ns = clock::monotonic_ns().saturating_sub(sent_ns);
                let left_ns = self.timeout_ns.saturating_sub(so_far_ns).min(LONGEST_NS);
                if left_ns == 0 {
                    return Poll::Ready(());
                }
                let until = Instant::now() + Duration::from_nanos(left_ns);
                match &mut self.timer {
                    Some(timer) => timer.as_mut().reset(until),
                    None => self.timer = Some(Box::pin(tokio::time::sleep_until(until))),
                }
            }
            match self.timer.as_mut().map(|timer| timer.as_mut().poll(cx)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(())) | None => timer_over = true,
            }
        }
    }
}
