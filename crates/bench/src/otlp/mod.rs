//! Sends call spans by OTLP over gRPC, from a dedicated thread and runtime. Callers only push onto a bounded
//! queue; spans that find no room, or no collector, are counted.

mod encode;

use crate::contract::CallRecord;
use crate::ping;
use crate::status::describe;
use crate::trace::TraceContext;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tonic::Code;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap};
use tonic::transport::{Channel, Endpoint};

/// Maximum number of spans per request.
const BATCH: usize = 512;
/// Capacity of the queue, for a slow collector.
const CAPACITY: usize = 65_536;
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to flush at the end.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Address of an OTLP/gRPC receiver, `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(http::Uri);

impl FromStr for CollectorUrl {
    type Err = ExportError;

    fn from_str(url: &str) -> Result<Self, ExportError> {
        let refused = || ExportError::Url(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| refused())?;
        let plain = uri.path() == "/" && uri.query().is_none();
        if uri.scheme_str() != Some("http") || uri.host().is_none() || uri.port().is_none() || !plain {
            return Err(refused());
        }
        Ok(CollectorUrl(uri))
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        write!(f, "http://{authority}")
    }
}

/// Destination and origin of spans.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// The collector.
    pub url: CollectorUrl,
    /// `service.name` of the resource.
    pub service_name: String,
}

/// Reason why no spans can be sent.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Not an address of OTLP over gRPC without TLS.
    #[error("{0:?} is not an address for spans: expected http://HOST:PORT of an OTLP/gRPC receiver")]
    Url(String),
    /// `OTEL_EXPORTER_OTLP_HEADERS` is malformed. It may contain secrets, so the error omits its value.
    #[error(
        "OTEL_EXPORTER_OTLP_HEADERS cannot be sent: expected NAME=VALUE,NAME=VALUE, percent-encoded where there are other \
         than visible ASCII characters, as in authorization=Bearer%20TOKEN"
    )]
    Headers,
    /// No thread or runtime can be started.
    #[error("cannot start the thread that sends spans")]
    Thread(#[from] io::Error),
}

/// Side of the call that a span belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller.
    Client,
    /// The callee.
    Server,
}

/// Called method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A single ping.
    Ping,
    /// A ping inside a stream, which itself has no span.
    PingInStream,
    /// A ping of the raw protocol.
    RawPing,
    /// `package.Service/Method` of another service.
    Other(&'static str),
}

impl Method {
    /// Method of a gRPC stack's ping.
    pub fn grpc(in_stream: bool) -> Self {
        if in_stream { Method::PingInStream } else { Method::Ping }
    }

    /// `rpc.system.name`. The semantic conventions do not list the raw protocol, so it has a name of its own.
    fn system(self) -> &'static str {
        match self {
            Method::Ping | Method::PingInStream | Method::Other(_) => "grpc",
            Method::RawPing => "spangap_raw",
        }
    }

    /// `rpc.method`, also the span's name.
    fn name(self) -> &'static str {
        match self {
            Method::Ping => ping::METHOD,
            Method::PingInStream => ping::STREAM_METHOD,
            Method::RawPing => "ping",
            Method::Other(name) => name,
        }
    }
}

/// One side of one call, as recorded by the timed code.
#[derive(Clone, Copy, Debug)]
pub struct CallSpan {
    /// Side.
    pub side: Side,
    /// Called method.
    pub method: Method,
    /// Ids of this span.
    pub context: TraceContext,
    /// Span id of the parent, all zero for none.
    pub parent_span_id: [u8; 8],
    /// Start, wall clock.
    pub start_unix_ns: u64,
    /// End: the start plus the duration by the monotonic clock.
    pub end_unix_ns: u64,
    /// Status.
    pub code: Code,
    /// Local address of the connection, if there was one.
    pub local: Option<SocketAddr>,
    /// Peer address.
    pub peer: Option<SocketAddr>,
}

impl CallSpan {
    /// A call from a program's record.
    pub fn of_record(
        side: Side,
        method: Method,
        record: &CallRecord,
        ends: Option<(SocketAddr, SocketAddr)>,
    ) -> Self {
        let CallRecord { trace_id, span_id, parent_span_id, start_unix_ns, .. } = *record;
        let (local, peer) = ends.unzip();
        CallSpan {
            side,
            method,
            context: TraceContext { trace_id, span_id, sampled: true },
            parent_span_id,
            start_unix_ns,
            end_unix_ns: start_unix_ns.saturating_add(record.duration_ns),
            code: Code::from(i32::from(record.status)),
            local,
            peer,
        }
    }
}

/// Fate of the spans; `recorded` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanCounts {
    /// Spans made.
    pub recorded: u64,
    /// Spans the collector accepted.
    pub exported: u64,
    /// Spans the collector refused.
    pub rejected: u64,
    /// Spans that found the queue full.
    pub dropped_queue_full: u64,
    /// Spans that had not reached the collector at the deadline.
    pub dropped_unsent: u64,
}

impl SpanCounts {
    /// Spans that the collector does not have.
    pub fn lost(&self) -> u64 {
        self.rejected + self.dropped_queue_full + self.dropped_unsent
    }
}

impl fmt::Display for SpanCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} spans exported", self.exported, self.recorded)?;
        let parts = [
            (self.rejected, "rejected by the collector"),
            (self.dropped_queue_full, "dropped because the queue was full"),
            (self.dropped_unsent, "not delivered in time"),
        ];
        parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}

/// Accepts spans; cheap to clone.
#[derive(Clone)]
pub struct SpanSink(Arc<Shared>);

struct Shared {
    queue: Mutex<VecDeque<CallSpan>>,
    wake: Notify,
    finishing: watch::Sender<bool>,
    recorded: AtomicU64,
    dropped_queue_full: AtomicU64,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<CallSpan>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the counts: spans of unknown fate were not delivered.
    fn settle(&self, mut counts: SpanCounts) -> SpanCounts {
        // Read in this order, so that everything in the first figure is also in the second.
        counts.dropped_queue_full = self.dropped_queue_full.load(Ordering::Acquire);
        counts.recorded = self.recorded.load(Ordering::Relaxed);
        let settled = counts.exported + counts.rejected + counts.dropped_queue_full;
        counts.dropped_unsent = counts.recorded - settled;
        counts
    }
}

impl SpanSink {
    /// Queues a span. The sending thread is woken once per batch, not per span.
    pub fn record(&self, span: CallSpan) {
        self.0.recorded.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.0.queue();
        if queue.len() >= CAPACITY {
            self.0.dropped_queue_full.fetch_add(1, Ordering::Release);
            return;
        }
        queue.push_back(span);
        let full_batch = queue.len().is_multiple_of(BATCH);
        drop(queue);
        if full_batch {
            self.0.wake.notify_one();
        }
    }
}

/// Sends spans from the sinks until [`Exporter::finish`].
pub struct Exporter {
    shared: Arc<Shared>,
    counts: oneshot::Receiver<SpanCounts>,
}

impl Exporter {
    /// Starts the thread. `notice` is called when the collector fails, and when it recovers: once per outage.
    ///
    /// # Errors
    /// The thread cannot be started, or the requested headers cannot be sent.
    pub fn start(
        settings: ExportSettings,
        notice: impl Fn(String) + Send + 'static,
    ) -> Result<Self, ExportError> {
        let asked = std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let headers = headers(&asked).ok_or(ExportError::Headers)?;
        let endpoint = Endpoint::from(settings.url.0.clone()).connect_timeout(EXPORT_TIMEOUT);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Notify::new(),
            finishing: watch::Sender::new(false),
            recorded: AtomicU64::new(0),
            dropped_queue_full: AtomicU64::new(0),
        });
        let (done, counts) = oneshot::channel();
        let for_thread = shared.clone();
        std::thread::Builder::new().name("otlp".into()).spawn(move || {
            let sent = runtime.block_on(async {
                let given = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
                let resource = encode::resource(&settings.service_name, &given);
                let client = TraceServiceClient::new(endpoint.connect_lazy());
                let sender =
                    Sender { shared: for_thread, client, headers, resource, notice, url: settings.url };
                sender.run().await
            });
            // The receiver is gone if nobody waits for the counts.
            let _ = done.send(sent);
        })?;
        Ok(Exporter { shared, counts })
    }

    /// A sink for spans.
    pub fn sink(&self) -> SpanSink {
        SpanSink(self.shared.clone())
    }

    /// Sends queued spans, for a few seconds at most, and returns the fate of every span.
    pub async fn finish(self) -> SpanCounts {
        self.shared.finishing.send_replace(true);
        // Without an answer the thread has died, and no span is known to have arrived.
        self.counts.await.unwrap_or_else(|_| self.shared.settle(SpanCounts::default()))
    }

    /// The same for callers outside an async runtime.
    pub fn finish_blocking(self) -> SpanCounts {
        self.shared.finishing.send_replace(true);
        self.counts.blocking_recv().unwrap_or_else(|_| self.shared.settle(SpanCounts::default()))
    }
}

struct Sender<F> {
    shared: Arc<Shared>,
    client: TraceServiceClient<Channel>,
    /// Sent with each request: the receiver's token.
    headers: MetadataMap,
    resource: Resource,
    notice: F,
    url: CollectorUrl,
}

/// Outcome of one request.
enum Sent {
    /// The collector accepted the batch, except for rejected spans.
    Accepted { rejected: u64, why: String },
    /// The collector refused the batch for good.
    Refused(String),
    /// A retry may succeed; `reached` tells whether the collector responded at all.
    Retry { why: String, reached: bool },
}

impl<F: Fn(String)> Sender<F> {
    async fn run(mut self) -> SpanCounts {
        let mut counts = SpanCounts::default();
        let mut finishing = self.shared.finishing.subscribe();
        let too_late = async {
            let _ = finishing.wait_for(|finishing| *finishing).await;
            tokio::time::sleep(FLUSH_DEADLINE).await;
        };
        tokio::select! {
            () = self.send_all(&mut counts) => {}
            () = too_late => {}
        }
        self.shared.settle(counts)
    }

    /// Sends full batches as they fill, and partial ones once a second, until told to finish and none is left.
    async fn send_all(&mut self, counts: &mut SpanCounts) {
        let mut finishing = self.shared.finishing.subscribe();
        let mut failing = false;
        let mut backoff = FIRST_BACKOFF;
        let mut second_over = false;
        loop {
            let last_round = *finishing.borrow_and_update();
            let batch = self.next_batch(last_round || second_over);
            if batch.is_empty() {
                if last_round {
                    return;
                }
                tokio::select! {
                    () = self.shared.wake.notified() => second_over = false,
                    () = tokio::time::sleep(FLUSH_EVERY) => second_over = true,
                    _ = finishing.changed() => {}
                }
                continue;
            }
            second_over = false;
            let size = batch.len() as u64;
            match self.send(&batch).await {
                Sent::Accepted { rejected, why } => {
                    let rejected = rejected.min(size);
                    counts.exported += size - rejected;
                    counts.rejected += rejected;
                    self.tell(&mut failing, (rejected > 0).then(|| format!("{rejected} refused: {why}")));
                }
                Sent::Refused(why) => {
                    counts.rejected += size;
                    self.tell(&mut failing, Some(why));
                }
                Sent::Retry { why, reached } => {
                    self.tell(&mut failing, Some(why));
                    if last_round && !reached {
                        return;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        _ = finishing.changed() => {}
                    }
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                    second_over = true;
                    continue;
                }
            }
            backoff = FIRST_BACKOFF;
            self.shared.queue().drain(..batch.len());
        }
    }

    /// A copy of the oldest spans, which leave the queue only when their fate is known.
    fn next_batch(&self, also_partial: bool) -> Vec<CallSpan> {
        let queue = self.shared.queue();
        match queue.len() {
            len if len < BATCH && !also_partial => Vec::new(),
            _ => queue.iter().take(BATCH).copied().collect(),
        }
    }

    fn tell(&self, failing: &mut bool, failure: Option<String>) {
        match &failure {
            Some(why) if !*failing => (self.notice)(format!("spans do not reach {}: {why}", self.url)),
            None if *failing => (self.notice)(format!("spans reach {} again", self.url)),
            _ => {}
        }
        *failing = failure.is_some();
    }

    async fn send(&mut self, batch: &[CallSpan]) -> Sent {
        let mut request = tonic::Request::new(encode::request(&self.resource, batch));
        request.metadata_mut().clone_from(&self.headers);
        let answer = tokio::time::timeout(EXPORT_TIMEOUT, self.client.export(request)).await;
        match answer {
            Ok(Ok(response)) => {
                let partial = response.into_inner().partial_success.unwrap_or_default();
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
                Sent::Accepted { rejected, why: partial.error_message }
            }
            Ok(Err(status)) if is_retryable(status.code()) => {
                // An error with a source occurred on this side of the network.
                let reached = std::error::Error::source(&status).is_none();
                Sent::Retry { why: describe(&status), reached }
            }
            Ok(Err(status)) => Sent::Refused(describe(&status)),
            Err(_) => Sent::Retry { why: format!("no answer within {EXPORT_TIMEOUT:?}"), reached: true },
        }
    }
}

/// The value of `OTEL_EXPORTER_OTLP_HEADERS`, in the format of W3C baggage without properties (OpenTelemetry, "OTLP Exporter").
fn headers(list: &str) -> Option<MetadataMap> {
    let mut headers = MetadataMap::new();
    for (name, value) in encode::listed(list)? {
        let name: MetadataKey<Ascii> = name.to_ascii_lowercase().parse().ok()?;
        headers.append(name, value.parse().ok()?);
    }
    Some(headers)
}

/// As listed by the OTLP specification, and also an overloaded receiver.
fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_environment() {
        let one = headers("Authorization=Bearer%200b9e63f1d2c84a57, x-team = a").unwrap();
        assert_eq!(one.get("authorization").unwrap(), "Bearer 0b9e63f1d2c84a57");
        assert_eq!(one.get("x-team").unwrap(), "a");
        assert!(headers("").unwrap().is_empty() && headers(" , ").unwrap().is_empty());
        for bad in ["token", "=a", "a b=c", "a=%0a", "a=%ff"] {
            assert!(headers(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn only_plain_grpc_addresses_are_taken() {
        let url = |text: &str| text.parse::<CollectorUrl>();
        assert_eq!(url("http://127.0.0.1:4317").unwrap().to_string(), "http://127.0.0.1:4317");
        assert_eq!(
            url("http://collector.example:4317/").unwrap().to_string(),
            "http://collector.example:4317"
        );
        for url in ["127.0.0.1:4317", "https://h:4317", "http://h", "http://h:4318/v1/traces", "", "http://"]
        {
            assert!(matches!(url.parse::<CollectorUrl>(), Err(ExportError::Url(_))), "{url}");
        }
    }
}
