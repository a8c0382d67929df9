//! TLS on the ports, tokens and sign-in, with certificates made by openssl and third-party clients: curl,
//! tonic, the agent.

use super::grpc::Sender;
use super::process::{Meter, PATIENCE, Program, until};
use super::spans::calls;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

pub const VIEW: &str = "view-view-view-view";
const CAPTURE: &str = "capture-capture-cap";
const INGEST: &str = "ingest-ingest-ingest";

/// A folder with a certificate authority, `server.pem` and `agent.pem` signed by it, and `stranger.pem`
/// signed by another one.
pub struct Papers(tempfile::TempDir);

impl Papers {
    pub fn new() -> Papers {
        let papers = Papers(tempfile::tempdir().expect("a folder"));
        for authority in ["ca", "other"] {
            let name = format!("/CN=authority {authority}");
            papers.openssl(
                &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
                &[
                    "-keyout",
                    &format!("{authority}.key"),
                    "-out",
                    &format!("{authority}.pem"),
                    "-days",
                    "30",
                    "-subj",
                    &name,
                ],
            );
        }
        papers.issue("server", "ca", "IP:127.0.0.1,DNS:localhost");
        papers.issue("agent", "ca", "DNS:agent");
        papers.issue("stranger", "other", "DNS:agent");
        let tokens = format!("view {VIEW}\ncapture {CAPTURE}\ningest {INGEST}\n");
        fs::write(papers.path("tokens"), tokens).expect("it can be written");
        fs::write(papers.path("capture.token"), CAPTURE).expect("it can be written");
        papers
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain text").to_owned()
    }

    fn issue(&self, name: &str, authority: &str, names: &str) {
        let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
        fs::write(self.path("extensions"), extensions).expect("it can be written");
        let (key, request) = (format!("{name}.key.new"), format!("{name}.csr"));
        let new_key = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        self.openssl(&new_key, &["-keyout", &key, "-out", &request, "-subj", &format!("/CN={name}")]);
        let (by, by_key, new) =
            (format!("{authority}.pem"), format!("{authority}.key"), format!("{name}.new"));
        self.openssl(
            &["x509", "-req", "-days", "30", "-CAcreateserial", "-extfile", "extensions"],
            &["-in", &request, "-CA", &by, "-CAkey", &by_key, "-out", &new],
        );
        fs::rename(self.path(&key), self.path(&format!("{name}.key"))).expect("it was made");
        fs::rename(self.path(&new), self.path(&format!("{name}.pem"))).expect("it was made");
    }

