//! Bounds on the offset between two clocks as they arrive; each time slot keeps the tightest.

/// Maximum slots; beyond it, each slot covers twice the time.
const MAX_SLOTS: usize = 4096;
/// A slot initially covers 2^20 ns (about 1 ms).
const FIRST_SHIFT: u32 = 20;

/// Number of slots, the latest ones, that the first guess uses.
const GUESSED_FROM: usize = 64;

/// The tightest bounds in a time slot, each with the moment it applies to (clock of the first capture).
#[derive(Clone, Copy, Debug)]
struct Slot {
    index: i64,
    /// Offset is at most this.
    upper: i64,
    upper_at: i64,
    /// Offset is at least this.
    lower: i64,
    lower_at: i64,
}

impl Slot {
    fn new(index: i64) -> Slot {
        Slot { index, upper: i64::MAX, upper_at: 0, lower: i64::MIN, lower_at: 0 }
    }

    fn absorb(&mut self, other: &Slot) {
        if other.upper < self.upper {
            (self.upper, self.upper_at) = (other.upper, other.upper_at);
        }
        if other.lower > self.lower {
            (self.lower, self.lower_at) = (other.lower, other.lower_at);
        }
    }
}

/// Bounds from any number of packets in bounded memory. Dropping a bound that is not the tightest of its slot
/// makes the result wider, never false.
#[derive(Clone, Debug)]
pub struct Bounds {
    shift: u32,
    slots: Vec<Slot>,
    /// Slot of the last bound.
    recent: usize,
    /// The latest upper and lower bound, for a first guess.
    latest: (Option<i64>, Option<i64>),
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { shift: FIRST_SHIFT, slots: Vec::new(), recent: 0, latest: (None, None) }
    }
}

impl Bounds {
    /// A byte left the first capture's host at `sent_ns` by its clock, and had reached the second's at
    /// `received_ns`.
    #[inline]
    pub fn first_to_second(&mut self, sent_ns: i64, received_ns: i64) {
        let offset = received_ns.saturating_sub(sent_ns);
        let slot = self.slot(sent_ns);
        if offset < slot.upper {
            (slot.upper, slot.upper_at) = (offset, sent_ns);
        }
        self.latest.0 = Some(offset);
    }

    /// A byte left the second capture's host at `sent_ns`, and had reached the first's at `received_ns`.
    #[inline]
    pub fn second_to_first(&mut self, sent_ns: i64, received_ns: i64) {
        let offset = sent_ns.saturating_sub(received_ns);
        let slot = self.slot(received_ns);
        if offset > slot.lower {
            (slot.lower, slot.lower_at) = (offset, received_ns);
        }
        self.latest.1 = Some(offset);
    }

    /// Estimate of how far the second clock is ahead of the first one, for reading both captures in step; `None`
    /// before the first bound.
    ///
    /// Bytes with a long transit time give loose bounds, so earlier slots count, too, as long as all of them
    /// agree; a disagreement means that a clock was set.
    pub fn guess_ns(&self) -> Option<i64> {
        let (Some(mut upper), Some(mut lower)) = self.latest else { return self.latest.0.or(self.latest.1) };
        for slot in self.slots.iter().rev().take(GUESSED_FROM) {
            let (narrower, from) = (upper.min(slot.upper), lower.max(slot.lower));
            if from > narrower {
                break;
            }
            (upper, lower) = (narrower, from);
        }
        Some(lower + (upper - lower) / 2)
    }

    /// The retained bounds in order of time: `(at_ns, offset_ns, whether it is an upper bound)`.
    pub(super) fn points(&self) -> Vec<(i64, i64, bool)> {
        let mut points = Vec::with_capacity(2 * self.slots.len());
        for slot in &self.slots {
            if slot.upper != i64::MAX {
                points.push((slot.upper_at, slot.upper, true));
            }
            if slot.lower != i64::MIN {
                points.push((slot.lower_at, slot.lower, false));
            }
        }
        points.sort_unstable();
        points
    }

    #[inline]
    fn slot(&mut self, at_ns: i64) -> &mut Slot {
        let index = at_ns >> self.shift;
        if self.slots.get(self.recent).is_none_or(|slot| slot.index != index) {
            self.recent = self.find(at_ns);
        }
        &mut self.slots[self.recent]
    }

    /// Index of the slot for a moment; creates the slot if needed.
    fn find(&mut self, at_ns: i64) -> usize {
        loop {
            let index = at_ns >> self.shift;
            match self.slots.binary_search_by_key(&index, |slot| slot.index) {
                Ok(place) => return place,
                Err(place) if self.slots.len() < MAX_SLOTS => {
                    self.slots.insert(place, Slot::new(index));
                    return place;
                }
                Err(_) => self.halve(),
            }
        }
    }

    /// Merges slots in pairs.
    fn halve(&mut self) {
        self.shift = (self.shift + 1).min(62);
        let mut kept: Vec<Slot> = Vec::with_capacity(MAX_SLOTS);
        for slot in &self.slots {
            let index = slot.index >> 1;
            match kept.last_mut() {
                Some(last) if last.index == index => last.absorb(slot),
                _ => kept.push(Slot { index, ..*slot }),
            }
        }
        self.slots = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// A byte in each direction with a transit time of 1 us, at this millisecond; the second clock is ahead by
    /// `ahead_ns`.
    fn quick(bounds: &mut Bounds, at_ms: i64, ahead_ns: i64) {
        bounds.first_to_second(at_ms * MS, at_ms * MS + 1_000 + ahead_ns);
        bounds.second_to_first(at_ms * MS + 5_000 + ahead_ns, at_ms * MS + 6_000);
    }

    #[test]
    fn slow_bytes_do_not_mislead_the_guess() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.guess_ns(), None);
        quick(&mut bounds, 0, 40 * MS);
        assert_eq!(bounds.guess_ns(), Some(40 * MS));
        // Retransmitted repeatedly for three seconds.
        bounds.second_to_first(10 * MS + 40 * MS, 3_010 * MS);
        assert_eq!(bounds.guess_ns(), Some(40 * MS));
        // One clock is set: earlier bounds no longer count.
        quick(&mut bounds, 3_100, -200 * MS);
        assert_eq!(bounds.guess_ns(), Some(-200 * MS));
        quick(&mut bounds, 3_101, -200 * MS);
        assert_eq!(bounds.guess_ns(), Some(-200 * MS));
    }

    #[test]
    fn a_day_of_bounds_fits_and_keeps_the_tightest() {
        let mut bounds = Bounds::default();
        let step = 50_000_000;
        for i in 0..1_728_000_i64 {
            let sent = 1_700_000_000_000_000_000 + i * step;
            let delay = if i == 1_000_000 { 10 } else { 1_000 + i % 77 };
            bounds.first_to_second(sent, sent + 5_000 + delay);
        }
        assert!(bounds.slots.len() <= MAX_SLOTS);
        let points = bounds.points();
        assert!(points.is_sorted());
        let tightest = points.iter().map(|point| point.1).min();
        assert_eq!(tightest, Some(5_010));
        assert!(points.contains(&(1_700_000_000_000_000_000 + 1_000_000 * step, 5_010, true)));
    }
}
