//! The connection of a channel: one at a time, its addresses known, reopened when it is lost.
//!
//! A tonic channel reconnects by itself and does not tell. Here every channel is given one open socket and no
//! way to get another, so that the connection that carried a call is known for certain.

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
        /// As given.
        target: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address answered.
    #[error("cannot connect to {peer}")]
    Connect {
        /// Address tried last.
        peer: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection opened, HTTP/2 did not.
    #[error("{peer} does not speak HTTP/2")]
    Http2 {
        /// Address of the peer.
        peer: SocketAddr,
        /// What the transport said.
        source: tonic::transport::Error,
    },
}

/// Where to connect, and how.
#[derive(Clone, Debug)]
pub struct Dial {
    /// `HOST:PORT`.
    pub target: String,
    /// `TCP_NODELAY` of the socket; `None` for what tonic's own connector sets.
    pub nodelay: Option<bool>,
    /// How long one attempt may take.
    pub timeout: Duration,
}

/// One connection and its client. It is closed when this and all copies of the client are gone.
pub struct Connection {
    /// Makes pings over this connection only.
    pub client: PingClient<Channel>,
    /// The same for calls of any kind.
    pub channel: Channel,
    /// What [`Opened`] made of its addresses.
    pub id: u16,
}

/// Is told this end and the other end of every connection that opens, and gives it an id.
pub type Opened = dyn Fn(SocketAddr, SocketAddr) -> u16 + Send + Sync;

/// Keeps one connection open.
pub struct Link {
    dial: Dial,
    opened: Box<Opened>,
    state: Mutex<State>,
    /// Changes with the state, so that a caller can keep a connection without asking for it each time.
    generation: AtomicU64,
}

/// A connection for a single call, and what ends when it is closed.
pub struct ForOneCall {
    /// The connection.
    pub connection: Connection,
    /// Ends when its socket is closed.
    pub closed: oneshot::Receiver<()>,
}

impl ForOneCall {
    /// Connects.
    ///
    /// # Errors
    /// When nobody answers, or not in HTTP/2.
    pub async fn open(dial: &Dial, opened: &Opened) -> Result<Self, ConnectError> {
        let Fresh { connection, closed, .. } = connect(dial, opened).await?;
        Ok(ForOneCall { connection, closed })
    }
}

enum State {
    Up(Arc<Connection>),
    /// With the reason in words.
    Down(String),
}

impl Link {
    /// Connects, and from then on connects again whenever the connection is lost, with growing pauses.
    ///
    /// # Errors
    /// When the first attempt fails.
    pub async fn open(dial: Dial, opened: Box<Opened>) -> Result<Arc<Self>, ConnectError> {
        let (connection, closed) = connect(&dial, &opened).await?.settled(&dial).await;
        let state = Mutex::new(State::Up(Arc::new(connection)));
        let link = Arc::new(Link { dial, opened, state, generation: AtomicU64::new(1) });
        tokio::spawn(keep_open(Arc::downgrade(&link), closed));
        Ok(link)
    }

    /// The open connection, or why there is none; with the generation of that answer.
    pub fn current(&self) -> (u64, Result<Arc<Connection>, String>) {
        let state = self.state();
        let connection = match &*state {
            State::Up(connection) => Ok(connection.clone()),
            State::Down(why) => Err(why.clone()),
        };
        (self.generation(), connection)
    }

    /// Another number whenever there is another answer; never 0.
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
        // Never sent: it ends when the socket is dropped.
        let _ = (&mut closed).await;
        let Some(dial) = link.upgrade().map(|link| {
            link.set(State::Down("the connection is lost".into()));
            link.dial.clone()
        }) else {
            return;
        };
        // A peer that takes connections only to drop them is left alone as much as one that takes none.
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

/// An error with its reasons.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_words(source)),
        None => error.to_string(),
    }
}

/// A connection that has just opened.
struct Fresh {
    connection: Connection,
    /// Ends when its socket is closed.
    closed: oneshot::Receiver<()>,
    /// Told, or ended, when the peer has said something, or has closed.
    heard: oneshot::Receiver<()>,
}

impl Fresh {
    /// Waits for the peer's SETTINGS, which come before anything else it says (RFC 9113, 3.4): until then the transport knows
    /// no limit of streams, and those that it opens beyond it are refused. A peer that keeps silent gets calls all the same.
    async fn settled(self, dial: &Dial) -> (Connection, oneshot::Receiver<()>) {
        let _ = tokio::time::timeout(dial.timeout, self.heard).await;
        (self.connection, self.closed)
    }
}

async fn connect(dial: &Dial, opened: &Opened) -> Result<Fresh, ConnectError> {
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
    Ok(Fresh { connection: Connection { client, channel, id: opened(local, peer) }, closed, heard })
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

/// A socket that tells when it is dropped, which the transport does as soon as the connection is over.
struct Socket {
    stream: TcpStream,
    /// Until the first bytes have come.
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
            // Nobody waits for it any more where calls do not share the connection.
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
