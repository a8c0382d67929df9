//! Spans and the log of slow calls.

use crate::collector::{Collector, Received, text};
use crate::{MILLISECOND, Serving, export, run, tank_settings, target_settings, the_run};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use spangap_bench::ping::PingRequest;
use spangap_bench::ping::ping_client::PingClient;
use spangap_bench::tank::SlowCall;
use spangap_bench::trace::Hex;
use std::collections::HashMap;

/// Every call's CLIENT span with its SERVER span, joined by the ids alone.
fn joined(received: &[Received]) -> Vec<(&Received, &Received)> {
    let mut servers = HashMap::new();
    for server in received.iter().filter(|one| one.span.kind == SpanKind::Server as i32) {
        let key = (&server.span.trace_id, &server.span.parent_span_id);
        assert!(servers.insert(key, server).is_none(), "two SERVER spans for {server:?}");
    }
    let clients: Vec<_> = received.iter().filter(|one| one.span.kind == SpanKind::Client as i32).collect();
    assert_eq!(clients.len() + servers.len(), received.len(), "spans of another kind");
    let pairs: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let server = servers.remove(&(&client.span.trace_id, &client.span.span_id));
            (client, server.unwrap_or_else(|| panic!("no SERVER span for {client:?}")))
        })
        .collect();
    assert!(servers.is_empty(), "SERVER spans without a CLIENT span: {servers:?}");
    pairs
}

#[tokio::test]
async fn every_call_is_one_client_span_and_one_server_span_within_it() {
    let (collector, url) = Collector::start().await;
    let serving =
        Serving::start(crate::TargetSettings { export: export(&url, "pong"), ..target_settings() }).await;
    let address = serving.address;
    let mut settings = tank_settings(address);
    settings.export = export(&url, "ping");
    settings.warmup_ns = 50 * MILLISECOND;
    let report = run(settings).await;
    let served = serving.stop().await;

    assert_eq!((the_run(&report).ok, the_run(&report).scheduled), (200, 200), "{report}");
    assert_eq!(served.by_status, [("OK".to_owned(), 250)].into(), "the warm-up's calls are served too");
    assert_eq!(report.spans.unwrap().exported, 250);
    assert_eq!(served.spans.unwrap().exported, 250);

    let received = collector.received();
    let pairs = joined(&received);
    assert_eq!(pairs.len(), 250);
    for (client, server) in pairs {
        assert_eq!((client.service().as_str(), server.service().as_str()), ("ping", "pong"));
        assert!(text(&client.resource, "host.name").is_some_and(|host| !host.is_empty()));
        assert!(
            client.span.start_time_unix_nano <= server.span.start_time_unix_nano,
            "{client:?} {server:?}"
        );
        assert!(server.span.start_time_unix_nano <= server.span.end_time_unix_nano, "{server:?}");
        assert!(server.span.end_time_unix_nano <= client.span.end_time_unix_nano, "{client:?} {server:?}");
        for one in [client, server] {
            let attribute = |key| text(&one.span.attributes, key);
            assert_eq!(one.span.name, "spangap.ping.v1.Ping/Ping");
            assert_eq!(attribute("rpc.system.name").as_deref(), Some("grpc"));
            assert_eq!(attribute("rpc.method").as_deref(), Some("spangap.ping.v1.Ping/Ping"));
            assert_eq!(attribute("rpc.response.status_code").as_deref(), Some("OK"));
            assert_eq!(one.span.status, None);
        }
        let attribute = |one: &Received, key| text(&one.span.attributes, key);
        assert_eq!(attribute(client, "network.peer.port"), Some(address.port().to_string()));
        assert_eq!(attribute(client, "network.local.port"), attribute(server, "network.peer.port"));
        assert_eq!(attribute(client, "network.local.address"), attribute(server, "network.peer.address"));
    }
}

#[tokio::test]
async fn think_time_shows_in_the_server_span_and_slow_calls_in_the_log() {
    let think_ns = 3 * MILLISECOND;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow.jsonl");
    let (collector, url) = Collector::start().await;
    let mut settings = target_settings();
    settings.export = export(&url, "target");
    settings.think_ns = think_ns;
    let serving = Serving::start(settings).await;
    let mut settings = tank_settings(serving.address);
    settings.export = export(&url, "tank");
    settings.slow_ns = think_ns;
    settings.slow_log = Some(path.clone());
    let target = serving.address;
    let report = run(settings).await;
    serving.stop().await;

    let received = collector.received();
    let pairs = joined(&received);
    let by_trace: HashMap<String, _> =
        pairs.iter().map(|pair| (Hex(&pair.0.span.trace_id).to_string(), pair)).collect();
    for (_, server) in &pairs {
        assert!(server.span.end_time_unix_nano - server.span.start_time_unix_nano >= think_ns, "{server:?}");
    }
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<SlowCall> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), the_run(&report).slow), (200, 200), "every call is slower than its think time");
    assert_eq!(report.slow_log.as_ref().unwrap().written, 200);
    for line in lines {
        let (client, server) = by_trace[&line.trace_id];
        assert_eq!(line.span_id, Hex(&client.span.span_id).to_string());
        assert_eq!(line.sent_unix_ns, client.span.start_time_unix_nano);
        assert_eq!(line.done_unix_ns, client.span.end_time_unix_nano);
        assert_eq!(line.duration_ns, line.done_unix_ns - line.sent_unix_ns);
        assert!(line.intended_unix_ns <= line.sent_unix_ns);
        assert_eq!(line.status, "OK");
        assert_eq!(line.peer_addr, Some(target));
        let seen_by_target = text(&server.span.attributes, "network.peer.port");
        assert_eq!(line.local_addr.map(|local| local.port().to_string()), seen_by_target);
    }
}

#[tokio::test]
async fn a_malformed_or_missing_traceparent_begins_a_trace() {
    let (collector, url) = Collector::start().await;
    let serving =
        Serving::start(crate::TargetSettings { export: export(&url, "target"), ..target_settings() }).await;
    let mut client = PingClient::connect(format!("http://{}", serving.address)).await.unwrap();
    let parents = [None, Some("00-0-0-01"), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")];
    for parent in parents {
        let mut request = tonic::Request::new(PingRequest::default());
        if let Some(parent) = parent {
            request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        }
        client.ping(request).await.unwrap();
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
