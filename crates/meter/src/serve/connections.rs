//! Connections of an OTLP port: accepted up to a number, served by HTTP/1 or HTTP/2, ended gracefully.

use super::otlp::Receiver;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Connections that may be open at once on one OTLP port; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// How long requests in hand may take to finish when the service stops.
const GRACE: Duration = Duration::from_secs(2);
/// Flow-control windows: a batch of 512 spans is about 250 KB, and what is not yet read is memory.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Serves one port until `stopped` changes; then requests in hand may finish.
pub async fn serve(listener: TcpListener, receiver: Arc<Receiver>, mut stopped: watch::Receiver<()>) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(256)
        .max_frame_size(256 << 10)
        .timer(TokioTimer::new());
    builder.http1().timer(TokioTimer::new());
    let builder = Arc::new(builder);
    let graceful = Arc::new(GracefulShutdown::new());
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            accepted = accept => accepted,
            _ = stopped.changed() => break,
        };
        let Ok((stream, _peer)) = stream else {
            // Out of descriptors, most likely: connections that end give some back.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let receiver = receiver.clone();
        let service = service_fn(move |request| {
            let receiver = receiver.clone();
            async move { Ok::<_, Infallible>(receiver.handle(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that ends in an error has told its peer; its requests were counted one by one.
            let _ = watched.await;
            drop(place);
        });
    }
    drop(listener);
    if let Ok(graceful) = Arc::try_unwrap(graceful) {
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}
