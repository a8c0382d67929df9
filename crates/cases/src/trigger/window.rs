//! The calls of one window with its figures, and stretches of several windows.

use super::counts::Counts;
use super::figure::{FIGURES, Figure};

/// A window has at least this many calls: the p90 of fewer is one call.
pub const LEAST_CALLS: u64 = 20;

/// The calls of one window, and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Gaps and client durations.
    pub(super) counts: [Counts; 2],
    pub(super) figures: Figures,
    /// Start and end, Unix milliseconds.
    pub(super) between: [u64; 2],
}

/// Nanoseconds, in the order of [`FIGURES`]; NaN if there are too few calls for one.
pub(super) type Figures = [f32; FIGURES.len()];

impl Window {
    /// From the gaps and client durations of the same calls; `None` if there are too few.
    pub fn of(gap: Counts, client: Counts) -> Option<Window> {
        let figures = FIGURES.map(|figure| match figure {
            Figure::Gap(statistic) => gap.statistic(statistic).unwrap_or(f64::NAN) as f32,
            Figure::Client(statistic) => client.statistic(statistic).unwrap_or(f64::NAN) as f32,
        });
        (gap.calls >= LEAST_CALLS).then_some(Window { counts: [gap, client], figures, between: [0; 2] })
    }

    /// With its start and end, Unix milliseconds.
    pub fn between(self, from_unix_ms: u64, to_unix_ms: u64) -> Window {
        Window { between: [from_unix_ms, to_unix_ms], ..self }
    }

    pub(super) fn stretch(&self) -> Stretch {
        let [from_unix_ms, to_unix_ms] = self.between;
        Stretch { counts: self.counts.clone(), from_unix_ms, to_unix_ms, windows: 1 }
    }
}

/// Calls of a time range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Gaps and client durations.
    pub counts: [Counts; 2],
    /// Its start, Unix milliseconds.
    pub from_unix_ms: u64,
    /// Its end.
    pub to_unix_ms: u64,
    pub(super) windows: usize,
}

impl Stretch {
    pub(super) fn add(&mut self, window: &Stretch) {
        if self.windows == 0 {
            self.from_unix_ms = window.from_unix_ms;
        }
        self.windows += window.windows;
        self.from_unix_ms = self.from_unix_ms.min(window.from_unix_ms);
        self.to_unix_ms = self.to_unix_ms.max(window.to_unix_ms);
        self.counts.iter_mut().zip(&window.counts).for_each(|(all, more)| all.add(more));
    }
}
