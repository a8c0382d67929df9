//! `spangap gaps` as users run it: the same figures from every format, skipped input, exit codes.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FORMATS: [&str; 11] = [
    "otlp.json",
    "otlp.jsonl",
    "otlp.jsonl.gz",
    "otlp.jsonl.zst",
    "otlp.pb",
    "otlp-lengths.pb",
    "otlp-lengths-zstd.pb",
    "otlp-lengths-zstd-json",
    "jaeger.json",
    "zipkin.json",
    "zipkin-shared-ids.json",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/spans").join(name)
}

fn gaps() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.arg("gaps").stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("spangap runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn json(command: &mut Command) -> Value {
    let (code, stdout, stderr) = output(command.arg("--json"));
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).expect("one JSON document")
}

fn with_stdin(command: &mut Command, bytes: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spangap runs");
    child.stdin.take().expect("piped").write_all(bytes).expect("spangap reads");
    child.wait_with_output().expect("spangap ends")
}

#[test]
fn figures_match_the_spans() {
    let report = json(gaps().arg(fixture("otlp.json")));
    let pairs = report["pairs"].as_array().expect("pairs");
    let names: Vec<_> = pairs.iter().map(|p| (p["client"].as_str(), p["server"].as_str())).collect();
    assert_eq!(names, [(Some("frontend"), Some("cart")), (Some("cart"), Some("payment"))]);
    let first = &pairs[0];
    // One of the three calls has a negative gap: its client gave up before the server ended.
    assert_eq!((&first["calls"], &first["negative"]), (&2.into(), &1.into()));
    assert_eq!(first["negative_by_status"]["DEADLINE_EXCEEDED"], 1);
    assert_eq!(first["lost_ns_total"], 1_250_000 + 9_000_000);
    assert_eq!(first["gap"]["max_ns"], 9_000_000);
    assert_eq!(first["mate_delay"]["count"], 0, "nothing arrives in a file");
    assert_eq!(first["worst"][0]["trace_id"], "0000000000000000a1b2c3d4e5f60718");
    assert_eq!(first["worst"][0]["client_span_id"], "4142434445464748");
    assert_eq!(first["worst"][0]["status"], "UNAVAILABLE");
    let spans = &report["spans"];
    let count = |class: &str| spans[class].as_u64().expect("a count");
    assert_eq!(count("received"), 11);
    assert_eq!(
        (count("joined"), count("expired_client_only"), count("root"), count("other_kind")),
        (8, 1, 1, 1)
    );
    let classes = spans.as_object().expect("counts").iter().filter(|(class, _)| *class != "received");
    assert_eq!(classes.filter_map(|(_, n)| n.as_u64()).sum::<u64>(), 11, "every span is in one class");
}

#[test]
fn every_format_gives_the_same_report() {
    for by in ["pair", "method", "client-node", "server-node", "node", "pod", "zone", "version"] {
        let expected = json(gaps().args(["--by", by]).arg(fixture("otlp.json")));
        for name in FORMATS {
            assert_eq!(json(gaps().args(["--by", by]).arg(fixture(name))), expected, "{name} by {by}");
        }
    }
    let expected = json(gaps().arg(fixture("otlp.json")));
    for name in FORMATS {
        let bytes = std::fs::read(fixture(name)).expect("fixture");
        let output = with_stdin(gaps().args(["--json", "-"]), &bytes);
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert_eq!(report, expected, "{name} from standard input");
    }
}

