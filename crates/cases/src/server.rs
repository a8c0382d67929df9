//! The service `Fleet` on the meter's gRPC port: one stream per agent.

use crate::agents::{Agents, Answer, Attached, Unwelcome};
use crate::now_unix_ms;
use spangap_fleet::v1::fleet_server::{Fleet, FleetServer};
use spangap_fleet::v1::{FromAgent, FromMeter, Hello, Welcome, from_agent, from_meter};
use spangap_meter::serve::GrpcGuest;
use spangap_meter::serve::access::{Access, Denied};
use spangap_meter::serve::places::Peer;
use spangap_meter::serve::tls::Certified;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// Timeouts of an agent's hello, and of any later message: it reports its health once a second.
const HELLO: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
/// Maximum wait of a piece to be written, or of a message to be read by the agent.
const STUCK: Duration = Duration::from_secs(20);
/// Maximum message size: a compressed piece, which never exceeds its plain size unless it was crafted.
const MOST_MESSAGE: usize = 2 << 20;
/// Messages queued to an agent.
const MESSAGES: usize = 16;

/// The meter's side of the service.
pub struct Service {
    agents: Arc<Agents>,
    access: Arc<Access>,
    max_slice_bytes: u64,
}

/// The service, to be served on the gRPC port.
pub fn guest(agents: Arc<Agents>, access: Arc<Access>, max_slice_bytes: u64) -> GrpcGuest {
    let service =
        FleetServer::new(Service { agents, access, max_slice_bytes }).max_decoding_message_size(MOST_MESSAGE);
    GrpcGuest {
        service: "spangap.fleet.v1.Fleet",
        router: tonic::service::Routes::new(service).prepare().into_axum_router(),
    }
}

type ToAgent = Sender<Result<FromMeter, Status>>;

#[tonic::async_trait]
impl Fleet for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<FromMeter, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let headers = request.metadata().clone().into_headers();
        let certified = request.extensions().get::<Certified>();
        self.access.may_attach(&headers, peer, certified).map_err(|denied| match denied {
            Denied::NoToken(_) => Status::unauthenticated(denied.to_string()),
            denied => Status::permission_denied(denied.to_string()),
        })?;
        let (to, out) = mpsc::channel(MESSAGES);
        let (agents, max_slice_bytes) = (self.agents.clone(), self.max_slice_bytes);
        let from = request.into_inner();
        tokio::spawn(async move {
            if let Err(status) = listen(&agents, from, &to, max_slice_bytes).await {
                // An agent that is already gone gets no message.
                let _ = timeout(STUCK, to.send(Err(status))).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(out))))
    }
}

/// Processes messages until the agent disconnects, or must.
async fn listen(
    agents: &Arc<Agents>,
    mut from: Streaming<FromAgent>,
    to: &ToAgent,
    max_slice_bytes: u64,
) -> Result<(), Status> {
    let hello = hello(agents, &mut from).await?;
    let (asks, mut asked) = mpsc::channel(MESSAGES);
    let mut attached = agents.attach(hello, asks, now_unix_ms()).map_err(|why| unwelcome(&why))?;
    let welcome = Welcome { protocol: spangap_fleet::PROTOCOL, max_slice_bytes };
    send(to, FromMeter { what: Some(from_meter::What::Welcome(welcome)) }).await?;
    loop {
        tokio::select! {
            said = timeout(IDLE, from.message()) => match said {
                Ok(Ok(Some(said))) => take(&attached, said).await?,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(status)) => return Err(status),
                Err(_) => {
                    agents.count(|refused| refused.idle += 1);
                    return Err(Status::deadline_exceeded("no message for 30 s; expected health once a second"));
                }
            },
            Some(ask) = asked.recv() => send(to, ask).await?,
            _ = attached.end.changed() => {
                let why = attached.end.borrow().clone();
                return Err(why.map_or(Status::aborted("the meter ends"), |why| unwelcome(&why)));
            }
        }
    }
}

async fn hello(agents: &Agents, from: &mut Streaming<FromAgent>) -> Result<Hello, Status> {
    let said = timeout(HELLO, from.message()).await;
    match said {
        Ok(said) => match said?.and_then(|said| said.what) {
            Some(from_agent::What::Hello(hello)) => Ok(hello),
            _ => {
                agents.count(|refused| refused.hellos += 1);
                Err(Status::invalid_argument("expected Hello as the first message"))
            }
        },
        Err(_) => {
            agents.count(|refused| refused.idle += 1);
            Err(Status::deadline_exceeded("expected Hello within 10 s"))
        }
    }
}

async fn send(to: &ToAgent, message: FromMeter) -> Result<(), Status> {
    match timeout(STUCK, to.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Status::deadline_exceeded("the agent does not read what it is sent")),
    }
}

async fn take(attached: &Attached, said: FromAgent) -> Result<(), Status> {
    attached.seen(now_unix_ms());
    match said.what {
        Some(from_agent::What::Health(health)) => attached.health(health),
        Some(from_agent::What::Inventory(inventory)) => attached.inventory(inventory),
        Some(from_agent::What::Piece(piece)) => {
            if let Some(to) = attached.waiting(piece.ask, false) {
                // If nobody accepts the piece, its requester has given up.
                let _ = timeout(STUCK, to.send(Answer::Piece(piece))).await;
                attached.seen(now_unix_ms());
            }
        }
        Some(from_agent::What::End(end)) => {
            if let Some(to) = attached.waiting(end.ask, true) {
                let _ = timeout(STUCK, to.send(Answer::End(end))).await;
            }
        }
        Some(from_agent::What::Report(report)) => attached.report(report),
        Some(from_agent::What::Hello(_)) => return Err(Status::invalid_argument("a second Hello")),
        // A message of a later version.
        None => {}
    }
    Ok(())
}

fn unwelcome(why: &Unwelcome) -> Status {
    let words = why.to_string();
    match why {
        Unwelcome::Protocol(_) | Unwelcome::Nobody => Status::invalid_argument(words),
        Unwelcome::Replay => Status::already_exists(words),
        Unwelcome::Replaced => Status::aborted(words),
        Unwelcome::Full => Status::resource_exhausted(words),
    }
}
