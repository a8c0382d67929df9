//! The exporters' side: pre-encoded batches over several connections, in order, with a fixed number in
//! flight.

use crate::BenchError;
use crate::payload::{Payload, Protocol, Wire};
use crate::process::MeterProcess;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const HTTP_PATH: &str = "/v1/traces";
const GRPC_CONNECTIONS: usize = 4;
const UNAVAILABLE: &str = "14";

/// Requests in flight in a closed loop.
pub const IN_FLIGHT: usize = 16;

/// Outcome of the sent requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Spans in requests accepted completely.
    pub accepted_spans: u64,
    /// Requests accepted completely.
    pub accepted: u64,
    /// Spans in requests refused with a retryable error.
    pub refused_spans: u64,
    /// Requests refused with a retryable error.
    pub refused: u64,
    /// Wall time from the first request to the last answer, in seconds.
    pub seconds: f64,
}

impl Sent {
    /// Spans offered, accepted or not.
    pub fn offered_spans(&self) -> u64 {
        self.accepted_spans + self.refused_spans
    }

    fn add(&mut self, payload: &Payload, accepted: bool) {
        let (spans, requests) = match accepted {
            true => (&mut self.accepted_spans, &mut self.accepted),
            false => (&mut self.refused_spans, &mut self.refused),
        };
        *spans += payload.spans;
        *requests += 1;
    }
}

/// Open connections to the meter.
pub struct Exporter {
    wire: Wire,
    address: SocketAddr,
    connections: Vec<Connection>,
}

#[derive(Clone)]
enum Connection {
    Http(Arc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
}

impl Exporter {
    /// Connects: gRPC with few connections and many streams, HTTP with one connection per request in flight.
    ///
    /// # Errors
    /// The meter does not accept connections.
    pub async fn connect(meter: &MeterProcess, wire: Wire, in_flight: usize) -> Result<Exporter, BenchError> {
        let (address, count) = match wire.protocol {
            Protocol::Grpc => (meter.otlp_grpc, GRPC_CONNECTIONS.min(in_flight)),
            Protocol::Http => (meter.otlp_http, in_flight),
        };
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(Connection::open(address, wire.protocol).await?);
        }
        Ok(Exporter { wire, address, connections })
    }

    /// Sends all payloads in order, `in_flight` at a time, and waits for every answer.
    ///
    /// # Errors
    /// An answer is neither an acceptance nor a retryable refusal.
    pub async fn send_all<I>(&self, payloads: I, in_flight: usize) -> Result<Sent, BenchError>
    where
        I: Iterator<Item = Payload> + Send + 'static,
    {
        self.run(payloads, in_flight, None).await
    }

    /// Offers payloads at `spans_per_s` for `duration`, as long as fewer than `in_flight` requests are open;
    /// a sender delayed by that limit catches up as soon as it can.
    ///
    /// # Errors
    /// An answer is neither an acceptance nor a retryable refusal.
    pub async fn send_at_rate<I>(
        &self,
        payloads: I,
        in_flight: usize,
        spans_per_s: f64,
        duration: Duration,
    ) -> Result<Sent, BenchError>
    where
        I: Iterator<Item = Payload> + Send + 'static,
    {
        self.run(payloads, in_flight, Some((spans_per_s, duration))).await
    }

    async fn run<I>(
        &self,
        payloads: I,
        in_flight: usize,
        pace: Option<(f64, Duration)>,
    ) -> Result<Sent, BenchError>
    where
        I: Iterator<Item = Payload> + Send + 'static,
    {
        let start = Instant::now();
        // The payload and its due time.
        let queue = Arc::new(Mutex::new((payloads, 0u64)));
        let mut workers = JoinSet::new();
        for worker in 0..in_flight {
            let mut connection = self.connections[worker % self.connections.len()].clone();
            let (queue, wire, address) = (queue.clone(), self.wire, self.address);
            workers.spawn(async move {
                let mut sent = Sent::default();
                loop {
                    let (payload, due) = {
                        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                        let due = pace.map(|(rate, _)| Duration::from_secs_f64(queue.1 as f64 / rate));
                        if due.is_some_and(|due| pace.is_some_and(|(_, duration)| due > duration)) {
                            break;
                        }
                        let Some(payload) = queue.0.next() else { break };
                        queue.1 += payload.spans;
                        (payload, due)
                    };
                    if let Some((_, duration)) = pace
                        && start.elapsed() > duration
                    {
                        break;
                    }
                    if let Some(due) = due {
                        tokio::time::sleep_until((start + due).into()).await;
                    }
                    let accepted = connection.send(&payload, wire, address).await?;
                    sent.add(&payload, accepted);
                }
                Ok::<Sent, BenchError>(sent)
            });
        }
        let mut total = Sent::default();
        while let Some(done) = workers.join_next().await {
            let sent = done.map_err(BenchError::peer(self.address))??;
            total.accepted_spans += sent.accepted_spans;
            total.accepted += sent.accepted;
            total.refused_spans += sent.refused_spans;
            total.refused += sent.refused;
        }
        total.seconds = start.elapsed().as_secs_f64();
        Ok(total)
    }
}

