//! Real targets over loopback: the stack `rust` as gRPC clients see it, and both stacks of this process from outside.

mod collector;
mod outside;
mod services;
mod spans;
mod streams;
mod workers;

use spangap_bench::contract::{Nodelay, TargetStack};
use spangap_bench::otlp::{CollectorUrl, ExportSettings};
use spangap_bench::ping::ping_client::PingClient;
use spangap_bench::programs::Programs;
use spangap_bench::target::{Target, TargetReport, TargetSettings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

const MILLISECOND: u64 = 1_000_000;

/// A target that serves until stopped.
struct Serving {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    report: JoinHandle<TargetReport>,
}

impl Serving {
    async fn start(settings: TargetSettings) -> Serving {
        let programs = Programs::of_this_binary().expect("the system tells where this is");
        let target =
            Target::bind(settings, &programs, Arc::new(|_| ())).await.expect("the target can listen");
        let address = target.listening().listening;
        let (stop, stopped) = oneshot::channel();
        let report = tokio::spawn(async move {
            let stopped = async { stopped.await.expect("the test stops the target") };
            target.serve(stopped).await.expect("the target serves")
        });
        Serving { address, stop, report }
    }

    async fn stop(self) -> TargetReport {
        self.stop.send(()).expect("the target still serves");
        self.report.await.expect("the target ends well")
    }

    async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).expect("a URL");
        endpoint.connect().await.expect("the target listens")
    }

    async fn client(&self) -> PingClient<Channel> {
        PingClient::new(self.channel().await)
    }
}

fn settings() -> TargetSettings {
    TargetSettings {
        stack: TargetStack::Rust,
        listen: "127.0.0.1:0".into(),
        response_bytes: 0,
        think_ns: 0,
        max_streams: None,
        threads: None,
        workers: None,
        large_response: None,
        nodelay: Nodelay::On,
        window: None,
        fail: None,
        export: None,
    }
}

fn export(url: &CollectorUrl) -> Option<ExportSettings> {
    Some(ExportSettings { url: url.clone(), service_name: "pong".into() })
}

fn counts<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
