//! Per-minute statistics of every pair. A call belongs to the minute in which its first half arrived, so that
//! what is retracted later is taken from where it was put. A minute closes when nothing of it can change
//! any more; it then goes to the pair's totals and to whoever collects closed minutes.

use spangap_model::{CallStatus, Histogram, PairStats};
use std::collections::VecDeque;

/// A joined call, as far as statistics go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFigures {
    /// Duration of the CLIENT span.
    pub client_ns: u64,
    /// Duration of the SERVER span.
    pub server_ns: u64,
    /// How it ended.
    pub status: CallStatus,
    /// Its response was over the size limit.
    pub large: bool,
    /// Request leg, if known; the response leg is the rest of the gap.
    pub request_leg_ns: Option<u64>,
}

/// Where a call with one attempt is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Main { gap_ns: u64 },
    Negative,
    Large,
}

impl CallFigures {
    #[inline]
    fn class(&self) -> Class {
        match self.client_ns.checked_sub(self.server_ns) {
            _ if self.large => Class::Large,
            Some(gap_ns) => Class::Main { gap_ns },
            None => Class::Negative,
        }
    }

    /// The gap, of a call that goes to the main distributions.
    #[inline]
    pub fn gap_ns(&self) -> Option<u64> {
        match self.class() {
            Class::Main { gap_ns } => Some(gap_ns),
            _ => None,
        }
    }

    /// Counts the call.
    #[inline]
    pub fn record(&self, stats: &mut PairStats) {
        match self.class() {
            Class::Main { gap_ns } => {
                stats.gap.record(gap_ns);
                stats.client.record(self.client_ns);
                stats.server.record(self.server_ns);
                if let Some(request_ns) = self.request_leg_ns {
                    stats.request_leg.record(request_ns);
                    stats.response_leg.record(gap_ns - request_ns);
                }
            }
            Class::Negative => *stats.negative.entry(self.status).or_default() += 1,
            Class::Large => stats.excluded_large += 1,
        }
    }

    /// Takes the call back, because it turned out to have had more than one attempt.
    pub fn retract(&self, stats: &mut PairStats) {
        match self.class() {
            Class::Main { gap_ns } => {
                stats.gap.retract(gap_ns);
                stats.client.retract(self.client_ns);
                stats.server.retract(self.server_ns);
                if let Some(request_ns) = self.request_leg_ns {
                    stats.request_leg.retract(request_ns);
                    stats.response_leg.retract(gap_ns - request_ns);
                }
            }
            Class::Negative => {
                if let Some(n) = stats.negative.get_mut(&self.status) {
                    *n = n.saturating_sub(1);
                    if *n == 0 {
                        stats.negative.remove(&self.status);
                    }
                }
            }
            Class::Large => stats.excluded_large = stats.excluded_large.saturating_sub(1),
        }
    }
}

/// One minute of all pairs, indexed by pair number.
#[derive(Debug)]
pub struct Minute {
    /// Minutes since 1970.
    pub minute: u64,
    /// Pairs without calls have empty statistics.
    pub pairs: Vec<PairStats>,
}

/// The open minutes, and the totals of the closed ones.
#[derive(Debug, Default)]
pub struct Windows {
    open: VecDeque<Minute>,
    totals: Vec<PairStats>,
}

impl Windows {
    /// The statistics of a pair in a minute; a minute before the oldest open one counts as that.
    #[inline]
    pub fn stats(&mut self, minute: u64, pair: u32) -> &mut PairStats {
        let at = match self.open.front() {
            Some(first) => minute.saturating_sub(first.minute) as usize,
            None => 0,
        };
        if at >= self.open.len() {
            self.open_until(minute);
        }
        let at = at.min(self.open.len() - 1);
        let pairs = &mut self.open[at].pairs;
        if pairs.len() <= pair as usize {
            pairs.resize_with(pair as usize + 1, PairStats::default);
        }
        &mut pairs[pair as usize]
    }

    #[cold]
    fn open_until(&mut self, minute: u64) {
        let next = self.open.back().map_or(minute, |last| last.minute + 1);
        for minute in next..=minute {
            self.open.push_back(Minute { minute, pairs: Vec::new() });
        }
    }

    /// Closes and returns the oldest minute if it is before `minute`.
    pub fn close_before(&mut self, minute: u64) -> Option<Minute> {
        if self.open.front()?.minute >= minute {
            return None;
        }
        let closed = self.open.pop_front()?;
        if self.totals.len() < closed.pairs.len() {
            self.totals.resize_with(closed.pairs.len(), PairStats::default);
        }
        for (total, stats) in self.totals.iter_mut().zip(&closed.pairs) {
            total.merge(stats);
        }
        Some(closed)
    }

    /// The open minutes, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Minute> {
        self.open.iter()
    }

    /// Arrival distance of mates since the start, all pairs.
    pub fn mate_delay(&self) -> Histogram {
        let mut all = Histogram::new();
        let open = self.open.iter().flat_map(|minute| &minute.pairs);
        self.totals.iter().chain(open).for_each(|stats| all.merge(&stats.mate_delay));
        all
    }

    /// Everything since the start, of each pair by number.
    pub fn totals(&self) -> Vec<PairStats> {
        let mut totals = self.totals.clone();
        for minute in &self.open {
            if totals.len() < minute.pairs.len() {
                totals.resize_with(minute.pairs.len(), PairStats::default);
            }
            for (total, stats) in totals.iter_mut().zip(&minute.pairs) {
                total.merge(stats);
            }
        }
        totals
    }
}
