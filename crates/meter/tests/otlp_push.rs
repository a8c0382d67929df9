//! Metric push to a real OTLP/gRPC receiver.

#[path = "otlp_push/collector.rs"]
mod collector;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, Metric, NumberDataPoint, exemplar,
};
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::export::otlp::{MAX_POINTS, Push, PushSettings, requests};
use spangap_meter::export::snapshot::{ProcessFigures, RequestFigures, Snapshot};
use spangap_meter::serve::places::PortFigures;
use spangap_model::pair::KeptSide;
use spangap_model::{Accounting, CallStatus, Histogram, KeptCall, PairKey, PairStats};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Timeout of a condition, far more than any needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One distribution of a pair.
type Part = fn(&PairStats) -> &Histogram;

fn stats(calls: u64) -> PairStats {
    let mut stats = PairStats::default();
    for i in 0..calls {
        let gap_ns = if i == 0 { 0 } else { 1_000 + i * i * 31 };
        stats.gap.record(gap_ns);
        stats.client.record(2_000_000 + gap_ns);
        stats.server.record(2_000_000);
        stats.mate_delay.record(1_000_000 * (i % 7));
    }
    let side = |host: &str, duration_ns| KeptSide {
        start_unix_ns: 1_700_000_000_000_000_000,
        duration_ns,
        host: Some(host.into()),
        whole: None,
    };
    let gap_ns = 1_000 + (calls - 1) * (calls - 1) * 31;
    stats.keep_worst(KeptCall {
        gap_ns,
        trace_id: *b"0123456789abcdef",
        client_span_id: *b"span-id.",
        status: CallStatus::UNSET,
        legs: None,
        client: side("node-1", 2_000_000 + gap_ns),
        server: side("node-2", 2_000_000),
    });
    stats.negative.insert(CallStatus::from_grpc(1), 4);
    stats
}

fn snapshot(pairs: usize) -> Snapshot {
    let mut overview =
        Meter::new(Settings { max_pending_bytes: 1 << 20, keep_bytes: 1 << 16, ..Settings::default() })
            .overview();
    overview.accounting = Accounting { received: 12, joined: 10, pending: 2, ..Accounting::default() };
    let key = |i: usize| PairKey { client: "web".into(), server: format!("s{i:05}").into(), method: None };
    Snapshot {
        pairs: (0..pairs).map(|i| (key(i), stats(200))).collect(),
        overview,
        refused_requests: 3,
        invalid_requests: 0,
        refusals: Vec::new(),
        requests: RequestFigures { bytes: 11, bytes_limit: 40, slow: 1, displaced: 2, displaced_answers: 3 },
        ports: vec![("otlp_grpc", PortFigures { open: 3, limit: 4096, ..PortFigures::default() })],
        started_unix_ns: 1_700_000_000_000_000_000,
        now_unix_ns: 1_700_000_100_000_000_000,
        version: "0.1.0-test",
        process: Some(ProcessFigures { resident_bytes: 77, cpu_s: 0.5 }),
        history: None,
        kept: None,
        kafka: None,
        clickhouse: None,
    }
}

/// A receiver that first returns prepared answers, then success; it passes on what it accepts.
#[derive(Clone)]
struct Receiver {
    first_answers: Arc<Mutex<VecDeque<Result<ExportMetricsServiceResponse, Status>>>>,
    seen: mpsc::UnboundedSender<Result<ExportMetricsServiceRequest, tonic::Code>>,
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let answer = self.first_answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(Default::default()));
        let seen = answer.as_ref().map(|_| request.into_inner()).map_err(Status::code);
        let _ = self.seen.send(seen);
        answer.map(Response::new)
    }
}

type Requests = mpsc::UnboundedReceiver<Result<ExportMetricsServiceRequest, tonic::Code>>;

