//! The protobuf format of Prometheus: the only one that carries native histograms.

use super::classic;
use super::exemplar::Exemplar;
use super::family::{self, Family, MetricKind, Point, Value};
use super::messages::{
    self, Bucket, BucketSpan, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType,
};
use prost::Message;
use prost_types::Timestamp;
use spangap_model::Histogram;
use spangap_model::histogram::SCALE;

/// Half-width of the native zero bucket, in seconds: a bucket bound below one nanosecond, so that the bucket
/// contains only exact zeros.
pub const ZERO_THRESHOLD_S: f64 = 1.0 / (1u64 << 30) as f64;

/// Number of the field `metric` of `MetricFamily`.
const METRIC: u32 = 4;

/// Writes all families, each prefixed with its length. An encoded message takes a few kilobytes, but its
/// source is a tree of many small allocations, so only one exists at a time beside the bytes of its family.
///
/// # Errors
/// Errors of `out`.
pub fn write(families: &[Family], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    for family in families {
        bytes.clear();
        bytes.extend_from_slice(&head(family).encode_to_vec());
        for point in &family.points {
            prost::encoding::message::encode(METRIC, &metric(family.kind, point), &mut bytes);
        }
        let mut length = Vec::new();
        prost::encoding::encode_varint(bytes.len() as u64, &mut length);
        out.write_all(&length)?;
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The family without its metrics, which are last on the wire.
fn head(family: &Family) -> MetricFamily {
    let (suffix, kind) = match family.kind {
        MetricKind::Counter => ("_total", MetricType::Counter),
        MetricKind::Gauge => ("", MetricType::Gauge),
        MetricKind::Histogram => ("", MetricType::Histogram),
    };
    MetricFamily {
        name: Some(format!("{}{suffix}", family.name)),
        help: Some(family.help.into()),
        r#type: Some(kind.into()),
        metric: Vec::new(),
    }
}

fn metric(kind: MetricKind, point: &Point) -> Metric {
    let mut metric = Metric {
        label: point.labels.iter().map(|(name, value)| label(name, value)).collect(),
        ..Metric::default()
    };
    let number = match &point.value {
        Value::Count(n) => *n as f64,
        Value::Real(value) => *value,
        Value::Distribution { histogram, exemplars } => {
            metric.histogram = Some(native(histogram, exemplars));
            return metric;
        }
    };
    match kind {
        MetricKind::Counter => metric.counter = Some(Counter { value: Some(number) }),
        _ => metric.gauge = Some(Gauge { value: Some(number) }),
    }
    metric
}

fn label(name: &str, value: &str) -> LabelPair {
    LabelPair { name: Some(name.into()), value: Some(value.into()) }
}

/// The native histogram, with classic buckets for servers that prefer them.
fn native(histogram: &Histogram, exemplars: &[Exemplar]) -> messages::Histogram {
    let (positive_span, positive_delta) = spans(histogram);
    let classic = classic::buckets(histogram, exemplars).into_iter().map(|bucket| Bucket {
        cumulative_count: Some(bucket.cumulative_count),
        upper_bound: Some(bucket.upper_bound_s),
        exemplar: bucket.exemplar.map(exemplar),
    });
    messages::Histogram {
        sample_count: Some(histogram.count()),
        sample_sum: Some(family::seconds(histogram.sum_ns())),
        bucket: classic.collect(),
        schema: Some(SCALE),
        zero_threshold: Some(ZERO_THRESHOLD_S),
        zero_count: Some(histogram.zero_count()),
        positive_span,
        positive_delta,
        exemplars: exemplars.iter().map(exemplar).collect(),
    }
}

/// Runs of consecutive buckets, and the difference between each bucket's count and its predecessor's.
fn spans(histogram: &Histogram) -> (Vec<BucketSpan>, Vec<i64>) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut deltas = Vec::new();
    let mut end = 0;
    let mut before = 0;
    for (index, n) in histogram.buckets() {
        // OpenTelemetry numbers a bucket by its lower bound, Prometheus by its upper bound.
        let index = index + 1;
        match spans.last_mut() {
            Some(span) if index == end => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan { offset: Some(index - end), length: Some(1) }),
        }
        end = index + 1;
        deltas.push(n as i64 - before);
        before = n as i64;
    }
    if spans.is_empty() {
        // Without any span, an empty native histogram reads as a classic one.
        spans.push(BucketSpan { offset: Some(0), length: Some(0) });
    }
    (spans, deltas)
}

fn exemplar(exemplar: &Exemplar) -> messages::Exemplar {
    let time_unix_ns = exemplar.call.time_unix_ns;
    messages::Exemplar {
        label: exemplar.call.labels.iter().map(|(name, value)| label(name, value)).collect(),
        value: Some(family::seconds(exemplar.value_ns as u128)),
        timestamp: Some(Timestamp {
            seconds: (time_unix_ns / 1_000_000_000) as i64,
            nanos: (time_unix_ns % 1_000_000_000) as i32,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spangap_model::histogram::upper_bound_ns;
    use std::collections::BTreeMap;

    /// Decodes spans and deltas as Prometheus defines them: bucket `i` of schema 4 ends at 2^(i/16) seconds.
    fn read(histogram: &messages::Histogram) -> BTreeMap<i32, i64> {
        let mut counts = BTreeMap::new();
        let mut deltas = histogram.positive_delta.iter();
        let (mut index, mut count) = (0, 0);
        for span in &histogram.positive_span {
            index += span.offset.unwrap();
            for _ in 0..span.length.unwrap() {
                count += deltas.next().unwrap();
                counts.insert(index, count);
                index += 1;
            }
        }
        assert!(deltas.next().is_none());
        counts
    }

    proptest! {
        #[test]
        fn native_buckets_are_the_same_buckets(values in prop::collection::vec(0u64..10_000_000_000, 0..200)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|ns| histogram.record(*ns));
            let native = native(&histogram, &[]);
            let counts = read(&native);
            prop_assert_eq!(counts.len(), histogram.buckets().count());
            for ((index, count), (ours, n)) in counts.iter().zip(histogram.buckets()) {
                prop_assert_eq!(*count, n as i64);
                let bound_ns = (f64::from(*index) / 16.0).exp2() * 1e9;
                prop_assert!((bound_ns / upper_bound_ns(ours) - 1.0).abs() < 1e-12);
            }
            prop_assert_eq!(counts.values().sum::<i64>() as u64 + native.zero_count.unwrap(), native.sample_count.unwrap());
        }
    }

    #[test]
    fn an_empty_histogram_is_still_native() {
        let native = native(&Histogram::new(), &[]);
        assert_eq!(native.positive_span, [BucketSpan { offset: Some(0), length: Some(0) }]);
        assert!(native.zero_threshold.unwrap() > 0.0);
    }

    #[test]
    fn one_nanosecond_lies_above_the_zero_bucket() {
        let lowest = spangap_model::histogram::bucket_index(1);
        assert!(spangap_model::histogram::lower_bound_ns(lowest) / 1e9 >= ZERO_THRESHOLD_S);
    }
}
