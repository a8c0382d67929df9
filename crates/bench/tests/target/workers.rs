//! A target that handles a few calls at a time, and one that answers with two sizes.

use crate::collector::Collector;
use crate::{MILLISECOND, Serving, counts, export, settings};
use spangap_bench::clock;
use spangap_bench::ping::{PingRequest, UsageRequest};
use spangap_bench::target::{LargeResponse, TargetSettings};
use spangap_bench::trace::Ids;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt, iter};

/// Longer than any test: until it is cancelled.
const FOREVER_NS: u64 = 60_000 * MILLISECOND;

fn pinging(think_ns: u64) -> (PingRequest, tonic::Request<PingRequest>) {
    let context = Ids::new().root();
    let ping = PingRequest {
        think_ns: Some(think_ns),
        trace_id: context.trace_id.to_vec().into(),
        span_id: context.span_id.to_vec().into(),
        ..PingRequest::default()
    };
    let mut request = tonic::Request::new(ping.clone());
    let header = context.to_string().parse().expect("a header");
    request.metadata_mut().insert("traceparent", header);
    (ping, request)
}

#[tokio::test]
async fn a_call_waits_for_its_place_before_its_span_begins() {
    for in_streams in [false, true] {
        let (collector, url) = Collector::start().await;
        let settings = TargetSettings { workers: Some(1), export: export(&url), ..settings() };
        let serving = Serving::start(settings).await;
        let calling = serving.client().await;
        let call = |think_ns| {
            let mut client = calling.clone();
            let (ping, request) = pinging(think_ns);
            tokio::spawn(async move {
                if !in_streams {
                    return client.ping(request).await.is_ok();
                }
                // Cancelled together with this task.
                let (pings, for_stream) = mpsc::channel(1);
                pings.send(ping).await.unwrap();
                let mut pongs =
                    client.ping_stream(ReceiverStream::new(for_stream)).await.unwrap().into_inner();
                pongs.next().await.unwrap().is_ok()
            })
        };
        let mut client = serving.client().await;
        // The peak since the last query: this many calls are in progress, or were since then.
        let mut under_way = async |expected| {
            client.usage(UsageRequest {}).await.unwrap();
            while client.usage(UsageRequest {}).await.unwrap().into_inner().peak_in_progress < expected {}
        };
        let handled = call(FOREVER_NS);
        under_way(1).await;
        let given_up = call(0);
        under_way(2).await;
        let waits = call(0);
        under_way(3).await;
        given_up.abort();
        let until_then_unix_ns = clock::unix_ns();
        handled.abort();
        assert!(waits.await.unwrap());
        drop((calling, client));
        let report = serving.stop().await;
        assert_eq!(report.by_status, counts([("CANCELLED", 2), ("OK", 1)]), "in streams: {in_streams}");
        let received = collector.received();
        let begun: Vec<_> = received.iter().map(|one| one.span.start_time_unix_nano).collect();
        // The cancelled call may have been given its place before it was gone.
        let late = begun.iter().filter(|start| **start >= until_then_unix_ns).count();
        assert!((1..=2).contains(&late) && begun.len() - late == 1, "in streams: {in_streams}: {begun:?}");
    }
}

#[tokio::test]
async fn every_nth_response_is_large() {
    let large_response = Some(LargeResponse { bytes: 100_000, every: 4 });
    let serving = Serving::start(TargetSettings { response_bytes: 7, large_response, ..settings() }).await;
    let mut client = serving.client().await;
    let mut lengths = Vec::new();
    for response_bytes in [None, None, Some(3), None, None, None, None, None, None] {
        let ping = PingRequest { response_bytes, ..PingRequest::default() };
        lengths.push(client.ping(ping).await.unwrap().into_inner().payload.len());
    }
    assert_eq!(lengths, [7, 7, 3, 7, 100_000, 7, 7, 7, 100_000], "what is asked for does not count");
    let pings = iter(vec![PingRequest::default(); 4]);
    let pongs = client.ping_stream(pings).await.unwrap().into_inner();
    let lengths: Vec<_> = pongs.map(|pong| pong.unwrap().payload.len()).collect().await;
    assert_eq!(lengths, [7, 7, 7, 100_000]);
    serving.stop().await;
}
