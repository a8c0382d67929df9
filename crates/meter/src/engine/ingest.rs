//! The path of a request: walked without a lock, its spans sorted by shard, each shard visited once, with a lane for the statistics.

use super::shard::{Shard, Surroundings};
use super::statistics::Statistics;
use super::{Ingested, Lane, Meter};
use crate::entry::Key;
use crate::ingest::origins::Interned;
use crate::ingest::walk::{Batch, SpanFacts, walk};
use crate::ingest::wire::WalkError;
use crate::join::{Outcome, Retracted, id_of_call, waited_ms};
use crate::pending::KeyMaker;
use spangap_model::accounting::Malformed;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Prefetch distance in spans, ahead of the join: first the index slot, then its entry.
const SLOT_AHEAD: usize = 16;
const ENTRY_AHEAD: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The lane that this thread prefers, modulo their number.
    static PREFERRED: usize = THREADS.fetch_add(1, Relaxed);
    pub(super) static BATCH: RefCell<(Batch, Routes)> = RefCell::default();
}

/// The spans of a request by shard.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Keys and numbers of the spans, those of the first shard first.
    keys: Vec<Key>,
    numbers: Vec<u32>,
    /// Of each span in request order.
    unsorted: Vec<(u32, Key)>,
    /// Shards still to be visited, each with its part of the above.
    left: Vec<(usize, Range<usize>)>,
    /// Next free place of each shard.
    places: Vec<usize>,
    /// Calls that another lane has recorded, with the number of the span that retracts them.
    retracted: Vec<(Retracted, u32)>,
}

impl Routes {
    fn sort(&mut self, spans: &[SpanFacts], keys: &KeyMaker, shards: usize) {
        self.left.clear();
        self.keys.clear();
        self.numbers.clear();
        if shards == 1 {
            self.keys.extend(spans.iter().map(|span| keys.key(keys.trace(span.trace), id_of_call(span))));
            self.numbers.extend(0..spans.len() as u32);
            self.left.push((0, 0..spans.len()));
            return;
        }
        self.places.clear();
        self.places.resize(shards, 0);
        self.unsorted.clear();
        for span in spans {
            let trace = keys.trace(span.trace);
            let shard = trace.shard(shards);
            self.places[shard] += 1;
            self.unsorted.push((shard as u32, keys.key(trace, id_of_call(span))));
        }
        let mut start = 0;
        for (shard, place) in self.places.iter_mut().enumerate() {
            let end = start + *place;
            if end > start {
                self.left.push((shard, start..end));
            }
            *place = start;
            start = end;
        }
        self.keys.resize(spans.len(), Key::default());
        self.numbers.resize(spans.len(), 0);
        for (number, (shard, key)) in self.unsorted.iter().enumerate() {
            let place = &mut self.places[*shard as usize];
            self.keys[*place] = *key;
            self.numbers[*place] = number as u32;
            *place += 1;
        }
    }

    /// Frees memory after an unusually large request.
    fn shrink_to(&mut self, spans: usize) {
        self.keys.shrink_to(spans);
        self.numbers.shrink_to(spans);
        self.unsorted.shrink_to(spans);
    }
}

/// Spans of one request in one shard.
struct Visit<'a> {
    request: &'a [u8],
    spans: &'a [SpanFacts],
    keys: &'a [Key],
    numbers: &'a [u32],
    now_ms: u64,
}

impl Meter {
    /// Processes one `ExportTraceServiceRequest`, received `now_ms` milliseconds after the epoch.
    ///
    /// # Errors
    /// When the request is not well-formed; none of it is counted then.
    pub fn ingest(&self, request: &[u8], now_ms: u64) -> Result<Ingested, WalkError> {
        self.ingest_seen(request, now_ms, |_| {})
    }

