//! The OTLP receiver: gRPC and HTTP (protobuf and JSON) through one handler, on either port.
//!
//! It uses hyper rather than a gRPC framework because this is the hot path: a message in one piece is not copied, one of
//! several pieces once, and one of more than a block twice. It is charged to the byte budget as it arrives. Status codes and
//! retry rules: OTLP specification, sections "OTLP/gRPC Response" and "OTLP/HTTP Response".

use super::access::{Access, Denied, Role};
use super::admission::Admission;
use super::body::{Arrival, Body, Encoding, Whole, with_plain};
use super::buffers::Buffers;
use super::clock::Clock;
use super::places::{Deadlines, Peer};
use super::refusal::Refusal;
use crate::engine::{Ingested, Meter};
use crate::ingest::otlp_json;
use crate::ingest::wire::WalkError;
use crate::rpc_status;
use crate::spool::block::Coding;
use crate::spool::{self, Spool};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const EXPORT_METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const HTTP_PATH: &str = "/v1/traces";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Retry delay sent with a refusal.
const RETRY_AFTER_TIME: Duration = Duration::from_secs(1);
/// Larger bodies are processed outside the threads that serve other connections.
const LONG_WORK: usize = 1 << 20;

/// The response type of every handler here.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// The receiver, shared by all connections.
#[derive(Debug)]
pub struct Receiver {
    meter: Arc<Meter>,
    clock: Clock,
    /// The byte budget of requests in progress.
    pub admission: Arc<Admission>,
    buffers: Arc<Buffers>,
    deadlines: Deadlines,
    access: Arc<Access>,
    spool: Option<Arc<Spool>>,
    from_elsewhere: bool,
    max_request_bytes: u64,
    /// Requests refused because of overload.
    pub refused: AtomicU64,
    /// Requests that could not be decoded.
    pub invalid: AtomicU64,
}

impl Receiver {
    /// A receiver that feeds `meter`. One request is limited to `max_request_bytes`, all in progress together
    /// to `budget_bytes`.
    pub fn new(
        meter: Arc<Meter>,
        clock: Clock,
        max_request_bytes: u64,
        budget_bytes: u64,
        deadlines: Deadlines,
    ) -> Receiver {
        Receiver {
            meter,
            clock,
            admission: Admission::new(budget_bytes, deadlines.slow_after),
            buffers: Arc::default(),
            deadlines,
            access: Arc::default(),
            spool: None,
            from_elsewhere: false,
            max_request_bytes,
            refused: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
        }
    }

    /// Sets the access rules for senders of spans.
    pub fn with_access(self, access: Arc<Access>) -> Receiver {
        Receiver { access, ..self }
    }

    /// Sets the store of all recent spans.
    pub fn with_spool(self, spool: Option<Arc<Spool>>) -> Receiver {
        Receiver { spool, ..self }
    }

    /// Refuses spans, because they come from elsewhere.
    pub fn with_spans_from_elsewhere(self, from_elsewhere: bool) -> Receiver {
        Receiver { from_elsewhere, ..self }
    }

    /// Answers one request.
    pub async fn handle(&self, request: Request<Whole>, peer: Peer) -> Reply {
        match header(request.headers(), CONTENT_TYPE) {
            Some(kind) if is_grpc(kind) => self.grpc(request, peer).await,
            _ => self.http(request, peer).await,
        }
    }

    fn may_send(&self, headers: &HeaderMap, peer: Peer) -> Result<(), Refusal> {
        self.access.may(Role::Ingest, headers, Some(peer)).map_err(Refusal::Denied)?;
        if self.from_elsewhere { Err(Refusal::Elsewhere) } else { Ok(()) }
    }

