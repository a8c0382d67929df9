//! A part of the engine with a lock of its own: all spans of some traces.
//!
//! A trace belongs to one shard, and whatever one span says about another is about one of the same trace: mates, duplicates,
//! attempts, retractions. Figures of shards add up. What all of them must agree on is in [`Common`]: the numbers of pairs, the
//! clocks of hosts, the limits.

use super::Settings;
use super::partitions::Partitions;
use crate::candidates::Candidates;
use crate::ingest::origins::Interned;
use crate::join::Join;
use crate::offset::{Clocks, KnownClocks};
use crate::pairs::{Grouping, KnownPairs, Pairs};
use crate::pending::{KeyMaker, Pending};
use crate::samples::Samples;
use crate::window::Windows;
use spangap_model::shared::Account;
use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// What all shards agree on.
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

/// What a shard needs of the rest of the engine while it processes spans.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) interned: &'a Interned,
    pub(super) common: &'a Common,
}

/// Counts of calls that add up over all shards.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallCounts {
    pub(super) in_other: u64,
    pub(super) without_legs: u64,
    pub(super) with_one_attempt: u64,
    pub(super) without_size: u64,
    /// Spans of worst calls rejected for lack of room.
    pub(super) worst_refused: u64,
}

impl AddAssign for CallCounts {
    fn add_assign(&mut self, other: CallCounts) {
        self.in_other += other.in_other;
        self.without_legs += other.without_legs;
        self.with_one_attempt += other.with_one_attempt;
        self.without_size += other.without_size;
        self.worst_refused += other.worst_refused;
    }
}

/// On cache lines of its own: neighbours are in use by other cores.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) join: Join,
    pub(super) windows: Windows,
    pub(super) samples: Samples,
    pub(super) candidates: Candidates,
    pub(super) partitions: Partitions,
    pub(super) known_pairs: KnownPairs,
    pub(super) known_clocks: KnownClocks,
    pub(super) calls: CallCounts,
    /// Minutes before this engine time are closed.
    pub(super) settled_ms: u64,
    /// Total bytes written to the ring at certain times; its age is derived from them.
    pub(super) ring_marks: VecDeque<(u64, u64)>,
}

/// The shards of an engine.
pub(super) fn shards(settings: &Settings, common: &Common, keys: KeyMaker) -> Box<[Mutex<Shard>]> {
    let number = settings.shards.max(1);
    let shard = |pending| Shard {
        join: Join::new(pending, settings.keep_bytes / number as u64, settings.exclude_response_over, keys),
        windows: match settings.partitioned {
            true => Windows::of_messages(),
            false => Windows::new(settings.epoch_unix_ms as i64),
        },
        samples: Samples::new(settings.sampled_calls, settings.sample_bytes, common.sampled.clone()),
        candidates: Candidates::new(common.candidates.clone()),
        partitions: Partitions::default(),
        known_pairs: KnownPairs::default(),
        known_clocks: KnownClocks::default(),
        calls: CallCounts::default(),
        settled_ms: 0,
        ring_marks: VecDeque::new(),
    };
    let pendings = Pending::several(number, settings.max_pending_bytes);
    pendings.into_iter().map(|pending| Mutex::new(shard(pending))).collect()
}

impl Shard {
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
