//! `--kubernetes`: names from the Kubernetes API. The answers were recorded from a real one (fixtures/kubernetes), and openssl
//! serves them over TLS; `make test-kubernetes` asks a live one.

use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::{half, text};
use super::tls::Papers;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::Value;
use spangap_meter::report::{Coverage, KubernetesCoverage, PairsReport};
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const WATCH: &str = "pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=";
const TANK: &str = "tank-86587979f8-qb4bs";
const NEXT_TANK: &str = "tank-86587979f8-6g8wj";
const TARGET: &str = "target-7ffdbdbc9d-8fjx4";

fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/kubernetes").join(name);
    fs::read_to_string(path).expect("it is there")
}

/// An API whose answers are files named like the requests.
struct Api {
    papers: Papers,
    server: Child,
    port: String,
}

impl Api {
    fn start() -> Api {
        let papers = Papers::new();
        fs::create_dir_all(papers.path("api/v1")).expect("a folder");
        fs::create_dir_all(papers.path("account")).expect("a folder");
        fs::copy(papers.path("ca.pem"), papers.path("account/ca.crt")).expect("it is there");
        fs::write(papers.path("account/token"), "a-token\n").expect("it can be written");
        let mut openssl = Command::new("openssl");
        openssl.args([
            "s_server",
            "-HTTP",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            "server.pem",
            "-key",
            "server.key",
        ]);
        let server = openssl
            .current_dir(papers.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = server.spawn().expect("openssl is there");
        let mut lines =
            BufReader::new(server.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let port = lines.find_map(|line| Some(line.strip_prefix("ACCEPT ")?.rsplit_once(':')?.1.to_owned()));
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.count());
        Api { papers, server, port: port.expect("it says where it listens") }
    }

    /// The answer to a request from now on.
    fn answers(&self, request: &str, status: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
        let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let new = self.papers.path("new");
        fs::write(&new, answer).expect("it can be written");
        fs::rename(new, self.papers.path("api/v1").join(request)).expect("it can be renamed");
    }

    fn account(&self) -> PathBuf {
        self.papers.path("account")
    }

    fn meter(&self) -> Meter {
        let account = self.account();
        let options = ["--by", "pod", "--kubernetes", account.to_str().expect("plain text")];
        let set = |command: &mut Command| {
            command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", &self.port);
        };
        Meter::ready(Program::start_with(&[&["meter"], &FREE_PORTS[..], &options].concat(), set))
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Sends calls from a tank that knows its host name to a target that knows its address.
fn send(meter: &Meter, calls: Range<u64>, host_name: &str, address: &str) {
    let mut client = half("tank", SpanKind::Client, calls.clone());
    let mut server = half("target", SpanKind::Server, calls);
    let stated = [(&mut client, text("host.name", host_name)), (&mut server, text("k8s.pod.ip", address))];
    for (half, attribute) in stated {
        let resource = half.resource.as_mut().expect("it has one");
        resource.attributes.retain(|one| one.key == "service.name");
        resource.attributes.push(attribute);
    }
    let request = ExportTraceServiceRequest { resource_spans: vec![client, server] }.encode_to_vec();
    let head = [("content-type", "application/x-protobuf")];
    let answer = super::client::request(meter.otlp_http, "POST", "/v1/traces", &head, &request);
    assert_eq!(answer.status, 200);
}

fn rows(meter: &Meter) -> Vec<(String, String, u64)> {
    let report: PairsReport = meter.api("/api/v1/pairs?window=1h");
    let mut rows: Vec<_> = report.pairs.into_iter().map(|row| (row.client, row.server, row.calls)).collect();
    rows.sort_unstable();
    rows
}

fn known(meter: &Meter) -> KubernetesCoverage {
    meter.coverage().kubernetes.expect("the API is asked")
}

#[test]
fn pods_are_named_as_the_api_lists_them_and_as_they_come_and_go() {
    let api = Api::start();
    let list = |name: &str| serde_json::from_str::<Value>(&recorded(name)).expect("JSON");
    let (mut first, second) = (list("pods-1.json"), list("pods-2.json"));
    let go_on = first["metadata"]["continue"].as_str().expect("there is more").to_owned();
    api.answers("pods?limit=500", "200 OK", &recorded("pods-1.json"));
    api.answers(&format!("pods?limit=500&continue={go_on}"), "200 OK", &recorded("pods-2.json"));
    api.answers("nodes?limit=500", "403 Forbidden", &recorded("forbidden.json"));
    let events = recorded("pods-watch.jsonl");
    let bookmark = events.lines().last().expect("there are events");
    assert!(bookmark.contains(r#""BOOKMARK""#) && bookmark.contains(r#""370""#), "{bookmark}");
    api.answers(&format!("{WATCH}347"), "200 OK", &bookmark.replace("370", "347"));
    let meter = api.meter();
    until("the pods", || (known(&meter).pods == 3).then_some(()));
    until("a refusal", || {
        known(&meter)
            .problems
            .iter()
            .any(|one| one.starts_with("nodes: status 403: pods is forbidden"))
            .then_some(())
    });
    assert!(
        meter.coverage().notes.iter().any(|note| note.starts_with("Kubernetes API: nodes: ")),
        "{:?}",
        meter.coverage().notes
    );

    send(&meter, 0..10, TANK, "10.88.7.10");
    send(&meter, 10..15, "a-host-beside-the-cluster", "192.0.2.1");
    let of =
        |client: &str, server: &str, calls| (format!("tank@{client}"), format!("target@{server}"), calls);
    let expected = vec![of("?", "?", 5), of(TANK, TARGET, 10)];
    until("rows by pod", || (rows(&meter) == expected).then_some(()));
    let counts = known(&meter);
    assert_eq!((counts.named_by_name, counts.unlisted, counts.named_by_id), (2, 2, 0), "{counts:?}");

    // The tank's pod is deleted, and another one made; then the API lists what is there, and refuses to be watched.
    let event = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let next = events.lines().map(event).rfind(|event| event["object"]["metadata"]["name"] == NEXT_TANK);
    let items = first["items"].as_array_mut().expect("pods");
    items.retain(|pod| pod["metadata"]["name"] != TANK);
    items.push(next.expect("it was made")["object"].clone());
    items.extend(second["items"].as_array().expect("pods").iter().cloned());
    first["metadata"] = serde_json::json!({ "resourceVersion": "370" });
    api.answers("pods?limit=500", "200 OK", &first.to_string());
    api.answers(&format!("{WATCH}370"), "403 Forbidden", &recorded("forbidden.json"));
    api.answers(&format!("{WATCH}347"), "200 OK", &events);
    let refused =
        || known(&meter).problems.iter().any(|one| one.starts_with("pods: status 403")).then_some(());
    until("a refusal after all events", refused);
    assert_eq!(known(&meter).pods, 4, "the one that ended is remembered");
    send(&meter, 15..22, NEXT_TANK, "10.88.7.10");
    let expected = vec![of("?", "?", 5), of(NEXT_TANK, TARGET, 7), of(TANK, TARGET, 10)];
    until("rows of the next pod", || (rows(&meter) == expected).then_some(()));

    // The right to list is taken away, too.
    api.answers("pods?limit=500", "403 Forbidden", &recorded("forbidden.json"));
    until("a refusal", refused);
    let Coverage { notes, .. } = meter.coverage();
    assert!(notes.iter().any(|note| note.contains("what has changed since is not known")), "{notes:?}");
    assert_eq!(meter.stop().code, Some(0));
}

#[test]
fn a_meter_that_cannot_ask_says_why_at_its_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let account = folder.path().to_str().expect("plain text");
    let ended = |set: &dyn Fn(&mut Command)| {
        let arguments = [&["meter"], &FREE_PORTS[..], &["--kubernetes", account]].concat();
        let ended = Program::start_with(&arguments, |command| set(command)).wait();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        ended.err.join("\n")
    };
    let outside = ended(&|command| {
        command.env_remove("KUBERNETES_SERVICE_HOST");
    });
    assert!(outside.contains("KUBERNETES_SERVICE_HOST is not set"), "{outside}");
    let without = ended(&|command| {
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "1");
    });
    assert!(without.contains("ca.crt"), "{without}");
}