    /// Like [`Meter::ingest`]; passes each span of a well-formed request to `seen` before acquiring a lock.
    ///
    /// # Errors
    /// When the request is not well-formed.
    pub fn ingest_seen(
        &self,
        request: &[u8],
        now_ms: u64,
        seen: impl FnOnce(&[SpanFacts]),
    ) -> Result<Ingested, WalkError> {
        self.origins.set_now(now_ms);
        BATCH.with_borrow_mut(|(batch, routes)| {
            walk(request, &self.interest, &self.origins, batch)?;
            seen(&batch.spans);
            let interned = self.origins.read();
            let around = Surroundings { interned: &interned, common: &self.common };
            routes.sort(&batch.spans, &self.keys, self.shards.len());
            let mut malformed = Malformed::default();
            let mut lane = self.free_lane();
            while !routes.left.is_empty() {
                let (at, mut shard) = self.first_free(&routes.left);
                let (number, part) = routes.left.swap_remove(at);
                if self.shards.len() > 1 && !shard.join.pending().has_room_for(part.len()) {
                    drop(shard);
                    self.evict_older(number, part.len(), now_ms, &interned);
                    shard = self.shard(number);
                }
                let (keys, numbers) = (&routes.keys[part.clone()], &routes.numbers[part]);
                let before = shard.join.malformed;
                let visit = Visit { request, spans: &batch.spans, keys, numbers, now_ms };
                visit.take(&mut shard, &mut lane.stats, &mut routes.retracted, around);
                malformed += shard.join.malformed - before;
            }
            drop(lane);
            for (call, number) in routes.retracted.drain(..) {
                let mut lane = self.lane(call.lane as usize);
                lane.stats.retract(call, &batch.spans[number as usize], now_ms);
            }
            let spans = batch.spans.len() as u64;
            batch.shrink();
            routes.shrink_to(batch.spans.capacity());
            Ok(Ingested { spans, malformed })
        })
    }

    /// The lane that this thread prefers, or another one if somebody else is there.
    fn free_lane(&self) -> MutexGuard<'_, Lane> {
        let lanes = self.lanes.len();
        let preferred = PREFERRED.with(|preferred| preferred % lanes);
        let mut others = (preferred..lanes).chain(0..preferred);
        let free = others.find_map(|number| if_free(&self.lanes[number]));
        free.unwrap_or_else(|| self.lane(preferred))
    }

    /// One of these shards, if possible one in which nobody else is.
    fn first_free(&self, left: &[(usize, Range<usize>)]) -> (usize, MutexGuard<'_, Shard>) {
        let mut free = left.iter().enumerate();
        let free = free.find_map(|(at, (number, _))| Some((at, if_free(&self.shards[*number])?)));
        free.unwrap_or_else(|| (0, self.shard(left[0].0)))
    }

    /// Makes room for more halves of a shard where other shards hold older ones: the oldest of all go first, whichever shard has
    /// them. Those of the shard itself go as it needs them.
    #[cold]
    fn evict_older(&self, number: usize, halves: usize, now_ms: u64, interned: &Interned) {
        loop {
            let own = self.shard(number);
            if own.join.pending().has_room_for(halves) {
                return;
            }
            let age_ms = |shard: &Shard| {
                let oldest = shard.join.pending().oldest()?;
                Some(waited_ms(now_ms as u32, oldest.arrival_ms()))
            };
            let own_age_ms = age_ms(&own);
            drop(own);
            let others = (0..self.shards.len()).filter(|other| *other != number);
            let aged = others.map(|number| {
                let other = self.shard(number);
                let gives_room = other.join.pending().has_more_than_least();
                (age_ms(&other).filter(|_| gives_room), number)
            });
            match aged.max().filter(|(age_ms, _)| *age_ms > own_age_ms) {
                Some((_, oldest)) => self.shard(oldest).join.give_up_oldest(interned),
                None => return,
            }
        }
    }
}

fn if_free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Visit<'_> {
    fn take(
        &self,
        shard: &mut Shard,
        stats: &mut Statistics,
        retracted: &mut Vec<(Retracted, u32)>,
        around: Surroundings<'_>,
    ) {
        let Visit { request, spans, keys, numbers, now_ms } = *self;
        let join = &mut shard.join;
        // The first ones have nobody before them.
        keys.iter().take(SLOT_AHEAD).for_each(|key| join.prefetch_slot(*key));
        keys.iter().take(ENTRY_AHEAD).for_each(|key| join.prefetch_entry(*key));
        for (i, (key, number)) in keys.iter().zip(numbers).enumerate() {
            if let Some(key) = keys.get(i + SLOT_AHEAD) {
                join.prefetch_slot(*key);
            }
            if let Some(key) = keys.get(i + ENTRY_AHEAD) {
                join.prefetch_entry(*key);
            }
            let span = &spans[*number as usize];
            let bytes = &request[span.offset as usize..(span.offset + span.len) as usize];
            match join.offer(span, *key, bytes, now_ms as u32, around.interned) {
                Outcome::Counted => {}
                Outcome::Joined(call) => stats.record(join, call, span, bytes, now_ms, around),
                Outcome::Retracted(call) if call.lane == stats.number => stats.retract(call, span, now_ms),
                Outcome::Retracted(call) => retracted.push((call, *number)),
            }
        }
    }
}
