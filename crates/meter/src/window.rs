//! Per-minute statistics of every pair. A call belongs to the minute in which its first half arrived, so that
//! a later retraction finds it there. A minute closes when it can no longer change. Each lane of the engine has
//! minutes of its own.

use spangap_model::{CallStatus, PairStats};
use std::collections::VecDeque;

/// The statistical properties of a joined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFigures {
    /// Duration of the CLIENT span.
    pub client_ns: u64,
    /// Duration of the SERVER span.
    pub server_ns: u64,
    /// Status of the call.
    pub status: CallStatus,
    /// Whether its response was over the size limit.
    pub large: bool,
    /// Whether its response size is known.
    pub sized: bool,
    /// Request leg, if known; the response leg is the rest of the gap.
    pub request_leg_ns: Option<u64>,
}

/// Classes of single-attempt calls.
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

    /// The gap, if the call belongs to the main distributions.
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
        stats.sized += self.sized as u64;
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

    /// Retracts the call, because it turned out to have more than one attempt.
    pub fn retract(&self, stats: &mut PairStats) {
        stats.sized = stats.sized.saturating_sub(self.sized as u64);
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

/// Milliseconds in a minute.
const MINUTE_MS: i64 = 60_000;

/// One minute of all pairs, indexed by pair number. It covers an interval of the engine's own time, which
/// never steps; the wall clock only labels it.
#[derive(Debug)]
pub struct Minute {
    /// Minutes since 1970.
    pub minute: u64,
    /// Pairs without calls have empty statistics.
    pub pairs: Vec<PairStats>,
    /// Engine time of its first millisecond.
    from_ms: u64,
    /// Engine time of the millisecond after its last.
    until_ms: u64,
}

impl Minute {
    /// Adds the same minute of another lane.
    pub fn add(&mut self, other: Minute) {
        self.from_ms = self.from_ms.min(other.from_ms);
        self.until_ms = self.until_ms.max(other.until_ms);
        let both = self.pairs.len().min(other.pairs.len());
        let mut others = other.pairs.into_iter();
        self.pairs.iter_mut().zip(others.by_ref().take(both)).for_each(|(stats, other)| {
            match stats.is_empty() {
                true => *stats = other,
                false => stats.merge(&other),
            }
        });
        self.pairs.extend(others);
    }

    /// Updates the label after the wall clock was set: engine time 0 is now `unix_at_zero_ms`.
    pub fn rename(&mut self, unix_at_zero_ms: i64) {
        self.minute = minute_of(unix_at_zero_ms, self.from_ms);
    }
}

/// The Unix minute at an engine time.
pub fn minute_of(unix_at_zero_ms: i64, at_ms: u64) -> u64 {
    (unix_at_zero_ms.saturating_add(at_ms as i64) / MINUTE_MS).max(0) as u64
}

/// The open minutes of a lane.
#[derive(Debug, Default)]
pub struct Windows {
    open: VecDeque<Minute>,
    /// Unix time of engine time 0.
    unix_at_zero_ms: i64,
    /// A minute that is already closed is opened again for a call that comes later.
    reopens: bool,
    /// Minutes that end before this engine time are closed.
    settled_ms: u64,
}

impl Windows {
    /// No open minutes. Engine time 0 is `unix_at_zero_ms`, Unix milliseconds.
    pub fn new(unix_at_zero_ms: i64) -> Windows {
        Windows { unix_at_zero_ms, ..Windows::default() }
    }

    /// No open minutes. Engine time is Unix time, and comes from messages, of which some are much older than
    /// others.
    pub fn of_messages() -> Windows {
        Windows { reopens: true, ..Windows::default() }
    }

    /// Drops the open minutes.
    pub fn forget_open(&mut self) {
        self.open.clear();
    }

    /// The statistics of a pair in the minute of an engine time. If that minute is closed already, they are those of the oldest open
    /// one.
    #[inline]
    pub fn stats(&mut self, at_ms: u64, pair: u32) -> &mut PairStats {
        let at = match self.open.iter().rposition(|minute| minute.from_ms <= at_ms) {
            Some(at) if at_ms < self.open[at].until_ms => at,
            before => self.open_after(before, at_ms),
        };
        let pairs = &mut self.open[at].pairs;
        if pairs.len() <= pair as usize {
            pairs.resize_with(pair as usize + 1, PairStats::default);
        }
        &mut pairs[pair as usize]
    }

    /// Opens the minute of `at_ms`, after the one at `before`, and returns its index.
    #[cold]
    fn open_after(&mut self, before: Option<usize>, at_ms: u64) -> usize {
        let minute = minute_of(self.unix_at_zero_ms, at_ms);
        let starts_ms = minute as i64 * MINUTE_MS - self.unix_at_zero_ms;
        let is_closed = starts_ms + MINUTE_MS <= self.settled_ms as i64;
        if is_closed && before.is_none() && !self.open.is_empty() && !self.reopens {
            return 0;
        }
        let at = before.map_or(0, |before| before + 1);
        let from_ms = before.map_or(0, |before| self.open[before].until_ms);
        let until_ms = self.open.get(at).map_or(u64::MAX, |next| next.from_ms);
        let opened = Minute {
            minute,
            pairs: Vec::new(),
            from_ms: from_ms.max(starts_ms.max(0) as u64),
            until_ms: until_ms.min((starts_ms + MINUTE_MS).max(0) as u64),
        };
        self.open.insert(at, opened);
        at
    }

    /// Handles a step of the wall clock at engine time `now_ms`: open minutes get the labels they would have
    /// had by the new time, and the current one ends.
    pub fn set_wall_clock(&mut self, now_ms: u64, unix_at_zero_ms: i64) {
        self.unix_at_zero_ms = unix_at_zero_ms;
        for minute in &mut self.open {
            minute.rename(unix_at_zero_ms);
            minute.until_ms = minute.until_ms.min(now_ms.max(minute.from_ms + 1));
        }
    }

    /// Closes and returns the oldest minute if it ended before `safe_ms` of engine time.
    pub fn close_before(&mut self, safe_ms: u64) -> Option<Minute> {
        self.settled_ms = safe_ms;
        if self.open.front()?.until_ms > safe_ms {
            return None;
        }
        self.open.pop_front()
    }

    /// Minutes that end before this engine time are closed.
    pub fn settled_ms(&self) -> u64 {
        self.settled_ms
    }

    /// The open minutes, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Minute> {
        self.open.iter()
    }
}