    fn openssl(&self, what: &[&str], with: &[&str]) {
        let done = Command::new("openssl").args(what).args(with).current_dir(self.0.path()).output();
        let done = done.expect("openssl is there");
        assert!(done.status.success(), "openssl {what:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Options of a meter that uses them.
    pub fn of_meter(&self) -> Vec<String> {
        let files = [("--tls-cert", "server.pem"), ("--tls-key", "server.key")];
        files.iter().flat_map(|(option, file)| [(*option).to_owned(), self.text(file)]).collect()
    }

    pub fn curl(&self, address: SocketAddr, path: &str, more: &[&str]) -> Output {
        let url = format!("https://{address}{path}");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--cacert", &self.text("ca.pem"), &url]).args(more);
        curl.output().expect("curl is there")
    }
}

fn start(options: &[String], more: &[&str]) -> Meter {
    let options: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Meter::start(&options)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn sender(papers: &Papers, meter: &Meter) -> Sender {
    let authority = Certificate::from_pem(fs::read(papers.path("ca.pem")).expect("it is there"));
    let endpoint = Endpoint::from_shared(format!("https://{}", meter.otlp_grpc)).expect("a URL");
    let tls = ClientTlsConfig::new().ca_certificate(authority);
    let endpoint = endpoint.tls_config(tls).expect("TLS").timeout(PATIENCE);
    TraceServiceClient::new(endpoint.connect().await.expect("it listens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_port_speaks_tls_and_nothing_else() {
    let papers = Papers::new();
    let meter = start(&papers.of_meter(), &[]);
    sender(&papers, &meter).await.export(calls("web", "cart", 0..500)).await.expect("it is accepted");
    for version in ["--http1.1", "--http2"] {
        let pairs = said(&papers.curl(meter.http, "/api/v1/pairs", &[version]));
        assert!(pairs.contains(r#""client":"web""#), "{version}: {pairs}");
    }
    for version in ["--tls-max 1.2", "--tlsv1.3"] {
        let options: Vec<&str> = version.split(' ').collect();
        let done = papers.curl(
            meter.otlp_http,
            "/v1/traces",
            &[&options[..], &["-d", "{}", "-H", "content-type: application/json"]].concat(),
        );
        assert!(done.status.success() && said(&done).contains("{"), "{version}: {}", said(&done));
    }
    let old = papers.curl(meter.http, "/readyz", &["--tls-max", "1.1"]);
    assert!(!old.status.success(), "{}", said(&old));
    let unknown = papers.curl(meter.http, "/readyz", &["--cacert", &papers.text("other.pem")]);
    assert!(said(&unknown).contains("certificate"), "{}", said(&unknown));
    for address in [meter.http, meter.otlp_http, meter.otlp_grpc] {
        let plain =
            Command::new("curl").args(["-sS", "--max-time", "60", &format!("http://{address}/")]).output();
        let plain = said(&plain.expect("curl is there"));
        assert!(plain.contains("speaks TLS: ask it by https://"), "{plain}");
    }
    let coverage = said(&papers.curl(meter.http, "/api/v1/coverage", &[]));
    let coverage: serde_json::Value = serde_json::from_str(&coverage).expect("JSON");
    let without = |port: &str| {
        let ports = coverage["ports"].as_array().expect("ports");
        ports.iter().find(|of| of["port"] == port).expect("it is there")["closed_no_tls"]
            .as_u64()
            .expect("a number")
    };
    // Plain text, an old version of TLS, and a client that does not know our authority.
    assert_eq!((without("http"), without("otlp_http"), without("otlp_grpc")), (3, 1, 1), "{coverage}");
}

#[test]
fn certificates_are_reloaded_and_invalid_ones_ignored() {
    let papers = Papers::new();
    let meter = start(&papers.of_meter(), &[]);
    let serial = || {
        let shown = Command::new("openssl")
            .args(["s_client", "-connect", &meter.http.to_string(), "-CAfile", &papers.text("ca.pem")])
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl is there");
        let mut read = Command::new("openssl");
        read.args(["x509", "-noout", "-serial"]).stdin(std::process::Stdio::piped());
        let mut read = read.stdout(std::process::Stdio::piped()).spawn().expect("openssl is there");
        std::io::Write::write_all(&mut read.stdin.take().expect("it is piped"), &shown.stdout)
            .expect("it is read");
        String::from_utf8(read.wait_with_output().expect("it ends").stdout).expect("text")
    };
    let first = serial();
    assert!(first.starts_with("serial="), "{first}");
    fs::write(papers.path("server.pem"), "not a certificate").expect("it can be written");
    let error =
        until("a word of the bad file", || meter.program.error_line().filter(|line| line.contains("TLS")));
    assert!(
        error.contains(
            "server.pem: expected certificates in PEM: found none; still using the previous certificates"
        ),
        "{error}"
    );
    assert_eq!(serial(), first, "what was there before is in use");
    papers.issue("server", "ca", "IP:127.0.0.1");
    let second = until("another certificate", || Some(serial()).filter(|serial| *serial != first));
    assert!(second.starts_with("serial="), "{second}");
}

#[test]
fn reachable_ports_require_tls_and_tokens_or_insecure() {
    let papers = Papers::new();
    let tls = papers.of_meter();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let tokens = papers.text("tokens");
    let tokens = ["--token-file", &tokens];
    let open = ["meter", "--otlp-grpc", "0.0.0.0:0", "--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    for (more, lacks) in [
        (vec![], "expected --tls-cert, --tls-key and --token-file, or --insecure"),
        (tokens.to_vec(), "expected --tls-cert and --tls-key, or --insecure"),
        (tls.clone(), "expected --token-file, or --insecure"),
        (vec!["--tls-cert", "cert.pem"], "--tls-key is missing"),
        (vec!["--tls-key", "key.pem"], "--tls-cert is missing"),
        (vec!["--tls-cert", "/nowhere/cert.pem", "--tls-key", "key.pem"], "cannot read /nowhere/cert.pem"),
        (vec!["--tls-cert", tls[3], "--tls-key", tls[3]], "expected certificates in PEM: found none"),
        (vec!["--tls-cert", tls[1], "--tls-key", tls[1]], "expected a private key in PEM: found none"),
    ] {
        let ended = Program::start(&[&open[..], &more].concat()).wait();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.iter().any(|line| line.contains(lacks)), "{lacks}: {ended:?}");
    }
    for more in [vec!["--insecure"], [&tls[..], &tokens].concat()] {
        let meter = Meter::ready(Program::start(&[&open[..], &more].concat()));
        assert_eq!(meter.stop().code, Some(0));
    }
}

#[test]
fn refusals_reach_clients_that_are_still_sending() {
    let papers = Papers::new();
    let tokens = papers.text("tokens");
    let meter = start(&papers.of_meter(), &["--token-file", &tokens]);
    fs::write(papers.path("large"), vec![b'x'; 3 << 20]).expect("it can be written");
    let large = format!("@{}", papers.text("large"));
    let bearer = format!("authorization: Bearer {VIEW}");
    let asked = [
        (meter.http, "/api/v1/cases", "content-type: application/json", "401"),
        (meter.http, "/api/v1/pairs", &bearer, "405"),
        (meter.otlp_http, "/v1/traces", "content-type: application/x-protobuf", "401"),
        (meter.otlp_http, "/v1/logs", "content-type: application/x-protobuf", "404"),
        (meter.otlp_grpc, "/v1/traces", "content-type: application/x-protobuf", "401"),
    ];
    for version in ["--http1.1", "--http2"] {
        for (port, path, header, status) in asked {
            for _ in 0..5 {
                let sent = ["-X", "POST", "--data-binary", &large, "-H", header, "-w", " %{http_code}"];
                let answer = said(&papers.curl(port, path, &[&sent[..], &[version]].concat()));
                assert!(answer.ends_with(status), "{version} {path}: {answer}");
            }
        }
    }
}

#[test]
fn a_browser_signs_in_and_out_with_a_token() {
    let papers = Papers::new();
    let tokens = papers.text("tokens");
    let meter = start(&papers.of_meter(), &["--token-file", &tokens]);
    let jar = papers.text("cookies");
    let ask = |path: &str, more: &[&str]| {
        let output =
            papers.curl(meter.http, path, &[&["-b", &jar, "-c", &jar, "-w", " %{http_code}"], more].concat());
        said(&output)
    };
    let page = ask("/", &["-o", "/dev/null"]);
    assert!(page.ends_with("200"), "the page itself is nobody's secret: {page}");
    assert!(ask("/api/v1/pairs", &[]).ends_with("401"));
    assert_eq!(ask("/api/v1/session", &[]), r#"{"needs_token":true} 200"#);
    for (token, status) in [("nobody-knows-this-one", "401"), (INGEST, "403"), ("", "401")] {
        let bearer = format!("authorization: Bearer {token}");
        let answer = ask("/api/v1/session", &["-X", "POST", "-H", &bearer]);
        assert!(answer.ends_with(status) && !answer.contains("ingest-ingest"), "{token}: {answer}");
    }
    let bearer = format!("authorization: Bearer {CAPTURE}");
    assert_eq!(
        ask("/api/v1/session", &["-X", "POST", "-H", &bearer]),
        r#"{"needs_token":true,"role":"capture"} 200"#
    );
    let kept = fs::read_to_string(&jar).expect("cookies");
    assert!(
        kept.contains("#HttpOnly_127.0.0.1") && kept.contains("TRUE\t") && !kept.contains(CAPTURE),
        "{kept}"
    );
    assert!(ask("/api/v1/pairs", &[]).ends_with("200"));
    // Opening a case requires a page of the meter's own, whatever the cookie permits.
    let case = [
        "-X",
        "POST",
        "-H",
        "content-type: application/json",
        "-d",
        r#"{"pair":{"client":"a","server":"b"}}"#,
    ];
    let origin = |of: &str| format!("origin: {of}");
    let no_page = ask("/api/v1/cases", &case);
    assert!(no_page.ends_with("401"), "no page: {no_page}");
    let foreign = origin("https://evil.example");
    assert!(ask("/api/v1/cases", &[&case[..], &["-H", &foreign]].concat()).ends_with("403"));
    let own = origin(&format!("https://{}", meter.http));
    let opened = ask("/api/v1/cases", &[&case[..], &["-H", &own]].concat());
    assert!(!opened.ends_with("401") && !opened.ends_with("403"), "{opened}");
    assert_eq!(ask("/api/v1/session", &["-X", "DELETE", "-H", &own]), r#"{"needs_token":true} 200"#);
    assert!(ask("/api/v1/pairs", &[]).ends_with("401"));
}

#[test]
fn agents_present_a_certificate_and_trust_only_the_meters_authority() {
    let papers = Papers::new();
    let (tokens, token) = (papers.text("tokens"), papers.text("capture.token"));
    let meter =
        start(&papers.of_meter(), &["--token-file", &tokens, "--tls-client-ca", &papers.text("ca.pem")]);
    let url = format!("https://{}", meter.otlp_grpc);
    let hears = |more: &[(&str, &str)], expected: &str| {
        let files: Vec<String> =
            more.iter().flat_map(|(option, file)| [(*option).to_owned(), papers.text(file)]).collect();
        let mut arguments = vec!["agent", "--meter", &url, "--token-file", &token, "--interface", "lo"];
        arguments.extend(files.iter().map(String::as_str));
        let agent = Program::start(&arguments);
        let mut lines = Vec::new();
        let answers = ["attached to", "not connected to"];
        while !lines.iter().any(|line: &String| answers.iter().any(|answer| line.contains(answer))) {
            lines.push(agent.error_line().unwrap_or_else(|| panic!("the agent ended: {lines:?}")));
        }
        let line = lines.last().expect("a line");
        assert!(line.contains(expected), "expected {expected:?}: {lines:?}");
    };
    let own = [("--tls-ca", "ca.pem"), ("--tls-cert", "agent.pem"), ("--tls-key", "agent.key")];
    hears(&own, &format!("attached to {url}"));
    hears(&own[..1], "not connected");
    hears(&own[..1], "expected a certificate from an authority in --tls-client-ca");
    hears(&[own[0], ("--tls-cert", "stranger.pem"), ("--tls-key", "stranger.key")], "not connected");
    hears(&[("--tls-ca", "other.pem"), own[1], own[2]], "not connected");
    hears(&own[1..], "not connected");
    // Browsers and exporters need no client certificate.
    let alive = papers.curl(meter.http, "/readyz", &["-w", " %{http_code}"]);
    assert!(said(&alive).ends_with("200"), "{}", said(&alive));
}
