//! A reader that behaves, beside a crowd of clients that do not: the duration of its scrapes and its requests.

use super::Bench;
use crate::BenchError;
use crate::process::MeterProcess;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Pairs, and calls of each: a scrape of them is some twenty megabytes long.
const PAIRS: u64 = 2_000;
const CALLS: u64 = 32;
/// Pairs in a request.
const AT_ONCE: u64 = 100;
/// Time beside each crowd.
const BESIDE: Duration = Duration::from_secs(10);
/// Time until a crowd is complete.
const GATHERS: Duration = Duration::from_secs(2);
/// Interval between the requests of the reader that behaves.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Each client of a crowd comes back from another address after this long.
const STAYS: Duration = Duration::from_millis(1500);
/// Clients of most crowds.
const CLIENTS: usize = 300;
/// As many connections as a port has by default.
const CONNECTIONS: usize = 4_096;

/// What the clients of a crowd do, each from an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Asks for this, and never reads.
    Ask(&'static str),
    /// Asks for a stretch of time that nobody else asks for, and never reads.
    AskForItsOwn,
    /// Sends a request's head, a byte a second.
    Dribble,
}

const CROWDS: [(&str, Doing, usize); 6] = [
    ("nobody", Doing::Nothing, 0),
    ("scrapes, never read", Doing::Ask("/metrics"), CLIENTS),
    ("coverage, never read", Doing::Ask("/api/v1/coverage"), CLIENTS),
    ("equal queries, never read", Doing::Ask("/api/v1/pairs?from=0&to=4000000000"), CLIENTS),
    ("different queries, never read", Doing::AskForItsOwn, CLIENTS),
    ("a byte a second", Doing::Dribble, CONNECTIONS),
];

/// The requests of the reader that behaves, beside one crowd.
#[derive(Clone, Debug, Serialize)]
pub struct CrowdFigure {
    pub crowd: &'static str,
    pub clients: usize,
    /// Median and maximum duration of a scrape.
    pub scrape_ms: [f64; 2],
    /// The same of `/api/v1/coverage`.
    pub coverage_ms: [f64; 2],
    /// Requests that were not answered.
    pub failed: usize,
    /// Peak resident memory so far.
    pub peak_bytes: u64,
}

/// Measures beside each crowd in turn.
///
/// # Errors
/// The meter fails.
pub async fn run(bench: &Bench) -> Result<Vec<CrowdFigure>, BenchError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
    let meter = Arc::new(bench.start(&["--exported-pairs", "10000"])?);
    for first in (0..PAIRS).step_by(AT_ONCE as usize) {
        meter.export(request(first..first + AT_ONCE)).await?;
    }
    let mut figures = Vec::new();
    let address = Arc::new(AtomicU32::new(u32::from(Ipv4Addr::new(127, 2, 0, 1))));
    for (crowd, doing, clients) in CROWDS {
        eprintln!("crowd: {crowd}");
        let crowd_of: Vec<JoinHandle<()>> =
            (0..clients).map(|_| tokio::spawn(client(meter.http, doing, address.clone()))).collect();
        if clients > 0 {
            sleep(GATHERS).await;
        }
        let scrapes = tokio::spawn(asks(meter.clone(), "/metrics"));
        let coverages = tokio::spawn(asks(meter.clone(), "/api/v1/coverage"));
        let [scrapes, coverages] = [scrapes.await, coverages.await];
        let scrapes = scrapes.map_err(BenchError::peer("the scraper"))?;
        let coverages = coverages.map_err(BenchError::peer("the reader"))?;
        crowd_of.into_iter().for_each(|client| client.abort());
        figures.push(CrowdFigure {
            crowd,
            clients,
            scrape_ms: scrapes.summary(),
            coverage_ms: coverages.summary(),
            failed: scrapes.failed + coverages.failed,
            peak_bytes: meter.resident_bytes()?.1,
        });
    }
    Ok(figures)
}

#[derive(Default)]
struct Durations {
    ms: Vec<f64>,
    failed: usize,
}

