//! Halves of calls that wait for their mates: a log in order of arrival, and an index into it.
//!
//! The log is a queue of fixed-size segments of 44-byte entries ([`crate::entry`]), so the oldest entry is
//! always available for expiry and eviction, and growth never moves an entry. The index is one
//! open-addressing table of 8-byte slots (31 bits of hash, 32 bits of log position) with linear probing. The
//! home slot is `hash * slots / 2^32`, which keeps slots in hash order: the table can grow by any factor, in
//! one pass over memory, so it stays between half and three quarters full. Together they take 55 to 60 bytes
//! per entry.
//!
//! An entry is found by a seeded 95-bit digest of its key; keys with equal digests are treated as equal.

use crate::entry::Entry;
use crate::prefetch::prefetch;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Digest of a key: 64 bits compared in the entry, 31 in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    digest: u64,
    tag: u32,
}

/// Computes keys; seeded, so that nobody can construct colliding ids.
#[derive(Debug)]
pub struct KeyMaker([u64; 5]);

impl KeyMaker {
    /// A key maker with random seeds.
    pub fn new() -> KeyMaker {
        let state = RandomState::new();
        KeyMaker(std::array::from_fn(|i| state.hash_one(i) | 1))
    }

    /// The key of a trace id and a span id.
    #[inline]
    pub fn key(&self, trace: [u64; 2], span: u64) -> Key {
        // Folded multiplication as in wyhash: the high half of the 128-bit product XOR the low half.
        let fold = |a: u64, b: u64| {
            let product = a as u128 * b as u128;
            product as u64 ^ (product >> 64) as u64
        };
        let s = &self.0;
        let of_trace = fold(trace[0] ^ s[0], trace[1] ^ s[1]);
        let digest = fold(span ^ s[2], of_trace ^ s[3]);
        let tag = (fold(digest ^ s[4], of_trace ^ s[1]) >> 32) as u32 | 1;
        Key { digest, tag }
    }

    /// A tag that distinguishes SERVER spans with the same key.
    #[inline]
    pub fn server_tag(&self, span: u64) -> u32 {
        let product = (span ^ self.0[0]) as u128 * self.0[4] as u128;
        (product >> 32) as u32 ^ (product >> 96) as u32
    }
}

impl Default for KeyMaker {
    fn default() -> Self {
        Self::new()
    }
}

/// Entries per segment; a segment is 352 KiB.
const SEGMENT: usize = 8192;
const SEGMENT_BYTES: usize = SEGMENT * size_of::<Entry>();
const MIN_SLOTS: usize = 4096;
const SLOT_BYTES: usize = 8;
/// Least limit of a store: two segments and a small index.
const LEAST_BYTES: usize = 2 * SEGMENT_BYTES + 4 * MIN_SLOTS * SLOT_BYTES;

/// Position of an entry, valid until it is popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(u32);

/// The store.
#[derive(Debug)]
pub struct Pending {
    segments: VecDeque<Box<[Entry]>>,
    spare: Option<Box<[Entry]>>,
    /// Position of the first entry of the first segment, modulo 2^32.
    base: u32,
    /// Entries popped from the first segment.
    head: usize,
    /// Entries in use, counted from `head`.
    len: usize,
    slots: Vec<u64>,
    max_bytes: usize,
}

