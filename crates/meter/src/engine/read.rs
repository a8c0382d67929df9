//! Read access to the engine: figures, minutes, samples.

use super::{LimitFigures, Meter, Overview, PairMinute, Settings, State};
use crate::candidates::Candidates;
use crate::cluster;
use crate::ingest::origins::Interned;
use crate::ingest::versions::VersionChange;
use crate::join::ServiceCounts;
use crate::report::KubernetesCoverage;
use crate::samples::Drawn;
use crate::usual::UsualOfPairs;
use crate::window::Minute;
use spangap_model::{Accounting, Histogram, PairKey, PairStats};
use std::sync::{Arc, PoisonError};

impl Meter {
    /// Copies of the minutes that are open or not yet taken by [`Meter::take_minutes`].
    pub fn open_minutes(&self) -> Vec<PairMinute> {
        self.open_minutes_of(|_| true)
    }

    /// Like [`Meter::open_minutes`], for the matching pairs.
    pub fn open_minutes_of(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<PairMinute> {
        let state = self.state();
        let minutes = state.closed.iter().chain(state.windows.open());
        minutes.flat_map(|minute| state.named_of(minute, &pairs)).collect()
    }

    /// Like [`Meter::open_minutes_of`], with only the gap distributions.
    pub fn open_gaps_of(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<PairMinute> {
        let gaps = |stats: &PairStats| PairStats {
            gap: stats.gap.clone(),
            client: stats.client.clone(),
            ..PairStats::default()
        };
        let state = self.state();
        let minutes = state.closed.iter().chain(state.windows.open());
        minutes.flat_map(|minute| state.copied(minute, &pairs, gaps)).collect()
    }

    /// Statistics since the start, per pair.
    pub fn totals(&self) -> Vec<(PairKey, PairStats)> {
        let state = self.state();
        let totals = state.windows.totals();
        state.pairs.keys().iter().cloned().zip(totals).filter(|(_, stats)| !stats.is_empty()).collect()
    }

    /// Complete samples of recent calls by pair, in intervals of half a minute; without a time to live, of
    /// all calls.
    pub fn samples(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<(PairKey, Vec<Drawn>)> {
        let state = self.state();
        let keys = state.pairs.keys().iter().enumerate().filter(|(_, key)| pairs(key));
        let drawn = keys.map(|(number, key)| (key.clone(), state.samples.of(number as u32)));
        drawn.filter(|(_, drawn)| !drawn.is_empty()).collect()
    }

    /// Version changes of services, oldest first.
    pub fn version_changes(&self) -> Vec<VersionChange> {
        self.origins.read().versions().changes().cloned().collect()
    }

    /// Takes over how long calls of pairs usually take that are slower than that.
    pub fn set_usual(&self, usual: UsualOfPairs) {
        *self.usual.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(usual);
    }

    /// What was taken over last.
    pub fn usual(&self) -> Arc<UsualOfPairs> {
        self.usual.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the per-call sample size of one pair, for each interval, instead of the default; `None` restores
    /// the default. Returns `false` if the pair does not exist.
    pub fn follow(&self, pair: Option<(&PairKey, usize)>) -> bool {
        let mut state = self.state();
        let number = |key: &PairKey| state.pairs.keys().iter().position(|known| known == key);
        let found = pair.and_then(|(key, calls)| Some((number(key)? as u32, calls)));
        state.samples.follow(found);
        found.is_some() || pair.is_none()
    }

    /// Current accounting of all spans.
    pub fn accounting(&self) -> Accounting {
        self.state().join.accounting
    }

    /// Gaps and client durations since the start, of at most `most` pairs from number `from` on; except for
    /// retractions, they only grow. Returns the next number, or `None` after the last pair. Holds the lock
    /// throughout.
    pub fn durations(
        &self,
        from: u32,
        most: u32,
        mut each: impl FnMut(u32, &PairKey, &Histogram, &Histogram),
    ) -> Option<u32> {
        let state = self.state();
        let all = state.pairs.keys().len() as u32;
        let to = from.saturating_add(most).min(all);
        for number in from..to {
            let [gap, client] = state.windows.durations(number);
            if gap.count() > 0 {
                each(number, state.pairs.key(number), &gap, &client);
            }
        }
        (to < all).then_some(to)
    }

    /// What the cluster's API tells of the spans' origins, if it is asked.
    pub fn kubernetes(&self) -> Option<KubernetesCoverage> {
        let cluster = self.cluster();
        let figures = cluster.is_fed().then(|| cluster.figures())?;
        let interned = self.origins.read();
        let of = |outcome| interned.asked(outcome);
        Some(KubernetesCoverage {
            pods: figures.pods,
            nodes: figures.nodes,
            refused: figures.refused,
            silent_ms: figures.silent_ms,
            problems: figures.problems,
            named_by_id: of(cluster::Outcome::ById),
            named_by_name: of(cluster::Outcome::ByName),
            unlisted: of(cluster::Outcome::Unlisted),
            several: of(cluster::Outcome::Several),
            contradicted: of(cluster::Outcome::Contradicted),
            silent: of(cluster::Outcome::Silent),
        })
    }

    /// Figures that do not belong to a single pair.
    pub fn overview(&self) -> Overview {
        let interned = self.origins.read();
        let state = self.state();
        let services =
            state.join.services.iter().enumerate().filter(|(_, c)| **c != ServiceCounts::default());
        let services = services.filter_map(|(i, c)| Some((interned.name(i as u32)?.clone(), *c))).collect();
        let horizon = state.ring_marks.front().zip(state.ring_marks.back());
        Overview {
            accounting: state.join.accounting,
            malformed: state.join.malformed,
            services,
            mate_delay: state.windows.mate_delay(),
            pending_bytes: state.pending_bytes(),
            pending_bytes_limit: state.join.pending().max_bytes() as u64,
            whole_bytes: state.join.keep().written_bytes().min(state.join.keep().bytes() as u64),
            whole_span_horizon_ms: horizon
                .filter(|(_, last)| last.0 > state.join.keep().bytes() as u64)
                .map(|(first, last)| last.1 - first.1),
            handed_over: state.partitions.handed_over,
            calls_in_other: state.calls_in_other,
            names_in_other: interned.fill().origins_refused + interned.fill().names_refused,
            calls_without_legs: state.calls_without_legs,
            calls_with_one_attempt: state.calls_with_one_attempt,
            calls_without_size: state.calls_without_size,
            exclude_response_over: self.settings.exclude_response_over,
            minutes_dropped: state.minutes_dropped,
            epoch_unix_ms: state.unix_at_zero_ms,
            clock_steps: state.clock_steps,
            last_clock_steps: state.last_clock_steps.iter().copied().collect(),
            limits: state.limits(&interned, &self.settings),
        }
    }
}

impl State {
    fn pending_bytes(&self) -> u64 {
        self.join.pending().bytes() as u64 + self.partitions.pending_bytes()
    }

    fn limits(&self, interned: &Interned, settings: &Settings) -> Vec<LimitFigures> {
        let (fill, limits) = (interned.fill(), interned.limits());
        let of = |name, used, limit| LimitFigures { name, used, limit, ..LimitFigures::default() };
        let (pending, keep) = (self.join.pending(), self.join.keep());
        let [host_pairs, host_pairs_limit, host_pairs_forgotten, host_pairs_refused] = self.offsets.fill();
        vec![
            LimitFigures {
                cut: fill.origins_reduced,
                forgotten: fill.origins_forgotten,
                refused: fill.origins_refused,
                ..of("resources", fill.origins, limits.origins as u64)
            },
            LimitFigures {
                cut: fill.names_cut,
                forgotten: fill.names_forgotten,
                refused: fill.names_refused,
                ..of("names", fill.names, limits.names as u64)
            },
            LimitFigures { cut: fill.resources_cut, ..of("resource_bytes", fill.bytes, limits.bytes) },
            LimitFigures {
                refused: self.pairs.refused(),
                ..of("pairs", self.pairs.keys().len() as u64, settings.pair_limits.total as u64)
            },
            LimitFigures {
                forgotten: host_pairs_forgotten,
                refused: host_pairs_refused,
                ..of("host_pairs", host_pairs, host_pairs_limit)
            },
            LimitFigures {
                forgotten: self.join.accounting.evicted,
                ..of("pending_bytes", self.pending_bytes(), pending.max_bytes() as u64)
            },
            LimitFigures {
                refused: keep.refused(),
                ..of("whole_bytes", keep.written_bytes().min(keep.bytes() as u64), keep.bytes() as u64)
            },
            of("worst_candidates", self.candidates.reserved(), Candidates::MOST),
            LimitFigures {
                refused: self.worst_refused,
                ..of("worst_bytes", self.worst.bytes(), self.worst_bytes)
            },
            LimitFigures {
                refused: self.samples.refused,
                ..of("sample_bytes", self.samples.account.bytes(), self.samples.limit_bytes)
            },
        ]
    }

    pub(super) fn named(&self, minute: &Minute) -> Vec<PairMinute> {
        self.named_of(minute, |_| true)
    }

    fn named_of(&self, minute: &Minute, wanted: impl Fn(&PairKey) -> bool) -> Vec<PairMinute> {
        self.copied(minute, wanted, PairStats::without_candidates)
    }

    fn copied(
        &self,
        minute: &Minute,
        wanted: impl Fn(&PairKey) -> bool,
        copy: impl Fn(&PairStats) -> PairStats,
    ) -> Vec<PairMinute> {
        let pairs = minute.pairs.iter().enumerate().filter(|(_, stats)| !stats.is_empty());
        pairs
            .filter(|(number, _)| wanted(self.pairs.key(*number as u32)))
            .map(|(number, stats)| PairMinute {
                unix_s: minute.minute * 60,
                key: self.pairs.key(number as u32).clone(),
                stats: copy(stats),
            })
            .collect()
    }
}
