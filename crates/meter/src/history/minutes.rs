//! The questions that the API asks of stored pair-minutes, whatever store answers them.

use super::read::{OverTime, UnwrittenMinutes, View, Worst};
use super::row::Lost;
use super::sums::Covered;
use super::HistoryError;
use spangap_model::{KeptCall, PairKey, PairStats};
use std::fmt;
use std::ops::RangeInclusive;

/// A store of pair-minutes as of one moment. Ranges are first and last second; minutes that they touch count as a
/// whole. Minutes in `memory` count as if they were stored.
pub trait Minutes: fmt::Debug {
    /// The sum of every matching pair, one after the other; with `worst`, with its few worst calls.
    ///
    /// # Errors
    /// When the store refuses, or the query was cancelled; so do the others.
    fn pairs_of(
        &self,
        range: (u64, u64),
        memory: &UnwrittenMinutes,
        worst: bool,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError>;

    /// The sum of one pair without its worst calls.
    ///
    /// # Errors
    /// As above.
    fn pair(
        &self,
        key: &PairKey,
        range: (u64, u64),
        memory: &UnwrittenMinutes,
    ) -> Result<PairStats, HistoryError>;

    /// One pair over time.
    ///
    /// # Errors
    /// As above.
    fn over_time(
        &self,
        key: &PairKey,
        range: (u64, u64),
        memory: &UnwrittenMinutes,
    ) -> Result<OverTime, HistoryError>;

    /// Parts of the time lost by each matching pair in each step, in any order: the pair, the start of the step, the part.
    ///
    /// # Errors
    /// As above.
    fn lost(
        &self,
        range: (u64, u64),
        step_s: u64,
        matches: &dyn Fn(&PairKey) -> bool,
        memory: &UnwrittenMinutes,
        each: &mut dyn FnMut(&PairKey, u64, Lost),
    ) -> Result<Covered, HistoryError>;

    /// The `limit` worst calls of all matching pairs, among those with a gap within `gap_ns`.
    ///
    /// # Errors
    /// As above.
    fn worst(
        &self,
        range: (u64, u64),
        matches: &dyn Fn(&PairKey) -> bool,
        gap_ns: RangeInclusive<u64>,
        limit: usize,
        memory: &UnwrittenMinutes,
    ) -> Result<Worst, HistoryError>;

    /// The most recent worst call with this trace id, and with this CLIENT span id if given.
    ///
    /// # Errors
    /// As above.
    fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
        memory: &UnwrittenMinutes,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError>;
}

impl Minutes for View {
    fn pairs_of(
        &self,
        range: (u64, u64),
        memory: &UnwrittenMinutes,
        worst: bool,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError> {
        View::pairs_of(self, range, memory, worst, matches, each)
    }

    fn pair(
        &self,
        key: &PairKey,
        range: (u64, u64),
        memory: &UnwrittenMinutes,
    ) -> Result<PairStats, HistoryError> {
        View::pair(self, key, range, memory)
    }

    fn over_time(
        &self,
        key: &PairKey,
        (from_s, to_s): (u64, u64),
        memory: &UnwrittenMinutes,
    ) -> Result<OverTime, HistoryError> {
        View::over_time(self, key, from_s, to_s, memory)
    }

    fn lost(
        &self,
        range: (u64, u64),
        step_s: u64,
        matches: &dyn Fn(&PairKey) -> bool,
        memory: &UnwrittenMinutes,
        each: &mut dyn FnMut(&PairKey, u64, Lost),
    ) -> Result<Covered, HistoryError> {
        View::lost(self, range, step_s, matches, memory, each)
    }

    fn worst(
        &self,
        (from_s, to_s): (u64, u64),
        matches: &dyn Fn(&PairKey) -> bool,
        gap_ns: RangeInclusive<u64>,
        limit: usize,
        memory: &UnwrittenMinutes,
    ) -> Result<Worst, HistoryError> {
        View::worst(self, from_s, to_s, matches, gap_ns, limit, memory)
    }

    fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
        memory: &UnwrittenMinutes,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError> {
        View::call(self, trace_id, client_span_id, memory)
    }
}
