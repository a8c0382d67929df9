//! An OTLP/gRPC receiver that keeps every span, and can pretend to be busy.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use spangap_bench::otlp::CollectorUrl;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
pub struct Collector {
    received: Arc<Mutex<Vec<Received>>>,
    /// Number of requests that will still be refused as `UNAVAILABLE`.
    pub unavailable: Arc<AtomicU32>,
}

/// A span with the attributes of its resource.
#[derive(Clone, Debug)]
pub struct Received {
    pub resource: Vec<KeyValue>,
    pub span: Span,
}

impl Received {
    pub fn service(&self) -> String {
        text(&self.resource, "service.name").expect("every resource has a service name")
    }
}

/// An attribute's string or number, as text.
pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

impl Collector {
    pub async fn start() -> (Collector, CollectorUrl) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let collector = Collector::default();
        let service = TraceServiceServer::new(collector.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
        (collector, format!("http://{address}").parse().expect("a URL"))
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no test panics while it holds this").clone()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if self.unavailable.load(Ordering::SeqCst) > 0 {
            self.unavailable.fetch_sub(1, Ordering::SeqCst);
            return Err(Status::unavailable("busy"));
        }
        let mut received = self.received.lock().expect("no test panics while it holds this");
        for resource_spans in request.into_inner().resource_spans {
            let resource = resource_spans.resource.unwrap_or_default().attributes;
            let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.extend(spans.map(|span| Received { resource: resource.clone(), span }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
