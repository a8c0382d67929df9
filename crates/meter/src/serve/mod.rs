//! The always-on service: OTLP in, API and metrics out. With the metric push the only code of
//! this crate that knows an async runtime.

pub mod access;
pub mod admission;
pub mod answer;
pub mod api;
pub mod body;
mod buffers;
pub mod changes;
pub mod clock;
pub mod connections;
pub mod fleet;
pub(crate) mod notice;
pub mod otlp;
pub mod parameters;
pub mod places;
pub mod readers;
pub mod recorder;
pub mod refusal;
mod routes;
pub mod sessions;
pub mod shared;
pub mod table;
pub mod tls;
mod traces;
mod unsent;
pub mod whose;

use crate::clickhouse::ClickHouse;
use crate::engine::Meter;
use crate::export::otlp::{Push, PushSettings};
use crate::history::{History, HistoryError};
use crate::kafka::Kafka;
use crate::spool::Spool;
use access::{Access, Denied, Role};
use clock::Clock;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use notice::tell;
use otlp::Receiver;
use places::{Deadlines, Peer, Port};
use recorder::Recorder;
use sessions::Sessions;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio::net::TcpListener;
use tower::ServiceExt;

/// Where to listen, and how much to take.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// OTLP over gRPC (4317).
    pub otlp_grpc: SocketAddr,
    /// OTLP over HTTP (4318).
    pub otlp_http: SocketAddr,
    /// Page, API and metrics.
    pub http: SocketAddr,
    /// Largest request, compressed and not.
    pub max_request_bytes: u64,
    /// All requests in hand together.
    pub request_budget_bytes: u64,
    /// Connections of each port, as far as the limit of file descriptors allows.
    pub max_connections: usize,
    /// How long what may take.
    pub deadlines: Deadlines,
    /// Pairs with metrics of their own.
    pub exported_pairs: usize,
    /// Metric push, if wanted.
    pub push: Option<PushSettings>,
    /// Certificates of all ports; `None`: they speak plain text.
    pub tls: Option<Arc<Tls>>,
    /// Keeps all spans for a while, if wanted.
    pub spool: Option<Arc<Spool>>,
    /// Where spans come from, if not from the OTLP ports.
    pub kafka: Option<Arc<Kafka>>,
    /// Brings together the minutes of several meters, if wanted.
    pub clickhouse: Option<Arc<ClickHouse>>,
}

/// Where it really listens (ports 0 resolved).
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// OTLP over gRPC.
    pub otlp_grpc: SocketAddr,
    /// OTLP over HTTP.
    pub otlp_http: SocketAddr,
    /// Page, API and metrics.
    pub http: SocketAddr,
    /// Whether they speak TLS.
    pub tls: bool,
}

/// Why the service could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {reason}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What for.
        purpose: &'static str,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The history cannot be opened or written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The page's server failed.
    #[error("page and API: {0}")]
    Api(std::io::Error),
}

/// What others serve on these ports.
#[derive(Debug, Default)]
pub struct Guests {
    /// Beside the API. Requests carry the [`Addresses`] of this service.
    pub page: axum::Router,
    /// Beside OTLP/gRPC.
    pub grpc: Option<GrpcGuest>,
    /// Who may do what, there and here.
    pub access: Arc<Access>,
    /// What they refuse.
    pub refusals: Refusals,
}

/// What was refused since the start, by reason, asked for when somebody wants to know.
#[derive(Clone)]
pub struct Refusals(Arc<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>);

impl Refusals {
    /// Counted by others.
    pub fn of(count: impl Fn() -> Vec<(&'static str, u64)> + Send + Sync + 'static) -> Refusals {
        Refusals(Arc::new(count))
    }

    /// As of now.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.0()
    }
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals::of(Vec::new)
    }
}

impl std::fmt::Debug for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Refusals").field(&self.counts()).finish()
    }
}

/// A gRPC service on the port of OTLP/gRPC. It finds the [`places::Peer`] of a request among its extensions.
#[derive(Clone, Debug)]
pub struct GrpcGuest {
    /// Full name of the service: `spangap.fleet.v1.Fleet`.
    pub service: &'static str,
    /// Its methods.
    pub router: axum::Router,
}

