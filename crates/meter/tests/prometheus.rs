//! `/metrics` as real programs read it: `promtool`, and a Prometheus server.

#[path = "prometheus/server.rs"]
mod server;
#[path = "prometheus/service.rs"]
mod service;

use axum::Router;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::routing::get;
use proptest::prelude::*;
use prost::Message;
use server::{Prometheus, Scrape};
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::export::messages::MetricFamily;
use spangap_meter::export::monotone::Monotone;
use spangap_meter::export::prometheus::{Format, encode, negotiate};
use spangap_meter::export::snapshot::{
    HistoryFigures, KafkaFigures, ProcessFigures, RequestFigures, Snapshot,
};
use spangap_meter::report::{ClickHouseCoverage, KafkaCoverage, KafkaPartition};
use spangap_meter::serve::places::PortFigures;
use spangap_meter::services::ServiceCounts;
use spangap_meter::spool::SpoolFigures;
use spangap_model::accounting::Malformed;
use spangap_model::histogram::bucket_index;
use spangap_model::pair::KeptSide;
use spangap_model::{Accounting, CallStatus, Histogram, KeptCall, PairKey, PairStats};
use std::net::SocketAddr;
use std::sync::Arc;

const NASTY: &str = "we\"ird\\n\n ünï{}=,#";

/// One distribution of a pair.
type Part = fn(&PairStats) -> &Histogram;

fn key(client: &str, server: &str, method: Option<&str>) -> PairKey {
    PairKey { client: client.into(), server: server.into(), method: method.map(Into::into) }
}

/// A pair with `calls` calls whose gaps spread from 1 us to about 60 ms.
fn stats(calls: u64, seed: u64) -> PairStats {
    let mut stats = PairStats::default();
    for i in 0..calls {
        let gap_ns = 1_000 + (i * i * 7 + seed * 1_001) % 60_000_000;
        let server_ns = 500_000 + (i * 977 + seed) % 9_000_000;
        stats.gap.record(gap_ns);
        stats.client.record(server_ns + gap_ns);
        stats.server.record(server_ns);
        stats.request_leg.record(gap_ns / 3);
        stats.response_leg.record(gap_ns - gap_ns / 3);
        stats.leg_bound_max_ns = 40_000;
        stats.leg_bound_sum_ns += 20_000;
        stats.mate_delay.record((i % 5) * 1_000_000_000);
        if stats.would_keep(gap_ns) {
            let start_unix_ns =
                std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 - 3_000_000_000 + i * 1_000_000;
            let side = |host: &str, duration_ns| KeptSide {
                start_unix_ns,
                duration_ns,
                host: Some(host.into()),
                whole: None,
            };
            stats.keep_worst(KeptCall {
                gap_ns,
                trace_id: (u128::from(seed) << 64 | u128::from(i + 1)).to_be_bytes(),
                client_span_id: (i + 1).to_be_bytes(),
                status: CallStatus::from_grpc(0),
                legs: None,
                client: side("node-1", server_ns + gap_ns),
                server: side("node-2", server_ns),
            });
        }
    }
    stats.negative.insert(CallStatus::from_grpc(4), 3);
    stats.negative.insert(CallStatus::UNSET, 1);
    stats.attempts_over_one = 2;
    stats.excluded_large = 1;
    stats
}

