//! `--peers`: meters that tell each other which halves found no mate. `make test-collectors` puts them behind a real Collector.

use super::client::request;
use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::half;
use super::tls::Papers;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use spangap_meter::report::PeerState;
use std::fs;
use std::ops::Range;
use std::path::Path;

fn key(folder: &Path, text: &str) -> String {
    let path = folder.join("key");
    fs::write(&path, text).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

const SECRET: &str = "not much of a secret, but long enough\n";

fn send(meter: &Meter, service: &str, kind: SpanKind, calls: Range<u64>) {
    let body = ExportTraceServiceRequest { resource_spans: vec![half(service, kind, calls)] }.encode_to_vec();
    let headers = [("content-type", "application/x-protobuf")];
    assert_eq!(request(meter.otlp_http, "POST", "/v1/traces", &headers, &body).status, 200);
}

#[test]
fn halves_of_a_call_at_two_meters_are_apart_and_others_are_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = key(folder.path(), SECRET);
    // Addresses of this process alone, so that the ports may be known beforehand.
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let addresses = [77, 78].map(|net| format!("127.{net}.{high}.{low}:7070"));
    let [first, second] = [0, 1].map(|number: usize| {
        let ports =
            ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--http", &addresses[number]];
        let peers = ["--peers", &addresses[0], "--peers", &addresses[1], "--peers-key", &key];
        let more = ["meter", "--join-ttl", "1s", "--lanes", "2"];
        Meter::ready(Program::start(&[&more[..], &ports, &peers].concat()))
    });
    until("both hear the other", || {
        let heard = |meter: &Meter| {
            let peers = meter.coverage().peers.expect("it is on").peers;
            peers.len() == 1 && peers[0].state == PeerState::Answers
        };
        (heard(&first) && heard(&second)).then_some(())
    });
    send(&first, "web", SpanKind::Client, 0..30);
    send(&second, "cart", SpanKind::Server, 0..20);
    send(&first, "cart", SpanKind::Server, 25..30);
    let spans = until("every half has its class", || {
        let all = [&first, &second].map(|meter| meter.coverage().spans);
        all.iter().all(|spans| spans.received > 0 && spans.pending == 0).then_some(all)
    });
    let of = |number: usize| {
        let of = &spans[number];
        (of.joined, of.apart, of.expired_client_only, of.expired_server_only, of.unresolved)
    };
    assert_eq!((of(0), of(1)), ((10, 20, 5, 0, 0), (0, 20, 0, 0, 0)));
    let coverage = first.coverage();
    assert!(coverage.notes.iter().any(|note| note.contains("20 halves of calls are apart")), "{coverage:#?}");
    let web = coverage.services.iter().find(|of| of.service == "web").expect("it is there");
    assert_eq!((web.client_joined, web.client_unmatched), (5, 5));
    let metrics = String::from_utf8(first.get("/metrics").body).expect("it is text");
    assert!(metrics.contains("\nspangap_spans_total{class=\"apart\"} 20\n"), "{metrics}");

    // Nobody else learns of halves.
    assert_eq!(first.get("/api/v1/halves?after=0").status, 401);
    let wrong = [("authorization", "Bearer 0000000000000000")];
    assert_eq!(request(first.http, "GET", "/api/v1/halves", &wrong, b"").status, 401);

    // What is sent while the other one is away may be there.
    second.program.signal("KILL");
    drop(second);
    send(&first, "web", SpanKind::Client, 100..103);
    let spans = until("every half has its class again", || {
        Some(first.coverage().spans).filter(|spans| spans.received == 38 && spans.pending == 0)
    });
    assert_eq!((spans.unresolved, spans.expired_client_only, spans.apart), (3, 5, 20));
    until("it is known to be gone", || {
        let peers = first.coverage().peers.expect("it is on").peers;
        peers.iter().any(|peer| peer.state == PeerState::Gone).then_some(())
    });
}

#[test]
fn peers_ask_over_tls_and_only_one_another() {
    let papers = Papers::new();
    let folder = tempfile::tempdir().expect("a folder");
    let key = key(folder.path(), SECRET);
    let tls = papers.of_meter();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let tokens = papers.path("tokens");
    let authority = papers.path("ca.pem");
    let common = ["--peers-key", &key, "--peers-ca", authority.to_str().expect("text")];
    let tokens = ["--token-file", tokens.to_str().expect("text")];
    let start = |peer: &str| Meter::start(&[&tls[..], &common, &tokens, &["--peers", peer]].concat());
    let asked = start("127.0.0.1:1");
    let asks = start(&format!("localhost:{}", asked.http.port()));
    let token = format!("authorization: Bearer {}", super::tls::VIEW);
    until("an answer over TLS", || {
        let said = papers.curl(asks.http, "/api/v1/coverage", &["-H", &token]);
        String::from_utf8_lossy(&said.stdout).contains(r#""state":"answers""#).then_some(())
    });
    let said = papers.curl(asked.http, "/api/v1/coverage", &["-H", &token]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(r#""state":"unheard""#), "{said}");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (key, short) = (key(folder.path(), SECRET), folder.path().join("short"));
    fs::write(&short, "short").expect("it can be written");
    let short = short.to_str().expect("text");
    for (options, expected) in [
        (&["--peers", "meters.example:7070"][..], "expected --peers-key FILE as well"),
        (&["--peers-key", &key], "--peers is missing"),
        (&["--peers", "meters.example", "--peers-key", &key], "--peers meters.example: expected HOST:PORT"),
        (&["--peers", "a:1", "--peers-key", short], "expected a secret of at least 32 characters"),
        (&["--peers", "a:1", "--peers-key", "/nowhere"], "cannot read /nowhere"),
    ] {
        let ended = Program::start(&[&["meter"], &FREE_PORTS[..], options].concat()).wait();
        assert_eq!(ended.code, Some(1), "{options:?}: {ended:?}");
        assert!(ended.err.join("\n").contains(expected), "{options:?}: {ended:?}");
    }
}
