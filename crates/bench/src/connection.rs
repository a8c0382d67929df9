//! The connection of a channel: one at a time, with known addresses, reopened when lost.
//!
//! A tonic channel reconnects by itself, silently. Here every channel gets one open socket and no way to open
//! another, so the connection that carried a call is known for certain.

use crate::ping::MAX_MESSAGE_BYTES;
use crate::ping::ping_client::PingClient;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot resolve {target}")]
    Resolve {
        /// The target.
        target: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// No address answered.
    #[error("cannot connect to {peer}")]
    Connect {
        /// Address tried last.
        peer: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The connection opened, but HTTP/2 failed.
    #[error("{peer} does not speak HTTP/2")]
    Http2 {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error of the transport.
        source: tonic::transport::Error,
    },
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct Dial {
    /// `HOST:PORT`.
    pub target: String,
    /// `TCP_NODELAY` of the socket; `None` for the default of tonic's connector.
    pub nodelay: Option<bool>,
    /// Time limit of one attempt.
    pub timeout: Duration,
}

/// One connection and its client. It closes when this and all clones of the client are dropped.
pub struct Connection {
    /// Makes pings over this connection only.
    pub client: PingClient<Channel>,
    /// The channel, for calls of any kind.
    pub channel: Channel,
    /// The id that [`Opened`] assigned.
    pub id: u16,
}

/// Called with the local and peer address of every new connection; assigns its id.
pub type Opened = dyn Fn(SocketAddr, SocketAddr) -> u16 + Send + Sync;

/// Keeps one connection open.
pub struct Link {
    dial: Dial,
    opened: Box<Opened>,
    state: Mutex<State>,
    /// Incremented on each change of state, so that a caller can cache a connection.
    generation: AtomicU64,
}

/// A connection for a single call.
pub struct SingleCallConnection {
    /// The connection.
    pub connection: Connection,
    /// Completes when its socket is closed.
    pub closed: oneshot::Receiver<()>,
}

impl SingleCallConnection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody answers, or not in HTTP/2.
    pub async fn open(dial: &Dial, opened: &Opened) -> Result<Self, ConnectError> {
        let NewConnection { connection, closed, .. } = connect(dial, opened).await?;
        Ok(SingleCallConnection { connection, closed })
    }
}

enum State {
    Up(Arc<Connection>),
    /// Reason in words.
    Down(String),
}

impl Link {
    /// Connects, and then reconnects whenever the connection is lost, with growing pauses.
    ///
    /// # Errors
    /// The first attempt fails.
    pub async fn open(dial: Dial, opened: Box<Opened>) -> Result<Arc<Self>, ConnectError> {
        let (connection, closed) = connect(&dial, &opened).await?.settled(&dial).await;
        let state = Mutex::new(State::Up(Arc::new(connection)));
        let link = Arc::new(Link { dial, opened, state, generation: AtomicU64::new(1) });
        tokio::spawn(keep_open(Arc::downgrade(&link), closed));
        Ok(link)
    }

    /// The open connection, or why there is none, and the generation of that answer.
    pub fn current(&self) -> (u64, Result<Arc<Connection>, String>) {
        let state = self.state();
        let connection = match &*state {
            State::Up(connection) => Ok(connection.clone()),
            State::Down(why) => Err(why.clone()),
        };
        (self.generation(), connection)
    }

    /// Changes whenever the answer changes; never 0.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, next: State) {
        let mut state = self.state();
        *state = next;
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

async fn keep_open(link: Weak<Link>, mut closed: oneshot::Receiver<()>) {
    let mut backoff = FIRST_BACKOFF;
    let mut opened_at = Instant::now();
    loop {
        // Never sent: it completes when the socket is dropped.
        let _ = (&mut closed).await;
        let Some(dial) = link.upgrade().map(|link| {
            link.set(State::Down("the connection is lost".into()));
            link.dial.clone()
        }) else {
            return;
        };
        // A peer that accepts connections only to drop them gets the same pause as one that accepts none.
        if opened_at.elapsed() > LONGEST_BACKOFF {
            backoff = FIRST_BACKOFF;
        }
        let connection = loop {
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
            let Some(link) = link.upgrade() else { return };
            match connect(&dial, &link.opened).await {
                Ok(fresh) => {
                    let (connection, next) = fresh.settled(&dial).await;
                    closed = next;
                    break connection;
                }
                Err(error) => link.set(State::Down(in_words(&error))),
            }
        };
        opened_at = Instant::now();
        let Some(link) = link.upgrade() else { return };
        link.set(State::Up(Arc::new(connection)));
    }
}

/// An error with its causes.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_words(source)),
        None => error.to_string(),
    }
}

/// A newly opened connection.
struct NewConnection {
    connection: Connection,
    /// Completes when its socket is closed.
    closed: oneshot::Receiver<()>,
    /// Completes when the peer has sent something, or has closed.
    heard: oneshot::Receiver<()>,
}

impl NewConnection {
    /// Waits for the peer's SETTINGS, which precede everything else that it sends (RFC 9113, 3.4): until then
    /// the transport knows no stream limit, and streams that it opens beyond the limit are refused. A silent
    /// peer gets calls nevertheless.
    async fn settled(self, dial: &Dial) -> (Connection, oneshot::Receiver<()>) {
        let _ = tokio::time::timeout(dial.timeout, self.heard).await;
        (self.connection, self.closed)
    }
}

async fn connect(dial: &Dial, opened: &Opened) -> Result<NewConnection, ConnectError> {
    let (stream, peer) = dial_tcp(dial).await?;
    let kernel = |source| ConnectError::Connect { peer, source };
    let http2 = |source| ConnectError::Http2 { peer, source };
    let endpoint = Endpoint::from_shared(format!("http://{}", dial.target)).map_err(http2)?;
    stream.set_nodelay(dial.nodelay.unwrap_or(endpoint.get_tcp_nodelay())).map_err(kernel)?;
    let local = stream.local_addr().map_err(kernel)?;
    let (open, closed) = oneshot::channel();
    let (hear, heard) = oneshot::channel();
    let mut socket = Some(Socket { stream, silent: Some(hear), _open: open });
    let connector = tower::service_fn(move |_: http::Uri| {
        let socket = socket.take().map(TokioIo::new);
        async move { socket.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "connection lost")) }
    });
    let channel = endpoint.connect_with_connector(connector).await.map_err(http2)?;
    let client = PingClient::new(channel.clone())
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    Ok(NewConnection { connection: Connection { client, channel, id: opened(local, peer) }, closed, heard })
}

async fn dial_tcp(dial: &Dial) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let resolve_error = |source| ConnectError::Resolve { target: dial.target.clone(), source };
    let addresses = tokio::net::lookup_host(&dial.target).await.map_err(resolve_error)?;
    let mut last = resolve_error(io::Error::new(io::ErrorKind::NotFound, "no address"));
    for peer in addresses {
        let attempt = tokio::time::timeout(dial.timeout, TcpStream::connect(peer)).await;
        let attempt = attempt.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match attempt {
            Ok(stream) => return Ok((stream, peer)),
            Err(source) => last = ConnectError::Connect { peer, source },
        }
    }
    Err(last)
}

/// A socket that reports its drop, which the transport does as soon as the connection is over.
struct Socket {
    stream: TcpStream,
    /// Present until the first bytes arrive.
    silent: Option<oneshot::Sender<()>>,
    _open: oneshot::Sender<()>,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before
            && let Some(hear) = self.silent.take()
        {
            // Nobody waits for it where calls do not share the connection.
            let _ = hear.send(());
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
