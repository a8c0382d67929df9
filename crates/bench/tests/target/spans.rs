//! SERVER spans of single calls.

use crate::collector::{Collector, text};
use crate::{MILLISECOND, Serving, counts, export, settings};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use spangap_bench::clock;
use spangap_bench::ping::PingRequest;
use spangap_bench::raw::frame::{Context, HEADER_BYTES, Head};
use spangap_bench::target::TargetSettings;
use spangap_bench::trace::{Ids, TraceContext};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use tonic::metadata::MetadataValue;

fn request(context: &str, think_ns: u64) -> tonic::Request<PingRequest> {
    let ping = PingRequest { think_ns: Some(think_ns), ..PingRequest::default() };
    let mut request = tonic::Request::new(ping);
    let header: MetadataValue<_> = context.parse().expect("a header");
    request.metadata_mut().insert("traceparent", header);
    request
}

#[tokio::test]
async fn every_call_has_one_server_span_that_includes_think_time() {
    let (collector, url) = Collector::start().await;
    // Spans wait for a collector that is busy at first.
    collector.unavailable.store(2, Ordering::SeqCst);
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let mut client = serving.client().await;
    let mut ids = Ids::new();
    let mut calls = HashMap::new();
    for number in 0..200u64 {
        let context = ids.root();
        let think_ns = number % 10 * MILLISECOND / 5;
        let start_unix_ns = clock::unix_ns();
        let start_ns = clock::monotonic_ns();
        client.ping(request(&context.to_string(), think_ns)).await.unwrap();
        let end_unix_ns = start_unix_ns + (clock::monotonic_ns() - start_ns);
        let key = (context.trace_id.to_vec(), context.span_id.to_vec());
        calls.insert(key, (start_unix_ns, end_unix_ns, think_ns));
    }
    drop(client);
    let report = serving.stop().await;
    assert_eq!((report.calls, report.by_status), (200, counts([("OK", 200)])));
    let spans = report.spans.unwrap();
    assert_eq!((spans.recorded, spans.exported), (200, 200));

    let received = collector.received();
    assert_eq!(received.len(), 200);
    for one in received {
        let span = &one.span;
        let key = (span.trace_id.clone(), span.parent_span_id.clone());
        let (start, end, think_ns) = calls.remove(&key).expect("a span of a call, and the only one");
        assert!(start <= span.start_time_unix_nano && span.end_time_unix_nano <= end, "{span:?}");
        assert!(span.end_time_unix_nano - span.start_time_unix_nano >= think_ns, "{span:?}");
        assert_eq!((span.kind, one.service().as_str()), (SpanKind::Server as i32, "pong"));
        assert_eq!(span.name, "spangap.ping.v1.Ping/Ping");
        assert_eq!((span.span_id.len(), &span.status), (8, &None));
        let attribute = |key| text(&span.attributes, key);
        assert_eq!(attribute("rpc.system.name").as_deref(), Some("grpc"));
        assert_eq!(attribute("rpc.method").as_deref(), Some("spangap.ping.v1.Ping/Ping"));
        assert_eq!(attribute("rpc.response.status_code").as_deref(), Some("OK"));
        assert!(attribute("network.peer.port").is_some() && attribute("network.peer.address").is_some());
        assert!(text(&one.resource, "host.name").is_some_and(|host| !host.is_empty()));
    }
}

#[tokio::test]
async fn a_malformed_or_missing_traceparent_begins_a_trace() {
    let (collector, url) = Collector::start().await;
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let mut client = serving.client().await;
    client.ping(PingRequest::default()).await.unwrap();
    for parent in ["00-0-0-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"] {
        client.ping(request(parent, 0)).await.unwrap();
    }
    drop(client);
    let report = serving.stop().await;
    assert_eq!((report.calls, report.malformed_traceparent), (3, 1));
    let received = collector.received();
    assert_eq!(received.len(), 2, "the third caller does not record its trace");
    for one in &received {
        assert!(one.span.parent_span_id.is_empty());
        assert_ne!(one.span.trace_id, [0; 16]);
    }
    assert_ne!(received[0].span.trace_id, received[1].span.trace_id);
}

#[tokio::test]
async fn refused_and_cancelled_calls_have_their_status() {
    let (collector, url) = Collector::start().await;
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let mut client = serving.client().await;
    let root = || Ids::new().root().to_string();
    client.ping(request(&root(), u64::MAX)).await.unwrap_err();
    let mut abandoned = client.clone();
    let call = tokio::spawn(async move { abandoned.ping(request(&root(), 60_000 * MILLISECOND)).await });
    let mut usage = async || client.usage(spangap_bench::ping::UsageRequest {}).await.unwrap().into_inner();
    usage().await;
    while usage().await.peak_in_progress == 0 {}
    call.abort();
    while usage().await.calls < 2 {}
    let report = serving.stop().await;
    assert_eq!(report.by_status, counts([("INVALID_ARGUMENT", 1), ("CANCELLED", 1)]));
    let mut statuses: Vec<_> = collector
        .received()
        .iter()
        .map(|one| text(&one.span.attributes, "rpc.response.status_code").unwrap())
        .collect();
    statuses.sort();
    assert_eq!(statuses, ["CANCELLED", "INVALID_ARGUMENT"]);
}

#[tokio::test]
async fn an_absent_collector_costs_spans_but_no_calls() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{free}").parse().unwrap();
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let mut client = serving.client().await;
    for _ in 0..20 {
        client.ping(PingRequest::default()).await.unwrap();
    }
    drop(client);
    let report = serving.stop().await;
    assert_eq!(report.by_status, counts([("OK", 20)]));
    assert_eq!(report.spans.unwrap().dropped_unsent, 20);
}

#[tokio::test]
async fn raw_calls_with_a_trace_context_have_spans() {
    let (collector, url) = Collector::start().await;
    let stack = spangap_bench::contract::TargetStack::Raw;
    let serving = Serving::start(TargetSettings { stack, export: export(&url), ..settings() }).await;
    let TraceContext { trace_id, span_id, .. } = Ids::new().root();
    let address = serving.address;
    let local = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut frames = Vec::new();
        Head::ping(0).encode(&mut frames);
        Head { context: Some(Context { trace_id, span_id }), ..Head::ping(0) }.encode(&mut frames);
        stream.write_all(&frames).unwrap();
        stream.read_exact(&mut [0; 2 * HEADER_BYTES]).unwrap();
        stream.local_addr().unwrap()
    });
    let local = local.await.unwrap();
    let report = serving.stop().await;
    assert_eq!((report.calls, report.spans.unwrap().exported), (2, 1));
    let span = &collector.received()[0].span;
    assert_eq!((&span.trace_id[..], &span.parent_span_id[..]), (&trace_id[..], &span_id[..]));
    assert_eq!(text(&span.attributes, "network.peer.port"), Some(local.port().to_string()));
    assert_eq!(span.name, "ping");
    assert_eq!(text(&span.attributes, "rpc.system.name").as_deref(), Some("spangap_raw"));
    assert_eq!(text(&span.attributes, "rpc.method").as_deref(), Some("ping"));
}