impl Durations {
    fn summary(&self) -> [f64; 2] {
        let mut sorted = self.ms.clone();
        sorted.sort_by(f64::total_cmp);
        [sorted.len() / 2, sorted.len().saturating_sub(1)]
            .map(|at| sorted.get(at).copied().unwrap_or(f64::NAN))
    }
}

/// Asks again and again, and reads every answer to its end. One that fails counts with the time until then.
async fn asks(meter: Arc<MeterProcess>, path: &'static str) -> Durations {
    let begun = Instant::now();
    let mut durations = Durations::default();
    while begun.elapsed() < BESIDE {
        let asked = Instant::now();
        let answer = meter.read(path, Some("gzip")).await;
        durations.failed += usize::from(answer.is_err());
        durations.ms.push(asked.elapsed().as_secs_f64() * 1e3);
        sleep(ASK_EVERY).await;
    }
    durations
}

/// One client of a crowd, until it is aborted.
async fn client(meter: SocketAddr, doing: Doing, address: Arc<AtomicU32>) {
    loop {
        let from = address.fetch_add(1, Relaxed);
        // The meter may have closed the connection, or have no room: it comes back.
        let _ = match doing {
            Doing::Nothing => return,
            Doing::Ask(path) => ask(meter, from, path).await,
            Doing::AskForItsOwn => {
                ask(meter, from, &format!("/api/v1/pairs?from={from}&to=4000000000")).await
            }
            Doing::Dribble => dribble(meter, from).await,
        };
    }
}

async fn connect(meter: SocketAddr, from: u32) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::from(from), 0).into())?;
    let connected = timeout(STAYS, socket.connect(meter)).await;
    connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

async fn ask(meter: SocketAddr, from: u32, path: &str) -> std::io::Result<()> {
    let mut stream = connect(meter, from).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {meter}\r\n\r\n").as_bytes()).await?;
    sleep(STAYS).await;
    Ok(())
}

async fn dribble(meter: SocketAddr, from: u32) -> std::io::Result<()> {
    let mut stream = connect(meter, from).await?;
    for byte in format!("GET /metrics HTTP/1.1\r\nHost: {meter}\r\n\r\n").bytes() {
        stream.write_all(&[byte]).await?;
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Calls of these pairs, with gaps far apart.
fn request(pairs: std::ops::Range<u64>) -> Vec<u8> {
    let resource_spans = pairs.flat_map(|pair| {
        let [mut clients, mut servers] = [Vec::new(), Vec::new()];
        for call in 0..CALLS {
            let id = pair * CALLS + call + 1;
            clients.push(span(SpanKind::Client, id, 1_000_000 + (100_000 << (call % 16))));
            servers.push(span(SpanKind::Server, id, 1_000_000));
        }
        [of(&format!("client-{}", pair / 10), clients), of(&format!("server-{pair}"), servers)]
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }.encode_to_vec()
}

fn span(kind: SpanKind, call: u64, duration_ns: u64) -> Span {
    let client = (2 * call).to_be_bytes();
    let (span_id, parent_span_id) = match kind {
        SpanKind::Client => (client, [0; 8]),
        _ => ((2 * call + 1).to_be_bytes(), client),
    };
    let start_ns = 1_767_225_600_000_000_000;
    Span {
        trace_id: u128::from(call).to_be_bytes().into(),
        span_id: span_id.into(),
        parent_span_id: if parent_span_id == [0; 8] { Vec::new() } else { parent_span_id.into() },
        name: "Get".into(),
        kind: kind.into(),
        start_time_unix_nano: start_ns,
        end_time_unix_nano: start_ns + duration_ns,
        ..Span::default()
    }
}

fn of(service: &str, spans: Vec<Span>) -> ResourceSpans {
    let value = Some(AnyValue { value: Some(Value::StringValue(service.into())) });
    let attributes = vec![KeyValue { key: "service.name".into(), value, ..KeyValue::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    ResourceSpans {
        resource,
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    }
}