    fn arrival<'a>(&self, body: &'a mut Whole, peer: Peer) -> Result<Arrival<'a>, Refusal> {
        Ok(Arrival::new(body, self.admission.permit(peer)?, self.buffers.clone(), self.deadlines))
    }

    fn ingest(&self, body: &Body, encoding: Encoding, json: bool) -> Result<Ingested, Refusal> {
        let encoding = if body.compressed { encoding } else { Encoding::Identity };
        let work = || {
            with_plain(&body.bytes, encoding, self.max_request_bytes, |plain| match json {
                true => {
                    let protobuf =
                        otlp_json::to_protobuf(plain).map_err(|e| Refusal::Invalid(e.to_string()))?;
                    let protobuf = Bytes::from(protobuf);
                    self.take(&protobuf, &protobuf, Encoding::Identity)
                }
                false => self.take(plain, &body.bytes, encoding),
            })
        };
        if body.bytes.len() > LONG_WORK { tokio::task::block_in_place(work) } else { work() }
    }

    /// Processes one protobuf request; `arrived` contains the same as received.
    fn take(&self, plain: &[u8], arrived: &Bytes, encoding: Encoding) -> Result<Ingested, Refusal> {
        let now_ms = self.clock.now_ms();
        let invalid = |e: WalkError| Refusal::Invalid(e.to_string());
        let Some(spool) = &self.spool else { return self.meter.ingest(plain, now_ms).map_err(invalid) };
        let mut digests = Vec::new();
        let ingested = self.meter.ingest_seen(plain, now_ms, |spans| digests = spool.digests(spans));
        let ingested = ingested.map_err(invalid)?;
        // A request is below 4 GiB, and a span takes more than one byte.
        spool.keep(spool::Request {
            bytes: arrived.clone(),
            coding: match encoding {
                Encoding::Identity => Coding::Plain,
                Encoding::Gzip => Coding::Gzip,
                Encoding::Zstd => Coding::Zstd,
            },
            plain_len: plain.len() as u32,
            digests,
            spans: ingested.spans as u32,
            unix_ms: self.clock.unix_ms(),
        });
        Ok(ingested)
    }

    fn count(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Overloaded { .. } => self.refused.fetch_add(1, Relaxed),
            // Counted with other denied requests.
            Refusal::Denied(_) => 0,
            _ => self.invalid.fetch_add(1, Relaxed),
        };
    }

    async fn grpc(&self, mut request: Request<Whole>, peer: Peer) -> Reply {
        let path = request.uri().path();
        if path != EXPORT_METHOD {
            let message = format!("{path} is not served here: expected {EXPORT_METHOD}");
            return grpc_error(12, &message, false);
        }
        let done = async {
            self.may_send(request.headers(), peer)?;
            let encoding = Encoding::from_name(header(request.headers(), "grpc-encoding"))?;
            let (limit, keeps) = (self.max_request_bytes, self.spool.is_some());
            let body = self.arrival(request.body_mut(), peer)?.grpc(limit, keeps).await?;
            self.ingest(&body, encoding, false)
        };
        match done.await {
            Ok(ingested) => grpc_ok(&response(&ingested)),
            Err(refusal) => {
                self.count(&refusal);
                let (code, retry) = match &refusal {
                    Refusal::Overloaded { .. } => (14, true),
                    Refusal::TooLarge { .. } => (8, false),
                    Refusal::Unsupported(_) => (12, false),
                    Refusal::Invalid(_) => (3, false),
                    Refusal::TooSlow(_) => (4, false),
                    Refusal::Lost(_) => (1, false),
                    Refusal::Elsewhere => (9, false),
                    Refusal::Denied(Denied::NoToken(_)) => (16, false),
                    Refusal::Denied(_) => (7, false),
                };
                grpc_error(code, &refusal.to_string(), retry)
            }
        }
    }

    async fn http(&self, request: Request<Whole>, peer: Peer) -> Reply {
        let (head, mut body) = request.into_parts();
        self.http_reply(&head, &mut body, peer).await
    }

    async fn http_reply(&self, request: &Parts, body: &mut Whole, peer: Peer) -> Reply {
        let json = header(&request.headers, CONTENT_TYPE)
            .is_some_and(|kind| essence(kind).eq_ignore_ascii_case("application/json"));
        if request.uri.path() != HTTP_PATH {
            let message = format!("{} is not served here: expected {HTTP_PATH}", request.uri.path());
            return http_error(StatusCode::NOT_FOUND, 5, &message, json);
        }
        if request.method != Method::POST {
            let mut reply = http_error(StatusCode::METHOD_NOT_ALLOWED, 12, "expected POST", json);
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return reply;
        }
        let done = async {
            self.may_send(&request.headers, peer)?;
            let kind = header(&request.headers, CONTENT_TYPE).map(essence);
            let known = ["application/x-protobuf", "application/json"];
            if !kind.is_some_and(|kind| known.iter().any(|known| kind.eq_ignore_ascii_case(known))) {
                let kind = kind.unwrap_or("none");
                return Err(Refusal::Unsupported(format!(
                    "content type {kind:?}: expected application/x-protobuf or application/json"
                )));
            }
            let encoding = Encoding::from_name(header(&request.headers, CONTENT_ENCODING))?;
            let declared = header(&request.headers, CONTENT_LENGTH).and_then(|n| n.parse().ok());
            let compressed = encoding != Encoding::Identity;
            let (limit, keeps) = (self.max_request_bytes, self.spool.is_some());
            let body = self.arrival(body, peer)?.http(declared, compressed, limit, keeps).await?;
            self.ingest(&body, encoding, json)
        };
        match done.await {
            Ok(ingested) => http_ok(&response(&ingested), json),
            Err(refusal) => {
                self.count(&refusal);
                let (status, code) = match &refusal {
                    Refusal::Overloaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, 14),
                    Refusal::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, 8),
                    Refusal::Unsupported(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 12),
                    Refusal::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, 4),
                    Refusal::Invalid(_) | Refusal::Lost(_) => (StatusCode::BAD_REQUEST, 3),
                    Refusal::Elsewhere => (StatusCode::CONFLICT, 9),
                    Refusal::Denied(Denied::NoToken(_)) => (StatusCode::UNAUTHORIZED, 16),
                    Refusal::Denied(_) => (StatusCode::FORBIDDEN, 7),
                };
                let mut reply = http_error(status, code, &refusal.to_string(), json);
                if status == StatusCode::SERVICE_UNAVAILABLE {
                    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_TIME.as_secs()));
                }
                reply
            }
        }
    }
}