fn serve(
    address: &str,
    answers: Vec<Result<ExportMetricsServiceResponse, Status>>,
) -> (SocketAddr, Requests) {
    let incoming = TcpIncoming::bind(address.parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (seen, requests) = mpsc::unbounded_channel();
    let receiver = Receiver { first_answers: Arc::new(Mutex::new(answers.into())), seen };
    let server = tonic::transport::Server::builder().add_service(MetricsServiceServer::new(receiver));
    tokio::spawn(server.serve_with_incoming(incoming));
    (address, requests)
}

async fn next<T>(channel: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(PATIENCE, channel.recv()).await.expect("in time").expect("still open")
}

fn settings(address: SocketAddr, interval: Duration) -> PushSettings {
    PushSettings::new(&format!("http://{address}"), interval).unwrap()
}

fn metrics(request: &ExportMetricsServiceRequest) -> impl Iterator<Item = &Metric> {
    request.resource_metrics.iter().flat_map(|r| &r.scope_metrics).flat_map(|s| &s.metrics)
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    let found = attributes.iter().find(|a| a.key == name).and_then(|a| a.value.as_ref()?.value.as_ref());
    match found {
        Some(Any::StringValue(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

fn numbers(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{}", metric.name);
            &sum.data_points
        }
        Data::Gauge(gauge) => &gauge.data_points,
        other => panic!("{}: {other:?}", metric.name),
    }
}

fn distributions(metric: &Metric) -> &[ExponentialHistogramDataPoint] {
    match metric.data.as_ref().unwrap() {
        Data::ExponentialHistogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, 2);
            &histogram.data_points
        }
        other => panic!("{}: {other:?}", metric.name),
    }
}

fn same_distribution(point: &ExponentialHistogramDataPoint, ours: &Histogram) {
    assert_eq!((point.scale, point.count, point.zero_count), (4, ours.count(), ours.zero_count()));
    assert_eq!(point.sum, Some(ours.sum_ns() as f64 / 1e9));
    assert_eq!(point.min, ours.min_ns().map(|ns| ns as f64 / 1e9));
    assert_eq!(point.max, ours.max_ns().map(|ns| ns as f64 / 1e9));
    let buckets = point.positive.as_ref().unwrap();
    let counts =
        (buckets.offset..).zip(&buckets.bucket_counts).filter(|(_, n)| **n > 0).map(|(i, n)| (i, *n));
    assert_eq!(counts.collect::<Vec<_>>(), ours.buckets().collect::<Vec<_>>());
}

fn check_against(request: &ExportMetricsServiceRequest, snapshot: &Snapshot) {
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "spangap");
    let metric =
        |name: &str| metrics(request).find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"));

    let of: [(&str, Part); 4] = [
        ("spangap_gap_seconds", |s| &s.gap),
        ("spangap_client_duration_seconds", |s| &s.client),
        ("spangap_server_duration_seconds", |s| &s.server),
        ("spangap_mate_delay_seconds", |s| &s.mate_delay),
    ];
    for (name, of) in of {
        assert_eq!(metric(name).unit, "s");
        let points = distributions(metric(name));
        assert_eq!(points.len(), snapshot.pairs.len());
        for (point, (key, stats)) in points.iter().zip(&snapshot.pairs) {
            assert_eq!(text(&point.attributes, "client"), &*key.client);
            assert_eq!(text(&point.attributes, "server"), &*key.server);
            assert_eq!(point.start_time_unix_nano, snapshot.started_unix_ns);
            assert_eq!(point.time_unix_nano, snapshot.now_unix_ns);
            same_distribution(point, of(stats));
        }
    }
    let worst = &snapshot.pairs[0].1.worst[0];
    let exemplar = &distributions(metric("spangap_gap_seconds"))[0].exemplars[0];
    assert_eq!((&*exemplar.trace_id, &*exemplar.span_id), (&worst.trace_id[..], &worst.client_span_id[..]));
    assert_eq!(exemplar.value, Some(exemplar::Value::AsDouble(worst.gap_ns as f64 / 1e9)));
    assert_eq!(text(&exemplar.filtered_attributes, "client_node"), "node-1");
    assert!(exemplar.filtered_attributes.iter().all(|a| a.key != "trace_id"));

    let spans: i64 = numbers(metric("spangap_spans"))
        .iter()
        .map(|p| if let Some(Number::AsInt(n)) = p.value { n } else { 0 })
        .sum();
    let pending = numbers(metric("spangap_spans_pending"))[0].value;
    assert_eq!((spans, pending), (10, Some(Number::AsInt(2))));
    assert_eq!(numbers(metric("spangap_refused_requests"))[0].value, Some(Number::AsInt(3)));
    assert_eq!(numbers(metric("process_cpu_seconds"))[0].value, Some(Number::AsDouble(0.5)));
    assert_eq!(metric("process_resident_memory_bytes").unit, "By");
    let negative = &numbers(metric("spangap_negative_calls"))[0];
    assert_eq!((text(&negative.attributes, "status"), negative.value), ("CANCELLED", Some(Number::AsInt(4))));
}