fn snapshot(pairs: Vec<(PairKey, PairStats)>) -> Snapshot {
    let settings = Settings { max_pending_bytes: 1 << 20, keep_bytes: 1 << 16, ..Settings::default() };
    let mut overview = Meter::new(settings).overview();
    overview.accounting = Accounting {
        received: 1_000,
        joined: 700,
        pending: 40,
        expired_client_only: 100,
        expired_server_only: 60,
        apart: 0,
        unresolved: 0,
        evicted: 20,
        duplicate: 30,
        extra_attempts: 10,
        root: 25,
        other_kind: 11,
        malformed: 4,
    };
    assert!(overview.accounting.holds());
    overview.malformed = Malformed { bad_id: 1, end_before_start: 2, no_time: 0, too_long: 1 };
    let counts =
        ServiceCounts { client_joined: 350, client_unmatched: 100, server_joined: 0, server_unmatched: 7 };
    overview.services = vec![("web".into(), counts), (NASTY.into(), counts)];
    overview.whole_span_horizon_ms = Some(12_500);
    let now_unix_ns = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    Snapshot {
        pairs,
        overview,
        refused_requests: 5,
        invalid_requests: 6,
        refusals: vec![("token", 3), ("slice", 0)],
        requests: RequestFigures { bytes: 11, bytes_limit: 40, slow: 1, displaced: 2, displaced_answers: 3 },
        ports: vec![("otlp_grpc", PortFigures { open: 3, limit: 4096, ..PortFigures::default() })],
        started_unix_ns: now_unix_ns - 90_000_000_000,
        now_unix_ns,
        version: "0.1.0-test",
        process: Some(ProcessFigures { resident_bytes: 123_456_789, cpu_s: 1.25 }),
        history: Some(HistoryFigures {
            bytes: 4096,
            pruned_rows: 7,
            damaged_rows: 1,
            unwritten_rows: 2,
            bytes_limit: 8192,
            waiting_rows: 3,
            waiting_bytes: 512,
        }),
        kept: Some(SpoolFigures {
            spans: 900,
            bytes: 70_000,
            bytes_limit: 1 << 20,
            from_unix_ms: Some(now_unix_ns / 1_000_000 - 60_000),
            queued_bytes: 10,
            queued_bytes_limit: 100,
            not_kept_queue: 1,
            not_kept_disk: 2,
            not_kept_large: 3,
            forgotten_spans: 4,
            damaged_segments: 5,
            ..SpoolFigures::default()
        }),
        kafka: Some(KafkaFigures::from(KafkaCoverage {
            topic: "otlp_spans".into(),
            partitions: vec![KafkaPartition {
                partition: 12,
                lag: Some(7),
                time_unix_ms: 5_000,
                ..KafkaPartition::default()
            }],
            messages: 80,
            ..KafkaCoverage::default()
        })),
        clickhouse: Some(ClickHouseCoverage {
            sent_rows: 12,
            unsent_rows: 3,
            ..ClickHouseCoverage::default()
        }),
    }
}

fn two_pairs() -> Snapshot {
    let pairs =
        [(key("web", "cart", None), stats(5_000, 1)), (key(NASTY, "cart", Some("/a.B/C")), stats(300, 2))];
    snapshot(Monotone::new(2_000).raise(pairs))
}

#[test]
fn promtool_finds_nothing() {
    if let Err(why) = server::installed() {
        return println!("not run: promtool on the text format: {why}");
    }
    let mut full = two_pairs();
    server::promtool_check(&encode(&full, Format::Text)).unwrap();
    full.pairs.clear();
    (full.process, full.history) = (None, None);
    server::promtool_check(&encode(&full, Format::Text)).unwrap();
    // The check can fail: promtool requires the suffix of counters.
    server::promtool_check(b"# HELP spangap_x A.\n# TYPE spangap_x counter\nspangap_x 1\n").unwrap_err();
}

/// Extracts the value of a label from a line of the text format, undoing its escapes.
fn label_value(line: &str, name: &str) -> Option<String> {
    let at = line.find(&format!("{name}=\""))? + name.len() + 2;
    let mut value = String::new();
    let mut chars = line[at..].chars();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_names_survive_a_round_trip(names in prop::collection::btree_set(prop_oneof![any::<String>(), "[\\\\\"\n{},= a]{0,8}"], 1..60)) {
        let mut one = PairStats::default();
        one.gap.record(1_000);
        let pairs = names.iter().map(|name| (key(name, "b", None), one.clone()));
        let snapshot = snapshot(Monotone::new(2_000).raise(pairs));
        for format in [Format::Text, Format::OpenMetrics] {
            let text = String::from_utf8(encode(&snapshot, format)).unwrap();
            let counts = text.split('\n').filter(|line| line.starts_with("spangap_gap_seconds_count{"));
            let back: Vec<String> = counts.map(|line| label_value(line, "client").unwrap()).collect();
            prop_assert_eq!(&back, &names.iter().cloned().collect::<Vec<_>>());
        }
        if server::installed().is_ok() {
            server::promtool_check(&encode(&snapshot, Format::Text)).unwrap();
        }
    }
}

