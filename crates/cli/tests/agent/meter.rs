//! The meter's side of the protocol, as far as tests need it.

use crate::stage::until;
use spangap_fleet::slice::Gathering;
use spangap_fleet::v1::fleet_server::{Fleet, FleetServer};
use spangap_fleet::v1::{self, from_agent, from_meter};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

type Answer = Result<v1::FromMeter, Status>;

/// State of the agent of one network namespace.
#[derive(Default)]
struct Agent {
    hello: Option<v1::Hello>,
    times: u64,
    health: Option<v1::Health>,
    to: Option<mpsc::UnboundedSender<Answer>>,
    slices: HashMap<u64, Arriving>,
    authorization: Option<String>,
    reports: Vec<v1::OrderReport>,
}

#[derive(Default)]
struct Arriving {
    pieces: Vec<v1::SlicePiece>,
    end: Option<v1::SliceEnd>,
}

type Agents = Arc<Mutex<HashMap<u64, Agent>>>;

/// A meter on a free port.
pub struct Meter {
    pub port: u16,
    agents: Agents,
    asks: AtomicU64,
    runtime: Option<Runtime>,
}

/// A reassembled slice.
#[derive(Debug)]
pub struct Slice {
    pub files: BTreeMap<&'static str, Vec<u8>>,
    pub end: v1::SliceEnd,
}

impl Slice {
    pub fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("a folder");
        for (name, bytes) in &self.files {
            std::fs::write(folder.join(name), bytes).expect("a file");
        }
    }
}

impl Meter {
    pub fn start() -> Meter {
        Meter::at(0).expect("a port is free")
    }

    pub fn at(port: u16) -> Option<Meter> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let agents = Agents::default();
        let listener = std::net::TcpListener::bind(("0.0.0.0", port)).ok()?;
        listener.set_nonblocking(true).expect("it can be");
        let port = listener.local_addr().expect("it is bound").port();
        let service = FleetServer::new(Service(agents.clone()));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
        });
        Some(Meter { port, agents, asks: AtomicU64::new(1), runtime: Some(runtime) })
    }

    fn with<T>(&self, netns: u64, what: &str, mut look: impl FnMut(&Agent) -> Option<T>) -> T {
        until(what, || self.agents.lock().unwrap().get(&netns).and_then(&mut look))
    }

    /// The agent's hello, once it has arrived.
    pub fn attached(&self, netns: u64) -> v1::Hello {
        self.with(netns, "an agent", |agent| agent.hello.clone())
    }

    /// The credentials that it presented.
    pub fn authorization(&self, netns: u64) -> Option<String> {
        self.with(netns, "an agent", |agent| Some(agent.authorization.clone()))
    }

    /// The next health message that satisfies the condition.
    pub fn health(&self, netns: u64, what: &str, is: impl Fn(&v1::Health) -> bool) -> v1::Health {
        if let Some(agent) = self.agents.lock().unwrap().get_mut(&netns) {
            agent.health = None;
        }
        self.with(netns, what, |agent| agent.health.clone().filter(&is))
    }

    /// Sends a message of any kind.
    pub fn send(&self, netns: u64, what: from_meter::What) {
        let to = self.with(netns, "a stream", |agent| agent.to.clone());
        let _gone = to.send(Ok(v1::FromMeter { what: Some(what) }));
    }

    /// Requests a slice, and waits for its end.
    pub fn slice(
        &self,
        netns: u64,
        (from_unix_ns, to_unix_ns): (i64, i64),
        endpoints: &[v1::Endpoint],
        max_bytes: u64,
    ) -> Slice {
        self.slice_of(netns, (from_unix_ns, to_unix_ns), endpoints, max_bytes, false)
    }

    /// The same; `apart` for two captures of connections that have both ends at the agent's host.
    pub fn slice_of(
        &self,
        netns: u64,
        (from_unix_ns, to_unix_ns): (i64, i64),
        endpoints: &[v1::Endpoint],
        max_bytes: u64,
        apart: bool,
    ) -> Slice {
        let id = self.asks.fetch_add(1, Relaxed);
        let ask = v1::Ask {
            id,
            from_unix_ns,
            to_unix_ns,
            endpoints: endpoints.to_vec(),
            max_bytes,
            reason: "a test".into(),
            apart,
        };
        self.send(netns, from_meter::What::Ask(ask));
        self.with(netns, "the end of a slice", |agent| agent.slices.get(&id)?.end.as_ref().map(drop));
        let arrived = self.agents.lock().unwrap().get_mut(&netns).unwrap().slices.remove(&id).unwrap();
        let mut gathering = Gathering::new(max_bytes);
        let mut files: BTreeMap<&'static str, Vec<u8>> = BTreeMap::new();
        for piece in &arrived.pieces {
            let (file, bytes) = gathering.take(piece).expect("it keeps the rules");
            files.entry(file).or_default().extend(bytes);
        }
        Slice { files, end: arrived.end.unwrap() }
    }

    /// Sends an order, and waits for the first report on it.
    pub fn order(&self, netns: u64, order: v1::Order) -> v1::OrderReport {
        let id = order.id;
        self.send(netns, from_meter::What::Order(order));
        self.with(netns, "a report", |agent| agent.reports.iter().find(|report| report.order == id).cloned())
    }

    /// Waits for the report that an order has reached this stage.
    pub fn reported(&self, netns: u64, order: u64, stage: v1::Stage) -> v1::OrderReport {
        self.with(netns, "a report", |agent| {
            agent.reports.iter().find(|report| report.order == order && report.stage() == stage).cloned()
        })
    }

    /// Ends the meter and all its connections.
    pub fn end(mut self) {
        self.runtime.take().expect("it runs").shutdown_timeout(std::time::Duration::from_secs(5));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Service(Agents);

#[tonic::async_trait]
impl Fleet for Service {
    type AttachStream = Pin<Box<dyn tokio_stream::Stream<Item = Answer> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let authorization =
            request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let mut stream = request.into_inner();
        let (to, from) = mpsc::unbounded_channel();
        let agents = self.0.clone();
        tokio::spawn(async move {
            let mut netns = 0;
            while let Ok(Some(message)) = stream.message().await {
                let mut agents = agents.lock().unwrap();
                match message.what {
                    Some(from_agent::What::Hello(hello)) => {
                        netns = hello.netns;
                        let agent = agents.entry(netns).or_default();
                        agent.times += 1;
                        agent.hello = Some(hello);
                        agent.to = Some(to.clone());
                        agent.authorization = authorization.clone();
                        let welcome = v1::Welcome { protocol: 1, max_slice_bytes: 64 << 20 };
                        let _gone =
                            to.send(Ok(v1::FromMeter { what: Some(from_meter::What::Welcome(welcome)) }));
                    }
                    Some(from_agent::What::Health(health)) => {
                        agents.entry(netns).or_default().health = Some(health)
                    }
                    Some(from_agent::What::Piece(piece)) => {
                        agents
                            .entry(netns)
                            .or_default()
                            .slices
                            .entry(piece.ask)
                            .or_default()
                            .pieces
                            .push(piece);
                    }
                    Some(from_agent::What::End(end)) => {
                        let ask = end.ask;
                        agents.entry(netns).or_default().slices.entry(ask).or_default().end = Some(end);
                    }
                    Some(from_agent::What::Report(report)) => {
                        agents.entry(netns).or_default().reports.push(report);
                    }
                    Some(from_agent::What::Inventory(_)) | None => {}
                }
            }
        });
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(from);
        Ok(Response::new(Box::pin(stream)))
    }
}
