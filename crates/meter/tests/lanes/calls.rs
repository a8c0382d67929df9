//! Calls with all their spans, between hosts whose clocks differ, and the requests in which these arrive.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use std::ops::Range;

pub const TTL_MS: u64 = 5_000;
/// Hosts on either side.
pub const HOSTS: u64 = 3;

/// A call with all its spans: the client's and those of its attempts.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: u64,
    /// Server service, and the hosts of both sides.
    pub pair: u64,
    pub hosts: u64,
    pub client_ns: u64,
    pub server_ns: u64,
    /// When the first of its spans is sent.
    pub begun_ms: u64,
    /// When the client's span arrives, from then on; `None` if it is lost.
    pub client_ms: Option<u64>,
    /// The same for the attempts.
    pub attempts_ms: Vec<u64>,
    pub twist: u8,
}

/// The client waits this long before its request is at the server, by the client's clock: two fifths of the gap. Known from the trace
/// id, which has the gap in its second half.
pub fn true_request_ns(trace_id: &[u8; 16]) -> u64 {
    let gap_ns = u64::from_be_bytes(trace_id[8..].try_into().unwrap());
    gap_ns * 2 / 5
}

/// How far each server's clock is ahead.
fn offset_ns(hosts: u64) -> u64 {
    3_000_000 * (hosts % HOSTS)
}

/// A span, its service and host, and when it arrives.
struct Sent {
    at_ms: u64,
    service: String,
    host: String,
    span: Span,
}

impl Call {
    pub const PROBE_GAP_NS: u64 = 100_000_000;

    /// A call like any other, from its number alone.
    pub fn numbered(id: u64) -> Call {
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let attempts = [1, 1, 1, 1, 1, 2, 1, 3, 1, 0][(mixed % 10) as usize];
        Call {
            pair: mixed / 10 % 3,
            hosts: mixed / 31 % (HOSTS * HOSTS),
            client_ns: 1_000_000 + mixed % 9_000_000,
            server_ns: 900_000,
            attempts_ms: vec![0; attempts],
            twist: (mixed / 7 % 10) as u8,
            ..Call::plain(id)
        }
    }

    /// One client's span and one server's.
    pub fn plain(id: u64) -> Call {
        Call {
            id,
            pair: 0,
            hosts: 0,
            client_ns: 2_000_000,
            server_ns: 900_000,
            begun_ms: 0,
            client_ms: Some(0),
            attempts_ms: vec![0],
            twist: 5,
        }
    }

    /// A call between given hosts with a large gap.
    pub fn probe(id: u64, hosts: u64) -> Call {
        Call { hosts, client_ns: Call::PROBE_GAP_NS + 900_000, ..Call::plain(id) }
    }

    /// A request with client's spans that all have the same trace id.
    pub fn clients_of_one_trace(ids: Range<u64>) -> Vec<u8> {
        let call = Call::plain(1 << 40);
        let sent = ids.map(|id| {
            let mut sent = call.client(0);
            sent.span.span_id = (id + 1).to_be_bytes().to_vec();
            sent
        });
        request(sent.collect())
    }

    fn trace_id(&self) -> Vec<u8> {
        let gap_ns = self.client_ns.saturating_sub(self.server_ns);
        [self.id.to_be_bytes(), gap_ns.to_be_bytes()].concat()
    }

    fn start_ns(&self) -> u64 {
        1_700_000_000_000_000_123 + self.begun_ms * 1_000_000
    }

    fn span(&self, kind: i32, start_ns: u64, duration_ns: u64) -> Span {
        Span {
            kind,
            trace_id: self.trace_id(),
            start_time_unix_nano: start_ns,
            end_time_unix_nano: start_ns + duration_ns,
            ..Span::default()
        }
    }

    fn client(&self, at_ms: u64) -> Sent {
        let mut span = self.span(3, self.start_ns(), self.client_ns);
        span.span_id = (self.id << 8).to_be_bytes().to_vec();
        let value = Value::IntValue(i64::from(self.twist % 3 * 2));
        span.attributes.push(attribute("rpc.grpc.status_code", value));
        match self.twist {
            0 => span.attributes.push(attribute("http.response.body.size", Value::IntValue(1 << 20))),
            1 => span.attributes.push(attribute("http.response.body.size", Value::IntValue(10))),
            2 => span.end_time_unix_nano = span.start_time_unix_nano - 1,
            _ => {}
        }
        Sent { at_ms, service: "front".into(), host: format!("client-{}", self.hosts / HOSTS), span }
    }