impl Connection {
    async fn open(address: SocketAddr, protocol: Protocol) -> Result<Connection, BenchError> {
        let stream = TcpStream::connect(address).await.map_err(BenchError::peer(address))?;
        stream.set_nodelay(true).map_err(BenchError::peer(address))?;
        let io = TokioIo::new(stream);
        let failed = || BenchError::peer::<hyper::Error>(address);
        match protocol {
            Protocol::Http => {
                let (sender, driver) = http1::handshake(io).await.map_err(failed())?;
                tokio::spawn(driver);
                Ok(Connection::Http(Arc::new(tokio::sync::Mutex::new(sender))))
            }
            Protocol::Grpc => {
                let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await.map_err(failed())?;
                tokio::spawn(driver);
                Ok(Connection::Grpc(sender))
            }
        }
    }

    /// Whether the payload was accepted; false for a retryable refusal.
    async fn send(&mut self, payload: &Payload, wire: Wire, address: SocketAddr) -> Result<bool, BenchError> {
        let request = request(payload, wire, address).map_err(BenchError::peer(address))?;
        let failed = || BenchError::peer::<hyper::Error>(address);
        let response = match self {
            Connection::Grpc(sender) => sender.send_request(request).await.map_err(failed())?,
            Connection::Http(sender) => {
                let mut sender = sender.lock().await;
                let response = sender.send_request(request).await.map_err(failed())?;
                // The next request on this connection waits until this answer is read.
                let (head, body) = response.into_parts();
                body.collect().await.map_err(failed())?;
                return http_answer(head.status, address);
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(failed())?;
        let trailers = body.trailers().cloned().unwrap_or(head.headers);
        grpc_answer(&trailers, body.to_bytes().len(), address)
    }
}

fn request(payload: &Payload, wire: Wire, address: SocketAddr) -> Result<Request<Full<Bytes>>, http::Error> {
    let request = match wire.protocol {
        Protocol::Grpc => {
            let request = Request::post(format!("http://{address}{GRPC_PATH}"));
            let request = request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
            if wire.gzip { request.header("grpc-encoding", "gzip") } else { request }
        }
        Protocol::Http => {
            let request = Request::post(HTTP_PATH).header(HOST, address.to_string());
            let request = request.header(CONTENT_TYPE, "application/x-protobuf");
            if wire.gzip { request.header(CONTENT_ENCODING, "gzip") } else { request }
        }
    };
    request.body(Full::new(payload.body.clone()))
}

fn http_answer(status: StatusCode, address: SocketAddr) -> Result<bool, BenchError> {
    match status {
        StatusCode::OK => Ok(true),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Ok(false),
        status => Err(BenchError::Peer {
            peer: address.to_string(),
            reason: format!("answered {status}, expected 200"),
        }),
    }
}

/// An accepted request has an empty message as its answer: five bytes. A longer one is a partial success.
fn grpc_answer(trailers: &HeaderMap, body_bytes: usize, address: SocketAddr) -> Result<bool, BenchError> {
    let of = |name| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let reason = match (of("grpc-status"), body_bytes) {
        ("0", 5) => return Ok(true),
        (UNAVAILABLE, _) => return Ok(false),
        ("0", _) => "took only a part of a whole batch".into(),
        (status, _) => format!("answered status {status:?} {:?}, expected 0", of("grpc-message")),
    };
    Err(BenchError::Peer { peer: address.to_string(), reason })
}
