//! The path of a request: walked without a lock, its spans sorted by shard, each shard visited once.

use super::shard::{Shard, Surroundings};
use super::{Ingested, Meter};
use crate::ingest::origins::Interned;
use crate::ingest::walk::{Batch, SpanFacts, walk};
use crate::ingest::wire::WalkError;
use crate::join::{Outcome, id_of_call, waited_ms};
use crate::pending::{Key, KeyMaker};
use spangap_model::accounting::Malformed;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{MutexGuard, TryLockError};

/// Prefetch distance in spans, ahead of the join: first the index slot, then its entry.
const SLOT_AHEAD: usize = 16;
const ENTRY_AHEAD: usize = 8;

thread_local! {
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
                shard.take(&Visit { request, spans: &batch.spans, keys, numbers, now_ms }, around);
                malformed += shard.join.malformed - before;
            }
            let spans = batch.spans.len() as u64;
            batch.shrink();
            routes.shrink_to(batch.spans.capacity());
            Ok(Ingested { spans, malformed })
        })
    }

    /// One of these shards, if possible one in which nobody else is.
    fn first_free(&self, left: &[(usize, Range<usize>)]) -> (usize, MutexGuard<'_, Shard>) {
        for (at, (number, _)) in left.iter().enumerate() {
            match self.shards[*number].try_lock() {
                Ok(shard) => return (at, shard),
                Err(TryLockError::Poisoned(shard)) => return (at, shard.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        (0, self.shard(left[0].0))
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

impl Shard {
    fn take(&mut self, visit: &Visit<'_>, around: Surroundings<'_>) {
        let Visit { request, spans, keys, numbers, now_ms } = *visit;
        for (i, (key, number)) in keys.iter().zip(numbers).enumerate() {
            if let Some(key) = keys.get(i + SLOT_AHEAD) {
                self.join.prefetch_slot(*key);
            }
            if let Some(key) = keys.get(i + ENTRY_AHEAD) {
                self.join.prefetch_entry(*key);
            }
            let span = &spans[*number as usize];
            let bytes = &request[span.offset as usize..(span.offset + span.len) as usize];
            match self.join.offer(span, *key, bytes, now_ms as u32, around.interned) {
                Outcome::Counted => {}
                Outcome::Joined(call) => self.record(call, span, bytes, now_ms, around),
                Outcome::Retracted(call) => self.retract(call, span, now_ms),
            }
        }
    }
}
