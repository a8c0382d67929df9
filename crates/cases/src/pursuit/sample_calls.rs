//! Made-up calls, for tests.

use crate::samples::{Half, Sample};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

const MS: u64 = 1_000_000;

/// A call of a client's port, from one millisecond to another one.
pub(crate) fn call(port: i64, from_ms: u64, to_ms: u64) -> Sample {
    use opentelemetry_proto::tonic::common::v1::KeyValue;
    let value = call_port(port);
    let attributes = vec![KeyValue { key: "network.local.port".into(), value, ..KeyValue::default() }];
    let span = Span { attributes, ..Span::default() };
    let (start_unix_ns, end_unix_ns) = (from_ms * MS, to_ms * MS);
    let half = Half { start_unix_ns, end_unix_ns, whole: Some((Resource::default(), span)) };
    Sample { gap_ns: end_unix_ns - start_unix_ns, sides: [half.clone(), half] }
}

pub(crate) fn call_port(port: i64) -> Option<opentelemetry_proto::tonic::common::v1::AnyValue> {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
    Some(AnyValue { value: Some(Value::IntValue(port)) })
}