#[test]
fn a_row_is_a_part_of_a_service_by_the_attribute_that_states_it() {
    let text = std::fs::read_to_string(fixture("otlp.json")).expect("fixture");
    assert!(text.contains(r#""host.name""#));
    for (by, attribute) in [
        ("pod", "k8s.pod.name"),
        ("pod", "container.id"),
        ("node", "k8s.node.name"),
        ("zone", "cloud.availability_zone"),
    ] {
        let stated = text.replace("host.name", attribute);
        let output = with_stdin(gaps().args(["--json", "--by", by, "-"]), stated.as_bytes());
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        let row = &report["pairs"][0];
        let names = (row["client"].as_str(), row["server"].as_str(), row["calls"].as_u64());
        assert_eq!(names, (Some("frontend@10.0.0.1"), Some("cart@10.0.0.2"), Some(2)), "{by}: {attribute}");
    }
    let unstated = json(gaps().args(["--by", "server-zone"]).arg(fixture("otlp.json")));
    let row = &unstated["pairs"][0];
    assert_eq!((row["client"].as_str(), row["server"].as_str()), (Some("frontend"), Some("cart@?")));
}

#[test]
fn spans_of_one_call_may_be_in_different_files() {
    let text = std::fs::read_to_string(fixture("otlp.jsonl")).expect("fixture");
    let directory = tempfile::tempdir().expect("a directory");
    let mut files = Vec::new();
    // One file per service, so every call spans two files.
    for service in ["frontend", "cart", "payment"] {
        let mut lines = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let mut request: Value = serde_json::from_str(line).expect("a line is a document");
            let of_service =
                |spans: &Value| spans["resource"]["attributes"][0]["value"]["stringValue"] == service;
            request["resourceSpans"].as_array_mut().expect("an array").retain(of_service);
            lines += &format!("{request}\n");
        }
        files.push(directory.path().join(service));
        std::fs::write(files.last().expect("just pushed"), lines).expect("written");
    }
    files.reverse();
    assert_eq!(json(gaps().args(&files)), json(gaps().arg(fixture("otlp.json"))));
    let twice = json(gaps().args(&files).arg(fixture("jaeger.json")));
    assert_eq!(twice["spans"]["duplicate"], 8 + 1, "a span that comes twice counts once");
}

#[test]
fn the_text_has_a_table_and_what_was_not_seen() {
    let (code, table, stderr) = output(gaps().arg(fixture("otlp.json")));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("CLIENT    SERVER   CALLS"), "{table}");
    assert!(lines[1].starts_with("frontend  cart         2"), "{table}");
    for expected in [
        "9.00 ms",
        "11 spans received from 1 file (OTLP JSON).",
        "8 joined (88.9 %), 1 client-only, 0 server-only, 0 duplicate",
        "1 root SERVER",
        "Worst calls of frontend -> cart:",
        "0000000000000000a1b2c3d4e5f60718  4142434445464748  UNAVAILABLE",
    ] {
        assert!(table.contains(expected), "{expected:?} is not in\n{table}");
    }
    assert!(!table.contains("Skipped"), "{table}");
    let (_, one, _) = output(gaps().args(["--top", "1"]).arg(fixture("otlp.json")));
    assert!(one.contains("… and 1 more; --top 2 shows all") && !one.contains("payment"), "{one}");
}

#[test]
fn bad_input_is_named_and_the_rest_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let broken = directory.path().join("broken.jsonl");
    let text = std::fs::read_to_string(fixture("otlp.jsonl")).expect("fixture");
    std::fs::write(&broken, text.replacen("\n\n", "\n{\"resourceSpans\":[{\"reso\n", 1)).expect("written");

    let (code, table, stderr) = output(gaps().arg(&broken));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let place = format!("{}: line 2, offset ", broken.display());
    assert!(table.contains("Skipped 1 place:") && table.contains(&place), "{table}");
    let report = json(gaps().arg(&broken));
    assert_eq!(
        (&report["spans"]["received"], &report["skipped"][0]["file"]),
        (&11.into(), &broken.display().to_string().into())
    );
    assert!(
        report["skipped"][0]["reason"].as_str().is_some_and(|reason| reason.contains("expected")),
        "{report}"
    );

    // A file that cannot be read at all fails the command, after the rest has been printed.
    let missing = directory.path().join("missing");
    let (code, table, stderr) = output(gaps().arg(&missing).arg(fixture("otlp.json")));
    assert_eq!(code, 1);
    assert!(stderr.starts_with(&format!("spangap: {}: No such file", missing.display())), "{stderr}");
    assert!(table.contains("11 spans received from 1 file"), "{table}");
    let (code, table, stderr) = output(gaps().arg(directory.path().join("missing")));
    assert_eq!((code, table.as_str()), (1, ""), "{stderr}");
    let (code, _, stderr) = output(gaps().arg(fixture("README.md")));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("found text that starts with \"# Spans in every")
            && stderr.contains("expected OTLP JSON"),
        "{stderr}"
    );
}

/// Files that users pass by mistake get an error that helps.
#[test]
fn files_that_are_not_spans_are_identified() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = |path: &Path| {
        let (code, table, stderr) = output(gaps().arg(path));
        assert_eq!((code, table.as_str()), (1, ""), "{stderr}");
        stderr
    };
    let folder = said(directory.path());
    assert!(folder.contains("is a folder: name the files in it"), "{folder}");
    let capture = said(&fixture("../captures/healthy.client.pcapng"));
    assert!(capture.contains("found a packet capture: `spangap dissect` reads it"), "{capture}");
    let half = directory.path().join("half.json");
    std::fs::write(&half, "{").expect("written");
    let half = said(&half);
    assert!(
        half.contains("found JSON that breaks off: expected a comma") && !half.contains("found expected")
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    assert_eq!(output(&mut gaps()).0, 2);
    assert_eq!(output(gaps().args(["--by", "moon"]).arg(fixture("otlp.json"))).0, 2);
    assert_eq!(output(gaps().args(["--exclude-response-over", "much"]).arg(fixture("otlp.json"))).0, 2);
}

