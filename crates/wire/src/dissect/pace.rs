//! Chooses the capture to read next, so that both ends of a call arrive at about the same time.

/// Progress of the two captures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Time of the latest packet, by each capture's own clock.
    pub now_ns: [Option<i64>; 2],
    /// Which captures have been read completely.
    pub over: [bool; 2],
    /// Which captures have many waiting halves.
    pub many: [bool; 2],
    /// Second clock minus first, as far as known.
    pub offset_ns: Option<i64>,
}

impl Pace {
    /// The capture that is behind; `None` when both are finished.
    ///
    /// Until a call shows the offset, the clocks are assumed to agree roughly. If that is wrong, many halves of
    /// the capture read first wait; then the other one is read until calls show the offset, or many of its halves
    /// wait, too.
    pub fn next(&self) -> Option<usize> {
        match self.over {
            [true, true] => return None,
            [true, false] => return Some(1),
            [false, true] => return Some(0),
            [false, false] => {}
        }
        let [Some(first), Some(second)] = self.now_ns else {
            return Some(usize::from(self.now_ns[0].is_some()));
        };
        if self.offset_ns.is_none() && self.many[0] != self.many[1] {
            return Some(usize::from(self.many[0]));
        }
        Some(usize::from(second.saturating_sub(self.offset_ns.unwrap_or(0)) < first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capture_that_is_behind_is_read() {
        let mut pace = Pace { now_ns: [Some(10), Some(20)], ..Pace::default() };
        assert_eq!(pace.next(), Some(0));
        pace.offset_ns = Some(15);
        assert_eq!(pace.next(), Some(1));
        pace.over = [false, true];
        assert_eq!(pace.next(), Some(0));
        pace.over = [true, true];
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn with_unknown_clocks_the_capture_with_few_waiting_halves_is_read() {
        let many = [true, false];
        let pace = Pace { now_ns: [Some(10), Some(2_000_000_000)], many, ..Pace::default() };
        assert_eq!(pace.next(), Some(1));
    }
}
