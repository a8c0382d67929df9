//! `/metrics` of the running binary, read by the programs that users read it with.

use super::grpc::sender;
use super::process::Meter;
use super::prometheus::{self, Prometheus, Scrape};
use super::spans::calls;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use spangap_meter::report::PairsReport;
use std::collections::BTreeMap;

/// A service name with everything that the formats must escape.
const NASTY: &str = "we\"ird\\n\n ünï{}=,# 日本";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_and_a_real_prometheus_read_the_metrics() {
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

/// Calls of every pair at `/metrics`, by client.
fn exported_calls(exposition: &str) -> BTreeMap<String, u64> {
    let counts =
        exposition.lines().filter_map(|line| line.strip_prefix("spangap_gap_seconds_count{client=\""));
    counts
        .map(|line| {
            let (client, rest) = line.split_once('"').expect("a label");
            (client.into(), rest.rsplit_once(' ').expect("a value").1.parse().expect("a number"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_pairs_do_not_inflate_a_scrape() {
    const PAIRS: u64 = 2_500;
    let meter = Meter::start(&[]);
    let mut sender = sender(&meter).await;
    for batch in 0..PAIRS / 100 {
        let pairs = (0..100).flat_map(|i| {
            let at = batch * 100 + i;
            calls(&format!("web-{at}"), "cart", at..at + 1).resource_spans
        });
        let request = ExportTraceServiceRequest { resource_spans: pairs.collect() };
        sender.export(request).await.expect("it is accepted");
    }
    let limits = || meter.coverage().limits.into_iter().find(|limit| limit.name == "exported_pairs");
    assert_eq!(limits().map(|limit| (limit.used, limit.limit)), Some((0, 2_000)), "nothing is exported yet");

    for _ in 0..2 {
        let scrape = meter.get("/metrics").body;
        assert!(scrape.len() < 45 << 20, "{} MiB", scrape.len() >> 20);
        let exported = exported_calls(&String::from_utf8(scrape).expect("text"));
        assert_eq!((exported.len(), exported["other"]), (2_001, 500));
        assert_eq!(exported.values().sum::<u64>(), PAIRS, "no call is missing");
    }
    assert_eq!(limits().map(|limit| (limit.used, limit.refused)), Some((2_000, 500)));
    let notes = meter.coverage().notes;
    assert!(
        notes.iter().any(|note| note.contains("500 pairs past the limit of --exported-pairs")),
        "{notes:?}"
    );
    let pairs = meter.api::<PairsReport>("/api/v1/pairs?window=1h").pairs;
    assert_eq!(pairs.len() as u64, PAIRS, "the page and the API have all of them");
}