    fn server(&self, attempt: u64, at_ms: u64) -> Sent {
        let request_ns = self.client_ns.saturating_sub(self.server_ns) * 2 / 5;
        let start_ns = self.start_ns() + request_ns + offset_ns(self.hosts);
        let mut span = self.span(2, start_ns, self.server_ns);
        span.span_id = ((self.id << 8) | (1 + attempt)).to_be_bytes().to_vec();
        if self.twist != 3 {
            span.parent_span_id = (self.id << 8).to_be_bytes().to_vec();
        }
        let (service, host) = (format!("back-{}", self.pair), format!("server-{}", self.hosts % HOSTS));
        Sent { at_ms, service, host, span }
    }

    fn sent(&self) -> Vec<Sent> {
        let client = self.client_ms.map(|ms| self.client(self.begun_ms + ms));
        let attempts =
            (0..).zip(&self.attempts_ms).map(|(attempt, ms)| self.server(attempt, self.begun_ms + ms));
        let mut sent: Vec<Sent> = client.into_iter().chain(attempts).collect();
        if self.twist == 4 {
            let mut inner = self.client(self.begun_ms);
            (inner.span.kind, inner.span.span_id) = (1, vec![9; 8]);
            sent.push(inner);
        }
        if self.twist >= 10 {
            // Every span of this call is sent twice.
            let again: Vec<Sent> = sent
                .iter()
                .map(|one| Sent {
                    at_ms: one.at_ms + 30,
                    service: one.service.clone(),
                    host: one.host.clone(),
                    span: one.span.clone(),
                })
                .collect();
            sent.extend(again);
        }
        sent
    }
}

/// Calls over three minutes: with one attempt, hedged soon or late, with lost spans, repeated ones, and useless ones.
pub fn calls(number: Range<usize>) -> impl Strategy<Value = Vec<Call>> {
    let attempts = prop_oneof![
        6 => prop::collection::vec(0u64..200, 1..2),
        3 => prop::collection::vec(0u64..7_000, 2..4),
        1 => prop::collection::vec(0u64..10, 0..1),
    ];
    let client_ms = prop_oneof![9 => (0u64..2_000).prop_map(Some), 1 => Just(None)];
    let durations = (100_000u64..9_000_000, 0u64..9_500_000);
    let call = (0u64..3, 0..HOSTS * HOSTS, durations, 0u64..180_000, client_ms, attempts, 0u8..12);
    prop::collection::vec(call, number).prop_map(|calls| {
        let numbered = (1u64..).zip(calls);
        let call = numbered.map(
            |(id, (pair, hosts, (client_ns, server_ns), begun_ms, client_ms, attempts_ms, twist))| Call {
                id,
                pair,
                hosts,
                client_ns,
                server_ns,
                begun_ms,
                client_ms,
                attempts_ms,
                twist,
            },
        );
        call.collect()
    })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn request(sent: Vec<Sent>) -> Vec<u8> {
    let resource_spans = sent.into_iter().map(|Sent { service, host, span, .. }| {
        let attributes = vec![
            attribute("service.name", Value::StringValue(service)),
            attribute("host.name", Value::StringValue(host)),
        ];
        ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }.encode_to_vec()
}

fn in_batches(mut sent: Vec<Sent>, batch: usize) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let mut requests = Vec::new();
    while !sent.is_empty() {
        let rest = sent.split_off(batch.min(sent.len()));
        // The request arrives when its last span is there.
        let at_ms = sent.last().map_or(0, |last| last.at_ms);
        requests.push((at_ms, request(sent)));
        sent = rest;
    }
    requests.into_iter()
}

/// Requests of at most `batch` spans, in order of arrival.
pub fn batches(calls: &[Call], batch: usize) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let mut sent: Vec<Sent> = calls.iter().flat_map(Call::sent).collect();
    sent.sort_by_key(|one| one.at_ms);
    in_batches(sent, batch)
}

/// All client's spans, and all servers'.
pub fn halves(calls: &[Call], batch: usize) -> [Vec<Vec<u8>>; 2] {
    let requests = |sent: Vec<Sent>| in_batches(sent, batch).map(|(_, request)| request).collect();
    [
        requests(calls.iter().map(|call| call.client(0)).collect()),
        requests(calls.iter().map(|call| call.server(0, 0)).collect()),
    ]
}
