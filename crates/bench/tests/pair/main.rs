//! Real target, real tank, real collector, over loopback.

mod collector;
mod failures;
mod services;
mod spans;

use spangap_bench::otlp::{CollectorUrl, ExportSettings};
use spangap_bench::report::{Run, TankReport};
use spangap_bench::schedule::Schedule;
use spangap_bench::tank::{self, TankSettings};
use spangap_bench::target::{Target, TargetReport, TargetSettings};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const MILLISECOND: u64 = 1_000_000;

/// A target that serves until stopped.
struct Serving {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    report: JoinHandle<TargetReport>,
}

impl Serving {
    async fn start(settings: TargetSettings) -> Serving {
        let target = Target::bind(settings).await.expect("the target can listen");
        let address = target.address();
        let (stop, stopped) = oneshot::channel();
        let report = tokio::spawn(async move {
            let stopped = async { stopped.await.expect("the test stops the target") };
            target.serve(stopped, |_| ()).await.expect("the target serves")
        });
        Serving { address, stop, report }
    }

    async fn stop(self) -> TargetReport {
        self.stop.send(()).expect("the target still serves");
        self.report.await.expect("the target ends well")
    }
}

fn target_settings() -> TargetSettings {
    let listen = "127.0.0.1:0".into();
    TargetSettings { listen, response_bytes: 0, think_ns: 0, max_streams: None, export: None }
}

/// 1,000 calls a second for 200 ms.
fn tank_settings(target: SocketAddr) -> TankSettings {
    TankSettings {
        target: target.to_string(),
        schedule: Schedule::per_second(1000).expect("not zero"),
        duration_ns: Some(200 * MILLISECOND),
        warmup_ns: 0,
        request_bytes: 0,
        nodelay: true,
        timeout: Duration::from_secs(60),
        max_in_flight: 1000,
        slow_ns: u64::MAX,
        slow_log: None,
        export: None,
    }
}

fn export(url: &CollectorUrl, service_name: &str) -> Option<ExportSettings> {
    Some(ExportSettings { url: url.clone(), service_name: service_name.into() })
}

/// Runs a tank to the end of its schedule. What holds for every run is checked here.
async fn run(settings: TankSettings) -> TankReport {
    let report = tank::run(settings, std::future::pending(), |_| (), |_| ()).await;
    checked(report.expect("the tank runs"))
}

fn checked(report: TankReport) -> TankReport {
    let run = the_run(&report);
    assert_eq!(run.scheduled, run.calls + run.skipped_overload, "{report:?}");
    assert_eq!(run.calls, run.ok + run.errors.values().sum::<u64>(), "{report:?}");
    assert!(run.latency.max_ns >= run.latency_from_send.max_ns, "{report:?}");
    assert!(run.latency.mean_ns >= run.latency_from_send.mean_ns, "{report:?}");
    if let Some(spans) = report.spans {
        assert_eq!(spans.recorded, spans.exported + spans.lost());
    }
    report
}

fn the_run(report: &TankReport) -> &Run {
    let [run] = report.runs.as_slice() else { panic!("one run, not {}", report.runs.len()) };
    run
}