#[test]
fn openmetrics_follows_its_rules() {
    let snapshot = two_pairs();
    let text = String::from_utf8(encode(&snapshot, Format::OpenMetrics)).unwrap();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').unwrap();
        assert!(!name.ends_with("_total"), "{name}");
        let sample = match kind {
            "counter" => format!("\n{name}_total"),
            "histogram" => format!("\n{name}_bucket{{"),
            "gauge" => format!("\n{name}"),
            other => panic!("{name} is a {other}"),
        };
        assert!(text.contains(&sample), "no sample of {name}");
    }
    for unit in text.lines().filter_map(|line| line.strip_prefix("# UNIT ")) {
        let (name, unit) = unit.split_once(' ').unwrap();
        assert!(name.ends_with(&format!("_{unit}")), "{name} {unit}");
    }
    let exemplars: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
    assert!(exemplars.iter().all(|line| line.contains("_bucket{")), "only buckets have exemplars");
    for line in &exemplars {
        let (sample, exemplar) = line.split_once(" # ").unwrap();
        let le: f64 = label_value(sample, "le").unwrap().replace("+Inf", "inf").parse().unwrap();
        let value: f64 = exemplar.split_once("} ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        assert!(value <= le, "{line}");
        assert_eq!(label_value(exemplar, "trace_id").unwrap().len(), 32, "{line}");
        assert_eq!(label_value(exemplar, "client_node").unwrap(), "node-1", "{line}");
    }
    let of_gap =
        exemplars.iter().filter(|line| line.starts_with("spangap_gap_seconds_bucket{client=\"web\""));
    assert!(of_gap.count() >= 1);
}

#[test]
fn every_metric_is_documented() {
    let documented = include_str!("../../../docs/metrics.md");
    let text = String::from_utf8(encode(&two_pairs(), Format::Text)).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !documented.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
}

