//! A SERVER span around every call of a service: from the moment its headers are read to the moment its response
//! is handed to the transport, or the call is dropped because the client gave up.

use crate::clock;
use crate::otlp::{CallSpan, Side, SpanSink};
use crate::trace::{Ids, TRACEPARENT, TraceContext};
use spangap_model::CallStatus;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower::Service;

/// What the service has seen.
pub struct CallCounts {
    by_code: [AtomicU64; 17],
    /// Calls whose `traceparent` could not be read; they began a trace of their own.
    malformed_traceparent: AtomicU64,
}

impl Default for CallCounts {
    fn default() -> Self {
        CallCounts { by_code: [const { AtomicU64::new(0) }; 17], malformed_traceparent: AtomicU64::new(0) }
    }
}

impl CallCounts {
    /// Calls by gRPC status name; names without calls are absent.
    pub fn by_status(&self) -> BTreeMap<String, u64> {
        let counts = self.by_code.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        let seen = counts.filter(|(_, count)| *count > 0);
        seen.map(|(code, count)| (CallStatus::from_grpc(code as u64).name().to_owned(), count)).collect()
    }

    /// Calls whose `traceparent` could not be read.
    pub fn malformed_traceparent(&self) -> u64 {
        self.malformed_traceparent.load(Ordering::Relaxed)
    }
}

/// A service whose calls are counted and traced.
#[derive(Clone)]
pub struct Traced<S> {
    pub service: S,
    pub shared: Arc<Tracing>,
}

/// Where counts and spans go.
pub struct Tracing {
    pub counts: CallCounts,
    pub spans: Option<SpanSink>,
    pub ids: Mutex<Ids>,
}

impl<S: NamedService> NamedService for Traced<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Traced<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // The wall clock first: together with the caller's opposite order, a server span on the same clock lies
        // within its client span even if the thread is interrupted between the two readings.
        let start_unix_ns = clock::unix_ns();
        let start_ns = clock::monotonic_ns();
        let mut call = self.shared.begin(&request, start_unix_ns, start_ns);
        let response = self.service.call(request);
        Box::pin(async move {
            let response = response.await;
            if let Ok(response) = &response {
                call.code = status_of(response);
            }
            drop(call);
            response
        })
    }
}

/// A failed unary call has its status in the headers; a good one sends it after the message.
fn status_of(response: &http::Response<Body>) -> Code {
    response.headers().get("grpc-status").map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()))
}

impl Tracing {
    fn begin(self: &Arc<Self>, request: &http::Request<Body>, start_unix_ns: u64, start_ns: u64) -> OpenCall {
        let parent =
            match request.headers().get(TRACEPARENT).map(|header| TraceContext::parse(header.as_bytes())) {
                Some(Ok(parent)) => Some(parent),
                Some(Err(_)) => {
                    self.counts.malformed_traceparent.fetch_add(1, Ordering::Relaxed);
                    None
                }
                None => None,
            };
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let context = match parent {
            Some(parent) => TraceContext { span_id: ids.span_id(), ..parent },
            None => ids.root(),
        };
        drop(ids);
        let connection = request.extensions().get::<TcpConnectInfo>();
        OpenCall {
            tracing: self.clone(),
            context,
            parent_span_id: parent.map_or([0; 8], |parent| parent.span_id),
            start_unix_ns,
            start_ns,
            code: Code::Cancelled,
            local: connection.and_then(TcpConnectInfo::local_addr),
            peer: connection.and_then(TcpConnectInfo::remote_addr),
        }
    }
}

/// A call under way. It ends when dropped, so that an abandoned one ends too, as `CANCELLED`.
struct OpenCall {
    tracing: Arc<Tracing>,
    context: TraceContext,
    parent_span_id: [u8; 8],
    start_unix_ns: u64,
    start_ns: u64,
    code: Code,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let duration_ns = clock::monotonic_ns() - self.start_ns;
        self.tracing.counts.by_code[self.code as usize].fetch_add(1, Ordering::Relaxed);
        // A caller that does not record its trace has no use for this half of it.
        if let Some(spans) = self.tracing.spans.as_ref().filter(|_| self.context.sampled) {
            spans.record(CallSpan {
                side: Side::Server,
                context: self.context,
                parent_span_id: self.parent_span_id,
                start_unix_ns: self.start_unix_ns,
                end_unix_ns: self.start_unix_ns + duration_ns,
                code: self.code,
                local: self.local,
                peer: self.peer,
            });
        }
    }
}
