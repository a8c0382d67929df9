//! The questions that the API asks of stored pair-minutes, whatever store answers them.

use super::HistoryError;
use super::read::{OverTime, UnwrittenMinutes, View, Worst};
use super::row::Lost;
use super::sums::Covered;
use spangap_model::{KeptCall, PairKey, PairStats};
use std::fmt;
use std::ops::RangeInclusive;

/// What of a pair's statistics a question needs. A store may answer with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// All of them, without worst calls.
    Statistics,
    /// Also its few worst calls.
    WorstCalls,
    /// The distribution of one figure, and nothing else: whatever the rest is, it is undefined. Pairs without any call may be
    /// among the answers.
    Distribution(Figure),
    /// Its counts and sums; quantiles are undefined.
    Sums,
}

/// A figure of a call, of which a pair has the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The gap.
    Gap,
    /// The CLIENT span's duration.
    Client,
    /// The SERVER span's duration.
    Server,
}

/// A store of pair-minutes as of one moment. A range is its first and last second, in Unix time; minutes that it touches
/// count as a whole.
pub trait Minutes: fmt::Debug {
    /// The sum of every matching pair, one after the other, with what is needed of it.
    ///
    /// # Errors
    /// When the store refuses, or the query was cancelled; so do the others.
    fn pairs_of(
        &self,
        range: (u64, u64),
        needs: Needs,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError>;

    /// The sum of one pair without its worst calls.
    ///
    /// # Errors
    /// As above.
    fn pair(&self, key: &PairKey, range: (u64, u64)) -> Result<PairStats, HistoryError>;

    /// One pair over time.
    ///
    /// # Errors
    /// As above.
    fn over_time(&self, key: &PairKey, range: (u64, u64)) -> Result<OverTime, HistoryError>;

    /// Parts of the time lost by each matching pair in each step, in any order: the pair, the start of the step, the part.
    ///
    /// # Errors
    /// As above.
    fn lost(
        &self,
        range: (u64, u64),
        step_s: u64,
        matches: &dyn Fn(&PairKey) -> bool,
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
    ) -> Result<Worst, HistoryError>;

    /// The most recent worst call with this trace id, and with this CLIENT span id if given.
    ///
    /// # Errors
    /// As above.
    fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError>;
}

/// A snapshot of the history, together with the minutes that are not in it yet.
#[derive(Debug)]
pub struct Stored {
    /// The snapshot.
    pub view: View,
    /// No minute is in both or in neither.
    pub memory: UnwrittenMinutes,
}

impl Minutes for Stored {
    fn pairs_of(
        &self,
        range: (u64, u64),
        needs: Needs,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError> {
        self.view.pairs_of(range, &self.memory, needs == Needs::WorstCalls, matches, each)
    }

    fn pair(&self, key: &PairKey, range: (u64, u64)) -> Result<PairStats, HistoryError> {
        self.view.pair(key, range, &self.memory)
    }

    fn over_time(&self, key: &PairKey, (from_s, to_s): (u64, u64)) -> Result<OverTime, HistoryError> {
        self.view.over_time(key, from_s, to_s, &self.memory)
    }

    fn lost(
        &self,
        range: (u64, u64),
        step_s: u64,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(&PairKey, u64, Lost),
    ) -> Result<Covered, HistoryError> {
        self.view.lost(range, step_s, matches, &self.memory, each)
    }

    fn worst(
        &self,
        (from_s, to_s): (u64, u64),
        matches: &dyn Fn(&PairKey) -> bool,
        gap_ns: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Worst, HistoryError> {
        self.view.worst(from_s, to_s, matches, gap_ns, limit, &self.memory)
    }

    fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError> {
        self.view.call(trace_id, client_span_id, &self.memory)
    }
}
