//! Slow calls and spans: all are counted, with the ids of the calls.

use crate::collector::{Collector, hex, text};
use crate::process::{Meter, Program};
use crate::{report, reported, runs, target, the_run};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;
use std::collections::HashMap;

#[test]
fn every_call_is_one_span_and_every_slow_one_a_line() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let (collector, url) = Collector::start(&runtime);
    let (_target, address) = target(&["--think", "2ms"]);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("slow.jsonl");
    let log = log.to_str().expect("its name is text");
    let report = reported(
        &address,
        &[
            "--rate",
            "500",
            "--duration",
            "200ms",
            "--warmup",
            "100ms",
            "--slow",
            "2ms",
            "--slow-log",
            log,
            "--otlp",
            &url,
            "--timeout",
            "1m",
        ],
    );
    let run = the_run(&report);
    assert_eq!(
        (&run["ok"], &run["slow"], &run["trace"]),
        (&100.into(), &100.into(), &true.into()),
        "{report}"
    );
    assert_eq!(report["spans"]["exported"], 150, "the warm-up's calls are traced too: {report}");
    assert_eq!(report["spans"]["recorded"], 150);
    assert_eq!(report["slow_log"]["written"], 100, "each takes longer than its think time: {report}");

    let spans: HashMap<String, _> =
        collector.received().into_iter().map(|span| (hex(&span.span_id), span)).collect();
    assert_eq!(spans.len(), 150);
    let text_of_log = std::fs::read_to_string(log).expect("the log is there");
    assert_eq!(text_of_log.lines().count(), 100);
    for line in text_of_log.lines() {
        let line: Value = serde_json::from_str(line).expect("a JSON line");
        let span = &spans[line["span_id"].as_str().expect("an id")];
        assert_eq!(line["trace_id"], hex(&span.trace_id));
        assert_eq!(line["sent_unix_ns"], span.start_time_unix_nano);
        assert_eq!(line["done_unix_ns"], span.end_time_unix_nano);
        assert!(line["intended_unix_ns"].as_u64() <= line["sent_unix_ns"].as_u64());
        assert_eq!(line["status"], "OK");
        assert_eq!(line["peer_addr"], address);
        let local = line["local_addr"].as_str().and_then(|local| local.rsplit_once(':')).expect("an address");
        assert_eq!(text(&span.attributes, "network.local.port").as_deref(), Some(local.1));
    }
}

#[test]
fn spans_name_the_method() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let cases = [
        ("rust", "unary", "grpc", "spangap.ping.v1.Ping/Ping"),
        ("rust", "stream", "grpc", "spangap.ping.v1.Ping/PingStream"),
        ("raw", "unary", "spangap_raw", "ping"),
    ];
    for (stack, call, system, method) in cases {
        let (collector, url) = Collector::start(&runtime);
        let (served, address) = target(&["--stack", stack, "--otlp", &url]);
        let mut arguments = vec!["--stack", stack, "--call", call, "--otlp", &url];
        arguments.extend(["--inflight", "2", "--warmup", "0s", "--duration", "50ms"]);
        let report = reported(&address, &arguments);
        served.signal("INT");
        assert_eq!(served.wait().code, Some(0));
        let ok = the_run(&report)["ok"].as_u64().expect("a number") as usize;
        let spans = collector.received();
        assert!(ok > 0 && spans.len() == 2 * ok, "{ok} calls, {} spans", spans.len());
        for span in spans {
            assert_eq!(span.name, method, "{span:?}");
            assert_eq!(text(&span.attributes, "rpc.system.name").as_deref(), Some(system), "{span:?}");
            assert_eq!(text(&span.attributes, "rpc.method").as_deref(), Some(method), "{span:?}");
        }
    }
}

