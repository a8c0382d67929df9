//! The server of the pair: answers pings, with health and reflection beside them.

use crate::otlp::{ExportError, ExportSettings, Exporter, SpanCounts};
use crate::ping::ping_server::{Ping, PingServer};
use crate::ping::{self, PingRequest, PingResponse, UsageRequest, UsageResponse};
use crate::server_span::{CallCounts, Traced, Tracing};
use crate::think::Alarm;
use crate::trace::Ids;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// How long the end waits for calls under way.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How to serve.
#[derive(Clone, Debug)]
pub struct TargetSettings {
    /// `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// Payload of a response, unless the request asks for another.
    pub response_bytes: u64,
    /// Nanoseconds between the request and its response, unless the request asks for another.
    pub think_ns: u64,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`; `None` leaves the transport's own.
    pub max_streams: Option<u32>,
    /// Where spans go.
    pub export: Option<ExportSettings>,
}

/// Why the target does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The address cannot be used.
    #[error("cannot listen on {listen}")]
    Listen {
        /// As given.
        listen: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A size over the limit.
    #[error("a response of {0} bytes is too large: expected at most {max}", max = ping::MAX_PAYLOAD_BYTES)]
    Payload(u64),
    /// A think time over the limit.
    #[error("a think time of {0} ns is too long: expected at most {max} ns", max = ping::MAX_THINK_NS)]
    Think(u64),
    /// Spans cannot be sent.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The kernel gave no thread.
    #[error("cannot start the thread that times the think time")]
    Thread(#[source] io::Error),
    /// The reflection service cannot describe the ping service.
    #[error("cannot set up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended by itself.
    #[error("the server on {address} failed")]
    Serve {
        /// Where it listened.
        address: SocketAddr,
        /// What the transport said.
        source: tonic::transport::Error,
    },
}

/// What the target did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Ping calls.
    pub calls: u64,
    /// The same by gRPC status name.
    pub by_status: BTreeMap<String, u64>,
    /// Calls whose `traceparent` could not be read and who began a trace of their own.
    pub malformed_traceparent: u64,
    /// Whether calls were cut off because they took longer than the end waits.
    pub cut_off: bool,
    /// Spans sent by OTLP, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
}

/// A target that listens and does not serve yet.
pub struct Target {
    settings: TargetSettings,
    listener: TcpListener,
    address: SocketAddr,
}

impl Target {
    /// Checks the settings and opens the listening socket.
    ///
    /// # Errors
    /// When a setting is out of range or the address cannot be used.
    pub async fn bind(settings: TargetSettings) -> Result<Self, TargetError> {
        if settings.response_bytes > ping::MAX_PAYLOAD_BYTES {
            return Err(TargetError::Payload(settings.response_bytes));
        }
        if settings.think_ns > ping::MAX_THINK_NS {
            return Err(TargetError::Think(settings.think_ns));
        }
        let listen_error = |source| TargetError::Listen { listen: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        Ok(Target { settings, listener, address })
    }

    /// Where it listens, with the port the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready; then tells clients to leave, waits for the calls under way and sends the
    /// spans that are left. `notice` is told what the user should hear at once.
    ///
    /// # Errors
    /// When spans cannot be sent at all, or the transport fails.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()>,
        notice: impl Fn(String) + Send + 'static,
    ) -> Result<TargetReport, TargetError> {
        let Target { settings, listener, address } = self;
        let exporter = settings.export.clone().map(|export| Exporter::start(export, notice)).transpose()?;
        let tracing = Arc::new(Tracing {
            counts: CallCounts::default(),
            spans: exporter.as_ref().map(Exporter::sink),
            ids: Mutex::new(Ids::new()),
        });
        let ping_server = PingServer::new(Answer::new(&settings).map_err(TargetError::Thread)?)
            .max_decoding_message_size(ping::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(ping::MAX_MESSAGE_BYTES);
        let (health_reporter, health) = tonic_health::server::health_reporter();
        health_reporter.set_serving::<PingServer<Answer>>().await;

        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let server = Server::builder()
            .max_concurrent_streams(settings.max_streams)
            .add_service(Traced { service: ping_server, shared: tracing.clone() })
            .add_service(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), async {
                stop.await;
                health_reporter.set_not_serving::<PingServer<Answer>>().await;
                // The other end goes only when the server is already over.
                let _ = stopping.send(());
            });
        let patience_over = async {
            match stopped.await {
                Ok(()) => tokio::time::sleep(STOP_GRACE).await,
                Err(_) => std::future::pending().await,
            }
        };
        let cut_off = tokio::select! {
            served = server => served.map(|()| false).map_err(|source| TargetError::Serve { address, source })?,
            () = patience_over => true,
        };
        let spans = match exporter {
            Some(exporter) => Some(exporter.finish().await),
            None => None,
        };
        let by_status = tracing.counts.by_status();
        Ok(TargetReport {
            calls: by_status.values().sum(),
            by_status,
            malformed_traceparent: tracing.counts.malformed_traceparent(),
            cut_off,
            spans,
        })
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(ping::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The handler.
#[derive(Clone)]
struct Answer {
    payload: Bytes,
    think_ns: u64,
    alarm: Arc<Alarm>,
}

impl Answer {
    fn new(settings: &TargetSettings) -> io::Result<Self> {
        let payload = vec![0; settings.response_bytes as usize].into();
        Ok(Answer { payload, think_ns: settings.think_ns, alarm: Arc::new(Alarm::start()?) })
    }

    fn payload(&self, bytes: Option<u64>) -> Result<Bytes, Status> {
        match bytes {
            None => Ok(self.payload.clone()),
            Some(bytes) if bytes > ping::MAX_PAYLOAD_BYTES => Err(Status::invalid_argument(format!(
                "response_bytes is {bytes}: expected at most {}",
                ping::MAX_PAYLOAD_BYTES
            ))),
            Some(bytes) => Ok(vec![0; bytes as usize].into()),
        }
    }
}

impl Answer {
    async fn answer(&self, request: PingRequest) -> Result<PingResponse, Status> {
        let think_ns = request.think_ns.unwrap_or(self.think_ns);
        if think_ns > ping::MAX_THINK_NS {
            let limit = ping::MAX_THINK_NS;
            return Err(Status::invalid_argument(format!(
                "think_ns is {think_ns}: expected at most {limit}"
            )));
        }
        let payload = self.payload(request.response_bytes)?;
        self.alarm.wait(think_ns).await;
        Ok(PingResponse { payload })
    }
}

#[tonic::async_trait]
impl Ping for Answer {
    type PingStreamStream = Pin<Box<dyn Stream<Item = Result<PingResponse, Status>> + Send>>;

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        self.answer(request.into_inner()).await.map(Response::new)
    }

    async fn ping_stream(
        &self,
        requests: Request<Streaming<PingRequest>>,
    ) -> Result<Response<Self::PingStreamStream>, Status> {
        let answer = self.clone();
        let pongs = requests.into_inner().then(move |request| {
            let answer = answer.clone();
            async move { answer.answer(request?).await }
        });
        Ok(Response::new(Box::pin(pongs)))
    }

    async fn usage(&self, _: Request<UsageRequest>) -> Result<Response<UsageResponse>, Status> {
        Err(Status::unimplemented("usage"))
    }
}
