//! What goes wrong is counted, and told.

use crate::collector::{Collector, text};
use crate::{MILLISECOND, Serving, checked, export, run, tank_settings, target_settings, the_run};
use spangap_bench::report::Progress;
use spangap_bench::tank;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

fn counts<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[tokio::test]
async fn nobody_there() {
    // A port that was free a moment ago.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let result = tank::run(tank_settings(free), std::future::pending(), |_| (), |_| ()).await;
    assert_eq!(result.unwrap_err().to_string(), format!("cannot connect to {free}"));
}

#[tokio::test]
async fn a_peer_that_drops_every_connection_is_not_flooded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let report = run(tank_settings(address)).await;
    let run = the_run(&report);
    assert_eq!((run.ok, run.calls), (0, 200));
    assert!(run.errors["UNAVAILABLE"] > 100, "{report}");
    // 10 ms, then 20, 40, 80: even ten times the 200 ms would allow few more.
    assert!((1..12).contains(&run.connections), "{report}");
}

#[tokio::test]
async fn too_many_waiting_calls_are_skipped_and_counted() {
    let mut settings = target_settings();
    settings.think_ns = 30 * MILLISECOND;
    let serving = Serving::start(settings).await;
    let mut settings = tank_settings(serving.address);
    settings.max_in_flight = 2;
    let report = run(settings).await;
    let run = the_run(&report);
    assert_eq!(run.scheduled, 200);
    assert!(run.skipped_overload > 0 && run.ok > 0, "{report}");
    assert!(report.to_string().contains("not made"), "{report}");
    assert_eq!(serving.stop().await.calls, run.calls);
}

#[tokio::test]
async fn a_call_past_its_deadline_is_counted_and_its_server_span_is_cancelled() {
    let (collector, url) = Collector::start().await;
    let mut settings = target_settings();
    settings.think_ns = 60_000 * MILLISECOND;
    settings.export = export(&url, "target");
    let serving = Serving::start(settings).await;
    let mut settings = tank_settings(serving.address);
    settings.timeout = Duration::from_millis(100);
    let report = run(settings).await;
    assert_eq!(the_run(&report).errors, counts([("DEADLINE_EXCEEDED", 200)]), "{report}");
    assert_eq!(the_run(&report).latency, Default::default(), "failures have no latency");
    let served = serving.stop().await;
    // A call may be given up before it is on its way.
    assert!(served.calls > 0);
    assert_eq!(served.by_status, counts([("CANCELLED", served.calls)]));
    assert!(!served.cut_off);
    let statuses = collector.received();
    assert_eq!(statuses.len() as u64, served.calls);
    for one in statuses {
        assert_eq!(text(&one.span.attributes, "rpc.response.status_code").as_deref(), Some("CANCELLED"));
    }
}

#[tokio::test]
async fn stopping_cancels_what_does_not_end_and_still_reports() {
    let mut settings = target_settings();
    settings.think_ns = 60_000 * MILLISECOND;
    let serving = Serving::start(settings).await;
    let mut settings = tank_settings(serving.address);
    settings.duration_ns = None;
    let (progress, mut seconds) = mpsc::unbounded_channel();
    let stop = async {
        let first: Progress = seconds.recv().await.expect("the tank tells each second");
        assert!(first.in_flight > 0);
    };
    let report = tank::run(settings, stop, |second| progress.send(second).unwrap_or(()), |_| ()).await;
    let report = checked(report.unwrap());
    let run = the_run(&report);
    assert!(run.calls > 0, "{report}");
    assert_eq!(run.errors, counts([("CANCELLED", run.calls)]));
    serving.stop().await;
}

#[tokio::test]
async fn a_target_that_dies_and_comes_back() {
    let first = Serving::start(target_settings()).await;
    let address = first.address;
    let mut settings = tank_settings(address);
    settings.duration_ns = None;
    let (progress, mut seconds) = mpsc::unbounded_channel::<Progress>();
    let events = async {
        while seconds.recv().await.expect("the tank runs").ok == 0 {}
        first.stop().await;
        while seconds.recv().await.expect("the tank runs").ok > 0 {}
        let mut again = target_settings();
        again.listen = address.to_string();
        let second = Serving::start(again).await;
        while seconds.recv().await.expect("the tank runs").ok == 0 {}
        second
    };
    let (done, stop) = tokio::sync::oneshot::channel();
    let running = tank::run(
        settings,
        async { stop.await.expect("the events come to their end") },
        |second| progress.send(second).unwrap_or(()),
        |_| (),
    );
    let (report, second) = tokio::join!(running, async {
        let second = events.await;
        done.send(()).expect("the tank runs");
        second
    });
    let report = checked(report.unwrap());
    let run = the_run(&report);
    assert!(run.errors["UNAVAILABLE"] > 0, "{report}");
    assert_eq!(run.connections, 2, "{report}");
    assert!(report.warnings.iter().any(|warning| warning.contains("opened again")), "{report}");
    second.stop().await;
}

/// Runs 200 calls against a collector; returns the report and the notices.
async fn run_with(
    collector: &spangap_bench::otlp::CollectorUrl,
) -> (Result<spangap_bench::report::TankReport, tank::TankError>, Vec<String>) {
    let serving = Serving::start(target_settings()).await;
    let mut settings = tank_settings(serving.address);
    settings.export = export(collector, "tank");
    let notices = Arc::new(Mutex::new(Vec::new()));
    let for_tank = notices.clone();
    let notice = move |text| for_tank.lock().unwrap().push(text);
    let report = tank::run(settings, std::future::pending(), |_| (), notice).await;
    serving.stop().await;
    let notices = notices.lock().unwrap().clone();
    (report, notices)
}

#[tokio::test]
async fn a_missing_collector_is_told_once_and_every_span_is_counted() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (report, notices) = run_with(&format!("http://{free}").parse().unwrap()).await;
    let report = checked(report.unwrap());
    assert_eq!(report.spans.unwrap().dropped_unsent, 200);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains(&free.to_string()) && notices[0].contains("refused"), "{notices:?}");
    assert!(report.warnings.iter().any(|warning| warning.contains("200 of 200 spans")), "{report}");
}

#[tokio::test]
async fn a_collector_that_is_busy_for_a_while_gets_every_span() {
    let (collector, url) = Collector::start().await;
    collector.unavailable.store(3, Ordering::SeqCst);
    let (report, notices) = run_with(&url).await;
    assert_eq!(checked(report.unwrap()).spans.unwrap().exported, 200);
    assert_eq!(collector.received().len(), 200);
    assert_eq!(notices.len(), 2, "failing, then back: {notices:?}");
}

#[tokio::test]
async fn rejected_spans_are_counted() {
    let (collector, url) = Collector::start().await;
    collector.reject.store(5, Ordering::SeqCst);
    let (report, _) = run_with(&url).await;
    let spans = checked(report.unwrap()).spans.unwrap();
    assert!(spans.rejected > 0, "{spans:?}");
    assert_eq!(spans.exported + spans.rejected, 200);
}
