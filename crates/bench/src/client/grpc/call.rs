//! One call: its request, and the accounting however it ends.

use super::super::session::{Sent, Session};
use super::super::tally::{Ended, Tally};
use super::prepared::PreparedCall;
use crate::clock;
use crate::connection::{Connection, Dial, Link, Opened, SingleCallConnection, in_words};
use crate::contract::{Call, Phase};
use crate::ping::ping_client::PingClient;
use crate::ping::{PingRequest, PingResponse};
use crate::target::PREVIOUS_ATTEMPTS;
use crate::trace::{TRACEPARENT, TraceContext};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

/// Maximum wait for a stream or connection to close cleanly.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

/// A call in progress. Dropped before its [`end`](Self::end), it ends as `CANCELLED`.
pub struct OpenCall<'a> {
    pub session: &'a Session,
    pub tally: &'a Tally,
    pub phase: Phase,
    pub due_ns: Option<u64>,
    pub sent_ns: u64,
    pub sent: Sent,
    pub over: bool,
}

impl OpenCall<'_> {
    /// Counts and records the call. Returns its duration, from its send.
    pub fn end(mut self, failure: Option<(Code, &str)>) -> u64 {
        self.note(failure)
    }

    fn note(&mut self, failure: Option<(Code, &str)>) -> u64 {
        self.over = true;
        let (phase, due_ns, sent_ns) = (self.phase, self.due_ns, self.sent_ns);
        let ended = Ended { phase, due_ns, sent_ns, done_ns: clock::monotonic_ns(), failure };
        let slow = self.tally.lock().ended(&ended);
        self.session.record(&ended, slow, &self.sent);
        ended.from_send_ns()
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.note(Some((Code::Cancelled, "the run ended before the response")));
        }
    }
}

/// A request, ready to be sent.
pub enum Outgoing {
    Unary(Request<PingRequest>),
    Stream(PingRequest),
    Prepared(PreparedCall, Request<()>),
}

impl Outgoing {
    /// A call of a method other than the pings; `previous` as in `new`.
    pub fn prepared(call: &PreparedCall, context: Option<&TraceContext>, previous: u32) -> Self {
        let mut request = call.request(context);
        if previous > 0 {
            request.metadata_mut().insert(PREVIOUS_ATTEMPTS, previous.into());
        }
        Outgoing::Prepared(call.clone(), request)
    }

    /// `previous`: number of earlier attempts of this call.
    pub fn new(call: Call, ping: &PingRequest, context: Option<&TraceContext>, previous: u32) -> Self {
        let mut ping = ping.clone();
        match (call, context) {
            (Call::Unary, context) => {
                let mut request = Request::new(ping);
                if let Some(context) = context {
                    let header = AsciiMetadataValue::try_from(context.header().to_vec());
                    let header = header.expect("hexadecimal digits and dashes are ASCII");
                    request.metadata_mut().insert(TRACEPARENT, header);
                }
                if previous > 0 {
                    request.metadata_mut().insert(PREVIOUS_ATTEMPTS, previous.into());
                }
                Outgoing::Unary(request)
            }
            (Call::Stream, context) => {
                if let Some(context) = context {
                    ping.trace_id = context.trace_id.to_vec().into();
                    ping.span_id = context.span_id.to_vec().into();
                }
                Outgoing::Stream(ping)
            }
        }
    }
}

/// A worker's way to the target: a connection, and a stream on it if it calls in streams.
pub struct Lane {
    connections: Connections,
    connection: Result<(PingClient<Channel>, Arc<Connection>), String>,
    stream: Option<PingStream>,
}

/// Source of a lane's connections.
enum Connections {
    /// A channel, possibly shared with others.
    Kept {
        link: Arc<Link>,
        /// The link's generation when it was last queried.
        generation: u64,
    },
    /// A connection per call.
    PerCall {
        dial: Dial,
        opened: Box<Opened>,
        /// Completes when the open connection has closed.
        closed: Option<oneshot::Receiver<()>>,
    },
}

/// A bidirectional stream without a ping in flight.
struct PingStream {
    connection: u16,
    pings: mpsc::Sender<PingRequest>,
    pongs: Streaming<PingResponse>,
}

