//! Pings within streams.

use crate::collector::{Collector, text};
use crate::{MILLISECOND, Serving, counts, export, settings};
use spangap_bench::clock;
use spangap_bench::ping::{MAX_PAYLOAD_BYTES, PingRequest, PingResponse};
use spangap_bench::target::TargetSettings;
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

/// A stream that waits for each pong before its next ping.
struct Caller {
    pings: mpsc::Sender<PingRequest>,
    pongs: Streaming<PingResponse>,
}

impl Caller {
    async fn open(serving: &Serving) -> Caller {
        let (pings, receiver) = mpsc::channel(16);
        let pongs = serving.client().await.ping_stream(ReceiverStream::new(receiver)).await;
        Caller { pings, pongs: pongs.expect("the target has streams").into_inner() }
    }

    async fn ping(&mut self, request: PingRequest) -> Result<usize, tonic::Status> {
        self.pings.send(request).await.expect("the stream is open");
        self.pongs.next().await.expect("the stream is open").map(|pong| pong.payload.len())
    }
}

#[tokio::test]
async fn pings_are_answered_as_requested_until_one_is_refused() {
    let serving = Serving::start(TargetSettings { response_bytes: 7, ..settings() }).await;
    let mut caller = Caller::open(&serving).await;
    for (response_bytes, think_ns, expected) in
        [(None, None, 7), (Some(0), None, 0), (Some(100_000), Some(MILLISECOND), 100_000), (None, Some(1), 7)]
    {
        let begun = clock::monotonic_ns();
        let ping = PingRequest { response_bytes, think_ns, ..PingRequest::default() };
        assert_eq!(caller.ping(ping).await.unwrap(), expected);
        assert!(clock::monotonic_ns() - begun >= think_ns.unwrap_or(0));
    }
    let too_large = PingRequest { response_bytes: Some(MAX_PAYLOAD_BYTES + 1), ..PingRequest::default() };
    let refused = caller.ping(too_large).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("response_bytes is 67108865"), "{refused}");
    let report = serving.stop().await;
    assert_eq!((report.calls, report.by_status), (5, counts([("OK", 4), ("INVALID_ARGUMENT", 1)])));
}

#[tokio::test]
async fn many_pings_at_once_are_answered_in_order() {
    let serving = Serving::start(settings()).await;
    let sizes: Vec<u64> = (0..200).map(|number| number * 7 % 100).collect();
    let pings: Vec<_> = sizes
        .iter()
        .map(|&size| PingRequest {
            response_bytes: Some(size),
            think_ns: Some(size % 3 * 1_000),
            ..PingRequest::default()
        })
        .collect();
    let pongs = serving.client().await.ping_stream(tokio_stream::iter(pings)).await.unwrap();
    let lengths: Vec<_> = pongs.into_inner().map(|pong| pong.unwrap().payload.len() as u64).collect().await;
    assert_eq!(lengths, sizes);
    assert_eq!(serving.stop().await.by_status, counts([("OK", 200)]));
}

#[tokio::test]
async fn every_ping_with_ids_has_its_server_span() {
    let (collector, url) = Collector::start().await;
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let mut caller = Caller::open(&serving).await;
    let mut sent = HashMap::new();
    for number in 1..=20u8 {
        let (trace_id, span_id) = (vec![number; 16], vec![100 + number; 8]);
        let think_ns = u64::from(number % 2) * MILLISECOND;
        let ping = PingRequest {
            trace_id: trace_id.clone().into(),
            span_id: span_id.clone().into(),
            think_ns: Some(think_ns),
            ..PingRequest::default()
        };
        let began = clock::unix_ns();
        let start = clock::monotonic_ns();
        caller.ping(ping).await.unwrap();
        sent.insert((trace_id, span_id), (began, began + (clock::monotonic_ns() - start), think_ns));
    }
    let malformed = PingRequest { trace_id: vec![1; 3].into(), ..PingRequest::default() };
    caller.ping(malformed).await.unwrap();
    drop(caller);
    let report = serving.stop().await;
    assert_eq!((report.calls, report.malformed_traceparent), (21, 1));
    assert_eq!(report.spans.unwrap().exported, 21);

    let mut roots = 0;
    for one in collector.received() {
        let span = &one.span;
        assert_eq!(text(&span.attributes, "rpc.response.status_code").as_deref(), Some("OK"));
        assert!(text(&span.attributes, "network.peer.port").is_some(), "{span:?}");
        let Some((began, ended, think_ns)) =
            sent.remove(&(span.trace_id.clone(), span.parent_span_id.clone()))
        else {
            assert!(span.parent_span_id.is_empty(), "{span:?}");
            roots += 1;
            continue;
        };
        assert!(began <= span.start_time_unix_nano && span.end_time_unix_nano <= ended, "{span:?}");
        assert!(span.end_time_unix_nano - span.start_time_unix_nano >= think_ns, "{span:?}");
    }
    assert_eq!((roots, sent.len()), (1, 0), "the malformed one begins a trace, the others have their spans");
}

#[tokio::test]
async fn an_abandoned_stream_cancels_its_ping() {
    let (collector, url) = Collector::start().await;
    let serving = Serving::start(TargetSettings { export: export(&url), ..settings() }).await;
    let caller = Caller::open(&serving).await;
    let mut client = serving.client().await;
    let forever = PingRequest { think_ns: Some(60_000 * MILLISECOND), ..PingRequest::default() };
    caller.pings.send(forever).await.unwrap();
    // The target's usage shows when it has received the ping.
    let mut usage = async || client.usage(spangap_bench::ping::UsageRequest {}).await.unwrap().into_inner();
    while usage().await.peak_in_progress == 0 {}
    assert_eq!(usage().await.calls, 0);
    drop(caller);
    while usage().await.calls == 0 {}
    let report = serving.stop().await;
    assert_eq!((report.by_status, report.cut_off), (counts([("CANCELLED", 1)]), false));
    let spans = collector.received();
    assert_eq!(spans.len(), 1);
    assert_eq!(text(&spans[0].span.attributes, "rpc.response.status_code").as_deref(), Some("CANCELLED"));
}
