//! The stack `rust`: tonic's server in this process, with health and reflection next to the Ping service.

use super::answer::Answer;
use super::calls::Calls;
use super::counting::CountingService;
use super::workers::Workers;
use super::{STOP_GRACE, TargetError, TargetReport, TargetSettings};
use crate::contract::Nodelay;
use crate::otlp::SpanSink;
use crate::ping;
use crate::ping::ping_server::PingServer;
use crate::status::status_name;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// A target that listens but does not serve yet.
pub struct RustTarget {
    listener: TcpListener,
    address: SocketAddr,
    answer: Answer,
    calls: Arc<Calls>,
    workers: Workers,
    max_streams: Option<u32>,
    nodelay: bool,
    window: Option<u32>,
}

impl RustTarget {
    pub async fn bind(settings: &TargetSettings, spans: Option<SpanSink>) -> Result<Self, TargetError> {
        let listen_error = |source| TargetError::Listen { listen: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let calls = Calls::new(spans);
        let workers = Workers::new(settings.workers);
        let answer = Answer::start(settings, calls.clone(), workers.clone()).map_err(TargetError::Thread)?;
        // tonic's own server sets it by default.
        let nodelay = settings.nodelay != Nodelay::Off;
        let TargetSettings { max_streams, window, .. } = *settings;
        Ok(RustTarget { listener, address, answer, calls, workers, max_streams, nodelay, window })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<TargetReport, TargetError> {
        let RustTarget { listener, address, answer, calls, workers, max_streams, nodelay, window } = self;
        let service = PingServer::new(answer)
            .max_decoding_message_size(ping::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(ping::MAX_MESSAGE_BYTES);
        let (health_reporter, health) = tonic_health::server::health_reporter();
        health_reporter.set_serving::<PingServer<Answer>>().await;

        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let server = Server::builder()
            .max_concurrent_streams(max_streams)
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .add_service(CountingService { service, calls: calls.clone(), workers })
            .add_service(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(nodelay)), async {
                stop.await;
                health_reporter.set_not_serving::<PingServer<Answer>>().await;
                // The receiver is dropped only once the server has ended.
                let _ = stopping.send(());
            });
        let patience_over = async {
            match stopped.await {
                Ok(()) => tokio::time::sleep(STOP_GRACE).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            served = server => served.map_err(|source| TargetError::Serve { address, source })?,
            () = patience_over => {}
        };
        let cut_off = calls.in_progress();
        let mut by_status = calls.by_status();
        if cut_off > 0 {
            // Nobody waits for them any more; they end with the process.
            *by_status.entry(status_name(Code::Cancelled).to_owned()).or_default() += cut_off;
        }
        Ok(TargetReport {
            calls: by_status.values().sum(),
            by_status,
            malformed_traceparent: calls.malformed_traceparent(),
            cut_off: cut_off > 0,
            ..TargetReport::default()
        })
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(ping::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
