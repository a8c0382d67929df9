//! The meter's figures for other systems. One [`snapshot::Snapshot`] becomes the metric families of
//! [`catalog`], and these become Prometheus text, OpenMetrics, Prometheus protobuf or OTLP.

mod catalog;
mod classic;
mod clickhouse;
mod exemplar;
mod family;
mod kafka;
/// The messages of Prometheus' protobuf format, from `proto/io/prometheus/client/metrics.proto`.
pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/io.prometheus.client.rs"));
}
pub mod monotone;
pub mod otlp;
pub mod prometheus;
mod protobuf;
pub mod snapshot;
mod text;