impl Lane {
    /// Uses the connection of a channel.
    pub fn kept(link: Arc<Link>) -> Self {
        let connections = Connections::Kept { link, generation: 0 };
        Lane { connections, connection: Err(String::new()), stream: None }
    }

    /// Opens a connection for each call.
    pub fn per_call(dial: Dial, opened: Box<Opened>) -> Self {
        let connections = Connections::PerCall { dial, opened, closed: None };
        Lane { connections, connection: Err(String::new()), stream: None }
    }

    /// Notices lost and new connections. Returns the id of the connection that the next call will use, if it
    /// exists already.
    pub fn refresh(&mut self) -> Option<u16> {
        if let Connections::Kept { link, generation } = &mut self.connections
            && *generation != link.generation()
        {
            let (now, connection) = link.current();
            *generation = now;
            self.connection = connection.map(|connection| (connection.client.clone(), connection));
        }
        match &self.stream {
            Some(stream) => Some(stream.connection),
            None => self.connection.as_ref().ok().map(|(_, connection)| connection.id),
        }
    }

    /// Opens the connection of this attempt, if each attempt has its own, and returns its id.
    ///
    /// # Errors
    /// `UNAVAILABLE` if nobody answers.
    pub async fn open(&mut self) -> Result<Option<u16>, Status> {
        self.after_attempt().await;
        let Connections::PerCall { dial, opened, closed } = &mut self.connections else { return Ok(None) };
        let opening = SingleCallConnection::open(dial, opened).await;
        let SingleCallConnection { connection, closed: ends } =
            opening.map_err(|error| Status::unavailable(in_words(&error)))?;
        let id = connection.id;
        self.connection = Ok((connection.client.clone(), Arc::new(connection)));
        *closed = Some(ends);
        Ok(Some(id))
    }

    /// Closes the connection of a finished attempt, if each attempt has its own. Returns once its socket is
    /// closed.
    pub async fn after_attempt(&mut self) {
        if !matches!(self.connections, Connections::PerCall { .. }) {
            return;
        }
        self.end_stream().await;
        self.connection = Err(String::new());
        if let Connections::PerCall { closed, .. } = &mut self.connections
            && let Some(closed) = closed.take()
        {
            // A connection that outlives the wait closes when it can.
            let _ = timeout(CLOSE_PATIENCE, closed).await;
        }
    }

    /// Sends a request and waits for its response.
    pub async fn call(&mut self, outgoing: Outgoing) -> Result<(), Status> {
        let (client, connection) =
            self.connection.as_mut().map_err(|why| Status::unavailable(why.as_str()))?;
        match outgoing {
            Outgoing::Unary(request) => client.ping(request).await.map(drop),
            Outgoing::Prepared(call, request) => call.call(connection, request).await,
            Outgoing::Stream(ping) => {
                // Not put back if the ping fails or is abandoned: its pong may still arrive.
                let stream = match self.stream.take() {
                    Some(stream) => {
                        stream.pings.try_send(ping).map_err(|_| ended_by_target())?;
                        stream
                    }
                    None => {
                        let (pings, outgoing) = mpsc::channel(1);
                        pings.try_send(ping).expect("an empty queue takes a ping");
                        // A target may withhold its headers until it has a pong to send.
                        let pongs = client.ping_stream(ReceiverStream::new(outgoing)).await?.into_inner();
                        PingStream { connection: connection.id, pings, pongs }
                    }
                };
                let stream = self.stream.insert(stream);
                let pong = stream.pongs.message().await;
                match pong {
                    Ok(Some(_)) => Ok(()),
                    Ok(None) => {
                        self.stream = None;
                        Err(ended_by_target())
                    }
                    Err(status) => {
                        self.stream = None;
                        Err(status)
                    }
                }
            }
        }
    }

    /// Drops a stream whose ping was abandoned.
    pub fn give_up(&mut self) {
        self.stream = None;
    }

    /// Closes the stream cleanly, when no call is in flight.
    pub async fn close(mut self) {
        self.end_stream().await;
    }

    async fn end_stream(&mut self) {
        if let Some(PingStream { pings, mut pongs, .. }) = self.stream.take() {
            drop(pings);
            // An error here belongs to no call. The wait is bounded.
            let _ = timeout(CLOSE_PATIENCE, pongs.message()).await;
        }
    }
}

fn ended_by_target() -> Status {
    Status::unavailable("the target ended the stream")
}