#[tokio::test]
async fn a_receiver_gets_the_same_figures() {
    let (address, mut seen) = serve("127.0.0.1:0", Vec::new());
    let (notices, mut told) = mpsc::unbounded_channel();
    let interval = Duration::from_millis(50);
    let push =
        Push::start(settings(address, interval), || snapshot(2), move |notice| drop(notices.send(notice)));
    check_against(&next(&mut seen).await.unwrap(), &snapshot(2));
    check_against(&next(&mut seen).await.unwrap(), &snapshot(2));
    push.stop().await;
    assert_eq!(told.recv().await, None, "nothing to tell of");
}

#[tokio::test]
async fn an_unavailable_receiver_is_retried_and_reported_once() {
    let unavailable = || Err(Status::unavailable("starting"));
    let (address, mut seen) = serve("127.0.0.1:0", vec![unavailable(), unavailable()]);
    let (notices, mut told) = mpsc::unbounded_channel();
    let interval = Duration::from_secs(3600);
    let push =
        Push::start(settings(address, interval), || snapshot(1), move |notice| drop(notices.send(notice)));
    assert_eq!(next(&mut seen).await.unwrap_err(), tonic::Code::Unavailable);
    assert_eq!(next(&mut seen).await.unwrap_err(), tonic::Code::Unavailable);
    // Within the same hour, so this is the retry, not the next push.
    check_against(&next(&mut seen).await.unwrap(), &snapshot(1));
    let failed = next(&mut told).await;
    assert!(
        failed.contains("Unavailable")
            && failed.contains("starting")
            && failed.contains(&address.to_string()),
        "{failed}"
    );
    let again = next(&mut told).await;
    assert!(again.contains("again"), "{again}");
    push.stop().await;
    check_against(&next(&mut seen).await.unwrap(), &snapshot(1));
    assert!(told.recv().await.is_none(), "two notices, and the push has ended");
}

#[tokio::test]
async fn a_refusal_is_not_retried_before_the_next_push() {
    let no = Err(Status::invalid_argument("no such thing"));
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 5, error_message: "too many".into() };
    let partly = Ok(ExportMetricsServiceResponse { partial_success: Some(partial) });
    let (address, mut seen) = serve("127.0.0.1:0", vec![no, partly]);
    let (notices, mut told) = mpsc::unbounded_channel();
    let interval = Duration::from_millis(20);
    let push =
        Push::start(settings(address, interval), || snapshot(1), move |notice| drop(notices.send(notice)));
    assert_eq!(next(&mut seen).await.unwrap_err(), tonic::Code::InvalidArgument);
    assert!(next(&mut told).await.contains("no such thing"));
    // The push after that is accepted in part, which continues the streak; the one after is accepted
    // completely.
    next(&mut seen).await.unwrap();
    assert!(next(&mut told).await.contains("again"));
    push.stop().await;
}

#[tokio::test]
async fn a_late_receiver_is_found() {
    // A port without a listener: bound, then released.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (notices, mut told) = mpsc::unbounded_channel();
    let interval = Duration::from_millis(50);
    let push =
        Push::start(settings(free, interval), || snapshot(1), move |notice| drop(notices.send(notice)));
    assert!(next(&mut told).await.contains("cannot push"));
    let (_, mut seen) = serve(&free.to_string(), Vec::new());
    check_against(&next(&mut seen).await.unwrap(), &snapshot(1));
    assert!(next(&mut told).await.contains("again"));
    push.stop().await;
}

#[tokio::test]
async fn stop_does_not_wait_for_a_missing_receiver() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let push = Push::start(settings(free, Duration::from_secs(3600)), || snapshot(1), |_| {});
    tokio::time::timeout(PATIENCE, push.stop()).await.expect("it ends");
}

#[test]
fn many_pairs_are_sent_in_several_requests() {
    let snapshot = snapshot(700);
    let requests = requests(&snapshot);
    assert!(requests.len() > 2);
    let points = |metric: &Metric| match metric.data.as_ref().unwrap() {
        Data::ExponentialHistogram(_) => distributions(metric).len(),
        _ => numbers(metric).len(),
    };
    let per_request: Vec<usize> = requests.iter().map(|r| metrics(r).map(points).sum()).collect();
    assert!(per_request.iter().all(|n| *n <= MAX_POINTS) && per_request[0] == MAX_POINTS, "{per_request:?}");
    let of_gap = requests.iter().flat_map(metrics).filter(|m| m.name == "spangap_gap_seconds");
    assert_eq!(of_gap.map(|m| distributions(m).len()).sum::<usize>(), 700);
    let bytes = requests.iter().map(prost::Message::encoded_len).max().unwrap();
    assert!(bytes < 4 << 20, "{bytes} bytes in one request");
}
