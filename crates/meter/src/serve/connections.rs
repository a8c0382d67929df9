//! Connections of a port: accepted up to a limit, served by HTTP/1 or HTTP/2, subject to deadlines, ended
//! gracefully.

use super::body::Whole;
use super::places::{Connection, InHand, Peer, Port, Reason};
use super::tls::{Certified, HandshakeOutcome, Tls};
use bytes::Buf;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::server::TlsStream;

/// Time for requests in progress to finish when the service stops.
const GRACE: Duration = Duration::from_secs(2);
/// Time for a peer to learn that its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// The same time when other connections wait for the slot.
const HASTY_FAREWELL: Duration = Duration::from_millis(100);
/// Flow-control windows: a batch of 512 spans is about 250 KB, and unread data takes memory.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Read-ahead limit of an HTTP/1 connection, and thereby the largest head.
const READ_BUFFER: usize = 64 << 10;
/// Bytes of answers buffered for one stream whose peer does not read.
const SEND_BUFFER: usize = 128 << 10;
/// Interval of HTTP/2 pings, and the time limit of their answers.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Marks an answer that lasts as long as its peer has requests, such as a stream: it is not overdue while it
/// is idle. Pings determine whether the peer is still there.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// Serves one port until `stopped` changes; requests in progress may then finish.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    port: Arc<Port>,
    tls: Option<Arc<Tls>>,
    handler: H,
    mut stopped: watch::Receiver<()>,
) where
    H: Fn(Request<Whole>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let builder = Arc::new(builder(&port));
    // Every connection holds a sender; the drop of the last one signals the end.
    let (running, mut ended) = mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
        };
        let (stream, peer) = match accepted {
            Ok((stream, address)) => (stream, Peer::of(address.ip())),
            Err(_) => {
                // Most likely out of descriptors: the end of a connection frees one.
                port.accept_failed();
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(place) = port.enter(peer) else { continue };
        let _ = stream.set_nodelay(true);
        let (port, builder, handler) = (port.clone(), builder.clone(), handler.clone());
        let (mut stopped, running, tls) = (stopped.clone(), running.clone(), tls.clone());
        tokio::spawn(async move {
            let reason = match tls {
                None => connection(&builder, stream, false, &port, &place, handler, stopped).await,
                Some(tls) => match handshake(&tls, stream, &port, &place, &mut stopped).await {
                    Ok((stream, certified)) => {
                        connection(&builder, stream, certified, &port, &place, handler, stopped).await
                    }
                    Err(reason) => reason,
                },
            };
            port.leave(&place, reason);
            drop(running);
        });
    }
    drop((listener, running));
    let _ = tokio::time::timeout(GRACE, ended.recv()).await;
}

fn builder(port: &Port) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(port.streams)
        .max_frame_size(256 << 10)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .timer(TokioTimer::new());
    // This timeout also runs while a connection is idle, so the connection's task enforces the head's own
    // deadline.
    builder
        .http1()
        .max_buf_size(READ_BUFFER)
        .header_read_timeout(port.deadlines.idle.max(port.deadlines.head))
        .timer(TokioTimer::new());
    builder
}

/// The stream within TLS, and whether its client presented a certificate; otherwise why the connection ends.
async fn handshake(
    tls: &Tls,
    stream: TcpStream,
    port: &Port,
    place: &Connection,
    stopped: &mut watch::Receiver<()>,
) -> Result<(Box<TlsStream<TcpStream>>, bool), Option<Reason>> {
    tokio::select! {
        shaken = tls.shake(stream) => match shaken {
            HandshakeOutcome::Done(stream, certified) => Ok((stream, certified)),
            HandshakeOutcome::Failed => Err(Some(Reason::NoTls)),
        },
        () = place.told_to_go() => Err(Some(Reason::ForRoom)),
        _ = stopped.changed() => Err(None),
        () = tokio::time::sleep(port.deadlines.head) => Err(Some(Reason::NoRequest)),
    }
}

/// Serves one connection; returns why the meter ended it, if it did.
async fn connection<S, H, F, B>(
    builder: &auto::Builder<TokioExecutor>,
    stream: S,
    certified: bool,
    port: &Port,
    place: &Arc<Connection>,
    handler: H,
    mut stopped: watch::Receiver<()>,
) -> Option<Reason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Whole>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let its_place = place.clone();
    let deadlines = port.deadlines;
    let service = service_fn(move |request: Request<Incoming>| {
        let mut in_hand = its_place.begin();
        let (head, body) = request.into_parts();
        let body = Whole::of(body, &head.headers, &deadlines);
        let mut request = Request::from_parts(head, body);
        if certified {
            request.extensions_mut().insert(Certified);
        }
        let answer = handler(request, its_place.peer);
        async move {
            let answer = answer.await;
            if answer.extensions().get::<LongLived>().is_none() {
                in_hand.answers();
            }
            Ok::<_, Infallible>(answer.map(|body| Answer { body: body.boxed_unsync(), in_hand }))
        }
    });
    let io = TokioIo::new(Watched { stream, place: place.clone() });
    let mut served = pin!(builder.serve_connection(io, service));
    let mut wait = port.deadlines.head;
    let reason = loop {
        tokio::select! {
            // A connection that fails has told its peer; its requests were counted individually.
            _ = &mut served => return None,
            () = place.told_to_go() => break Some(Reason::ForRoom),
            _ = stopped.changed() => break None,
            () = tokio::time::sleep(wait) => match place.overdue(&port.deadlines) {
                Ok(left) => wait = left.max(Duration::from_millis(1)),
                Err(reason) => break Some(reason),
            },
        }
    };
    if reason != Some(Reason::NotReading) {
        served.as_mut().graceful_shutdown();
        let farewell = match reason {
            None => GRACE,
            Some(Reason::ForRoom) => HASTY_FAREWELL,
            Some(_) => FAREWELL,
        };
        let _ = tokio::time::timeout(farewell, served).await;
    }
    reason
}

/// The body of an answer; dropped once all of it has been passed to the connection.
struct Answer<D: Buf, E> {
    body: UnsyncBoxBody<D, E>,
    #[allow(dead_code)] // held for its end
    in_hand: InHand,
}

impl<D: Buf, E> Body for Answer<D, E> {
    type Data = D;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's stream that records its progress.
struct Watched<S> {
    stream: S,
    place: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.place.has_read(&buf.filled()[before..]);
        }
        done
    }
}

impl<S> Watched<S> {
    fn wrote(&self, done: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(done, Poll::Ready(Ok(1..))) {
            self.place.has_written();
        }
        done
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