#[test]
fn attempts_are_server_spans_under_one_client_span() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    for (channels, attempts) in [("shared", 3), ("per-call", 3), ("shared", 2)] {
        let (collector, url) = Collector::start(&runtime);
        let (served, address) = target(&["--fail", "UNAVAILABLE:2/5", "--otlp", &url]);
        let limit = attempts.to_string();
        let mut arguments = vec!["--attempts", &limit, "--channels", channels, "--otlp", &url];
        arguments.extend(["--inflight", "3", "--warmup", "0s", "--duration", "200ms"]);
        let report = reported(&address, &arguments);
        served.signal("INT");
        let served = served.wait();
        assert_eq!(served.code, Some(0));
        let run = the_run(&report);
        let count = |what: &Value| what.as_u64().expect("a number");
        let calls = count(&run["calls"]);
        // All calls have ended, so the target has seen the first attempt of each.
        let (chosen, failed) = (calls / 5, if attempts == 3 { 0 } else { calls / 5 });
        assert!(chosen > 0, "{run}");
        assert_eq!(run["attempts"], attempts);
        assert_eq!(
            (count(&run["ok"]), run["errors"]["UNAVAILABLE"].as_u64().unwrap_or(0)),
            (calls - failed, failed)
        );

        let (client, server): (Vec<_>, Vec<_>) =
            collector.received().into_iter().partition(|span| span.kind() == SpanKind::Client);
        assert_eq!(client.len() as u64, calls, "one span for each call, however often it was made");
        assert_eq!(server.len() as u64, calls + chosen * (attempts - 1), "{served:?}");
        let mut of_call: HashMap<_, u64> = HashMap::new();
        for span in &server {
            *of_call.entry((span.trace_id.clone(), span.parent_span_id.clone())).or_default() += 1;
        }
        for span in &client {
            let attempts_seen = of_call.remove(&(span.trace_id.clone(), span.span_id.clone()));
            assert!(attempts_seen.is_some_and(|seen| seen == 1 || seen == attempts), "{attempts_seen:?}");
        }
        assert!(of_call.is_empty(), "spans of the target without a call: {of_call:?}");
    }
}

#[test]
fn every_stacks_calls_are_joined_by_a_meter() {
    let meter = Meter::start(&[]);
    let url = format!("http://{}", meter.otlp_grpc);
    let (served, address) = target(&["--otlp", &url]);
    let mut arguments = vec!["--stack", "rust,cpp-sync,cpp-async,cpp-callback,go", "--call", "unary,stream"];
    arguments.extend(["--inflight", "3", "--duration", "200ms", "--warmup", "50ms", "--otlp", &url]);
    let report = reported(&address, &arguments);
    for not_run in report["not_run"].as_array().expect("a list") {
        println!("not run: {not_run}");
        assert!(not_run["why"].as_str().is_some_and(|why| why.contains("is not available")), "{not_run}");
    }
    let seconds = runs(&report).iter().flat_map(|run| run["seconds"].as_array().expect("a list"));
    let ok: u64 = seconds.filter_map(|second| second["ok"].as_u64()).sum();
    let made = report["spans"]["exported"].as_u64().expect("a number");
    assert_eq!((made, &report["spans"]["recorded"]), (ok, &ok.into()), "the warm-up's calls are traced too");
    served.signal("INT");
    assert_eq!(served.wait().code, Some(0));
    let row = meter.pair("tank", "target", made);
    assert_eq!(row.calls + row.negative, made);
    let spans = meter.coverage().spans;
    assert_eq!((spans.received, spans.joined), (2 * made, 2 * made), "{spans:?}");
}

#[test]
fn a_meters_token_comes_from_the_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "ingest spans-1234567890abcdef\n").expect("written");
    let meter = Meter::start(&["--token-file", tokens.to_str().expect("plain")]);
    let url = format!("http://{}", meter.otlp_grpc);
    let (_target, address) = target(&[]);
    let arguments = ["tank", &address, "--json", "--inflight", "1", "--warmup", "0s", "--duration", "100ms"];
    let arguments = [&arguments[..], &["--otlp", &url]].concat();
    let with = |headers: &str| {
        let set = |tank: &mut std::process::Command| {
            tank.env("OTEL_EXPORTER_OTLP_HEADERS", headers);
        };
        Program::start_with(&arguments, set).wait()
    };
    for (headers, taken) in [("authorization=Bearer%20spans-1234567890abcdef", true), ("", false)] {
        let ended = with(headers);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let spans = &report(&ended)["spans"];
        let (exported, refused) = if taken { ("exported", "rejected") } else { ("rejected", "exported") };
        assert!(spans["recorded"].as_u64() > Some(0), "{spans}");
        assert_eq!((&spans[exported], &spans[refused]), (&spans["recorded"], &0.into()), "{spans}");
    }
    let bad = with("spans-1234567890abcdef");
    let said = bad.err.concat();
    assert!(bad.code == Some(1) && said.contains("expected NAME=VALUE"), "{bad:?}");
    assert!(!said.contains("spans-1234567890abcdef"), "tokens are never told: {said}");
}
