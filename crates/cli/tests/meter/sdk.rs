//! The OpenTelemetry SDKs as users set them up, with their own exporters.

use super::process::{Meter, PATIENCE};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Compression, Protocol, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use spangap_meter::report::PairRow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

const CALLS: u64 = 200;

/// Checks what must hold for every instrumented pair.
fn holds(meter: &Meter, row: &PairRow) {
    assert_eq!(
        (row.calls + row.negative, row.attempts_over_one, row.excluded_large),
        (CALLS, 0, 0),
        "{row:#?}"
    );
    assert!(row.calls > 0, "{row:#?}");
    let (client, server) = (&row.client_duration, &row.server_duration);
    assert_eq!((row.gap.count, client.count, server.count), (row.calls, row.calls, row.calls));
    assert!(client.p50_ns >= server.p50_ns && client.max_ns >= server.max_ns, "{row:#?}");
    assert!(client.mean_ns >= server.mean_ns, "{row:#?}");
    for worst in &row.worst {
        assert_eq!(worst.gap_ns, worst.client_ns - worst.server_ns, "{worst:?}");
        assert!(worst.whole, "{worst:?}");
    }
    let coverage = meter.coverage();
    assert_eq!((coverage.spans.joined, coverage.spans.malformed), (2 * CALLS, 0), "{coverage:#?}");
    assert_eq!((coverage.invalid_requests, coverage.refused_requests), (0, 0));
}

fn provider(service: &'static str, exporter: SpanExporter) -> SdkTracerProvider {
    let resource = Resource::builder().with_service_name(service);
    let resource = resource.with_attribute(KeyValue::new("host.name", "one-host")).build();
    SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()
}

/// Makes calls from one thread to another, with the context in headers between them.
fn make_calls(client: &SdkTracerProvider, server: &SdkTracerProvider) {
    let (requests, received) = mpsc::channel::<(HashMap<String, String>, mpsc::Sender<()>)>();
    let served = server.tracer("server");
    let serving = std::thread::spawn(move || {
        for (headers, answer) in received {
            let caller = TraceContextPropagator::new().extract(&headers);
            let span = served.span_builder("serve").with_kind(SpanKind::Server);
            drop(span.start_with_context(&served, &caller));
            answer.send(()).expect("the caller waits");
        }
    });
    let tracer = client.tracer("client");
    for _ in 0..CALLS {
        let span = tracer.span_builder("call").with_kind(SpanKind::Client).start(&tracer);
        let context = Context::new().with_span(span);
        let mut headers = HashMap::new();
        TraceContextPropagator::new().inject_context(&context, &mut headers);
        let (answer, answered) = mpsc::channel();
        requests.send((headers, answer)).expect("the server listens");
        answered.recv_timeout(PATIENCE).expect("an answer");
        context.span().end();
    }
    drop(requests);
    serving.join().expect("no panic");
}

fn rust_pair(meter: &Meter, exporter: impl Fn() -> SpanExporter) {
    let (client, server) = (provider("rust-client", exporter()), provider("rust-server", exporter()));
    make_calls(&client, &server);
    // Sends the remaining spans; fails if they are not accepted.
    client.shutdown().expect("the client's spans are accepted");
    server.shutdown().expect("the server's spans are accepted");
    let row = meter.pair("rust-client", "rust-server", CALLS);
    assert_eq!(row.negative, 0, "the server's span ends before its answer: {row:#?}");
    holds(meter, &row);
}

/// A service with the OpenTelemetry SDK makes calls, whose spans must all be accepted and joined. Requires a
/// runtime.
pub fn is_served(meter: &Meter, suffix: &str) {
    let name = |side: &str| &*Box::leak(format!("sdk-{side}-{suffix}").into_boxed_str());
    let provider = |side: &str| {
        let exporter =
            SpanExporter::builder().with_tonic().with_endpoint(format!("http://{}", meter.otlp_grpc));
        provider(name(side), exporter.with_timeout(PATIENCE).build().expect("an exporter"))
    };
    let (client, server) = (provider("client"), provider("server"));
    make_calls(&client, &server);
    client.shutdown().expect("the client's spans are accepted");
    server.shutdown().expect("the server's spans are accepted");
    meter.pair(name("client"), name("server"), CALLS);
}

#[test]
fn rust_over_grpc() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    for gzip in [false, true] {
        let meter = Meter::start(&[]);
        rust_pair(&meter, || {
            let exporter = SpanExporter::builder()
                .with_tonic()
                .with_endpoint(format!("http://{}", meter.otlp_grpc))
                .with_timeout(PATIENCE);
            let exporter = if gzip { exporter.with_compression(Compression::Gzip) } else { exporter };
            exporter.build().expect("an exporter")
        });
    }
}

#[test]
fn rust_over_http() {
    for protocol in [Protocol::HttpBinary, Protocol::HttpJson] {
        let meter = Meter::start(&[]);
        rust_pair(&meter, || {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_endpoint(format!("http://{}/v1/traces", meter.otlp_http))
                .with_protocol(protocol)
                .with_timeout(PATIENCE);
            exporter.build().expect("an exporter")
        });
    }
}

/// The program in sdk-go; `Err` with the reason if it cannot be built on this machine.
fn go_program() -> Result<PathBuf, String> {
    let found = Command::new("go").arg("version").stdout(Stdio::null()).status();
    found.map_err(|e| format!("the Go toolchain cannot be started: {e}"))?;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk-go");
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").current_dir(source);
    let output = go.output().expect("it was started before");
    assert!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

#[test]
fn go_with_its_instrumentation_of_grpc_and_http() {
    let program = match go_program() {
        Ok(program) => program,
        Err(why) => return println!("not run: spans of the OpenTelemetry SDK for Go: {why}"),
    };
    for (protocol, gzip) in [("grpc", false), ("grpc", true), ("http", false), ("http", true)] {
        let meter = Meter::start(&[]);
        let endpoint = if protocol == "grpc" { meter.otlp_grpc } else { meter.otlp_http }.to_string();
        let mut go = Command::new(&program);
        go.args(["-protocol", protocol, "-endpoint", &endpoint, "-calls", &CALLS.to_string()]);
        let output = go.arg(format!("-gzip={gzip}")).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{protocol} gzip={gzip}: {said}");
        // The server's span ends after its answer has left, so the client's may end first, which is a
        // negative gap.
        holds(&meter, &meter.pair("go-client", "go-server", CALLS));
    }
}
