//! `/metrics` of the running binary, read by the programs that users read it with.

use super::grpc::sender;
use super::process::Meter;
use super::prometheus::{self, Prometheus, Scrape};
use super::spans::calls;

/// A service name with everything that the formats must escape.
const NASTY: &str = "we\"ird\\n\n ünï{}=,# 日本";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_and_a_real_prometheus_read_it() {
    if let Err(why) = prometheus::installed() {
        return println!("not run: scrape of the running binary by a real Prometheus: {why}");
    }
    let meter = Meter::start(&[]);
    let mut sender = sender(&meter).await;
    sender.export(calls("web", "cart", 0..700)).await.expect("it is accepted");
    sender.export(calls(NASTY, "cart", 700..1000)).await.expect("it is accepted");
    let row = meter.pair("web", "cart", 700);
    meter.pair(NASTY, "cart", 300);
    tokio::task::spawn_blocking(move || {
        prometheus::check_scrape(meter.http);
        let prometheus = Prometheus::start(meter.http, Scrape::Native);
        let web = "spangap_gap_seconds{client=\"web\",server=\"cart\"}";
        assert_eq!(prometheus.number(&format!("histogram_count({web})")), 700.0);
        let sum_s = prometheus.number(&format!("histogram_sum({web})"));
        assert!((sum_s - row.lost_ns_total as f64 / 1e9).abs() < 1e-9, "{sum_s}");
        let other = prometheus.query("histogram_count(spangap_gap_seconds{client!=\"web\"})");
        assert_eq!(other.len(), 1, "{other:#?}");
        assert_eq!((&other[0]["metric"]["client"], &other[0]["value"][1]), (&NASTY.into(), &"300".into()));
    })
    .await
    .expect("no panic");
}
