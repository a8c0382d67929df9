//! The ping handler of the stack `rust`: single pings, streams, and usage queries.

use super::LargeResponse;
use super::calls::{Calls, Ends, OpenCall};
use super::counting::ends;
use super::failing::Failures;
use super::think::{Alarm, Waiting};
use super::workers::{Place, Turn, Workers};
use crate::ping::ping_server::Ping;
use crate::ping::{self, PingRequest, PingResponse, UsageRequest, UsageResponse};
use crate::process::Used;
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

/// The `library` that it reports.
pub const LIBRARY: &str = concat!("tonic ", env!("TONIC_VERSION"));
/// Payloads up to this size are slices of a static buffer.
const ZEROS_BYTES: u64 = 64 << 10;

/// The handler; cheap to clone.
#[derive(Clone)]
pub struct Answer(Arc<Shared>);

struct Shared {
    zeros: Bytes,
    response_bytes: u64,
    large: Option<LargeResponse>,
    /// Number of responses so far whose size the request left to the target.
    answered: AtomicU64,
    think_ns: u64,
    max_streams: u32,
    alarm: Alarm,
    calls: Arc<Calls>,
    workers: Workers,
    failures: Option<Failures>,
}

impl Answer {
    /// Starts the thread that times the think time.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(settings: &super::TargetSettings, calls: Arc<Calls>, workers: Workers) -> io::Result<Self> {
        let large_bytes = settings.large_response.map_or(0, |large| large.bytes);
        let zeros_bytes = settings.response_bytes.max(large_bytes).max(ZEROS_BYTES);
        Ok(Answer(Arc::new(Shared {
            zeros: vec![0; zeros_bytes as usize].into(),
            response_bytes: settings.response_bytes,
            large: settings.large_response,
            answered: AtomicU64::new(0),
            think_ns: settings.think_ns,
            max_streams: settings.max_streams.unwrap_or(0),
            alarm: Alarm::start()?,
            calls,
            workers,
            failures: settings.fail.map(Failures::new),
        })))
    }
}

impl Shared {
    /// The response, and the wait before it is sent.
    fn answer(&self, request: &PingRequest) -> Result<(PingResponse, Option<Waiting>), Status> {
        let think_ns = request.think_ns.unwrap_or(self.think_ns);
        within("think_ns", think_ns, ping::MAX_THINK_NS)?;
        let bytes = request.response_bytes.unwrap_or_else(|| self.next_bytes());
        within("response_bytes", bytes, ping::MAX_PAYLOAD_BYTES)?;
        let payload = match bytes as usize {
            bytes if bytes <= self.zeros.len() => self.zeros.slice(..bytes),
            bytes => vec![0; bytes].into(),
        };
        Ok((PingResponse { payload }, self.alarm.wait(think_ns)))
    }

    /// Size of a response if the request leaves it to the target.
    fn next_bytes(&self) -> u64 {
        match self.large {
            Some(large) if (self.answered.fetch_add(1, Relaxed) + 1).is_multiple_of(large.every) => {
                large.bytes
            }
            _ => self.response_bytes,
        }
    }
}

fn within(what: &str, value: u64, limit: u64) -> Result<(), Status> {
    if value > limit {
        return Err(Status::invalid_argument(format!("{what} is {value}: expected at most {limit}")));
    }
    Ok(())
}

#[tonic::async_trait]
impl Ping for Answer {
    type PingStreamStream = Pongs;

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        let (response, waiting) = self.0.answer(request.get_ref())?;
        if let Some(waiting) = waiting {
            waiting.await;
        }
        match self.0.failures.as_ref().and_then(|failures| failures.of(request.metadata())) {
            Some(failure) => Err(failure),
            None => Ok(Response::new(response)),
        }
    }

    async fn ping_stream(&self, request: Request<Streaming<PingRequest>>) -> Result<Response<Pongs>, Status> {
        let ends = ends(request.extensions());
        Ok(Response::new(Pongs { pings: request.into_inner(), answer: self.clone(), ends, call: Call::None }))
    }

    async fn usage(&self, _: Request<UsageRequest>) -> Result<Response<UsageResponse>, Status> {
        let used = Used::so_far();
        Ok(Response::new(UsageResponse {
            stack: "rust".into(),
            library: LIBRARY.into(),
            cpu_ns: used.cpu_ns,
            context_switches: used.context_switches,
            calls: self.0.calls.ended(),
            peak_in_progress: self.0.calls.take_peak_in_progress(),
            max_streams: self.0.max_streams.into(),
            pid: std::process::id(),
        }))
    }
}

/// Responses of one stream. A call lasts from its message to its response; a refused one ends the stream.
pub struct Pongs {
    pings: Streaming<PingRequest>,
    answer: Answer,
    ends: Ends,
    call: Call,
}

/// State of a stream's latest message.
enum Call {
    /// It has its response.
    None,
    /// It waits for a free worker.
    Waits(OpenCall, PingRequest, Turn),
    /// Its response is ready, and will be sent later.
    Thinks(OpenCall, PingResponse, Waiting),
}

impl Pongs {
    /// The call is handled: returns its response, unless that is delayed.
    fn handle(
        &mut self,
        mut call: OpenCall,
        request: &PingRequest,
        place: Place,
    ) -> Option<Result<PingResponse, Status>> {
        let shared = &self.answer.0;
        let ids = (&request.trace_id[..], &request.span_id[..]);
        call.handle_with_ids(place, shared.calls.arrival(), ids, self.ends);
        match shared.answer(request) {
            Ok((response, Some(waiting))) => {
                self.call = Call::Thinks(call, response, waiting);
                None
            }
            Ok((response, None)) => {
                call.end(Code::Ok);
                Some(Ok(response))
            }
            Err(status) => {
                call.end(status.code());
                Some(Err(status))
            }
        }
    }
}

impl Stream for Pongs {
    type Item = Result<PingResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let (call, request, place) = match &mut self.call {
                Call::None => {
                    let Some(request) = ready!(Pin::new(&mut self.pings).poll_next(cx)?) else {
                        return Poll::Ready(None);
                    };
                    let shared = &self.answer.0;
                    let call = shared.calls.come();
                    match shared.workers.place() {
                        Ok(place) => (call, request, place),
                        Err(turn) => {
                            self.call = Call::Waits(call, request, turn);
                            continue;
                        }
                    }
                }
                Call::Waits(_, _, turn) => {
                    let place = ready!(Pin::new(turn).poll(cx));
                    let Call::Waits(call, request, _) = std::mem::replace(&mut self.call, Call::None) else {
                        unreachable!("it waited just now");
                    };
                    (call, request, place)
                }
                Call::Thinks(_, _, waiting) => {
                    ready!(Pin::new(waiting).poll(cx));
                    let Call::Thinks(call, response, _) = std::mem::replace(&mut self.call, Call::None)
                    else {
                        unreachable!("it thought just now");
                    };
                    call.end(Code::Ok);
                    return Poll::Ready(Some(Ok(response)));
                }
            };
            if let Some(answer) = self.handle(call, &request, place) {
                return Poll::Ready(Some(answer));
            }
        }
    }
}
