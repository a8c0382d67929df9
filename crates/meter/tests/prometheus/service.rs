//! End to end: spans sent by OTLP to the running service, whose `/metrics` a real Prometheus reads.

use super::server;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, span::SpanKind};
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::history::{History, Limits};
use spangap_meter::serve::clock::Clock;
use spangap_meter::serve::places::Deadlines;
use spangap_meter::serve::{Guests, ServeSettings, serve};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The halves of all calls that belong to one service.
fn half(service: &str, kind: SpanKind, calls: u64, now_unix_ns: u64) -> ResourceSpans {
    let span = |i: u64| {
        let client = kind == SpanKind::Client;
        let duration_ns = 1_000_000 + if client { 200_000 + i * 1_000 } else { 0 };
        let (client_span, server_span) =
            ((i + 1).to_be_bytes().to_vec(), (i + 1_000_000).to_be_bytes().to_vec());
        let start_time_unix_nano = now_unix_ns - 2_000_000_000 + i * 10_000;
        Span {
            trace_id: u128::from(i + 1).to_be_bytes().to_vec(),
            span_id: if client { client_span.clone() } else { server_span },
            parent_span_id: if client { b"caller's".to_vec() } else { client_span },
            kind: kind as i32,
            name: "call".into(),
            start_time_unix_nano,
            end_time_unix_nano: start_time_unix_nano + duration_ns,
            ..Span::default()
        }
    };
    let text = |name: &str, value: &str| KeyValue {
        key: name.into(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) }),
        ..KeyValue::default()
    };
    let attributes = vec![text("service.name", service), text("k8s.node.name", &format!("{service}-node"))];
    let resource = Resource { attributes, ..Resource::default() };
    let scope_spans = vec![ScopeSpans { spans: (0..calls).map(span).collect(), ..ScopeSpans::default() }];
    ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_running_service_is_scraped() {
    if let Err(why) = server::installed() {
        return println!("not run: scrape of the running service by a real Prometheus: {why}");
    }
    let clock = Clock::start();
    let settings =
        Settings { epoch_unix_ms: clock.epoch_unix_ms(), keep_bytes: 1 << 20, ..Settings::default() };
    let history =
        History::open(None, Limits { max_age_s: 3600, max_bytes: 1 << 20 }, clock.unix_s()).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listen = ServeSettings {
        otlp_grpc: any,
        otlp_http: any,
        http: any,
        max_request_bytes: 16 << 20,
        request_budget_bytes: 64 << 20,
        max_connections: 64,
        deadlines: Deadlines::default(),
        exported_pairs: 2_000,
        push: None,
        tls: None,
        spool: None,
        kafka: None,
        clickhouse: None,
    };
    let (ready, addresses) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let on_ready = move |addresses: &_| {
        let _ = ready.send(*addresses);
    };
    let until = async { drop(stopped.await) };
    let meter = Arc::new(Meter::new(settings));
    let service = tokio::spawn(serve(meter, clock, listen, history, Guests::default(), on_ready, until));
    let addresses = addresses.await.expect("it listens");

    let now_unix_ns = clock.unix_s() * 1_000_000_000;
    let mut sender = TraceServiceClient::connect(format!("http://{}", addresses.otlp_grpc)).await.unwrap();
    for (service, kind) in [("web", SpanKind::Client), ("cart", SpanKind::Server)] {
        let resource_spans = vec![half(service, kind, 400, now_unix_ns)];
        sender.export(ExportTraceServiceRequest { resource_spans }).await.unwrap();
    }
    tokio::task::spawn_blocking(move || server::check_scrape(addresses.http)).await.unwrap();
    stop.send(()).unwrap();
    service.await.unwrap().unwrap();
}
