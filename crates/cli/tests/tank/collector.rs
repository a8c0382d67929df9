//! An OTLP/gRPC receiver that keeps every span.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::{Arc, Mutex};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<Span>>>);

/// An attribute's string or number, as text.
pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Collector {
    /// Serves as long as the runtime lives.
    pub fn start(runtime: &tokio::runtime::Runtime) -> (Collector, String) {
        let _entered = runtime.enter();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = incoming.local_addr().expect("a listener has an address");
        let collector = Collector::default();
        let service = TraceServiceServer::new(collector.clone());
        runtime.spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        (collector, format!("http://{address}"))
    }

    pub fn received(&self) -> Vec<Span> {
        self.0.lock().expect("no test panics while it holds this").clone()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes =
            request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0
            .lock()
            .expect("no test panics while it holds this")
            .extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
