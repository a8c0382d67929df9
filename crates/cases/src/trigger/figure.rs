//! What is compared of a window: statistics of its gaps and of its client durations.

use crate::report::Measure;
use std::fmt;

/// A window has at least this many calls to have a p99: with fewer calls it would be the largest value, which grows with their number.
pub(super) const LEAST_FOR_P99: u64 = 200;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Client duration minus server duration.
    Gap(Statistic),
    /// Duration of the CLIENT span.
    Client(Statistic),
}

/// A statistic of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Half of the calls take longer.
    Median,
    /// Mean.
    Mean,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// Calls far beyond the 99th percentile of the whole baseline: their median.
    Slowest,
    /// The same, of which there are a few in most windows of a minute: the median of the slowest of each window.
    Lasting,
}

/// Figures that a single window has by itself, in the order of [`Window::figures`].
pub(super) const FIGURES: [Figure; 8] = [
    Figure::Gap(Statistic::P99),
    Figure::Gap(Statistic::P90),
    Figure::Gap(Statistic::Mean),
    Figure::Gap(Statistic::Median),
    Figure::Client(Statistic::P99),
    Figure::Client(Statistic::P90),
    Figure::Client(Statistic::Mean),
    Figure::Client(Statistic::Median),
];

/// Figures that require a baseline. Their bits follow those of [`FIGURES`].
pub(super) const SLOWEST: [Figure; 2] = [Figure::Gap(Statistic::Slowest), Figure::Client(Statistic::Slowest)];

/// Those of the last minute.
pub(super) const LASTING: [Figure; 2] = [Figure::Gap(Statistic::Lasting), Figure::Client(Statistic::Lasting)];

impl Figure {
    /// What it is a statistic of.
    pub fn measure(self) -> Measure {
        match self {
            Figure::Gap(_) => Measure::Gap,
            Figure::Client(_) => Measure::ClientDuration,
        }
    }

    /// Index of the two distributions: gaps, client durations.
    pub fn of(self) -> usize {
        match self {
            Figure::Gap(_) => 0,
            Figure::Client(_) => 1,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, statistic) = match self {
            Figure::Gap(statistic) => ("gap", statistic),
            Figure::Client(statistic) => ("client duration", statistic),
        };
        match statistic {
            Statistic::Median => write!(f, "median of the {what}"),
            Statistic::Mean => write!(f, "mean {what}"),
            Statistic::P90 => write!(f, "p90 of the {what}"),
            Statistic::P99 => write!(f, "p99 of the {what}"),
            Statistic::Slowest => write!(f, "{what} of the slowest calls"),
            Statistic::Lasting => write!(f, "{what} of the slowest calls of a minute"),
        }
    }
}