#[test]
fn large_responses_are_excluded_by_default() {
    let text = std::fs::read_to_string(fixture("otlp.json")).expect("fixture");
    let mut request: Value = serde_json::from_str(&text).expect("the fixture is JSON");
    let size = serde_json::json!({"key": "rpc.server.response.size", "value": {"intValue": "200000"}});
    let cart = &mut request["resourceSpans"][1]["scopeSpans"][0]["spans"][0];
    assert_eq!(cart["spanId"], "1112131415161718");
    cart["attributes"].as_array_mut().expect("attributes").push(size);
    let large = request.to_string();
    let excluded = |arguments: &[&str]| {
        let output = with_stdin(gaps().args(arguments).args(["--json", "-"]), large.as_bytes());
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        report["pairs"][0]["excluded_large"].as_u64()
    };
    assert_eq!(excluded(&[]), Some(1));
    assert_eq!(excluded(&["--exclude-response-over", "1MiB"]), Some(0));
    assert_eq!(excluded(&["--exclude-response-over", "none"]), Some(0));
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let mut child = gaps()
        .args(["--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spangap runs");
    // Nobody reads the output before it is written.
    drop(child.stdout.take());
    let bytes = std::fs::read(fixture("otlp.json")).expect("fixture");
    child.stdin.take().expect("piped").write_all(&bytes).expect("spangap reads");
    let output = child.wait_with_output().expect("spangap ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn ctrl_c_prints_the_result_so_far() {
    let mut child = gaps()
        .arg(fixture("otlp.json"))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spangap runs");
    let mut stdin = child.stdin.take().expect("piped");
    // More than a pipe holds: once it is written, most of it has been read, and so has the file before it.
    let blanks = format!("{{\"resourceSpans\": [{}", " ".repeat(1 << 20));
    stdin.write_all(blanks.as_bytes()).expect("spangap reads");
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(interrupt.success());
    let output = child.wait_with_output().expect("spangap ends");
    drop(stdin);
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("Interrupted") && table.contains("11 spans received"), "{table}");
}

/// 400 calls of `web` to `shop`; those served by node `n3`, one in eight, wait 30 ms.
fn calls_with_a_slow_node() -> String {
    let attribute =
        |key: &str, value: &str| format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#);
    let lines = (0..400u64).map(|number| {
        // A multiplier coprime to 256 shuffles the order.
        let node = number * 77 % 256 % 8;
        let gap_us = 300 + number * 131 % 200 + if node == 3 { 30_000 } else { 0 };
        let start = 1_700_000_000_000_000_000 + number * 50_000_000;
        let spans = [
            ("web", "x".to_owned(), 3, format!("{:016x}", 2 * number + 1), String::new(), start, gap_us + 900),
            (
                "shop",
                format!("n{node}"),
                2,
                format!("{:016x}", 2 * number + 2),
                format!("{:016x}", 2 * number + 1),
                start + 100_000,
                900,
            ),
        ];
        let spans = spans.map(|(service, node, kind, id, parent, start, us)| {
            format!(
                r#"{{"resource":{{"attributes":[{},{}]}},"scopeSpans":[{{"spans":[{{"traceId":"{:032x}","spanId":"{id}","parentSpanId":"{parent}","name":"Buy","kind":{kind},"startTimeUnixNano":"{start}","endTimeUnixNano":"{}"}}]}}]}}"#,
                attribute("service.name", service),
                attribute("host.name", &node),
                number + 1,
                start + us * 1000
            )
        });
        format!("{{\"resourceSpans\":[{}]}}\n", spans.join(","))
    });
    lines.collect()
}

#[test]
fn attributes_of_slow_calls_are_reported() {
    let spans = calls_with_a_slow_node();
    let printed = with_stdin(gaps().args(["--explain", "-"]), spans.as_bytes());
    let text = String::from_utf8(printed.stdout).expect("UTF-8");
    let sentence =
        text.lines().find(|line| line.contains("of the excess on")).unwrap_or_else(|| panic!("{text}"));
    assert!(sentence.starts_with("  server: host.name = n3: "), "{text}");
    assert!(sentence.contains("% of the calls; median gap 30."), "{text}");
    assert!(text.contains("Nothing else of "), "{text}");

    let printed = with_stdin(gaps().args(["--explain", "--json", "-"]), spans.as_bytes());
    let document: Value = serde_json::from_slice(&printed.stdout).expect("one JSON document");
    let explanation = &document["explain"][0];
    assert_eq!((&explanation["client"], &explanation["server"]), (&"web".into(), &"shop".into()));
    assert_eq!(explanation["differs"].as_array().map(Vec::len), Some(1), "{explanation:#}");
    assert!(explanation["differs"][0]["share_of_excess"]["low"].as_f64() > Some(0.9), "{explanation:#}");

    let without = with_stdin(gaps().args(["--json", "-"]), spans.as_bytes());
    let document: Value = serde_json::from_slice(&without.stdout).expect("one JSON document");
    assert!(document.get("explain").is_none(), "nobody asked");
}
