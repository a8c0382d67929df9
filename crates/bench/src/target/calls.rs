//! Pings of a target: counted, and each with a SERVER span where spans are sent.

use super::workers::Place;
use crate::clock;
use crate::otlp::{CallSpan, Method, Side, SpanSink};
use crate::trace::{Ids, TRACEPARENT, TraceContext};
use http::HeaderMap;
use spangap_model::CallStatus;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tonic::Code;

thread_local! {
    static IDS: RefCell<Ids> = RefCell::new(Ids::new());
}

/// Counts of a target, and the destination of its spans.
pub struct Calls {
    by_code: [AtomicU64; 17],
    malformed_traceparent: AtomicU64,
    in_progress: AtomicU64,
    peak_in_progress: AtomicU64,
    spans: Option<SpanSink>,
}

/// Both addresses of a connection, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
}

/// Arrival time of a call; only where spans are sent.
#[derive(Clone, Copy)]
pub struct Arrival {
    unix_ns: u64,
    monotonic_ns: u64,
}

impl Calls {
    /// No calls yet.
    pub fn new(spans: Option<SpanSink>) -> Arc<Self> {
        Arc::new(Calls {
            by_code: [const { AtomicU64::new(0) }; 17],
            malformed_traceparent: AtomicU64::new(0),
            in_progress: AtomicU64::new(0),
            peak_in_progress: AtomicU64::new(0),
            spans,
        })
    }

    /// Calls by gRPC status name; names without calls are absent.
    pub fn by_status(&self) -> BTreeMap<String, u64> {
        let counts = self.by_code.iter().map(|count| count.load(Relaxed)).enumerate();
        let seen = counts.filter(|(_, count)| *count > 0);
        seen.map(|(code, count)| (CallStatus::from_grpc(code as u64).name().to_owned(), count)).collect()
    }

    /// Calls that have ended.
    pub fn ended(&self) -> u64 {
        self.by_code.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Calls that have not ended.
    pub fn in_progress(&self) -> u64 {
        self.in_progress.load(Relaxed)
    }

    /// Calls with an unreadable trace context.
    pub fn malformed_traceparent(&self) -> u64 {
        self.malformed_traceparent.load(Relaxed)
    }

    /// Maximum number of concurrent calls since the last query.
    pub fn take_peak_in_progress(&self) -> u64 {
        let now = self.in_progress.load(Relaxed);
        // A call that begins between the two readings may be in neither; it then counts in the next query.
        self.peak_in_progress.swap(now, Relaxed).max(now)
    }

    /// The current time, if needed.
    pub fn arrival(&self) -> Option<Arrival> {
        // The wall clock first: together with the caller's opposite order, a server span on the same clock lies
        // within its client span even if the thread is interrupted between the two readings.
        self.spans.as_ref().map(|_| {
            let unix_ns = clock::unix_ns();
            Arrival { unix_ns, monotonic_ns: clock::monotonic_ns() }
        })
    }

    /// A call has arrived but is not handled yet: it is in progress, and the time until it is handled is in no
    /// span.
    pub fn come(self: &Arc<Self>) -> OpenCall {
        let in_progress = self.in_progress.fetch_add(1, Relaxed) + 1;
        if in_progress > self.peak_in_progress.load(Relaxed) {
            self.peak_in_progress.fetch_max(in_progress, Relaxed);
        }
        OpenCall { calls: self.clone(), code: Code::Cancelled, place: None, span: None }
    }

    fn malformed(&self) {
        self.malformed_traceparent.fetch_add(1, Relaxed);
    }
}

/// A call in progress. It ends when dropped, so an abandoned one ends as `CANCELLED`. Its place becomes free
/// only after that.
pub struct OpenCall {
    calls: Arc<Calls>,
    code: Code,
    place: Option<Place>,
    span: Option<Box<OpenSpan>>,
}

struct OpenSpan {
    method: Method,
    context: TraceContext,
    parent_span_id: [u8; 8],
    arrival: Arrival,
    ends: Ends,
}

impl OpenSpan {
    fn new(arrival: Arrival, method: Method, parent: Option<TraceContext>, ends: Ends) -> Self {
        let context = IDS.with_borrow_mut(|ids| match parent {
            Some(parent) => TraceContext { span_id: ids.span_id(), ..parent },
            None => ids.root(),
        });
        let parent_span_id = parent.map_or([0; 8], |parent| parent.span_id);
        OpenSpan { method, context, parent_span_id, arrival, ends }
    }
}

impl OpenCall {
    /// A single ping is handled from now on: its trace context is a header.
    pub fn handle(&mut self, place: Place, arrival: Option<Arrival>, headers: &HeaderMap, ends: Ends) {
        self.place = Some(place);
        let parent = headers.get(TRACEPARENT).and_then(|header| {
            let parent = TraceContext::parse(header.as_bytes());
            parent.inspect_err(|_| self.calls.malformed()).ok()
        });
        self.open(arrival, Method::Ping, parent, ends);
    }

