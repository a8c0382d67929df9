//! Makes one call when it is due, and notes everything about it.

use crate::clock;
use crate::connection::{Connection, Link};
use crate::otlp::{CallSpan, Side, SpanSink};
use crate::pacer::Slot;
use crate::ping::PingRequest;
use crate::report::{Distribution, Progress};
use crate::slow_log::{SlowCall, SlowLog};
use crate::status::{describe, status_name};
use crate::trace::{Ids, TRACEPARENT};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tonic::{Code, Request, Status};

/// What calls do, and where their traces go.
pub struct Driver {
    pub link: Arc<Link>,
    pub payload: Bytes,
    pub timeout: Duration,
    pub slow_ns: u64,
    pub slow_log: Option<SlowLog>,
    pub spans: Option<SpanSink>,
    pub max_in_flight: usize,
    pub in_flight: Arc<AtomicUsize>,
    /// Cancels every call that is still waiting.
    pub give_up: watch::Sender<bool>,
    pub ids: Mutex<Ids>,
    pub tally: Mutex<Tally>,
}

/// Sums over the measured calls.
#[derive(Default)]
pub struct Tally {
    /// From the intended time, OK calls.
    pub latency: Distribution,
    /// From the send, OK calls.
    pub latency_from_send: Distribution,
    /// From the intended time to the send, all calls made.
    pub lateness: Distribution,
    /// Calls not OK by status name, and the last one's reason.
    pub errors: BTreeMap<&'static str, (u64, String)>,
    /// Due calls that were not made.
    pub skipped: u64,
    /// Calls over the slow threshold.
    pub slow: u64,
    /// Calls in the warm-up that were not OK, with the last one's reason.
    pub warmup_errors: (u64, String),
    /// The second in progress, warm-up included.
    second: Second,
}

#[derive(Default)]
struct Second {
    latency: Distribution,
    errors: u64,
}

impl Tally {
    /// Figures since the last time this was asked.
    pub fn end_second(&mut self, elapsed_s: f64, warming_up: bool, in_flight: usize) -> Progress {
        let (ok, errors) = (self.second.latency.count(), self.second.errors);
        let latency = self.second.latency.quantiles();
        self.second.latency.clear();
        self.second.errors = 0;
        Progress { elapsed_s, warming_up, ok, errors, latency, in_flight }
    }
}

/// Counts a call while it lives.
struct InFlight {
    count: Arc<AtomicUsize>,
    before: usize,
}

impl InFlight {
    fn enter(count: &Arc<AtomicUsize>) -> Self {
        InFlight { before: count.fetch_add(1, Ordering::Relaxed), count: count.clone() }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
    }
}

/// The times of one call.
struct Times {
    intended_ns: u64,
    sent_ns: u64,
    sent_unix_ns: u64,
    done_ns: u64,
}

impl Times {
    fn since_send_ns(&self) -> u64 {
        self.done_ns - self.sent_ns
    }

    fn lateness_ns(&self) -> u64 {
        self.sent_ns - self.intended_ns
    }

    fn done_unix_ns(&self) -> u64 {
        self.sent_unix_ns + self.since_send_ns()
    }
}

impl Driver {
    /// Starts the call on the runtime, or counts it as skipped. Called by the pacing thread.
    pub fn fire(self: &Arc<Self>, slot: Slot, runtime: &tokio::runtime::Handle) {
        let in_flight = InFlight::enter(&self.in_flight);
        if in_flight.before >= self.max_in_flight {
            self.tally().skipped += u64::from(slot.measured);
            return;
        }
        let driver = self.clone();
        runtime.spawn(async move {
            // Locals end in reverse order: when nothing is in flight, nothing holds the driver.
            let _in_flight = in_flight;
            let driver = driver;
            driver.call(slot).await;
        });
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, slot: Slot) {
        let context = self.ids.lock().unwrap_or_else(PoisonError::into_inner).root();
        let mut request = Request::new(PingRequest { payload: self.payload.clone(), ..Default::default() });
        let header = context.to_string().parse().expect("hexadecimal digits and dashes are ASCII");
        request.metadata_mut().insert(TRACEPARENT, header);
        let connection = self.link.current();

        // The wall clock is read second and before the send: so no server on the same clock starts earlier.
        let sent_ns = clock::monotonic_ns();
        let sent_unix_ns = clock::unix_ns();
        let outcome = self.send(&connection, request).await;
        let done_ns = clock::monotonic_ns();

        let times = Times { intended_ns: slot.intended_ns, sent_ns, sent_unix_ns, done_ns };
        let code = outcome.as_ref().map_or_else(Status::code, |()| Code::Ok);
        let (local, peer) =
            (connection.as_ref().ok().map(|c| c.local), connection.as_ref().ok().map(|c| c.peer));
        if let Some(spans) = &self.spans {
            spans.record(CallSpan {
                side: Side::Client,
                context,
                parent_span_id: [0; 8],
                start_unix_ns: sent_unix_ns,
                end_unix_ns: times.done_unix_ns(),
                code,
                local,
                peer,
            });
        }
        let slow = slot.measured && times.since_send_ns() > self.slow_ns;
        if slow && let Some(log) = &self.slow_log {
            let (trace_id, span_id) = SlowCall::ids(&context.trace_id, &context.span_id);
            log.record(SlowCall {
                trace_id,
                span_id,
                status: status_name(code).into(),
                intended_unix_ns: sent_unix_ns.saturating_sub(times.lateness_ns()),
                sent_unix_ns,
                done_unix_ns: times.done_unix_ns(),
                duration_ns: times.since_send_ns(),
                local_addr: local,
                peer_addr: peer,
            });
        }
        self.count(slot, &times, outcome, slow);
    }

    async fn send(
        &self,
        connection: &Result<Arc<Connection>, String>,
        request: Request<PingRequest>,
    ) -> Result<(), Status> {
        let connection = connection.as_ref().map_err(|why| Status::unavailable(why.clone()))?;
        let mut client = connection.client.clone();
        let mut give_up = self.give_up.subscribe();
        tokio::select! {
            biased;
            answer = client.ping(request) => answer.map(drop),
            () = tokio::time::sleep(self.timeout) => {
                Err(Status::deadline_exceeded(format!("no response within {:?}", self.timeout)))
            }
            _ = give_up.wait_for(|give_up| *give_up) => Err(Status::cancelled("the run ended before the response")),
        }
    }

    fn count(&self, slot: Slot, times: &Times, outcome: Result<(), Status>, slow: bool) {
        let latency_ns = times.done_ns - times.intended_ns;
        let mut tally = self.tally();
        match &outcome {
            Ok(()) => tally.second.latency.record(latency_ns),
            Err(_) => tally.second.errors += 1,
        }
        if !slot.measured {
            if let Err(status) = outcome {
                tally.warmup_errors = (tally.warmup_errors.0 + 1, describe(&status));
            }
            return;
        }
        tally.lateness.record(times.lateness_ns());
        tally.slow += u64::from(slow);
        match outcome {
            Ok(()) => {
                tally.latency.record(latency_ns);
                tally.latency_from_send.record(times.since_send_ns());
            }
            Err(status) => {
                let error = tally.errors.entry(status_name(status.code())).or_default();
                *error = (error.0 + 1, describe(&status));
            }
        }
    }
}
