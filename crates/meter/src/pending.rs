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

use crate::entry::{Entry, Key};
use crate::prefetch::prefetch;
use sha2::{Digest, Sha256};
use spangap_model::shared::Account;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Seeded digest of a trace id.
#[derive(Clone, Copy, Debug)]
pub struct TraceDigest(u64);

impl TraceDigest {
    /// One of `shards`, the same for all spans of the trace. No sender can aim at one.
    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        ((self.0 as u128 * shards as u128) >> 64) as usize
    }
}

/// Folded multiplication as in wyhash: the high half of the 128-bit product XOR the low half.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Computes keys; seeded, so that nobody can construct colliding ids.
#[derive(Clone, Copy, Debug)]
pub struct KeyMaker([u64; 5]);

impl KeyMaker {
    /// A key maker with random seeds.
    pub fn new() -> KeyMaker {
        let state = RandomState::new();
        KeyMaker(std::array::from_fn(|i| state.hash_one(i) | 1))
    }

    /// A key maker whose keys are those of everybody with the same secret.
    pub fn of_secret(secret: &[u8]) -> KeyMaker {
        KeyMaker(std::array::from_fn(|i| {
            let digest = Sha256::new().chain_update([i as u8]).chain_update(secret).finalize();
            digest.first_chunk().map_or(1, |first| u64::from_le_bytes(*first) | 1)
        }))
    }

    /// Digest of a trace id.
    #[inline]
    pub fn trace(&self, trace: [u64; 2]) -> TraceDigest {
        TraceDigest(fold(trace[0] ^ self.0[0], trace[1] ^ self.0[1]))
    }

    /// The key of a span id in a trace.
    #[inline]
    pub fn key(&self, trace: TraceDigest, span: u64) -> Key {
        let s = &self.0;
        let digest = fold(span ^ s[2], trace.0 ^ s[3]);
        let tag = (fold(digest ^ s[4], trace.0 ^ s[1]) >> 32) as u32 | 1;
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
/// Least limit of a store, which it may use whatever others have: two segments and a small index.
const LEAST_BYTES: u64 = (2 * SEGMENT_BYTES + 4 * MIN_SLOTS * SLOT_BYTES) as u64;

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
    /// Bytes of this store and of those that share its limit; of each at least [`LEAST_BYTES`].
    account: Account,
    max_bytes: u64,
}

impl Pending {
    /// An empty store that uses at most `max_bytes` (but at least two segments and a small index).
    pub fn new(max_bytes: u64) -> Pending {
        Pending::sharing(max_bytes.max(LEAST_BYTES), Account::default())
    }

    /// As many stores as these bytes are enough for.
    pub fn most_stores(max_bytes: u64) -> usize {
        usize::try_from(max_bytes / LEAST_BYTES).unwrap_or(usize::MAX).max(1)
    }

    /// As many empty stores, which use at most `max_bytes` together (but at least what each needs).
    pub fn several(stores: usize, max_bytes: u64) -> Vec<Pending> {
        let account = Account::default();
        let max_bytes = max_bytes.max(stores as u64 * LEAST_BYTES);
        (0..stores).map(|_| Pending::sharing(max_bytes, account.clone())).collect()
    }

