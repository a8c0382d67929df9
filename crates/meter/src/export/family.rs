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

/// Collects the families that have at least one point.
#[derive(Default)]
pub(super) struct Families<'a>(Vec<Family<'a>>);

impl<'a> Families<'a> {
    pub(super) fn add(
        &mut self,
        kind: MetricKind,
        unit: Unit,
        name: &'static str,
        help: &'static str,
        points: Vec<Point<'a>>,
    ) {
        if !points.is_empty() {
            self.0.push(Family { name, help, kind, unit, points });
        }
    }

    pub(super) fn one(
        &mut self,
        kind: MetricKind,
        unit: Unit,
        name: &'static str,
        help: &'static str,
        value: Value<'a>,
    ) {
        self.add(kind, unit, name, help, vec![Point { labels: Vec::new(), value }]);
    }

    pub(super) fn count(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.one(MetricKind::Counter, Unit::None, name, help, Value::Count(value));
    }

    pub(super) fn bytes(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.one(MetricKind::Gauge, Unit::Bytes, name, help, Value::Count(value));
    }

    pub(super) fn seconds(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.one(MetricKind::Gauge, Unit::Seconds, name, help, Value::Real(value));
    }

    pub(super) fn all(self) -> Vec<Family<'a>> {
        self.0
    }
}