impl Pending {
    /// An empty store that uses at most `max_bytes` (but at least two segments and a small index).
    pub fn new(max_bytes: u64) -> Pending {
        Pending {
            segments: VecDeque::new(),
            spare: None,
            base: 0,
            head: 0,
            len: 0,
            slots: vec![0; MIN_SLOTS],
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX).max(LEAST_BYTES),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in use by log and index.
    pub fn bytes(&self) -> usize {
        let segments = self.segments.len() + self.spare.iter().len();
        segments * SEGMENT_BYTES + self.slots.len() * SLOT_BYTES
    }

    /// The limit of [`Pending::bytes`].
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Sets the limit of [`Pending::bytes`]; the next insertions pop what is too much.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).max(LEAST_BYTES);
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.segments.iter().flat_map(|segment| segment.iter()).skip(self.head).take(self.len)
    }

    /// Whether the oldest entry must be popped before an insertion, to stay within the byte limit.
    pub fn is_full(&self) -> bool {
        let mut bytes = self.bytes();
        if self.head + self.len == self.segments.len() * SEGMENT && self.spare.is_none() {
            bytes += SEGMENT_BYTES;
        }
        if self.index_is_crowded() {
            // The old and the new table coexist while the index grows.
            bytes += grown(self.slots.len()) * SLOT_BYTES;
        }
        bytes > self.max_bytes
    }

    #[inline]
    fn index_is_crowded(&self) -> bool {
        (self.len + 1) * 4 > self.slots.len() * 3
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((tag as u64 * self.slots.len() as u64) >> 32) as usize
    }

    /// Starts loading the index slot of `key`.
    #[inline]
    pub fn prefetch_slot(&self, key: Key) {
        prefetch(&self.slots, self.home(key.tag));
    }

    /// Starts loading the log entry that `key` probably refers to, judging by its (loaded) slot.
    #[inline]
    pub fn prefetch_entry(&self, key: Key) {
        let home = self.home(key.tag);
        for slot in self.slots[home..].iter().take(4) {
            if *slot == 0 {
                return;
            }
            if (*slot >> 32) as u32 == key.tag {
                let (segment, at) = self.locate(Position(*slot as u32));
                if let Some(segment) = self.segments.get(segment) {
                    prefetch(segment, at);
                }
                return;
            }
        }
    }

    #[inline]
    fn locate(&self, position: Position) -> (usize, usize) {
        let at = position.0.wrapping_sub(self.base) as usize;
        (at / SEGMENT, at % SEGMENT)
    }

    /// The entry at a position returned by [`Pending::find`].
    #[inline]
    pub fn get(&self, position: Position) -> &Entry {
        let (segment, at) = self.locate(position);
        &self.segments[segment][at]
    }

    /// Mutable access to the entry at a position.
    #[inline]
    pub fn get_mut(&mut self, position: Position) -> &mut Entry {
        let (segment, at) = self.locate(position);
        &mut self.segments[segment][at]
    }

    /// The entry with this key.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Position> {
        let mut at = self.home(key.tag);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == key.tag {
                let position = Position(slot as u32);
                if self.get(position).digest == key.digest {
                    return Some(position);
                }
            }
            at = self.next(at);
        }
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Appends an entry whose key is not present. The caller pops while [`Pending::is_full`].
    pub fn insert(&mut self, key: Key, mut entry: Entry) -> Position {
        if self.index_is_crowded() {
            self.resize_index(grown(self.slots.len()));
        }
        let at = self.head + self.len;
        if at == self.segments.len() * SEGMENT {
            let segment = self.spare.take();
            self.segments.push_back(segment.unwrap_or_else(|| vec![Entry::default(); SEGMENT].into()));
        }
        let position = Position(self.base.wrapping_add(at as u32));
        (entry.digest, entry.tag) = (key.digest, key.tag);
        self.segments[at / SEGMENT][at % SEGMENT] = entry;
        self.len += 1;
        self.put_slot((key.tag as u64) << 32 | position.0 as u64);
        position
    }

    #[inline]
    fn put_slot(&mut self, slot: u64) {
        let mut at = self.home((slot >> 32) as u32);
        while self.slots[at] != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    /// The oldest entry, the next to be popped.
    #[inline]
    pub fn oldest(&self) -> Option<&Entry> {
        (self.len > 0).then(|| &self.segments[0][self.head])
    }

    /// Removes the oldest entry.
    pub fn pop_oldest(&mut self) -> Option<Entry> {
        let entry = *self.oldest()?;
        // Entries are popped in sequence: meanwhile the slot of a later one is loaded.
        if let Some(ahead) = self.segments[0].get(self.head + 8) {
            prefetch(&self.slots, self.home(ahead.tag));
        }
        self.remove_slot(entry.tag, self.base.wrapping_add(self.head as u32));
        self.head += 1;
        self.len -= 1;
        if self.head == SEGMENT {
            self.spare = self.segments.pop_front();
            self.base = self.base.wrapping_add(SEGMENT as u32);
            self.head = 0;
            if self.slots.len() > MIN_SLOTS && self.len * 8 < self.slots.len() {
                self.resize_index((self.len * 2).max(MIN_SLOTS));
                self.spare = None;
            }
        }
        Some(entry)
    }

    /// Clears the slot of the entry at `position`, and shifts later slots of the same run back.
    fn remove_slot(&mut self, tag: u32, position: u32) {
        let wanted = (tag as u64) << 32 | position as u64;
        let mut hole = self.home(tag);
        while self.slots[hole] != wanted {
            debug_assert!(self.slots[hole] != 0, "every entry has a slot");
            hole = self.next(hole);
        }
        let n = self.slots.len();
        let mut at = self.next(hole);
        while self.slots[at] != 0 {
            let home = self.home((self.slots[at] >> 32) as u32);
            let distance = |from: usize| if at >= from { at - from } else { at + n - from };
            if distance(home) >= distance(hole) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = 0;
    }

    fn resize_index(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        old.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.put_slot(slot));
    }
}

