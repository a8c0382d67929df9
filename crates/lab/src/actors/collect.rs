//! `collect`: receives spans over OTLP/gRPC and writes them as one document of OTLP JSON.

use crate::LabError;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<ResourceSpans>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans = request.into_inner().resource_spans;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Arguments of the actor.
#[derive(Clone, Debug)]
pub struct Collect {
    /// Listening address.
    pub listen: SocketAddr,
    /// Output file.
    pub write: PathBuf,
}

/// Runs until standard input ends.
pub(super) fn act(Collect { listen, write: file }: &Collect) -> Result<(), LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::program("collect", format!("{listen}: {error}"));
    let received = Received::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(|error| failed(&error))?;
        println!("ready");
        let (over, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // Nothing is ever written; only the end counts.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = over.send(());
        });
        let service = TraceServiceServer::new(received.clone()).max_decoding_message_size(64 << 20);
        let serving =
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        tokio::select! {
            served = serving => served.map_err(|error| failed(&error)),
            _ = end => Ok(()),
        }
    })?;
    let resource_spans = std::mem::take(&mut *received.0.lock().unwrap_or_else(PoisonError::into_inner));
    let document = ExportTraceServiceRequest { resource_spans };
    let text = serde_json::to_vec(&document).map_err(|error| failed(&error))?;
    std::fs::write(file, text).map_err(LabError::file("write", file))
}
