//! Whole traces from the table of the Collector's exporter.

use super::Sharing;
use super::front::Front;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

/// As version 0.145 of the exporter makes it, without the indexes on attributes.
const TABLE: &str = "CREATE TABLE otel_traces (
  Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)), TraceId String CODEC(ZSTD(1)), SpanId String, ParentSpanId String,
  TraceState String, SpanName LowCardinality(String), SpanKind LowCardinality(String),
  ServiceName LowCardinality(String), ResourceAttributes Map(LowCardinality(String), String), ScopeName String,
  ScopeVersion String, SpanAttributes Map(LowCardinality(String), String), Duration UInt64,
  StatusCode LowCardinality(String), StatusMessage String,
  Events Nested (Timestamp DateTime64(9), Name LowCardinality(String),
    Attributes Map(LowCardinality(String), String)),
  Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))";

const ROWS: &str = "INSERT INTO otel_traces VALUES
  (toDateTime64('2026-01-02 03:04:05.123456789', 9, 'UTC'), '0102030405060708090a0b0c0d0e0f10', '1111111111111111',
   '', 'a=b', 'GET /', 'Client', 'web', {'service.name': 'web', 'host.name': 'n1'}, 'lib', '1.2',
   {'http.status_code': '200'}, 5000000, 'Ok', '', [toDateTime64('2026-01-02 03:04:05.2', 9, 'UTC')], ['sent'],
   [{'bytes': '12'}], ['ff02030405060708090a0b0c0d0e0f10'], ['2222222222222222'], [''], [{}]),
  (toDateTime64('2026-01-02 03:04:05.124', 9, 'UTC'), '0102030405060708090a0b0c0d0e0f10', '3333333333333333',
   '1111111111111111', '', 'GET /', 'SPAN_KIND_SERVER', 'cart', {'service.name': 'cart'}, 'lib', '', {}, 3000000,
   'Error', 'it''s \\\\ broken', [], [], [], [], [], [], []),
  (toDateTime64('2026-01-02 03:04:05.124', 9, 'UTC'), 'ee02030405060708090a0b0c0d0e0f10', '4444444444444444', '',
   '', 'other', 'Internal', 'cart', {'service.name': 'cart'}, '', '', {}, 1, 'Unset', '', [], [], [], [], [], [], [])";

#[test]
fn a_trace_is_found_by_its_id_in_the_collectors_table() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(tables.path(), &[]) else { return };
    let meter = Sharing::with(folder.path(), "m", &front);
    let id: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
    assert_eq!(meter.shared().trace(&id).unwrap().trace.spans, 0, "without a table there is no trace");
    front.sql(TABLE);
    front.sql(ROWS);
    let kept = meter.shared().trace(&id).unwrap();
    assert_eq!((kept.trace.spans, kept.incomplete.len()), (2, 0));
    let of = |at: usize| {
        let resource = &kept.trace.resource_spans[at];
        (&resource.resource.as_ref().unwrap().attributes, &resource.scope_spans[0].spans[0])
    };
    let (resource, client) = of(0);
    assert_eq!(resource.len(), 2);
    assert_eq!((client.span_id.as_slice(), client.kind()), (&[0x11; 8][..], SpanKind::Client));
    assert_eq!(client.start_time_unix_nano, 1_767_323_045_123_456_789);
    assert_eq!(client.end_time_unix_nano - client.start_time_unix_nano, 5_000_000);
    assert_eq!(
        (client.attributes[0].key.as_str(), client.events[0].name.as_str()),
        ("http.status_code", "sent")
    );
    assert_eq!((client.links[0].trace_id[0], client.links[0].span_id.len()), (0xff, 8));
    let (_, server) = of(1);
    assert_eq!((server.parent_span_id.as_slice(), server.kind()), (&[0x11; 8][..], SpanKind::Server));
    let status = server.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "it's \\ broken"));
}