/// The next size of an index of `slots` slots.
fn grown(slots: usize) -> usize {
    slots + slots / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Outline, State, Waiting};
    use proptest::prelude::*;
    use spangap_model::Side;
    use std::collections::HashMap;

    fn entry(start_ns: u64) -> Entry {
        let half = Waiting {
            side: Side::Client,
            start_ns,
            duration_ns: 0,
            outline: Outline::default(),
            origin: 0,
            server_tag: 0,
            kept: 0,
            many_attempts: false,
        };
        Entry::waiting(&half, 0)
    }

    fn start_ns(entry: &Entry) -> u64 {
        match entry.state() {
            State::Waiting(half) => half.start_ns,
            other => panic!("a half became {other:?}"),
        }
    }

    proptest! {
        /// Equivalence with a map and a queue, through growth, popping and shrinking.
        #[test]
        fn behaves_like_a_map_with_an_age(steps in prop::collection::vec((0u8..10, 1u64..2000), 1..4000)) {
            let keys = KeyMaker::new();
            let mut pending = Pending::new(1 << 30);
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut order = VecDeque::new();
            for (step, (action, id)) in steps.into_iter().enumerate() {
                let key = keys.key([id, 7], id ^ 1);
                if action < 7 {
                    match pending.find(key) {
                        Some(at) => {
                            let start = start_ns(pending.get(at));
                            prop_assert_eq!(Some(&start), model.get(&id));
                        }
                        None => {
                            prop_assert!(!model.contains_key(&id));
                            pending.insert(key, entry(step as u64));
                            model.insert(id, step as u64);
                            order.push_back(id);
                        }
                    }
                } else {
                    let popped = pending.pop_oldest().map(|entry| start_ns(&entry));
                    let expected = order.pop_front().and_then(|id| model.remove(&id));
                    prop_assert_eq!(popped, expected);
                }
                prop_assert_eq!(pending.len(), model.len());
            }
        }
    }

    #[test]
    fn grows_shrinks_and_stays_within_its_bytes() {
        let keys = KeyMaker::new();
        let max = 20 << 20;
        let mut pending = Pending::new(max);
        let mut evicted = 0u64;
        for id in 1..1_000_000u64 {
            while pending.is_full() {
                assert_eq!(start_ns(&pending.pop_oldest().unwrap()), evicted + 1);
                evicted += 1;
            }
            pending.insert(keys.key([id, id], id), entry(id));
            assert!(pending.bytes() as u64 <= max);
        }
        assert!(evicted > 0);
        for id in [evicted + 1, 500_000.max(evicted + 1), 999_999] {
            let at = pending.find(keys.key([id, id], id)).expect("present");
            assert_eq!(start_ns(pending.get(at)), id);
        }
        assert!(pending.find(keys.key([evicted, evicted], evicted)).is_none());
        let full = pending.bytes();
        while pending.pop_oldest().is_some() {}
        assert!(
            pending.bytes() * 10 < full,
            "{} of {full} bytes are still held by an empty store",
            pending.bytes()
        );
    }

    #[test]
    fn bytes_per_entry_stay_under_sixty_four() {
        let keys = KeyMaker::new();
        let mut pending = Pending::new(1 << 34);
        for id in 1..=2_000_000u64 {
            pending.insert(keys.key([id, 1], id), entry(id));
            if id > 100_000 && id % 50_000 == 0 {
                assert!(pending.bytes() <= 64 * id as usize, "{} bytes for {id} entries", pending.bytes());
            }
        }
    }
}