fn header(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn is_grpc(content_type: &str) -> bool {
    let kind = essence(content_type);
    kind == "application/grpc" || kind == "application/grpc+proto"
}

/// A content type without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

/// Unusable spans were rejected; the response tells the sender how many and why.
fn response(ingested: &Ingested) -> ExportTraceServiceResponse {
    let m = &ingested.malformed;
    let partial_success = (m.total() > 0).then(|| ExportTracePartialSuccess {
        rejected_spans: m.total() as i64,
        error_message: format!(
            "{} of {} spans rejected: {} with an invalid trace or span id, {} without start or end time, \
             {} ending before they start, {} longer than 78 hours",
            m.total(),
            ingested.spans,
            m.bad_id,
            m.no_time,
            m.end_before_start,
            m.too_long
        ),
    });
    ExportTraceServiceResponse { partial_success }
}

fn reply(status: StatusCode, kind: HeaderValue, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body).boxed());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn http_ok(message: &ExportTraceServiceResponse, json: bool) -> Reply {
    if !json {
        return reply(StatusCode::OK, PROTOBUF, message.encode_to_vec().into());
    }
    let body = match &message.partial_success {
        // 64-bit integers are strings in protobuf's JSON mapping.
        Some(partial) => serde_json::json!({"partialSuccess": {
            "rejectedSpans": partial.rejected_spans.to_string(), "errorMessage": partial.error_message}}),
        None => serde_json::json!({}),
    };
    reply(StatusCode::OK, JSON, body.to_string().into())
}

fn http_error(status: StatusCode, code: i32, message: &str, json: bool) -> Reply {
    match json {
        true => reply(status, JSON, serde_json::json!({"code": code, "message": message}).to_string().into()),
        false => reply(status, PROTOBUF, rpc_status::status(code, message, None).encode_to_vec().into()),
    }
}

fn grpc_ok(message: &ExportTraceServiceResponse) -> Reply {
    let size = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + size);
    frame.put_u8(0);
    frame.put_u32(size as u32);
    frame.extend_from_slice(&message.encode_to_vec());
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    let body = Full::new(frame.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut reply = Response::new(body.boxed());
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

/// A trailers-only response.
fn grpc_error(code: i32, message: &str, retry: bool) -> Reply {
    let mut answer = reply(StatusCode::OK, GRPC, Bytes::new());
    let headers = answer.headers_mut();
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    if let Ok(value) = HeaderValue::from_str(&percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, value);
    }
    if code == 12 {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,gzip,zstd"));
    }
    if retry
        && let Ok(value) = HeaderValue::from_str(&base64(
            &rpc_status::status(code, message, Some(RETRY_AFTER_TIME)).encode_to_vec(),
        ))
    {
        headers.insert("grpc-status-details-bin", value);
    }
    answer
}

/// `grpc-message` is percent-encoded (gRPC over HTTP/2, "Responses").
fn percent_encoded(message: &str) -> String {
    message
        .bytes()
        .map(|b| match b {
            b' '..=b'~' if b != b'%' => (b as char).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | *b as u32) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(|i| DIGITS[(word >> (18 - 6 * i) & 63) as usize] as char).collect::<String>()
    };
    // gRPC sends binary headers without padding.
    bytes.chunks(3).map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_headers_are_base64_without_padding() {
        assert_eq!(base64(b"Man"), "TWFu");
        assert_eq!(base64(b"Ma"), "TWE");
        assert_eq!(base64(b"M"), "TQ");
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("100 % wrong\n"), "100 %25 wrong%0A");
    }
}
