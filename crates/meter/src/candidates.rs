//! Number of calls a pair retains beyond the worst ones it reports.
//!
//! A hedged or retried call is joined first and retracted seconds later, when its second attempt arrives.
//! Such calls are slow, so they rank among the worst, and each retraction needs a successor. A pair that
//! loses worst calls retains more from then on, as many as it needs; the total over all pairs is bounded.

use rustc_hash::FxHashMap;
use spangap_model::PairStats;
use spangap_model::pair::WORST_KEPT;
use spangap_model::shared::Account;

/// Candidates after the first retraction, and the maximum for any one pair.
const FIRST: u32 = 64;
const MOST_OF_PAIR: u32 = 4096;

/// Number of candidates by pair. A pair that is absent retains [`WORST_KEPT`].
#[derive(Debug, Default)]
pub struct Candidates {
    rooms: FxHashMap<u32, u32>,
    /// Candidates beyond the number every pair retains, of all lanes.
    reserved: Account,
}

impl Candidates {
    /// Maximum number of candidates of all pairs together, per open minute.
    pub const MOST: u64 = 1 << 16;

    /// No candidates yet. `reserved` counts those of all lanes.
    pub fn new(reserved: Account) -> Candidates {
        Candidates { rooms: FxHashMap::default(), reserved }
    }

    /// Number of calls the pair retains.
    pub fn room(&self, pair: u32) -> u32 {
        self.rooms.get(&pair).copied().unwrap_or(WORST_KEPT as u32)
    }

    /// Reacts to the retraction of one of the pair's worst calls; `is_short` when too few remain to be sure
    /// of the worst. Returns the number of calls the pair retains from now on.
    pub fn grow(&mut self, pair: u32, is_short: bool) -> u32 {
        let room = self.room(pair);
        let wanted = match is_short {
            true => (room * 2).clamp(FIRST, MOST_OF_PAIR),
            false => room.max(FIRST),
        };
        let more = (wanted - room) as u64;
        if more == 0 || !self.reserved.charge_within(more, Candidates::MOST) {
            return room;
        }
        self.rooms.insert(pair, wanted);
        wanted
    }

    /// Halves the candidates of pairs without a retraction in the minute.
    pub fn minute_closed(&mut self, stats: &[PairStats]) {
        let quiet = |pair: u32| stats.get(pair as usize).is_none_or(|stats| stats.attempts_over_one == 0);
        let reserved = |rooms: &FxHashMap<u32, u32>| -> usize {
            rooms.values().map(|room| *room as usize - WORST_KEPT).sum()
        };
        let before = reserved(&self.rooms);
        self.rooms.retain(|pair, room| {
            if quiet(*pair) {
                *room /= 2;
            }
            *room >= FIRST
        });
        self.reserved.release(before - reserved(&self.rooms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_grow_with_retractions_within_the_total_limit() {
        let mut candidates = Candidates::default();
        assert_eq!((candidates.room(7), candidates.grow(7, false), candidates.room(7)), (10, 64, 64));
        assert_eq!((candidates.grow(7, false), candidates.grow(7, true)), (64, 128));
        let quiet = vec![PairStats::default(); 8];
        candidates.minute_closed(&quiet);
        assert_eq!((candidates.room(7), candidates.reserved.bytes()), (64, 54));
        candidates.minute_closed(&quiet);
        assert_eq!((candidates.room(7), candidates.reserved.bytes()), (10, 0));
        for pair in 0..1000 {
            (0..10).for_each(|_| _ = candidates.grow(pair, true));
            assert!(candidates.room(pair) <= MOST_OF_PAIR && candidates.reserved.bytes() <= Candidates::MOST);
        }
        let busy = vec![PairStats { attempts_over_one: 1, ..PairStats::default() }; 1000];
        let reserved = candidates.reserved.bytes();
        candidates.minute_closed(&busy);
        assert_eq!(candidates.reserved.bytes(), reserved);
    }
}
