//! Metric families, independent of the output format.

use super::exemplar::Exemplar;
use spangap_model::Histogram;

/// What kind of metric a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the process lives.
    Counter,
    /// A value at this moment.
    Gauge,
    /// A distribution, cumulative since the start.
    Histogram,
}

/// The unit that ends a family's name, if any.
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
    /// Name without the `_total` that counters end with.
    pub name: &'static str,
    /// One sentence for users.
    pub help: &'static str,
    /// MetricKind.
    pub kind: MetricKind,
    /// Unit.
    pub unit: Unit,
    /// One for each set of labels; never empty.
    pub points: Vec<Point<'a>>,
}

/// One point of a metric.
#[derive(Clone, Debug)]
pub struct Point<'a> {
    /// Names and values, in the order they are written.
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
