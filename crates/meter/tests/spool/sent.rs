//! Requests with known spans, and the spans found.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::spool::block::Coding;
use spangap_meter::spool::{Kept, Request, Spool, SpoolSettings};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Unix milliseconds of a minute.
pub fn at(minute: u64) -> u64 {
    1_700_000_000_000 + minute * 60_000
}

pub fn settings(folder: &Path, max_bytes: u64) -> SpoolSettings {
    SpoolSettings { folder: folder.into(), keep_ms: 1_800_000, max_bytes, queue_bytes: 64 << 20 }
}

pub fn open(folder: &Path, max_bytes: u64, now: &Arc<AtomicU64>) -> Spool {
    let now = now.clone();
    Spool::open(settings(folder, max_bytes), move || now.load(Relaxed)).expect("the folder is there")
}

/// A request, and the names of its spans.
pub struct Sent {
    pub bytes: Vec<u8>,
    pub names: Vec<String>,
}

impl Sent {
    /// A span for each of these traces.
    pub fn new(number: usize, traces: &[u8]) -> Sent {
        Sent::with(number, traces, |_| String::new())
    }

    /// The same, each with one and a half kilobytes that no compression reduces below one.
    pub fn incompressible(number: usize, traces: &[u8], seed: &mut u64) -> Sent {
        Sent::with(number, traces, |_| {
            let mut noise = String::new();
            while noise.len() < 1500 {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                noise.push_str(&format!("{:08x}", *seed >> 32));
            }
            noise
        })
    }

    fn with(number: usize, traces: &[u8], mut noise: impl FnMut(usize) -> String) -> Sent {
        let names: Vec<String> = (0..traces.len()).map(|at| format!("{number}-{at}")).collect();
        let text = |key: &str, text: String| KeyValue {
            key: key.into(),
            value: Some(AnyValue { value: Some(Value::StringValue(text)) }),
            ..KeyValue::default()
        };
        let span = |(at, trace): (usize, &u8)| Span {
            trace_id: vec![*trace; 16],
            span_id: ((number * 1000 + at + 1) as u64).to_be_bytes().into(),
            name: names[at].clone(),
            start_time_unix_nano: 1_000,
            end_time_unix_nano: 2_000,
            attributes: vec![text("noise", noise(at))],
            ..Span::default()
        };
        let spans = traces.iter().enumerate().map(span).collect();
        let resource = Resource {
            attributes: vec![text("service.name", format!("service {}", number % 3))],
            ..Resource::default()
        };
        let bytes = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        }
        .encode_to_vec();
        Sent { bytes, names }
    }
}

/// Queues a request as the receiver does.
pub fn keep(spool: &Spool, sent: &Sent, coding: Coding, unix_ms: u64) {
    let meter = Meter::new(Settings { keep_bytes: 0, max_pending_bytes: 1 << 20, ..Settings::default() });
    let mut digests = Vec::new();
    let ingested =
        meter.ingest_seen(&sent.bytes, 0, |spans| digests = spool.digests(spans)).expect("it is OTLP");
    let bytes = match coding {
        Coding::Plain => sent.bytes.clone(),
        Coding::Zstd => zstd::encode_all(&sent.bytes[..], 3).unwrap(),
        Coding::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&sent.bytes).unwrap();
            gzip.finish().unwrap()
        }
    };
    spool.keep(Request {
        bytes: bytes.into(),
        coding,
        plain_len: sent.bytes.len() as u32,
        digests,
        spans: ingested.spans as u32,
        unix_ms,
    });
}

/// Names of the spans found.
pub fn names(kept: &Kept) -> Vec<String> {
    let scopes = kept.trace.resource_spans.iter().flat_map(|of_resource| &of_resource.scope_spans);
    scopes.flat_map(|scope| &scope.spans).map(|span| span.name.clone()).collect()
}
