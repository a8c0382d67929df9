//! OTLP over gRPC, with the client that the OpenTelemetry project generates.

use super::client::assert_identity;
use super::process::{Meter, PATIENCE};
use super::spans::{calls, gap_ns, three_of_four_malformed};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

pub type Sender = TraceServiceClient<Channel>;

pub async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    endpoint.timeout(PATIENCE).connect_timeout(PATIENCE).connect().await.expect("it listens")
}

pub async fn sender(meter: &Meter) -> Sender {
    TraceServiceClient::new(channel(meter.otlp_grpc).await)
}

/// Sends any message to the trace service's method, including those that no proper client sends.
async fn send_raw(meter: &Meter, request: Request<Vec<u8>>) -> Result<ExportTraceServiceResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel(meter.otlp_grpc).await);
    client.ready().await.expect("a connection");
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export".parse().expect("a path");
    let codec = tonic_prost::ProstCodec::default();
    client.unary(request, path, codec).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_compression_is_accepted_without_loss() {
    let meter = Meter::start(&[]);
    let encodings = [None, Some(CompressionEncoding::Gzip), Some(CompressionEncoding::Zstd)];
    for (at, encoding) in (0u64..).zip(encodings) {
        let mut sender = sender(&meter).await;
        if let Some(encoding) = encoding {
            sender = sender.send_compressed(encoding).accept_compressed(encoding);
        }
        // Large enough to span several frames.
        let request = calls("web", "cart", at * 2000..(at + 1) * 2000);
        let answer = sender.export(request).await.expect("it is accepted").into_inner();
        assert_eq!(answer, ExportTraceServiceResponse::default(), "{encoding:?}");
    }
    let row = meter.pair("web", "cart", 6000);
    assert_eq!(row.lost_ns_total, (0..6000).map(gap_ns).sum::<u64>());
    assert_eq!((row.gap.max_ns, row.negative), (gap_ns(5999), 0));
    let coverage = meter.coverage();
    assert_eq!((coverage.spans.received, coverage.spans.joined), (12_000, 12_000));
    assert_eq!((coverage.invalid_requests, coverage.refused_requests), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_requests_are_accepted_and_malformed_spans_reported() {
    let meter = Meter::start(&[]);
    let mut sender = sender(&meter).await;
    let empty = sender.export(ExportTraceServiceRequest::default()).await.expect("it is accepted");
    assert_eq!(empty.into_inner().partial_success, None);

    let answer = sender.export(three_of_four_malformed()).await.expect("it is accepted").into_inner();
    let partial = answer.partial_success.expect("a partial success");
    assert_eq!(partial.rejected_spans, 3);
    for part in ["3 of 4 spans", "1 with an invalid", "1 without", "1 ending before"] {
        assert!(partial.error_message.contains(part), "{part:?}: {}", partial.error_message);
    }
    let coverage = meter.coverage();
    assert_eq!((coverage.spans.received, coverage.spans.malformed, coverage.spans.pending), (4, 3, 1));
    let why = (coverage.malformed.bad_id, coverage.malformed.end_before_start, coverage.malformed.no_time);
    assert_eq!(why, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_have_the_protocols_status() {
    let meter = Meter::start(&["--max-request-bytes", "64KiB"]);
    let mut plain = sender(&meter).await;
    let large = calls("web", "cart", 0..2000);
    let refused = plain.export(large.clone()).await.expect_err("over the limit");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("limit 65536"), "{}", refused.message());
    // The limit applies to the decompressed size.
    let mut zipped = sender(&meter).await.send_compressed(CompressionEncoding::Zstd);
    let bomb = ExportTraceServiceRequest { resource_spans: vec![large.resource_spans[0].clone(); 40] };
    let refused = zipped.export(bomb).await.expect_err("over the limit");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());

    let refused = send_raw(&meter, Request::new(b"\xff\xff\xff".to_vec())).await.expect_err("garbage");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("at byte "), "{}", refused.message());

    let mut snappy = Request::new(Vec::new());
    snappy.metadata_mut().insert("grpc-encoding", "snappy".parse().expect("a header"));
    let refused = send_raw(&meter, snappy).await.expect_err("unknown here");
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("\"snappy\""), "{}", refused.message());
    let known = refused.metadata().get("grpc-accept-encoding").expect("what is known");
    assert_eq!(known, "identity,gzip,zstd");

    let mut metrics = MetricsServiceClient::new(channel(meter.otlp_grpc).await);
    let refused = metrics.export(ExportMetricsServiceRequest::default()).await.expect_err("not served");
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("MetricsService/Export"), "{}", refused.message());

    let coverage = meter.coverage();
    assert_eq!((coverage.invalid_requests, coverage.refused_requests), (4, 0));
    assert_eq!(coverage.spans.received, 0);
    assert_identity(&coverage.spans);
    // None of it affects the next request.
    plain.export(calls("web", "cart", 0..10)).await.expect("it is accepted");
    meter.pair("web", "cart", 10);
}