impl GrpcGuest {
    fn serves(&self, path: &str) -> bool {
        path.strip_prefix('/')
            .and_then(|path| path.strip_prefix(self.service))
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// How often time passes for the engine.
const TICK: Duration = Duration::from_millis(200);
/// Serves until `stop` is done, then closes the history.
///
/// # Errors
/// When an address is taken or the history cannot be written.
pub async fn serve(
    meter: Arc<Meter>,
    clock: Clock,
    settings: ServeSettings,
    history: History,
    guests: Guests,
    on_ready: impl FnOnce(&Addresses),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let grpc = listen(settings.otlp_grpc, "OTLP/gRPC").await?;
    let http = listen(settings.otlp_http, "OTLP/HTTP").await?;
    let pages = listen(settings.http, "page and API").await?;
    let addresses = Addresses {
        otlp_grpc: grpc.local_addr().map_err(ServeError::Api)?,
        otlp_http: http.local_addr().map_err(ServeError::Api)?,
        http: pages.local_addr().map_err(ServeError::Api)?,
        tls: settings.tls.is_some(),
    };

    let deadlines = settings.deadlines;
    let receiver = Receiver::new(
        meter.clone(),
        clock,
        settings.max_request_bytes,
        settings.request_budget_bytes,
        deadlines,
    )
    .with_access(guests.access.clone())
    .with_spool(settings.spool.clone())
    .with_spans_from_elsewhere(settings.kafka.is_some());
    let receiver = Arc::new(receiver);
    let places = settings.max_connections.min(descriptors_for_each_port());
    // Answers of the API are large, those to exporters are not.
    let ports = [("otlp_grpc", 256), ("otlp_http", 256), ("http", 16)]
        .map(|(name, streams)| Port::new(name, streams, places, deadlines));
    let kafka = settings.kafka;
    let log = kafka.as_ref().map(|kafka| kafka.log());
    let recorder = Recorder::start(meter.clone(), clock, history, log);
    let _sending =
        settings.clickhouse.as_ref().map(|shared| shared.start(move || clock.unix_s(), |text| tell(&text)));
    let reading = kafka.as_ref().map(|kafka| kafka.start(recorder.requests(), clock));
    let (stopping, stopped) = tokio::sync::watch::channel(());
    let api = api::Api::new(
        meter.clone(),
        clock,
        receiver.clone(),
        ports.clone(),
        recorder.store(),
        settings.exported_pairs,
        stopped.clone(),
    );
    let (access, of_guests) = (guests.access.clone(), guests.refusals);
    let api = api.with_spool(settings.spool.clone()).with_kafka(kafka.clone());
    let api = api.with_clickhouse(settings.clickhouse.clone());
    let api = api.with_refusals(Refusals::of(move || access.denials().chain(of_guests.counts()).collect()));
    let push = settings.push.map(|push| {
        let source = api.clone();
        Push::start(push, move || source.snapshot(), |notice| tell(&notice))
    });
    let [grpc_port, http_port, pages_port] = ports;
    let tls = settings.tls;
    let fresh = tls.clone().map(|tls| tokio::spawn(tls.keep_fresh(tell)));
    let receivers =
        [(grpc, grpc_port, guests.grpc), (http, http_port, None)].map(|(listener, port, guest)| {
            let receiver = receiver.clone();
            let handler = move |mut request: hyper::Request<body::Whole>, peer| {
                let receiver = receiver.clone();
                let guest = guest.as_ref().filter(|guest| guest.serves(request.uri().path()));
                let guest = guest.map(|guest| guest.router.clone());
                async move {
                    let Some(router) = guest else {
                        return receiver.handle(request, peer).await.map(axum::body::Body::new);
                    };
                    request.extensions_mut().insert(peer);
                    // Streams of agents end when they are told to.
                    let request = request.map(|body| {
                        body.as_it_comes().map_or_else(axum::body::Body::empty, axum::body::Body::new)
                    });
                    let answer = router.oneshot(request).await;
                    let mut answer = answer.unwrap_or_else(|never| match never {});
                    answer.extensions_mut().insert(connections::LongLived);
                    answer
                }
            };
            tokio::spawn(connections::serve(listener, port, tls.clone(), handler, stopped.clone()))
        });
    let ticker = tokio::spawn(tick(meter.clone(), clock));
    let access = guests.access;
    let sessions = Arc::new(Sessions::new(tls.is_some()));
    let signing_in = sessions::router(sessions.clone(), access.clone());
    let router = routes::router(api).merge(guests.page).merge(signing_in);
    let answer = move |mut request: hyper::Request<body::Whole>, peer: Peer| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(addresses);
        sessions.unlock(&mut request);
        let denied = admits(&access, &request, peer).err();
        let answer = router.clone().oneshot(request.map(axum::body::Body::new));
        async move {
            match denied {
                None => answer.await.unwrap_or_else(|never| match never {}),
                Some(denied) => api::refused(&denied),
            }
        }
    };
    let pages = tokio::spawn(connections::serve(pages, pages_port, tls, answer, stopped));

    on_ready(&addresses);
    stop.await;

    let _ = stopping.send(());
    for port in receivers.into_iter().chain([pages]) {
        let _ = port.await;
    }
    if let Some(push) = push {
        push.stop().await;
    }
    // It writes what it has counted; time must go on until then.
    if let Some((kafka, reading)) = kafka.zip(reading) {
        kafka.stop();
        let _ = tokio::task::spawn_blocking(move || reading.join()).await;
    }
    ticker.abort();
    if let Some(fresh) = fresh {
        fresh.abort();
    }
    // What is on its way to the disk takes a moment, and nobody else waits for this thread any more.
    if let Some(spool) = settings.spool {
        spool.stop();
    }
    recorder.stop()?;
    Ok(())
}

/// What anybody may ask for by any name: whether the service is alive; and what peers ask for, who have a secret of their own.
const FOR_ALL: [&str; 3] = ["/healthz", "/readyz", crate::peers::PATH];
/// What readers ask for by any name.
const BY_ANY_NAME: &str = "/metrics";
/// What needs no token: the page, which holds nothing but itself and asks for a token, and signing in with one.
const WITHOUT_TOKEN: [&str; 2] = ["/", sessions::PATH];

/// Whether a request to the page and the API is let in. What it may do there needs more roles than to look.
fn admits<B>(access: &Access, request: &hyper::Request<B>, peer: Peer) -> Result<(), Denied> {
    let path = request.uri().path();
    if FOR_ALL.contains(&path) {
        return Ok(());
    }
    if path != BY_ANY_NAME {
        access.is_ours(request.uri(), request.headers())?;
    }
    if WITHOUT_TOKEN.contains(&path) {
        return Ok(());
    }
    access.may(Role::View, request.headers(), Some(peer))
}

/// File descriptors for everything but connections: the history, the runtime, the listeners.
const OTHER_DESCRIPTORS: u64 = 128;

/// How many connections each of three ports can have at once. A process may raise its own limit of file descriptors as
/// far as its hard limit, and the soft one is often 1,024 for the sake of programs that call `select`.
fn descriptors_for_each_port() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_or(soft, |()| hard);
    usize::try_from(raised.saturating_sub(OTHER_DESCRIPTORS) / 3).unwrap_or(usize::MAX)
}

async fn listen(address: SocketAddr, purpose: &'static str) -> Result<TcpListener, ServeError> {
    let listener =
        TcpListener::bind(address).await.map_err(|reason| ServeError::Listen { address, purpose, reason })?;
    // Without it, slow readers cost more.
    let _ = unsent::bound(&listener);
    Ok(listener)
}

async fn tick(meter: Arc<Meter>, clock: Clock) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        let now_ms = clock.now_ms();
        meter.set_wall_clock(now_ms, clock.unix_ms());
        meter.tick(now_ms);
    }
}
