//! Metric families, independent of the output format.

use super::exemplar::Exemplar;
use spangap_model::Histogram;

/// Kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Never falls while the process lives.
    Counter,
    /// Current value.
    Gauge,
    /// A distribution, cumulative since the start.
    Histogram,
}

/// Unit at the end of a family's name, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or no unit.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// All points of one metric.
#[derive(Clone, Debug)]
pub struct Family<'a> {
    /// Name, without the `_total` suffix of counters.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Kind of metric.
    pub kind: MetricKind,
    /// Unit.
    pub unit: Unit,
    /// One point per set of labels; never empty.
    pub points: Vec<Point<'a>>,
}

/// One point of a metric.
#[derive(Clone, Debug)]
pub struct Point<'a> {
    /// Label names and values, in output order.
    pub labels: Labels<'a>,
    /// Value.
    pub value: Value<'a>,
}

/// Label names and values.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A point's value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// A whole number.
    Count(u64),
    /// Any other number.
    Real(f64),
    /// A distribution of durations.
    Distribution {
        /// The distribution.
        histogram: &'a Histogram,
        /// Calls in it, earliest first.
        exemplars: Vec<Exemplar<'a>>,
    },
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}
