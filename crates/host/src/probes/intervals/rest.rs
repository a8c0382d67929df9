//! Stretches in which the programs rest: they are detached and record nothing.
//!
//! What happens meanwhile is unknown. So that every part of the stream says so by itself, [`What::Lost`] covers a rest on every
//! CPU, piece by piece while it lasts.

use crate::event::What;

/// Length of a piece.
const PIECE_NS: u64 = 250_000_000;

/// The latest rest.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// As the programs know it: odd while they rest.
    shift: u16,
    from_ns: u64,
    to_ns: u64,
    /// Ends of the last two pieces that were told of.
    told_ns: [u64; 2],
}

impl Rest {
    pub fn is_on(&self) -> bool {
        self.shift % 2 == 1
    }

    /// Begins a rest at this moment. Returns the shift for the programs, which may still record for an instant.
    pub fn begin(&mut self, now_ns: u64) -> u16 {
        self.shift = self.shift.wrapping_add(1);
        (self.from_ns, self.to_ns) = (now_ns, u64::MAX);
        self.told_ns = [now_ns; 2];
        self.shift
    }

    /// The shift for the programs after this rest. [`Rest::ended`] must follow.
    pub fn next_shift(&mut self) -> u16 {
        self.shift = self.shift.wrapping_add(1);
        self.shift
    }

    /// Ends the rest at this moment, when all programs know their shift.
    pub fn ended(&mut self, now_ns: u64) {
        self.to_ns = now_ns;
    }

    /// Whether an event of this time is none: programs begin and end a rest one after the other.
    pub fn covers(&self, time_ns: u64) -> bool {
        time_ns > self.from_ns && time_ns <= self.to_ns
    }

    /// The piece that is due, as its end and the event for each CPU. All events until `looked_ns` must be known.
    pub fn piece(&mut self, looked_ns: u64) -> Option<(u64, What)> {
        let since_ns = self.told_ns[1];
        let until_ns = looked_ns.min(self.to_ns);
        let is_last = until_ns == self.to_ns && since_ns < until_ns;
        if !(is_last || self.is_on() && until_ns >= since_ns + PIECE_NS) {
            return None;
        }
        self.told_ns = [since_ns, until_ns];
        Some((until_ns, What::Lost { count: 0, since_ns }))
    }

    /// Up to when a reader can rely on the stream, of which everything before `delivered_ns` was delivered.
    pub fn settled_ns(&self, delivered_ns: u64) -> u64 {
        let [before, last] = self.told_ns;
        match delivered_ns > last {
            false => delivered_ns.min(before),
            true if self.is_on() => last,
            true => delivered_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_told_piece_by_piece_and_to_its_end() {
        let mut rest = Rest::default();
        assert_eq!((rest.piece(10 * PIECE_NS), rest.settled_ns(77)), (None, 77), "never rested");
        assert_eq!(rest.begin(1_000), 1);
        assert!(rest.is_on() && !rest.covers(1_000) && rest.covers(1_001));
        assert_eq!(rest.piece(PIECE_NS), None);
        let (until_ns, what) = rest.piece(PIECE_NS + 1_000).unwrap();
        assert_eq!((until_ns, what), (PIECE_NS + 1_000, What::Lost { count: 0, since_ns: 1_000 }));
        // Delivered up to its end or not, what follows a piece that was told of is not known.
        assert_eq!([PIECE_NS, 2 * PIECE_NS].map(|ns| rest.settled_ns(ns)), [1_000, PIECE_NS + 1_000]);
        assert_eq!(rest.next_shift(), 2);
        rest.ended(2 * PIECE_NS);
        assert!(!rest.is_on() && rest.covers(2 * PIECE_NS) && !rest.covers(2 * PIECE_NS + 1));
        let (until_ns, what) = rest.piece(3 * PIECE_NS).unwrap();
        assert_eq!((until_ns, what), (2 * PIECE_NS, What::Lost { count: 0, since_ns: PIECE_NS + 1_000 }));
        assert_eq!(rest.piece(4 * PIECE_NS), None);
        assert_eq!(
            [2 * PIECE_NS, 3 * PIECE_NS].map(|ns| rest.settled_ns(ns)),
            [PIECE_NS + 1_000, 3 * PIECE_NS]
        );
    }

    #[test]
    fn shifts_alternate_for_ever() {
        let mut rest = Rest { shift: u16::MAX - 1, ..Rest::default() };
        assert_eq!(rest.begin(5), u16::MAX);
        assert!(rest.is_on());
        assert_eq!(rest.next_shift(), 0);
        assert!(!rest.is_on());
    }
}
