//! A part of the join with a lock of its own: all spans of some traces.
//!
//! Whatever one span says about another is about one of the same trace: mates, duplicates, attempts. What all threads must agree on
//! besides is in [`Common`]: the numbers of pairs, the clocks of hosts, the limits.

use super::Settings;
use crate::ingest::origins::Interned;
use crate::join::Join;
use crate::offset::Clocks;
use crate::pairs::{Grouping, Pairs};
use crate::pending::{KeyMaker, Pending};
use spangap_model::shared::Account;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Shards for each lane: threads that visit one seldom meet.
const PER_LANE: usize = 2;

/// What all threads agree on.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) grouping: Grouping,
    pub(super) pairs: RwLock<Pairs>,
    pub(super) clocks: Clocks,
    /// Bytes of complete spans that belong to worst calls, wherever they are listed.
    pub(super) worst: Account,
    pub(super) worst_limit: u64,
    /// Bytes of complete spans in samples.
    pub(super) sampled: Account,
    /// Worst calls retained beyond those that every pair retains.
    pub(super) candidates: Account,
}

impl Common {
    pub(super) fn new(settings: &Settings) -> Common {
        Common {
            grouping: settings.grouping,
            pairs: RwLock::new(Pairs::new(settings.pair_limits)),
            clocks: Clocks::default(),
            worst: Account::default(),
            worst_limit: settings.worst_bytes,
            sampled: Account::default(),
            candidates: Account::default(),
        }
    }

    pub(super) fn pairs(&self) -> RwLockReadGuard<'_, Pairs> {
        self.pairs.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the processing of a span needs besides a shard and a lane.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) interned: &'a Interned,
    pub(super) common: &'a Common,
}

/// On cache lines of its own: neighbours are in use by other cores.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) join: Join,
    /// Total bytes written to the ring at certain times; its age is derived from them.
    ring_marks: VecDeque<(u64, u64)>,
}

/// The shards of an engine.
pub(super) fn shards(settings: &Settings, keys: KeyMaker) -> Box<[Mutex<Shard>]> {
    let wanted = if settings.lanes == 1 { 1 } else { settings.lanes * PER_LANE };
    let number = wanted.min(Pending::most_stores(settings.max_pending_bytes));
    let keep_bytes = if settings.partitioned { 0 } else { settings.keep_bytes / number as u64 };
    let pendings = Pending::several(number, settings.max_pending_bytes);
    let shard = |pending| {
        let mut shard = Shard::new(settings, pending, keep_bytes, keys);
        if settings.peers_secret.is_some() {
            shard.join = shard.join.asking_others();
        }
        Mutex::new(shard)
    };
    pendings.into_iter().map(shard).collect()
}

impl Shard {
    pub(super) fn new(settings: &Settings, pending: Pending, keep_bytes: u64, keys: KeyMaker) -> Shard {
        let join = Join::new(pending, keep_bytes, settings.exclude_response_over, keys);
        Shard { join, ring_marks: VecDeque::new() }
    }

    /// Records the ring's write position at this time, and drops positions that have been overwritten.
    pub(super) fn mark_ring(&mut self, now_ms: u64) {
        let written = self.join.keep().written_bytes();
        let held_from = written.saturating_sub(self.join.keep().bytes() as u64);
        self.ring_marks.push_back((written, now_ms));
        while self.ring_marks.front().is_some_and(|mark| mark.0 < held_from) || self.ring_marks.len() > 4096 {
            self.ring_marks.pop_front();
        }
    }

    /// Age of the oldest span still in the ring; `None` while the ring has never been full.
    pub(super) fn ring_horizon_ms(&self) -> Option<u64> {
        let (first, last) = self.ring_marks.front().zip(self.ring_marks.back())?;
        (last.0 > self.join.keep().bytes() as u64).then(|| last.1 - first.1)
    }
}