#[test]
fn protobuf_carries_the_same_figures() {
    let snapshot = two_pairs();
    let bytes = encode(&snapshot, Format::Protobuf);
    let mut rest = bytes.as_slice();
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    let family =
        |name: &str| families.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no {name}"));
    let of: [(&str, Part); 6] = [
        ("spangap_gap_seconds", |s| &s.gap),
        ("spangap_client_duration_seconds", |s| &s.client),
        ("spangap_server_duration_seconds", |s| &s.server),
        ("spangap_request_leg_seconds", |s| &s.request_leg),
        ("spangap_response_leg_seconds", |s| &s.response_leg),
        ("spangap_mate_delay_seconds", |s| &s.mate_delay),
    ];
    for (name, of) in of {
        for (metric, (key, stats)) in family(name).metric.iter().zip(&snapshot.pairs) {
            let labels: Vec<_> = metric.label.iter().map(|l| (l.name(), l.value())).collect();
            assert_eq!(labels[..2], [("client", &*key.client), ("server", &*key.server)]);
            assert_eq!(labels.get(2).map(|l| l.1), key.method.as_deref());
            let (native, ours) = (metric.histogram.as_ref().unwrap(), of(stats));
            assert_eq!(native.sample_count(), ours.count(), "{name}");
            assert_eq!(native.sample_sum(), ours.sum_ns() as f64 / 1e9, "{name}");
            assert_eq!(native.zero_count(), ours.zero_count(), "{name}");
            assert_eq!(native.schema(), 4);
            assert_eq!(native.bucket.last().unwrap().cumulative_count(), ours.count(), "{name}");
        }
    }
    let gap = family("spangap_gap_seconds").metric[1].histogram.as_ref().unwrap();
    assert_eq!(snapshot.pairs[1].0.client.as_ref(), "web", "pairs are sorted");
    assert_eq!(gap.exemplars.len(), snapshot.pairs[1].1.worst.len());
    let times: Vec<_> =
        gap.exemplars.iter().map(|e| e.timestamp.as_ref().map(|t| (t.seconds, t.nanos)).unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let worst = &snapshot.pairs[1].1.worst[0];
    let exemplar = gap.exemplars.iter().find(|e| e.value() == worst.gap_ns as f64 / 1e9).unwrap();
    assert_eq!(exemplar.label[0].value(), format!("{:032x}", u128::from_be_bytes(worst.trace_id)));
    assert!(gap.bucket.iter().any(|b| b.exemplar.is_some()));

    let spans: f64 =
        family("spangap_spans_total").metric.iter().map(|m| m.counter.as_ref().unwrap().value()).sum();
    let pending = family("spangap_spans_pending").metric[0].gauge.as_ref().unwrap().value();
    assert_eq!(spans + pending, 1_000.0);
    assert_eq!(family("spangap_negative_calls_total").metric.len(), 4);
}

/// Serves a snapshot at `/metrics` as the meter does.
async fn endpoint(snapshot: Snapshot) -> SocketAddr {
    let snapshot = Arc::new(snapshot);
    let metrics = move |headers: HeaderMap| {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let format = negotiate(accept);
        let body = encode(&snapshot, format);
        async move { ([(CONTENT_TYPE, format.content_type())], body) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/metrics", get(metrics))).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_real_prometheus_reads_native_histograms() {
    if let Err(why) = server::installed() {
        return println!("not run: scrape by a real Prometheus: {why}");
    }
    let snapshot = two_pairs();
    let web = snapshot.pairs.iter().find(|(key, _)| &*key.client == "web").unwrap().1.clone();
    let target = endpoint(snapshot).await;
    tokio::task::spawn_blocking(move || {
        let prometheus = Prometheus::start(target, Scrape::Native);
        let selector = "{client=\"web\",server=\"cart\"}";
        let count = prometheus.number(&format!("histogram_count(spangap_gap_seconds{selector})"));
        assert_eq!(count, web.gap.count() as f64);
        let sum = prometheus.number(&format!("histogram_sum(spangap_gap_seconds{selector})"));
        assert!((sum / (web.gap.sum_ns() as f64 / 1e9) - 1.0).abs() < 1e-12, "{sum}");
        for (name, ours) in
            [("gap", &web.gap), ("client_duration", &web.client), ("request_leg", &web.request_leg)]
        {
            for q in [0.5, 0.99] {
                let theirs =
                    prometheus.number(&format!("histogram_quantile({q}, spangap_{name}_seconds{selector})"));
                let ours = bucket_index(ours.quantile(q).unwrap().value_ns);
                let theirs = bucket_index((theirs * 1e9) as u64);
                assert!((ours - theirs).abs() <= 1, "{name} {q}: bucket {ours} here, {theirs} there");
            }
        }
        // Exact counts of one bucket: all values up to 2^-10 s.
        let fraction = prometheus
            .number(&format!("histogram_fraction(-Inf, {}, spangap_gap_seconds{selector})", 2f64.powi(-10)));
        let exact = web.gap.count_at_or_below(2f64.powi(-10) * 1e9) as f64 / web.gap.count() as f64;
        assert!((fraction - exact).abs() < 1e-9, "{fraction} {exact}");

        let nasty = prometheus.query("histogram_count(spangap_gap_seconds{method=\"/a.B/C\"})");
        assert_eq!(nasty[0]["metric"]["client"], NASTY);

        // The number of a native histogram's exemplars that arrive depends on the server's version: 2.42
        // takes them from the classic buckets and refuses one that is earlier than its predecessor.
        prometheus.query("count_over_time(up[1m]) >= 5");
        let exemplars = prometheus.exemplars(&format!("spangap_gap_seconds{selector}"), 1);
        println!("exemplars of one native histogram: {} of {}", exemplars.len(), web.worst.len());
        let ids: Vec<String> =
            web.worst.iter().map(|w| format!("{:032x}", u128::from_be_bytes(w.trace_id))).collect();
        for exemplar in &exemplars {
            let id = exemplar["labels"]["trace_id"].as_str().unwrap();
            assert!(ids.iter().any(|known| known == id), "{exemplar}");
            assert_eq!(exemplar["labels"]["server_node"], "node-2");
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_real_prometheus_reads_classic_buckets() {
    if let Err(why) = server::installed() {
        return println!("not run: scrape by a real Prometheus: {why}");
    }
    let snapshot = two_pairs();
    let web = snapshot.pairs.iter().find(|(key, _)| &*key.client == "web").unwrap().1.clone();
    let target = endpoint(snapshot).await;
    tokio::task::spawn_blocking(move || {
        let prometheus = Prometheus::start(target, Scrape::Classic);
        for (le, bound_s) in
            [("0.0009765625", 2f64.powi(-10)), ("6.103515625e-05", 2f64.powi(-14)), ("1.0", 1.0)]
        {
            let bucket = format!("spangap_gap_seconds_bucket{{client=\"web\",server=\"cart\",le=\"{le}\"}}");
            assert_eq!(prometheus.number(&bucket), web.gap.count_at_or_below(bound_s * 1e9) as f64, "{le}");
        }
        assert!(!prometheus.exemplars("spangap_gap_seconds_bucket{client=\"web\"}", 1).is_empty());
    })
    .await
    .unwrap();
}