/// Cuts a request into frames.
type Cut = fn(&[u8]) -> Vec<&[u8]>;

/// Makes one call whose request has these DATA frames, the last of which ends it. Returns its status and message.
async fn in_frames(meter: &Meter, frames: &[&[u8]]) -> (String, String) {
    let socket = TcpStream::connect(meter.otlp_grpc).await.expect("it listens");
    let (client, connection) = h2::client::handshake(socket).await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let uri =
        format!("http://{}/opentelemetry.proto.collector.trace.v1.TraceService/Export", meter.otlp_grpc);
    let request =
        http::Request::post(uri).header("content-type", "application/grpc").body(()).expect("a head");
    let mut client = client.ready().await.expect("it takes a stream");
    let (answer, mut request) = client.send_request(request, false).expect("it is sent");
    for (at, frame) in frames.iter().enumerate() {
        request.send_data(frame.to_vec().into(), at + 1 == frames.len()).expect("it is sent");
    }
    let (head, mut body) = answer.await.expect("an answer").into_parts();
    while body.data().await.is_some() {}
    let trailers = body.trailers().await.expect("whole").unwrap_or(head.headers);
    connection.abort();
    let text = |name| trailers.get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_frames_of_a_message_change_nothing() {
    let meter = Meter::start(&["--max-request-bytes", "64KiB"]);
    let framed = |message: &[u8]| [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let whole = |at: u64| framed(&calls("web", "cart", at * 10..at * 10 + 10).encode_to_vec());
    let cuts: [Cut; 5] = [
        |bytes| vec![bytes],
        |bytes| vec![bytes, &[]],
        |bytes| vec![&bytes[..3], &bytes[3..]],
        |bytes| vec![&bytes[..5], &bytes[5..100], &bytes[100..]],
        // More and smaller ones count as a flood.
        |bytes| bytes.chunks(7).collect(),
    ];
    for (at, cut) in (0..).zip(&cuts) {
        assert_eq!(in_frames(&meter, &cut(&whole(at))).await, ("0".into(), String::new()), "cut {at}");
    }
    meter.pair("web", "cart", 50);

    let message = whole(9);
    let (size, got) = (message.len() - 5, message.len() - 6);
    let early = format!("message ends after {got} of {size} bytes");
    let twice = [&message[..], &message].concat();
    let mut large = message.clone();
    large[1..5].copy_from_slice(&70_000u32.to_be_bytes());
    let cases: [(&[u8], &str, &str); 3] = [
        (&message[..message.len() - 1], "3", &early),
        (&twice, "3", "more than one message"),
        (&large, "8", "70000"),
    ];
    for (at, cut) in (0..).zip(&cuts) {
        for (bytes, expected, part) in cases {
            let (status, why) = in_frames(&meter, &cut(bytes)).await;
            assert!(status == expected && why.contains(part), "cut {at}: {status}, {why}");
        }
    }
    for nothing in [&[][..], &[0, 0, 0, 0]] {
        let (status, why) = in_frames(&meter, &[nothing]).await;
        assert!(status == "3" && why.contains("no message in the call"), "{status}, {why}");
    }
    let coverage = meter.coverage();
    assert_eq!((coverage.spans.joined, coverage.invalid_requests, coverage.request_bytes), (100, 17, 0));
}
