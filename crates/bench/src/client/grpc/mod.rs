//! The stack `rust`: tonic. A worker is a task that makes one call after the other and allocates nothing per
//! call beyond what tonic does.

mod call;
mod open_loop;
mod prepared;
mod timer;
mod worker;

use super::Refused;
use super::reporter::report;
use super::session::Session;
use super::tally::Tally;
use crate::connection::{ConnectError, Dial, Link, SingleCallConnection};
use crate::contract::record::NO_CONNECTION;
use crate::contract::{Call, Channels, ClientSettings, Nodelay, Pace};
use crate::ping::{MAX_PAYLOAD_BYTES, PingRequest};
use call::Lane;
use open_loop::OpenLoop;
use prepared::PreparedCall;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime;
use tokio::task::{JoinSet, spawn_blocking};
use worker::Worker;

/// Maximum number of channels in an open loop, which has as many as calls in flight.
const MOST_OPEN_LOOP_CHANNELS: u32 = 1024;
/// Library and version.
const LIBRARY: &str = concat!("tonic ", env!("TONIC_VERSION"));

/// Checks that tonic supports the settings.
pub fn check(settings: &ClientSettings) -> Result<(), Refused> {
    if settings.channels == Channels::LocalPool {
        let why =
            "tonic has no subchannel pool: every channel has a connection of its own; expected per-worker";
        return Err(Refused::new("channels", settings.channels, why));
    }
    if settings.split_writes {
        let why = "tonic decides what it writes together: expected off (only raw can split)";
        return Err(Refused::new("split-writes", "on", why));
    }
    if settings.attempts > 1 && settings.call == Call::Stream {
        let why = "a ping inside a stream has no attempts: expected unary";
        return Err(Refused::new("attempts", settings.attempts, why));
    }
    if let Some(file) = &settings.call_file
        && settings.call == Call::Stream
    {
        let why = "pings alone are made inside a stream: expected --call=unary";
        return Err(Refused::new("call-file", file.display(), why));
    }
    if settings.request_bytes > MAX_PAYLOAD_BYTES {
        let why = format!("too large: expected at most {MAX_PAYLOAD_BYTES}");
        return Err(Refused::new("request-bytes", settings.request_bytes, why));
    }
    let channels = settings.channels.count(settings.in_flight);
    if settings.pace != Pace::Closed && channels > MOST_OPEN_LOOP_CHANNELS {
        let why =
            format!("one channel for each call is too many: expected at most {MOST_OPEN_LOOP_CHANNELS}");
        return Err(Refused::new("in-flight", settings.in_flight, why));
    }
    Ok(())
}

/// Connects, calls, reports.
///
/// # Errors
/// The run cannot start.
pub fn run(settings: &ClientSettings, session: &Arc<Session>) -> Result<(), DriveError> {
    let runtime = match settings.threads {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        threads => runtime::Builder::new_multi_thread().worker_threads(threads as usize).enable_all().build(),
    };
    runtime.map_err(DriveError::Runtime)?.block_on(drive(settings, session))
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("cannot start the threads that call")]
    Runtime(#[source] io::Error),
    #[error("cannot start the thread that reports")]
    Reporter(#[source] io::Error),
    #[error("cannot set up the timer of the schedule")]
    Timer(#[source] io::Error),
    #[error("{0}")]
    CallFile(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// State shared by all workers.
struct Shared {
    session: Arc<Session>,
    settings: ClientSettings,
    /// One per channel; empty if every call has its own connection.
    links: Vec<Arc<Link>>,
    /// One per thread.
    tallies: Vec<Arc<Tally>>,
    /// The request message, without the trace context.
    request: PingRequest,
    /// The method to call instead of a ping.
    prepared: Option<PreparedCall>,
}

impl Shared {
    fn worker(self: &Arc<Self>, index: usize) -> Worker {
        let lane = match self.links.len() {
            0 => {
                let (session, channel) = (self.session.clone(), index as u32);
                let opened = Box::new(move |local, peer| session.connection(channel, local, peer));
                // A call has its own timeout, which starts with the call.
                Lane::per_call(Dial { timeout: Duration::MAX, ..dial(&self.settings) }, opened)
            }
            links => Lane::kept(self.links[index % links].clone()),
        };
        let tally = self.tallies[index % self.tallies.len()].clone();
        Worker::new(self.clone(), lane, tally)
    }
}

async fn drive(settings: &ClientSettings, session: &Arc<Session>) -> Result<(), DriveError> {
    let prepared =
        settings.call_file.as_deref().map(PreparedCall::read).transpose().map_err(DriveError::CallFile)?;
    let shared = Arc::new(Shared {
        prepared,
        session: session.clone(),
        settings: settings.clone(),
        links: connect(settings, session).await?,
        tallies: (0..settings.threads).map(|_| session.tally()).collect(),
        request: PingRequest {
            payload: vec![0; settings.request_bytes as usize].into(),
            response_bytes: settings.response_bytes,
            think_ns: settings.think_ns,
            ..PingRequest::default()
        },
    });
    let pacing = match settings.pace {
        Pace::Closed => None,
        Pace::Open(schedule) => Some(OpenLoop::new(shared.clone(), schedule).map_err(DriveError::Timer)?),
    };
    session.ready(LIBRARY, shared.links.len() as u32);
    if let Some(start_ns) =
        blocking(session, |session| session.wait_for_go(report)).await.map_err(DriveError::Reporter)?
    {
        let mut workers = JoinSet::new();
        let calling = async {
            match pacing {
                Some(pacing) => pacing.run(start_ns, &mut workers).await,
                None => (0..settings.in_flight as usize).for_each(|index| {
                    workers.spawn(shared.worker(index).call_one_after_the_other());
                }),
            }
            while workers.join_next().await.is_some() {}
        };
        tokio::select! {
            () = calling => {}
            _ = blocking(session, |session| session.wait_to_give_up()) => {}
        }
        // A call that is dropped ends as cancelled.
        workers.shutdown().await;
    }
    blocking(session, |session| session.finish()).await;
    Ok(())
}

fn dial(settings: &ClientSettings) -> Dial {
    Dial {
        target: settings.target.clone(),
        nodelay: match settings.nodelay {
            Nodelay::On => Some(true),
            Nodelay::Off => Some(false),
            Nodelay::Default => None,
        },
        timeout: settings.timeout,
    }
}

/// Sequentially, so that connection i belongs to channel i.
async fn connect(settings: &ClientSettings, session: &Arc<Session>) -> Result<Vec<Arc<Link>>, ConnectError> {
    let dial = dial(settings);
    let mut links = Vec::new();
    if settings.channels == Channels::PerCall {
        // Closed at once: it only shows that the target is reachable.
        SingleCallConnection::open(&dial, &|_, _| NO_CONNECTION).await?;
        return Ok(links);
    }
    for channel in 0..settings.channels.count(settings.in_flight) {
        let session = session.clone();
        let opened = Box::new(move |local, peer| session.connection(channel, local, peer));
        links.push(Link::open(dial.clone(), opened).await?);
    }
    Ok(links)
}

/// Blocks on a dedicated thread.
async fn blocking<T: Send + 'static>(
    session: &Arc<Session>,
    wait: impl FnOnce(&Arc<Session>) -> T + Send + 'static,
) -> T {
    let session = session.clone();
    spawn_blocking(move || wait(&session)).await.expect("what waits does not panic")
}
