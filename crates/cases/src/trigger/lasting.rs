//! A few calls that take very long, and go on for a minute: too few in each window to move its figures.
//!
//! What counts is the number of windows with such a call, because one pause may delay many calls at once, and their share of all
//! calls, because a window of more calls has one more often.

use super::figure::LASTING;
use super::{CHANCE, Left, MOST_WINDOWS, TIMES_SHARE, Window, at_least};
use std::collections::VecDeque;

/// Windows that are compared with those before: a minute, of five seconds each.
const LATE: usize = 12;
/// Fewer before these are too few to compare with.
const LEAST_BEFORE: usize = 36;
/// Of the calls in a minute, at least this share takes that long.
const LEAST_SHARE: f64 = 0.005;

/// The calls of a window, gaps or client durations. Small: each pair has 132 windows of both.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    all: u32,
    /// Far beyond the p99 of the baseline.
    far: u32,
    slowest_ns: f32,
}

#[derive(Clone, Debug)]
struct Passed {
    calls: [Calls; 2],
    between: [u64; 2],
    /// Whether it belongs to what later windows are compared with.
    is_usual: bool,
}

/// The windows of the last ten minutes.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting(VecDeque<Passed>);

/// The calls of some windows.
#[derive(Default)]
struct Sum {
    windows: u64,
    /// With a call beyond a level.
    windows_beyond: u64,
    all: u64,
    far: u64,
}

impl Sum {
    fn of<'a>(windows: impl Iterator<Item = &'a Passed>, of: usize, level_ns: f32) -> Sum {
        windows.fold(Sum::default(), |sum, window| {
            let calls = window.calls[of];
            Sum {
                windows: sum.windows + 1,
                windows_beyond: sum.windows_beyond + u64::from(calls.slowest_ns > level_ns),
                all: sum.all + u64::from(calls.all),
                far: sum.far + u64::from(calls.far),
            }
        })
    }

    fn share(&self) -> f64 {
        self.far as f64 / self.all.max(1) as f64
    }
}

impl Lasting {
    /// Takes the next window. `levels_ns` are far beyond the p99 of the baseline.
    pub fn take(&mut self, window: &Window, levels_ns: [u64; 2]) {
        if self.0.len() >= MOST_WINDOWS + LATE {
            self.0.pop_front();
        }
        let calls = [0, 1].map(|of| {
            let counts = &window.counts[of];
            let number = |calls: u64| u32::try_from(calls).unwrap_or(u32::MAX);
            Calls {
                all: number(counts.calls),
                far: number(counts.over(levels_ns[of])),
                slowest_ns: counts.quantile_ns(1.0) as f32,
            }
        });
        self.0.push_back(Passed { calls, between: window.between, is_usual: true });
    }

    /// The last window is nothing that later ones are compared with.
    pub fn last_is_unusual(&mut self) {
        if let Some(last) = self.0.back_mut() {
            last.is_usual = false;
        }
    }

    /// Whether far more windows of the last minute than before have such calls, and when the first of these windows began and ended.
    pub fn left(&self, of: usize, p99_ns: f64) -> Option<(Left, [u64; 2])> {
        let before = self.0.len().checked_sub(LATE)?;
        let late = || self.0.iter().skip(before);
        let mut slowest: Vec<f32> = late().map(|window| window.calls[of].slowest_ns).collect();
        slowest.sort_by(f32::total_cmp);
        let left = Left { figure: LASTING[of], usual_ns: p99_ns as u64, now_ns: slowest[LATE / 2] as u64 };
        let level_ns = left.level_ns() as f32;
        let now = Sum::of(late(), of, level_ns);
        let before = Sum::of(self.0.iter().take(before).filter(|window| window.is_usual), of, level_ns);
        let is_share = now.share() >= LEAST_SHARE && now.share() > TIMES_SHARE * before.share();
        if before.windows < LEAST_BEFORE as u64 || !is_share {
            return None;
        }
        let chance = |now: u64, before: u64, among_now: u64, among_before: u64| {
            at_least(now, now + before, among_now as f64 / (among_now + among_before).max(1) as f64)
        };
        let of_windows = chance(now.windows_beyond, before.windows_beyond, now.windows, before.windows);
        if of_windows >= CHANCE || chance(now.far, before.far, now.all, before.all) >= CHANCE {
            return None;
        }
        let began = late().find(|window| window.calls[of].slowest_ns > level_ns)?.between;
        Some((left, began))
    }
}
