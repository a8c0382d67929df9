//! A meter with cases, served in this process on free ports.

use axum::Router;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde_json::Value as Json;
use spangap_cases::agents::Agents;
use spangap_cases::cases::{CaseSettings, Cases};
use spangap_cases::{api, server};
use spangap_gather::Sources;
use spangap_gather::whole::{Selection, gather};
use spangap_meter::engine::{self, Meter};
use spangap_meter::history::{History, Limits};
use spangap_meter::pairs::Grouping;
use spangap_meter::serve::access::Access;
use spangap_meter::serve::clock::Clock;
use spangap_meter::serve::places::Deadlines;
use spangap_meter::serve::{Addresses, Guests, Refusals, ServeSettings, serve};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Timeout of a condition, far more than it needs on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Addresses of the two hosts of the recordings.
pub const HOSTS: [&str; 2] = ["10.88.0.1", "10.88.0.2"];

pub struct Served {
    pub meter: Arc<Meter>,
    pub cases: Arc<Cases>,
    pub at: Addresses,
    clock: Clock,
    _stop: oneshot::Sender<()>,
    _folder: Option<tempfile::TempDir>,
}

impl Served {
    /// A meter with the usual settings, in its own folder.
    pub async fn start() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cases");
        Served { _folder: Some(folder), ..Served::with(&path, Access::default(), |_| ()).await }
    }

    pub async fn with(folder: &Path, access: Access, set: impl FnOnce(&mut CaseSettings)) -> Served {
        let served = Served::still(folder, access, set).await;
        tokio::spawn(served.cases.clone().run());
        served
    }

    /// A meter whose rows are these.
    pub async fn by(grouping: Grouping, folder: &Path) -> Served {
        let served = Served::still_by(grouping, folder, Access::default(), |_| ()).await;
        tokio::spawn(served.cases.clone().run());
        served
    }

    /// A meter whose slots advance under the test's control; no case is pursued.
    pub async fn still(folder: &Path, access: Access, set: impl FnOnce(&mut CaseSettings)) -> Served {
        Served::still_by(Grouping::Pair, folder, access, set).await
    }

    async fn still_by(
        grouping: Grouping,
        folder: &Path,
        access: Access,
        set: impl FnOnce(&mut CaseSettings),
    ) -> Served {
        let clock = Clock::start();
        let meter = Arc::new(Meter::new(engine::Settings {
            epoch_unix_ms: clock.epoch_unix_ms(),
            grouping,
            ..Default::default()
        }));
        let (agents, access) = (Arc::new(Agents::default()), Arc::new(access));
        let mut settings = CaseSettings {
            folder: folder.to_owned(),
            over_ns: None,
            slices_per_minute: 6,
            most_bytes: 1 << 30,
            slice_bytes: 4 << 20,
            slice_time: PATIENCE,
            experiment_block: Duration::from_millis(1_500),
            judge: None,
        };
        set(&mut settings);
        let cases = Cases::open(meter.clone(), agents.clone(), access.clone(), settings).expect("a folder");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let serving = ServeSettings {
            otlp_grpc: any,
            otlp_http: any,
            http: any,
            max_request_bytes: 1 << 20,
            request_budget_bytes: 4 << 20,
            max_connections: 64,
            deadlines: Deadlines::default(),
            exported_pairs: 10,
            tls: None,
            spool: None,
            kafka: None,
            clickhouse: None,
            push: None,
        };
        let history = History::open(None, Limits { max_age_s: 3600, max_bytes: 1 << 20 }, clock.unix_s())
            .expect("memory");
        let refusing = agents.clone();
        let guests = Guests {
            refusals: Refusals::of(move || refusing.refused().reasons()),
            page: Router::new().merge(api::router(cases.clone())),
            grpc: Some(server::guest(agents, access.clone(), 4 << 20)),
            access,
        };
        let (ready, is_ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = meter.clone();
        tokio::spawn(async move {
            let on_ready = |at: &Addresses| _ = ready.send(*at);
            serve(engine, clock, serving, history, guests, on_ready, async { _ = stopped.await }).await
        });
        let at = is_ready.await.expect("it listens");
        Served { meter, cases, at, clock, _stop: stop, _folder: None }
    }

    /// Sends both spans of this many calls from `tank` to `target`, the last of which have just ended, with
    /// gaps of 40 ms; they state each other's addresses.
    pub fn calls(&self, number: u64) {
        self.calls_between(["tank", "target"], HOSTS, number);
    }

    /// The same for any two services and hosts.
    pub fn calls_between(&self, services: [&str; 2], hosts: [&str; 2], number: u64) {
        self.calls_by_clocks(services, hosts, number, [0, 0]);
    }

    /// The same with gaps of `gap_ms` milliseconds.
    pub fn calls_of(&self, services: [&str; 2], hosts: [&str; 2], number: u64, gap_ms: u64) {
        self.calls_as(services, hosts, number, [0, 0], gap_ms);
    }

    /// The same with host clocks ahead by `ahead_s` seconds.
    pub fn calls_by_clocks(&self, services: [&str; 2], hosts: [&str; 2], number: u64, ahead_s: [i64; 2]) {
        self.calls_as(services, hosts, number, ahead_s, 40);
    }

    fn calls_as(&self, services: [&str; 2], hosts: [&str; 2], number: u64, ahead_s: [i64; 2], gap_ms: u64) {
        let now_ns = UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
        let [client, server] = [0, 1].map(|side| {
            let service = services[side];
            let of = |n: u64| {
                let start = now_ns - (number - n) * 50_000_000 - 60_000_000;
                let start = start.saturating_add_signed(ahead_s[side] * 1_000_000_000);
                Span {
                    trace_id: u128::from(now_ns + n).to_be_bytes().to_vec(),
                    span_id: (2 * n + 1 + side as u64).to_be_bytes().to_vec(),
                    parent_span_id: if side == 0 { Vec::new() } else { (2 * n + 1).to_be_bytes().to_vec() },
                    kind: [3, 2][side],
                    name: "call".into(),
                    start_time_unix_nano: start + side as u64 * gap_ms * 1_000_000,
                    end_time_unix_nano: start + (gap_ms + 2 - side as u64) * 1_000_000,
                    attributes: vec![
                        text("network.peer.address", hosts[1 - side]),
                        text("network.peer.port", ["50051", "41000"][side]),
                    ],
                    ..Span::default()
                }
            };
            let attributes = vec![text("service.name", service), text("host.name", "one-for-both")];
            ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans: vec![ScopeSpans {
                    spans: (0..number).map(of).collect(),
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }
        });
        let request = ExportTraceServiceRequest { resource_spans: vec![client, server] };
        let done = self.meter.ingest(&request.encode_to_vec(), self.clock.now_ms()).expect("well-formed");
        assert_eq!(done.malformed.total(), 0);
    }

    /// Sends both spans of the calls of a capture, as if they ended now, the slowest last; they state their
    /// host if it has a name, have this peer address, and nothing else.
    pub fn calls_of_capture(&self, capture: &str, host_names: [&str; 2], peer: Option<&str>) {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(capture);
        let sources = Sources { captures: vec![path], ..Sources::default() };
        let mut go_on = |_| std::ops::ControlFlow::Continue(());
        let gathered =
            gather(&sources, &Selection::SLOWEST, &mut go_on, &Default::default()).expect("a capture");
        let calls = serde_json::to_value(gathered.calls()).expect("JSON");
        let traces: Vec<Vec<u8>> = calls["calls"]
            .as_array()
            .expect("calls")
            .iter()
            .filter_map(|call| call["call"]["trace_id"].as_str().or(call["trace_id"].as_str()))
            .map(|id| {
                (0..16).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).expect("hex")).collect()
            })
            .collect();
        assert!(traces.len() >= 5, "{calls:#}");
        let now_ns = UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
        let sides = [0, 1].map(|side: usize| {
            let spans = traces.iter().zip(1..).map(|(trace_id, n)| {
                let (start, gap_ns) =
                    (now_ns - (traces.len() as u64 + 1 - n) * 50_000_000 - 60_000_000, 40_000_000);
                let id = |n: u64| n.to_be_bytes().to_vec();
                Span {
                    trace_id: trace_id.clone(),
                    span_id: id(2 * n + side as u64),
                    parent_span_id: if side == 0 { Vec::new() } else { id(2 * n) },
                    kind: [3, 2][side],
                    name: "call".into(),
                    start_time_unix_nano: start + side as u64 * gap_ns,
                    end_time_unix_nano: start + gap_ns + 2_000_000 - side as u64 * 1_000_000,
                    attributes: peer.map(|peer| text("network.peer.address", peer)).into_iter().collect(),
                    ..Span::default()
                }
            });
            let mut attributes = vec![text("service.name", ["tank", "target"][side])];
            if !host_names[side].is_empty() {
                attributes.push(text("host.name", host_names[side]));
            }
            ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans: vec![ScopeSpans { spans: spans.collect(), ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }
        });
        let request = ExportTraceServiceRequest { resource_spans: sides.into() };
        let done = self.meter.ingest(&request.encode_to_vec(), self.clock.now_ms()).expect("well-formed");
        assert_eq!(done.malformed.total(), 0);
    }

    /// Sends both spans of one call that ends now, on a connection with this client port, with a gap of
    /// `gap_ms` milliseconds.
    pub fn call(&self, port: u16, gap_ms: u64) {
        let now_ns = UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let [client, server] = [0, 1].map(|side| {
            let gap_ns = gap_ms * 1_000_000;
            let span = Span {
                trace_id: (u128::from(now_ns) << 32 | u128::from(id)).to_be_bytes().to_vec(),
                span_id: (4 * id + 1_000_000 + side as u64).to_be_bytes().to_vec(),
                parent_span_id: if side == 0 {
                    Vec::new()
                } else {
                    (4 * id + 1_000_000).to_be_bytes().to_vec()
                },
                kind: [3, 2][side],
                name: "call".into(),
                start_time_unix_nano: now_ns - 1_000_000 - [gap_ns, 0][side],
                end_time_unix_nano: now_ns,
                attributes: vec![
                    text("network.peer.address", HOSTS[1 - side]),
                    text("network.peer.port", &["50051".to_owned(), port.to_string()][side]),
                ],
                ..Span::default()
            };
            let attributes =
                vec![text("service.name", ["tank", "target"][side]), text("host.name", "one-for-both")];
            ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }
        });
        let request = ExportTraceServiceRequest { resource_spans: vec![client, server] };
        self.meter.ingest(&request.encode_to_vec(), self.clock.now_ms()).expect("well-formed");
    }

    /// Opens a case of these calls; returns its id.
    pub async fn open(&self) -> String {
        let (status, answer) = self.post("tank", &[]).await;
        assert_eq!(status, 202, "{answer}");
        answer["id"].as_str().expect("an id").to_owned()
    }

    pub async fn post(&self, client: &str, headers: &[(&str, &str)]) -> (u16, Json) {
        self.post_pair([client, "target"], headers).await
    }

    /// Requests a case of this pair.
    pub async fn post_pair(&self, [client, server]: [&str; 2], headers: &[(&str, &str)]) -> (u16, Json) {
        let body = format!(r#"{{"pair": {{"client": "{client}", "server": "{server}"}}}}"#);
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        let (status, body) = self.request("POST", "/api/v1/cases", &headers, &body).await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn get(&self, path: &str) -> Json {
        let (status, body) = self.request("GET", path, &[], "").await;
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Sends a request; returns status and body.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, Vec<u8>) {
        let mut head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.at.http);
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        let work = async {
            let mut stream = TcpStream::connect(self.at.http).await?;
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = tokio::time::timeout(PATIENCE, work).await.expect("in time").expect("it answers");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
        (status, answer[end + 4..].to_vec())
    }

    /// The case once it is no longer open.
    pub async fn concluded(&self, id: &str) -> Json {
        self.until(&format!("/api/v1/cases/{id}"), |case| case["state"] != "open").await
    }

    /// The first answer that satisfies the condition.
    pub async fn until(&self, path: &str, is_it: impl Fn(&Json) -> bool) -> Json {
        let begun = Instant::now();
        loop {
            let answer = self.get(path).await;
            if is_it(&answer) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {answer:#}");
            tokio::task::yield_now().await;
        }
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.into())) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}
