//! A Ping server that records what it receives, and can hold back all answers.

use spangap_bench::ping::ping_server::{Ping, PingServer};
use spangap_bench::ping::{PingRequest, PingResponse, UsageRequest, UsageResponse};
use spangap_bench::trace::TraceContext;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// A ping as it arrived.
pub struct Seen {
    pub context: Option<([u8; 16], [u8; 8])>,
    pub payload_bytes: usize,
    /// The client's end of the connection.
    pub from: Option<SocketAddr>,
}

/// Serves until dropped, which cuts all connections.
pub struct Server {
    pub address: SocketAddr,
    answers: watch::Sender<bool>,
    seen: Arc<Mutex<Vec<Seen>>>,
    _runtime: Runtime,
}

#[derive(Clone)]
struct Answer {
    answers: watch::Receiver<bool>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// On any free port.
    pub fn start() -> Server {
        Server::start_on("127.0.0.1:0".parse().unwrap())
    }

    pub fn start_on(address: SocketAddr) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (answers, seen) = (watch::Sender::new(true), Arc::<Mutex<Vec<Seen>>>::default());
        let answer = Answer { answers: answers.subscribe(), seen: seen.clone() };
        let _entered = runtime.enter();
        let incoming = TcpIncoming::bind(address).unwrap().with_nodelay(Some(true));
        let address = incoming.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(PingServer::new(answer));
        runtime.spawn(server.serve_with_incoming(incoming));
        drop(_entered);
        Server { address, answers, seen, _runtime: runtime }
    }

    /// Whether pings are answered; until then they wait.
    pub fn answer(&self, whether: bool) {
        self.answers.send_replace(whether);
    }

    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Answer {
    async fn pong(
        &self,
        ping: PingRequest,
        context: Option<([u8; 16], [u8; 8])>,
        from: Option<SocketAddr>,
    ) -> Result<PingResponse, Status> {
        self.seen.lock().unwrap().push(Seen { context, payload_bytes: ping.payload.len(), from });
        // The sender is dropped only with the server.
        let _ = self.answers.clone().wait_for(|answers| *answers).await;
        Ok(PingResponse { payload: vec![0; ping.response_bytes.unwrap_or(0) as usize].into() })
    }
}

#[tonic::async_trait]
impl Ping for Answer {
    type PingStreamStream = Pin<Box<dyn Stream<Item = Result<PingResponse, Status>> + Send>>;

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        let header = request.metadata().get("traceparent");
        let context = header.map(|header| TraceContext::parse(header.as_bytes()).expect("well-formed"));
        assert!(context.is_none_or(|context| context.sampled));
        let from = request.remote_addr();
        let context = context.map(|context| (context.trace_id, context.span_id));
        self.pong(request.into_inner(), context, from).await.map(Response::new)
    }

    async fn ping_stream(
        &self,
        requests: Request<Streaming<PingRequest>>,
    ) -> Result<Response<Self::PingStreamStream>, Status> {
        let (answer, from) = (self.clone(), requests.remote_addr());
        let pongs = requests.into_inner().then(move |ping| {
            let answer = answer.clone();
            async move {
                let ping = ping?;
                let ids = (ping.trace_id.as_ref().try_into(), ping.span_id.as_ref().try_into());
                let context = if let (Ok(trace), Ok(span)) = ids { Some((trace, span)) } else { None };
                answer.pong(ping, context, from).await
            }
        });
        Ok(Response::new(Box::pin(pongs)))
    }

    async fn usage(&self, _: Request<UsageRequest>) -> Result<Response<UsageResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }
}