    /// A ping inside a stream is handled from now on: its trace context consists of two ids, empty for none.
    pub fn handle_with_ids(
        &mut self,
        place: Place,
        arrival: Option<Arrival>,
        (trace_id, span_id): (&[u8], &[u8]),
        ends: Ends,
    ) {
        self.place = Some(place);
        let parent = match (trace_id.try_into(), span_id.try_into()) {
            (Ok(trace_id), Ok(span_id)) if trace_id != [0; 16] && span_id != [0; 8] => {
                Some(TraceContext { trace_id, span_id, sampled: true })
            }
            _ if trace_id.is_empty() && span_id.is_empty() => None,
            _ => {
                self.calls.malformed();
                None
            }
        };
        self.open(arrival, Method::PingInStream, parent, ends);
    }

    fn open(&mut self, arrival: Option<Arrival>, method: Method, parent: Option<TraceContext>, ends: Ends) {
        // A caller that does not record its trace has no use for the server span.
        let wanted = arrival.filter(|_| parent.is_none_or(|parent| parent.sampled));
        self.span = wanted.map(|arrival| Box::new(OpenSpan::new(arrival, method, parent, ends)));
    }

    /// The call has ended.
    pub fn end(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.calls.in_progress.fetch_sub(1, Relaxed);
        self.calls.by_code[self.code as usize].fetch_add(1, Relaxed);
        if let (Some(span), Some(spans)) = (&self.span, &self.calls.spans) {
            let start_unix_ns = span.arrival.unix_ns;
            spans.record(CallSpan {
                side: Side::Server,
                method: span.method,
                context: span.context,
                parent_span_id: span.parent_span_id,
                start_unix_ns,
                end_unix_ns: start_unix_ns + (clock::monotonic_ns() - span.arrival.monotonic_ns),
                code: self.code,
                local: span.ends.local,
                peer: span.ends.peer,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::workers::Workers;

    #[test]
    fn every_call_ends_once_under_its_status() {
        let calls = Calls::new(None);
        let begin = || calls.come();
        let (first, second, third) = (begin(), begin(), begin());
        first.end(Code::Ok);
        drop(second);
        assert_eq!(calls.take_peak_in_progress(), 3);
        third.end(Code::InvalidArgument);
        assert_eq!(calls.take_peak_in_progress(), 1, "one was left when it was asked last");
        assert_eq!(calls.take_peak_in_progress(), 0);
        let expected = ["CANCELLED", "INVALID_ARGUMENT", "OK"].map(|name| (name.to_owned(), 1));
        assert_eq!(calls.by_status(), expected.into());
        assert_eq!(calls.ended(), 3);
    }

    #[test]
    fn ids_that_cannot_be_are_counted() {
        let calls = Calls::new(None);
        let cases: [(&[u8], &[u8], bool); 6] = [
            (&[], &[], false),
            (&[1; 16], &[2; 8], false),
            (&[0; 16], &[2; 8], true),
            (&[1; 16], &[0; 8], true),
            (&[1; 16], &[], true),
            (&[1; 15], &[2; 8], true),
        ];
        for (trace_id, span_id, malformed) in cases {
            let before = calls.malformed_traceparent();
            let place = Workers::new(None).place().ok().expect("there is no limit");
            calls.come().handle_with_ids(place, None, (trace_id, span_id), Ends::default());
            assert_eq!(
                calls.malformed_traceparent() - before,
                u64::from(malformed),
                "{trace_id:?} {span_id:?}"
            );
        }
    }
}