    fn sharing(max_bytes: u64, account: Account) -> Pending {
        account.charge(LEAST_BYTES as usize);
        Pending {
            segments: VecDeque::new(),
            spare: None,
            base: 0,
            head: 0,
            len: 0,
            slots: vec![0; MIN_SLOTS],
            account,
            max_bytes,
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

    /// The limit of these bytes, together with those of the stores that share it.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Sets the limit of [`Pending::bytes`]; before it grows the next time, it pops what is too much.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes.max(LEAST_BYTES);
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.segments.iter().flat_map(|segment| segment.iter()).skip(self.head).take(self.len)
    }

    /// Entries that fit without another segment.
    fn left_in_segments(&self) -> usize {
        (self.segments.len() + self.spare.iter().len()) * SEGMENT - self.head - self.len
    }

    /// Whether so many insertions stay within the byte limit, as far as other stores leave it.
    pub fn has_room_for(&self, entries: usize) -> bool {
        let segments = entries.saturating_sub(self.left_in_segments()).div_ceil(SEGMENT);
        let mut slots = self.slots.len();
        while (self.len + entries) * 4 > slots * 3 {
            slots = grown(slots);
        }
        // The old and the new table coexist while the index grows.
        let index = if slots > self.slots.len() { slots * SLOT_BYTES } else { 0 };
        self.more(segments * SEGMENT_BYTES + index) + self.account.bytes() <= self.max_bytes
    }

    /// Whether it uses more than it may whatever others have, so that less of it is room for them.
    pub fn has_more_than_least(&self) -> bool {
        self.bytes() as u64 > LEAST_BYTES
    }

    /// What so many more bytes add to the account.
    fn more(&self, bytes: usize) -> u64 {
        charged(self.bytes() + bytes) - charged(self.bytes())
    }

    /// Prepares the next insertion; false if that would exceed the byte limit, and the oldest entry must be popped first.
    #[inline]
    pub fn prepare(&mut self) -> bool {
        self.left_in_segments() > 0 && !self.index_is_crowded() || self.grow()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let is_short = self.left_in_segments() == 0;
        let slots = if self.index_is_crowded() { grown(self.slots.len()) } else { 0 };
        let bytes = if is_short { SEGMENT_BYTES } else { 0 } + slots * SLOT_BYTES;
        let (more, peak) = (self.more(bytes), self.bytes() + bytes);
        if !self.account.charge_within(more, self.max_bytes) {
            return false;
        }
        if is_short {
            self.spare = Some(vec![Entry::default(); SEGMENT].into());
        }
        if slots > 0 {
            self.resize_index(slots);
        }
        self.shrunk_from(peak);
        true
    }

    /// Settles the account after the store took this many bytes.
    fn shrunk_from(&self, bytes: usize) {
        self.account.release((charged(bytes) - charged(self.bytes())) as usize);
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

    /// Appends an entry whose key is not present, after [`Pending::prepare`].
    pub fn insert(&mut self, key: Key, mut entry: Entry) -> Position {
        let at = self.head + self.len;
        if at == self.segments.len() * SEGMENT {
            self.segments.extend(self.spare.take());
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
            let bytes = self.bytes();
            self.spare = self.segments.pop_front();
            self.base = self.base.wrapping_add(SEGMENT as u32);
            self.head = 0;
            if self.slots.len() > MIN_SLOTS && self.len * 8 < self.slots.len() {
                self.resize_index((self.len * 2).max(MIN_SLOTS));
                self.spare = None;
            }
            self.shrunk_from(bytes);
        }
        Some(entry)
    }

    /// Frees the segment that is retained for the next entries.
    pub fn drop_spare(&mut self) {
        let bytes = self.bytes();
        self.spare = None;
        self.shrunk_from(bytes);
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

/// What a store of so many bytes takes of the account.
fn charged(bytes: usize) -> u64 {
    (bytes as u64).max(LEAST_BYTES)
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
                let key = keys.key(keys.trace([id, 7]), id ^ 1);
                if action < 7 {
                    match pending.find(key) {
                        Some(at) => {
                            let start = start_ns(pending.get(at));
                            prop_assert_eq!(Some(&start), model.get(&id));
                        }
                        None => {
                            prop_assert!(!model.contains_key(&id) && pending.prepare());
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
        let of = |id: u64| keys.key(keys.trace([id, id]), id);
        let max = 20 << 20;
        let mut pending = Pending::new(max);
        let mut evicted = 0u64;
        for id in 1..1_000_000u64 {
            while !pending.prepare() {
                assert_eq!(start_ns(&pending.pop_oldest().unwrap()), evicted + 1);
                evicted += 1;
            }
            pending.insert(of(id), entry(id));
            assert!(pending.bytes() as u64 <= max);
            assert_eq!(charged(pending.bytes()), pending.account.bytes());
        }
        assert!(evicted > 0);
        for id in [evicted + 1, 500_000.max(evicted + 1), 999_999] {
            let at = pending.find(of(id)).expect("present");
            assert_eq!(start_ns(pending.get(at)), id);
        }
        assert!(pending.find(of(evicted)).is_none());
        let full = pending.bytes();
        while pending.pop_oldest().is_some() {}
        assert!(
            pending.bytes() * 10 < full,
            "{} of {full} bytes are still held by an empty store",
            pending.bytes()
        );
    }

    #[test]
    fn stores_that_share_a_limit_use_what_others_leave() {
        let keys = KeyMaker::new();
        let max = 20 << 20;
        let [mut full, mut other] = <[Pending; 2]>::try_from(Pending::several(2, max)).unwrap();
        let insert = |pending: &mut Pending, id: u64| {
            let has_room = pending.has_room_for(1);
            assert_eq!(pending.prepare(), has_room, "{id}");
            if has_room {
                pending.insert(keys.key(keys.trace([id, 3]), id), entry(id));
            }
            has_room
        };
        let held = (1..).take_while(|id| insert(&mut full, *id)).count();
        assert!(held * 60 > 16 << 20, "one store may use nearly all: {held}");
        let begun = (1..).take_while(|id| insert(&mut other, *id)).count();
        assert!(begun < held / 2 && other.account.bytes() <= max, "{begun}");
        (0..6 * SEGMENT).for_each(|_| _ = full.pop_oldest());
        full.drop_spare();
        assert!(other.has_room_for(SEGMENT / 2));
        assert!((0..SEGMENT as u64 / 2).all(|id| insert(&mut other, 1_000_000 + id)));
        assert_eq!(full.account.bytes(), charged(full.bytes()) + charged(other.bytes()));
    }

    #[test]
    fn bytes_per_entry_stay_under_sixty_four() {
        let keys = KeyMaker::new();
        let mut pending = Pending::new(1 << 34);
        for id in 1..=2_000_000u64 {
            assert!(pending.prepare());
            pending.insert(keys.key(keys.trace([id, 1]), id), entry(id));
            if id > 100_000 && id % 50_000 == 0 {
                assert!(pending.bytes() <= 64 * id as usize, "{} bytes for {id} entries", pending.bytes());
            }
        }
    }
}
