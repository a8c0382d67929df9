//! A small workload with a known truth, for machines without the workload tool: services that call each
//! other, pods that batch their spans, log-normal gaps and durations.

use crate::truth::{PairTruth, Truth, WorstTruth};
use crate::workload::{SpanBatch, Workload};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use std::collections::BTreeMap;

/// Parameters of the workload.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Minimum number of CLIENT and SERVER spans together; the last call may add one.
    pub spans: u64,
    /// Spans in a batch.
    pub batch: usize,
    /// Share of calls whose SERVER span is missing, 0 to 1.
    pub missing_servers: f64,
    /// Seed of the workload.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { spans: 1 << 20, batch: 512, missing_servers: 0.0, seed: 1 }
    }
}

const SERVICES: u64 = 16;
const PODS_PER_SERVICE: u64 = 6;
const PAIRS: u64 = 24;
const START_UNIX_NS: u64 = 1_767_225_600_000_000_000;
const WORST: usize = 5;

/// Generates the workload and its truth.
pub fn generate(shape: &Shape) -> (Workload, Truth) {
    let mut random = Random(shape.seed);
    let pods = SERVICES * PODS_PER_SERVICE;
    let mut buffers: Vec<Vec<Span>> = vec![Vec::new(); pods as usize];
    let mut batches = Vec::new();
    let mut gaps: BTreeMap<(u64, u64), Vec<WorstTruth>> = BTreeMap::new();
    let (mut made, mut unpaired, mut now) = (0, 0, START_UNIX_NS);
    while made < shape.spans {
        now += random.below(10_000);
        let (client, server) = pair(&mut random);
        let call = Call::new(&mut random, now, server);
        let at = |service: u64, random: &mut Random| {
            (service * PODS_PER_SERVICE + random.below(PODS_PER_SERVICE)) as usize
        };
        let mut put = |pod: usize, span: Span| {
            buffers[pod].push(span);
            if buffers[pod].len() == shape.batch {
                batches.push(encode(pod as u64, std::mem::take(&mut buffers[pod])));
            }
        };
        put(at(client, &mut random), call.client_span());
        made += 1;
        if random.share() < shape.missing_servers {
            unpaired += 1;
            continue;
        }
        put(at(server, &mut random), call.server_span());
        made += 1;
        gaps.entry((client, server)).or_default().push(call.truth());
    }
    for (pod, spans) in buffers.into_iter().enumerate().filter(|(_, spans)| !spans.is_empty()) {
        batches.push(encode(pod as u64, spans));
    }
    let pairs = gaps.into_iter().map(|((client, server), gaps)| pair_truth(client, server, gaps)).collect();
    (Workload { batches }, Truth { spans: made, unpaired, pairs })
}

fn service(number: u64) -> String {
    format!("service-{number:02}")
}

/// Low pair numbers are the busy ones.
fn pair(random: &mut Random) -> (u64, u64) {
    let number = (random.share().powi(2) * PAIRS as f64) as u64;
    let client = number * 5 % SERVICES;
    (client, (client + 1 + number / SERVICES) % SERVICES)
}

struct Call {
    trace_id: [u8; 16],
    client_id: [u8; 8],
    server_id: [u8; 8],
    entry_id: [u8; 8],
    server: u64,
    start_ns: u64,
    gap_ns: u64,
    request_ns: u64,
    server_ns: u64,
}

