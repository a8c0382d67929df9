//! A snapshot as OTLP metrics: cumulative sums, gauges, and exponential histograms of the meter's own buckets.

use crate::export::catalog::families;
use crate::export::exemplar::Exemplar;
use crate::export::family::{Family, MetricKind, Point, Unit, Value, seconds};
use crate::export::snapshot::Snapshot;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{exemplar, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use spangap_model::Histogram;
use spangap_model::histogram::SCALE;

const CUMULATIVE: i32 = otlp::AggregationTemporality::Cumulative as i32;
/// Data points per request. A histogram with all its exemplars takes about 2 KiB, and receivers accept 4 MiB.
pub const MAX_POINTS: usize = 1_000;

/// All metrics of a snapshot, in requests of at most [`MAX_POINTS`] data points.
pub fn requests(snapshot: &Snapshot) -> Vec<ExportMetricsServiceRequest> {
    let mut requests = Vec::new();
    let mut metrics: Vec<otlp::Metric> = Vec::new();
    let mut room = MAX_POINTS;
    for family in families(snapshot) {
        let mut points = family.points.as_slice();
        while !points.is_empty() {
            let (here, rest) = points.split_at(points.len().min(room));
            metrics.push(metric(&family, here, snapshot));
            points = rest;
            room -= here.len();
            if room == 0 {
                requests.push(request(std::mem::take(&mut metrics), snapshot));
                room = MAX_POINTS;
            }
        }
    }
    if !metrics.is_empty() {
        requests.push(request(metrics, snapshot));
    }
    requests
}

fn request(metrics: Vec<otlp::Metric>, snapshot: &Snapshot) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "spangap".into(),
        version: snapshot.version.into(),
        ..InstrumentationScope::default()
    };
    let resource = Resource {
        attributes: vec![
            attribute("service.name", "spangap"),
            attribute("service.version", snapshot.version),
        ],
        ..Resource::default()
    };
    let scope_metrics =
        vec![otlp::ScopeMetrics { scope: Some(scope), metrics, ..otlp::ScopeMetrics::default() }];
    let resource_metrics =
        otlp::ResourceMetrics { resource: Some(resource), scope_metrics, ..otlp::ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }
}

fn metric(family: &Family, points: &[Point], snapshot: &Snapshot) -> otlp::Metric {
    let numbers = || points.iter().map(|point| number(point, snapshot)).collect();
    let data = match family.kind {
        MetricKind::Counter => Data::Sum(otlp::Sum {
            data_points: numbers(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricKind::Gauge => Data::Gauge(otlp::Gauge { data_points: numbers() }),
        MetricKind::Histogram => Data::ExponentialHistogram(otlp::ExponentialHistogram {
            data_points: points.iter().map(|point| distribution(point, snapshot)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    let unit = match family.unit {
        Unit::None => "",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
    };
    otlp::Metric {
        name: family.name.into(),
        description: family.help.into(),
        unit: unit.into(),
        data: Some(data),
        ..otlp::Metric::default()
    }
}

fn number(point: &Point, snapshot: &Snapshot) -> otlp::NumberDataPoint {
    let value = match &point.value {
        Value::Count(n) => number_data_point::Value::AsInt(i64::try_from(*n).unwrap_or(i64::MAX)),
        Value::Real(value) => number_data_point::Value::AsDouble(*value),
        Value::Distribution { histogram, .. } => number_data_point::Value::AsInt(histogram.count() as i64),
    };
    otlp::NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: snapshot.started_unix_ns,
        time_unix_nano: snapshot.now_unix_ns,
        value: Some(value),
        ..otlp::NumberDataPoint::default()
    }
}

fn distribution(point: &Point, snapshot: &Snapshot) -> otlp::ExponentialHistogramDataPoint {
    let mut data_point = otlp::ExponentialHistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: snapshot.started_unix_ns,
        time_unix_nano: snapshot.now_unix_ns,
        scale: SCALE,
        ..otlp::ExponentialHistogramDataPoint::default()
    };
    if let Value::Distribution { histogram, exemplars } = &point.value {
        data_point.count = histogram.count();
        data_point.sum = Some(seconds(histogram.sum_ns()));
        data_point.zero_count = histogram.zero_count();
        data_point.positive = buckets(histogram);
        data_point.min = histogram.min_ns().map(|ns| seconds(ns as u128));
        data_point.max = histogram.max_ns().map(|ns| seconds(ns as u128));
        data_point.exemplars = exemplars.iter().map(exemplar).collect();
    }
    data_point
}

/// All buckets between the lowest and the highest used one; the indices are OpenTelemetry's own.
fn buckets(histogram: &Histogram) -> Option<Buckets> {
    let (offset, _) = histogram.buckets().next()?;
    let mut bucket_counts = Vec::new();
    for (index, n) in histogram.buckets() {
        bucket_counts.resize((index - offset) as usize, 0);
        bucket_counts.push(n);
    }
    Some(Buckets { offset, bucket_counts })
}

fn exemplar(exemplar: &Exemplar) -> otlp::Exemplar {
    let call = &exemplar.call;
    // The trace id has a separate field.
    let others = call.labels.iter().filter(|(name, _)| *name != "trace_id");
    otlp::Exemplar {
        filtered_attributes: others.map(|(name, value)| attribute(name, value)).collect(),
        time_unix_nano: call.time_unix_ns,
        span_id: call.call.client_span_id.into(),
        trace_id: call.call.trace_id.into(),
        value: Some(exemplar::Value::AsDouble(seconds(exemplar.value_ns as u128))),
    }
}

fn attributes(point: &Point) -> Vec<KeyValue> {
    point.labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(name: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.into())) };
    KeyValue { key: name.into(), value: Some(value), ..KeyValue::default() }
}
