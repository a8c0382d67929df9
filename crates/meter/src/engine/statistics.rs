//! Statistics of the calls that were joined in a lane: a thread that processes a request has one to itself.
//!
//! A shard would be the wrong place for them. The calls of a request are of few pairs and many traces: with statistics in shards, each
//! core would touch all copies of these pairs, and take them from other cores' caches; and every shard would need the memory. In lanes,
//! a core has the statistics that it used last, and there are as many copies as threads.

use super::Settings;
use super::shard::Common;
use crate::candidates::Candidates;
use crate::offset::KnownClocks;
use crate::pairs::KnownPairs;
use crate::samples::Samples;
use crate::services::Services;
use crate::window::{Minute, Windows};
use spangap_model::PairStats;
use std::ops::AddAssign;

/// Counts of calls that add up over all lanes.
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

/// Of the calls that were joined in a lane.
#[derive(Debug)]
pub(super) struct Statistics {
    /// Number of the lane.
    pub(super) number: u8,
    pub(super) windows: Windows,
    pub(super) samples: Samples,
    pub(super) candidates: Candidates,
    pub(super) known_pairs: KnownPairs,
    pub(super) known_clocks: KnownClocks,
    pub(super) calls: CallCounts,
    /// Their spans by service.
    pub(super) joined: Services,
}

impl Statistics {
    pub(super) fn new(number: u8, settings: &Settings, common: &Common) -> Statistics {
        Statistics {
            number,
            windows: match settings.partitioned {
                true => Windows::of_messages(),
                false => Windows::new(settings.epoch_unix_ms as i64),
            },
            samples: Samples::new(settings.sampled_calls, settings.sample_bytes, common.sampled.clone()),
            candidates: Candidates::new(common.candidates.clone()),
            known_pairs: KnownPairs::default(),
            known_clocks: KnownClocks::default(),
            calls: CallCounts::default(),
            joined: Services::default(),
        }
    }

    /// Removes the minutes that end before `safe_ms`.
    pub(super) fn close_before(&mut self, safe_ms: u64, parts: &mut Vec<Minute>) {
        while let Some(mut closed) = self.windows.close_before(safe_ms) {
            self.candidates.minute_closed(&closed.pairs);
            closed.pairs.iter_mut().for_each(PairStats::drop_candidates);
            parts.push(closed);
        }
    }
}
