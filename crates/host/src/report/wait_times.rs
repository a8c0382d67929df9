//! Number and durations of waits, as JSON.

use crate::probes::offcpu::{Histogram, Open};
use serde::Serialize;

/// Reported quantiles and their names.
pub const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];

/// Waits of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waits {
    /// Number of completed waits.
    pub count: u64,
    /// Total; exact.
    pub sum_ns: u64,
    /// Mean; `None` if there were none.
    pub mean_ns: Option<u64>,
    /// Maximum; exact.
    pub max_ns: u64,
    /// Quantiles; `None` if there were none.
    pub quantiles: Option<Quantiles>,
    /// Non-empty histogram buckets, in order.
    pub buckets: Vec<Bucket>,
    /// Counts by powers of two of microseconds: below 2, from 2, from 4, from 8, and so on.
    #[serde(skip)]
    pub by_power_of_two: Vec<u64>,
    /// Waits in progress at the end. In none of the figures above.
    pub open: OpenReport,
}

/// Quantiles with their error bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p50_bound_ns: u64,
    pub p90_ns: u64,
    pub p90_bound_ns: u64,
    pub p99_ns: u64,
    pub p99_bound_ns: u64,
    pub p999_ns: u64,
    pub p999_bound_ns: u64,
}

/// A histogram bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Lower bound.
    pub from_ns: u64,
    /// Upper bound; `None` for the last bucket, which has none.
    pub to_ns: Option<u64>,
    /// Number of waits.
    pub count: u64,
}

/// Waits in progress at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpenReport {
    pub waits: u64,
    /// Total time so far.
    pub sum_ns: u64,
    /// Longest time so far.
    pub max_ns: u64,
}

impl Waits {
    pub(super) fn new(histogram: &Histogram, open: Open) -> Waits {
        let at = QUANTILES.map(|(share, _)| histogram.quantile(share));
        let quantiles = match at {
            [Some(p50), Some(p90), Some(p99), Some(p999)] => Some(Quantiles {
                p50_ns: p50.middle_ns(),
                p50_bound_ns: p50.bound_ns(),
                p90_ns: p90.middle_ns(),
                p90_bound_ns: p90.bound_ns(),
                p99_ns: p99.middle_ns(),
                p99_bound_ns: p99.bound_ns(),
                p999_ns: p999.middle_ns(),
                p999_bound_ns: p999.bound_ns(),
            }),
            _ => None,
        };
        let bounds = histogram.filled().map(|(within, count)| Bucket {
            from_ns: within.low_ns,
            to_ns: Some(within.high_ns).filter(|&high| high < u64::MAX - 1),
            count,
        });
        Waits {
            count: histogram.count(),
            sum_ns: histogram.sum_ns,
            mean_ns: histogram.mean_ns(),
            max_ns: histogram.max_ns,
            quantiles,
            buckets: bounds.collect(),
            by_power_of_two: histogram.by_power_of_two(),
            open: OpenReport { waits: open.waits, sum_ns: open.sum_ns, max_ns: open.max_ns },
        }
    }

    /// Whether there were no waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.open.waits == 0
    }
}
