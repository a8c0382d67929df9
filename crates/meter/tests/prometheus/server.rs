//! A real Prometheus on a free loopback port, scraping one address.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Timeout of a condition, far more than it needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The requested format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrape {
    /// Protobuf with native histograms.
    Native,
    /// OpenMetrics text with classic buckets.
    Classic,
}

/// A running server, stopped on drop.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    _data: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `Err` contains why Prometheus cannot run on this machine.
pub fn installed() -> Result<(), String> {
    for tool in ["prometheus", "promtool"] {
        let version =
            Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.map_err(|e| format!("{tool} cannot be started: {e}"))?;
    }
    Ok(())
}

impl Prometheus {
    /// Starts a server that scrapes `http://TARGET/metrics` five times a second, and waits until it answers.
    pub fn start(target: SocketAddr, scrape: Scrape) -> Prometheus {
        Prometheus::start_with_rules(target, scrape, &[])
    }

    /// Like [`Prometheus::start`], with files of rules evaluated at the same interval.
    pub fn start_with_rules(target: SocketAddr, scrape: Scrape, rules: &[&str]) -> Prometheus {
        let data = tempfile::tempdir().unwrap();
        let config = data.path().join("prometheus.yml");
        let job = format!("  - job_name: spangap\n    static_configs:\n      - targets: ['{target}']\n");
        let text = format!(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\nrule_files: {rules:?}\nscrape_configs:\n{job}"
        );
        std::fs::write(&config, text).unwrap();
        let features = match scrape {
            Scrape::Native => "native-histograms,exemplar-storage",
            Scrape::Classic => "exemplar-storage",
        };
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("tsdb").display()))
            .arg(format!("--enable-feature={features}"))
            .args(["--web.listen-address=127.0.0.1:0", "--log.format=json"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus starts");
        let (lines, log) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // The pipe is read to its end, so that the server never blocks on it.
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)))
        });

        let mut address: Option<SocketAddr> = None;
        let mut ready = false;
        let mut seen = Vec::new();
        // Two threads write the two lines, in either order.
        let address = loop {
            if let (Some(address), true) = (address, ready) {
                break address;
            }
            let line =
                log.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("prometheus not ready: {e}\n{seen:#?}"));
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            match entry["msg"].as_str() {
                Some("Listening on") => address = entry["address"].as_str().and_then(|a| a.parse().ok()),
                Some("Server is ready to receive web requests.") => ready = true,
                _ => {}
            }
            seen.push(line);
        };
        Prometheus { child, address, _data: data }
    }

    /// The `data` of one API call.
    pub fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let query: Vec<String> = parameters.iter().map(|(k, v)| format!("{k}={}", percent(v))).collect();
        let body = get(self.address, &format!("/api/v1/{path}?{}", query.join("&")), "application/json");
        let mut answer: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(answer["status"], "success", "{path} {parameters:?}: {answer}");
        answer["data"].take()
    }

    /// An instant query's result, once it is not empty.
    pub fn query(&self, promql: &str) -> Vec<Value> {
        self.until(promql, || {
            let found =
                self.api("query", &[("query", promql)])["result"].as_array().cloned().unwrap_or_default();
            (!found.is_empty()).then_some(found)
        })
    }

    /// The value of a query with one series in its result.
    pub fn number(&self, promql: &str) -> f64 {
        let found = self.query(promql);
        assert_eq!(found.len(), 1, "{promql}: {found:#?}");
        found[0]["value"][1].as_str().unwrap().parse().unwrap()
    }

    /// Exemplars of a selector, once there are `at_least` of them.
    pub fn exemplars(&self, selector: &str, at_least: usize) -> Vec<Value> {
        let day = Duration::from_secs(86_400);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        let [from, to] = [now - day, now + day].map(|t| t.as_secs().to_string());
        self.until(selector, || {
            let data = self.api("query_exemplars", &[("query", selector), ("start", &from), ("end", &to)]);
            let series = data.as_array().cloned().unwrap_or_default();
            let found: Vec<Value> =
                series.iter().flat_map(|s| s["exemplars"].as_array().cloned().unwrap()).collect();
            (found.len() >= at_least).then_some(found)
        })
    }

    /// Repeats a request until there is an answer.
    fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            let targets = || self.api("targets", &[]);
            assert!(start.elapsed() < PATIENCE, "no answer for {what}; targets: {:#}", targets());
        }
    }
}

/// `GET`: the body of a response, which must be a 200.
pub fn get(address: SocketAddr, path: &str, accept: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // HTTP/1.0: the body ends with the connection, and is not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|w| w == b"\r\n\r\n").expect("a header");
    let head = String::from_utf8_lossy(&response[..end]).into_owned();
    let body = response.split_off(end + 4);
    assert!(
        head.lines().next().unwrap().contains(" 200 "),
        "{path}: {head}\n{}",
        String::from_utf8_lossy(&body)
    );
    body
}

/// `promtool check metrics`: its complaints about a text exposition, if any.
pub fn promtool_check(text: &[u8]) -> Result<(), String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&text));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().map_err(|e| format!("promtool read not all: {e}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
}

/// Checks a meter's `/metrics` at `target` from Prometheus' view: `promtool` finds nothing, the protobuf
/// scrape has native histograms with at least one call, the identity of the spans holds within one scrape,
/// and exemplars have the trace id of a worst call. Requires a meter that has joined at least one call.
pub fn check_scrape(target: SocketAddr) {
    promtool_check(&get(target, "/metrics", "text/plain")).unwrap();
    let native = Prometheus::start(target, Scrape::Native);
    assert!(native.number("sum(histogram_count(spangap_gap_seconds))") >= 1.0);
    assert!(native.number("max(histogram_quantile(0.99, spangap_gap_seconds))") >= 0.0);
    let identity = "sum without(class) (spangap_spans_total) + spangap_spans_pending == bool spangap_spans_received_total";
    assert_eq!(native.number(identity), 1.0);
    let exemplars = native.exemplars("spangap_gap_seconds", 1);
    let trace_id = exemplars[0]["labels"]["trace_id"].as_str().unwrap();
    assert!(trace_id.len() == 32 && trace_id.bytes().all(|b| b.is_ascii_hexdigit()), "{trace_id}");
    drop(native);

    let classic = Prometheus::start(target, Scrape::Classic);
    assert!(classic.number("sum(spangap_gap_seconds_bucket{le=\"+Inf\"})") >= 1.0);
    assert!(!classic.exemplars("spangap_gap_seconds_bucket", 1).is_empty());
}

fn percent(text: &str) -> String {
    let escaped = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => (b as char).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(escaped).collect()
}
