//! An OTLP receiver that keeps the spans it receives.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::{Request, Response, Status};

/// Receives until dropped.
pub struct Collector {
    url: String,
    kept: Arc<Mutex<Vec<Span>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub fn start() -> Collector {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread");
        let incoming = runtime.block_on(async {
            let any = "127.0.0.1:0".parse().expect("an address");
            tonic::transport::server::TcpIncoming::bind(any).expect("loopback has a free port")
        });
        let url = format!("http://{}", incoming.local_addr().expect("bound"));
        let kept = Arc::<Mutex<Vec<Span>>>::default();
        let service = TraceServiceServer::new(Receiver(kept.clone()))
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip);
        let server = tonic::transport::Server::builder().add_service(service);
        runtime.spawn(server.serve_with_incoming(incoming));
        Collector { url, kept, _runtime: runtime }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