impl Call {
    fn new(random: &mut Random, start_ns: u64, server: u64) -> Call {
        let mut gap_ns = random.log_normal(350e3, 0.5);
        if random.share() < 0.01 {
            gap_ns += random.log_normal(12e6, 0.7);
        }
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&random.bits().to_le_bytes());
        trace_id[8..].copy_from_slice(&random.bits().to_le_bytes());
        Call {
            trace_id,
            client_id: random.bits().to_le_bytes(),
            server_id: random.bits().to_le_bytes(),
            entry_id: random.bits().to_le_bytes(),
            server,
            start_ns,
            gap_ns,
            request_ns: (gap_ns as f64 * (0.3 + 0.4 * random.share())) as u64,
            server_ns: random.log_normal(4e6, 0.8),
        }
    }

    fn client_span(&self) -> Span {
        let (from, to) = (self.start_ns, self.start_ns + self.gap_ns + self.server_ns);
        self.span(SpanKind::Client, self.client_id, self.entry_id, from, to)
    }

    fn server_span(&self) -> Span {
        let from = self.start_ns + self.request_ns;
        self.span(SpanKind::Server, self.server_id, self.client_id, from, from + self.server_ns)
    }

    fn span(&self, kind: SpanKind, span_id: [u8; 8], parent: [u8; 8], from: u64, to: u64) -> Span {
        let rpc = format!("shop.{}.v1.Api", service(self.server));
        let address = format!("{}.shop.svc.cluster.local", service(self.server));
        Span {
            trace_id: self.trace_id.into(),
            span_id: span_id.into(),
            parent_span_id: parent.into(),
            flags: 0x101,
            name: format!("{rpc}/Get"),
            kind: kind.into(),
            start_time_unix_nano: from,
            end_time_unix_nano: to,
            attributes: vec![
                text("rpc.system", "grpc"),
                text("rpc.service", &rpc),
                text("rpc.method", "Get"),
                number("rpc.grpc.status_code", 0),
                text("server.address", &address),
                number("server.port", 8080),
                text("network.peer.address", "10.16.0.7"),
                number("network.peer.port", 8080),
                text("network.transport", "tcp"),
                text("network.type", "ipv4"),
                text("user_agent.original", "grpc-go/1.78.0"),
            ],
            status: Some(Status::default()),
            ..Span::default()
        }
    }

    fn truth(&self) -> WorstTruth {
        WorstTruth {
            gap_ns: self.gap_ns,
            trace_id: hex(&self.trace_id),
            client_span_id: hex(&self.client_id),
        }
    }
}

fn encode(pod: u64, spans: Vec<Span>) -> SpanBatch {
    let name = service(pod / PODS_PER_SERVICE);
    let resource = Resource {
        attributes: vec![
            text("service.name", &name),
            text("service.instance.id", &format!("{name}-{pod}")),
            text("telemetry.sdk.language", "go"),
            text("telemetry.sdk.name", "opentelemetry"),
            text("k8s.pod.name", &format!("{name}-{pod}")),
            text("k8s.node.name", &format!("node-{:02}", pod % 5)),
        ],
        ..Resource::default()
    };
    let scope = InstrumentationScope { name: "grpc".into(), ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    let bytes = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    SpanBatch::new(bytes).expect("what prost encodes is a request")
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pair_truth(client: u64, server: u64, mut gaps: Vec<WorstTruth>) -> PairTruth {
    gaps.sort_by_key(|call| std::cmp::Reverse(call.gap_ns));
    let ranked = |q: f64| {
        let rank = ((q * gaps.len() as f64).ceil() as usize).max(1);
        gaps[gaps.len() - rank].gap_ns
    };
    PairTruth {
        client: service(client),
        server: service(server),
        count: gaps.len() as u64,
        sum_ns: gaps.iter().map(|call| call.gap_ns).sum(),
        p50_ns: ranked(0.5),
        p90_ns: ranked(0.9),
        p99_ns: ranked(0.99),
        p999_ns: ranked(0.999),
        max_ns: gaps[0].gap_ns,
        worst: gaps.into_iter().take(WORST).collect(),
    }
}

/// Splitmix64: small, and identical on every machine.
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A value with a long tail.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> u64 {
        let (u, v) = (1.0 - self.share(), self.share());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (median * (sigma * normal).exp()) as u64
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_counts_every_span() {
        let (workload, truth) = generate(&Shape { spans: 10_000, missing_servers: 0.1, ..Shape::default() });
        let joined: u64 = truth.pairs.iter().map(|pair| 2 * pair.count).sum();
        assert_eq!(workload.spans(), truth.spans);
        assert_eq!(truth.spans, joined + truth.unpaired);
        assert!((300..800).contains(&truth.unpaired), "{}", truth.unpaired);
        assert!(truth.pairs.len() > 10);
        for pair in &truth.pairs {
            assert!(pair.client != pair.server);
            assert!(pair.p50_ns <= pair.p90_ns && pair.p999_ns <= pair.max_ns);
            assert_eq!(pair.worst[0].gap_ns, pair.max_ns);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_workload() {
        let shape = Shape { spans: 1000, ..Shape::default() };
        let bytes = |shape: &Shape| -> Vec<Vec<u8>> {
            generate(shape).0.batches.into_iter().map(|b| b.bytes).collect()
        };
        assert_eq!(bytes(&shape), bytes(&shape));
        assert_ne!(bytes(&shape), bytes(&Shape { seed: 2, ..shape.clone() }));
    }
}
