//! The target as other gRPC clients see it.

use crate::{MILLISECOND, Serving, counts, settings};
use spangap_bench::ping::{MAX_PAYLOAD_BYTES, MAX_THINK_NS, PingRequest, UsageRequest};
use spangap_bench::target::{TargetReport, TargetSettings};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

#[tokio::test]
async fn sizes_and_limits() {
    let serving = Serving::start(TargetSettings { response_bytes: 7, ..settings() }).await;
    let mut client = serving.client().await;
    let mut ping = async |response_bytes, think_ns| {
        let request =
            PingRequest { payload: vec![1; 1000].into(), response_bytes, think_ns, ..PingRequest::default() };
        client.ping(request).await.map(|response| response.into_inner().payload.len())
    };
    assert_eq!(ping(None, None).await.unwrap(), 7);
    assert_eq!(ping(Some(0), None).await.unwrap(), 0);
    assert_eq!(ping(Some(100_000), Some(1)).await.unwrap(), 100_000);
    let too_large = ping(Some(MAX_PAYLOAD_BYTES + 1), None).await.unwrap_err();
    assert_eq!(too_large.code(), Code::InvalidArgument);
    assert!(too_large.message().contains("response_bytes is 67108865"), "{too_large}");
    let too_long = ping(None, Some(MAX_THINK_NS + 1)).await.unwrap_err();
    assert_eq!(too_long.code(), Code::InvalidArgument);
    let by_status = serving.stop().await.by_status;
    assert_eq!(by_status, counts([("OK", 3), ("INVALID_ARGUMENT", 2)]));
}

#[tokio::test]
async fn a_call_past_its_deadline_is_cancelled() {
    let serving = Serving::start(TargetSettings { think_ns: 60_000 * MILLISECOND, ..settings() }).await;
    let mut client = serving.client().await;
    let mut request = tonic::Request::new(PingRequest::default());
    request.set_timeout(Duration::from_millis(20));
    client.ping(request).await.unwrap_err();
    drop(client);
    let report = serving.stop().await;
    // A call may be cancelled before it is sent.
    assert!(!report.cut_off && report.calls <= 1, "{report:?}");
    assert!(
        report.by_status.keys().all(|status| status == "CANCELLED" || status == "DEADLINE_EXCEEDED"),
        "{report:?}"
    );
}

#[tokio::test]
async fn stopping_waits_two_seconds_for_calls_then_cancels_them() {
    for (think_ns, cut_off) in [(200 * MILLISECOND, false), (60_000 * MILLISECOND, true)] {
        let serving = Serving::start(TargetSettings { think_ns, ..settings() }).await;
        let mut client = serving.client().await;
        let call = tokio::spawn(async move { client.ping(PingRequest::default()).await });
        let mut asking = serving.client().await;
        while asking.usage(UsageRequest {}).await.unwrap().into_inner().peak_in_progress == 0 {}
        drop(asking);
        let report = serving.stop().await;
        let status = if cut_off { "CANCELLED" } else { "OK" };
        assert_eq!((report.cut_off, report.by_status), (cut_off, counts([(status, 1)])));
        if cut_off {
            // Its connection lives as long as the client's process, which here is the test itself.
            call.abort();
        } else {
            call.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn an_idle_stream_at_the_end_is_not_a_cancelled_call() {
    let serving = Serving::start(settings()).await;
    let pongs = serving.client().await.ping_stream(tokio_stream::pending()).await.unwrap();
    let report = serving.stop().await;
    assert_eq!(report, TargetReport::default());
    drop(pongs);
}

#[tokio::test]
async fn health_is_serving() {
    let serving = Serving::start(settings()).await;
    let mut health = HealthClient::new(serving.channel().await);
    for service in ["", "spangap.ping.v1.Ping"] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = health.check(HealthCheckRequest { service: "no.such.Service".into() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    serving.stop().await;
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let serving = Serving::start(settings()).await;
    let mut reflection = ServerReflectionClient::new(serving.channel().await);
    let list = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request: list };
    let answers = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list of services")
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["spangap.ping.v1.Ping", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
    serving.stop().await;
}

/// Builds a Go program into `target/tools` unless it is there already; `Err` has the reason if it cannot be
/// built.
fn go_tool(name: &str, package_at_version: &str) -> Result<PathBuf, String> {
    let tools = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let program = tools.join(name);
    if program.exists() {
        return Ok(program);
    }
    let mut go = Command::new("go");
    go.args(["install", package_at_version]).env("GOBIN", &tools).env("GOFLAGS", "-buildvcs=false");
    let output = go.output().map_err(|error| format!("the Go toolchain is not installed ({error})"))?;
    assert!(
        output.status.success(),
        "go install {package_at_version}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program)
}

#[tokio::test]
async fn grpcurl_finds_and_calls_it_by_reflection() {
    let install = || go_tool("grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3");
    let grpcurl = match tokio::task::spawn_blocking(install).await.expect("grpcurl can be built") {
        Ok(grpcurl) => grpcurl,
        Err(why) => return println!("not run: {why}"),
    };
    let serving = Serving::start(settings()).await;
    let address = serving.address.to_string();
    let grpcurl = async |before: &[&str], after: &[&str]| {
        let mut command = Command::new(&grpcurl);
        command.arg("-plaintext").args(before).arg(&address).args(after);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{after:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };

    let services = grpcurl(&[], &["list"]).await;
    assert!(services.lines().any(|line| line == "spangap.ping.v1.Ping"), "{services}");
    let described = grpcurl(&[], &["describe", "spangap.ping.v1.Ping"]).await;
    assert!(described.contains("rpc Ping ( .spangap.ping.v1.PingRequest )"), "{described}");
    let health =
        grpcurl(&["-d", r#"{"service":"spangap.ping.v1.Ping"}"#], &["grpc.health.v1.Health/Check"]).await;
    assert!(health.contains(r#""status": "SERVING""#), "{health}");
    let answer = grpcurl(&["-d", r#"{"response_bytes":3}"#], &["spangap.ping.v1.Ping/Ping"]).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["payload"], "AAAA", "three zero bytes in base64");
    assert_eq!(serving.stop().await.by_status, counts([("OK", 1)]));
}
