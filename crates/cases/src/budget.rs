//! The budget of slices requested per minute.

use std::collections::VecDeque;

const MINUTE_MS: u64 = 60_000;

/// The budget of all hosts together.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    asked_ms: VecDeque<u64>,
}

impl Budget {
    /// A budget of `most` slices per minute.
    pub fn new(most: usize) -> Budget {
        Budget { most, asked_ms: VecDeque::new() }
    }

    /// Takes this many slices if at least `kept` of this minute remain for others. `now_ms` is Unix
    /// milliseconds.
    pub fn take(&mut self, slices: usize, kept: usize, now_ms: u64) -> bool {
        // If the clock was set back, requests lie in the future; those more than a minute away are dropped.
        self.asked_ms.retain(|at| now_ms.abs_diff(*at) < MINUTE_MS);
        let is_room = self.asked_ms.len() + slices + kept <= self.most;
        if is_room {
            self.asked_ms.extend(std::iter::repeat_n(now_ms, slices));
        }
        is_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_per_minute_are_bounded_with_a_reserve() {
        let mut budget = Budget::new(6);
        assert!(budget.take(2, 2, 0) && budget.take(2, 2, 1) && !budget.take(2, 2, 2));
        assert!(budget.take(2, 0, 3), "what was kept");
        assert!(!budget.take(2, 0, 59_999) && budget.take(2, 0, 60_000), "a minute after the first");
    }

    #[test]
    fn a_clock_set_back_does_not_block_cases() {
        let (mut budget, hour) = (Budget::new(2), 3_600_000);
        assert!(budget.take(2, 0, 2 * hour));
        assert!(budget.take(2, 0, hour), "an hour earlier, as it seems");
        assert!(!budget.take(2, 0, hour + 1));
    }
}
