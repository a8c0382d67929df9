//! Read access to the engine: figures, minutes, samples.

use super::shard::Shard;
use super::statistics::{CallCounts, Statistics};
use super::{Lane, LimitFigures, Meter, Overview, PairMinute};
use crate::candidates::Candidates;
use crate::cluster;
use crate::ingest::origins::Interned;
use crate::ingest::versions::VersionChange;
use crate::pairs::Pairs;
use crate::report::KubernetesCoverage;
use crate::samples::{Drawn, drawn};
use crate::services::Services;
use crate::usual::UsualOfPairs;
use crate::window::Minute;
use rustc_hash::FxHashMap;
use spangap_model::accounting::Malformed;
use spangap_model::{Accounting, Histogram, PairKey, PairStats};
use std::sync::{Arc, PoisonError};

/// Copies of minutes of which each lane has a part.
pub(super) struct MinutesOfLanes<'m> {
    meter: &'m Meter,
    minutes: Vec<PairMinute>,
    /// By Unix second and pair number.
    places: FxHashMap<(u64, u32), usize>,
}

impl MinutesOfLanes<'_> {
    /// Adds a lane's open minutes.
    pub(super) fn add(
        &mut self,
        stats: &Statistics,
        copy: impl Fn(&PairStats) -> PairStats,
        wanted: impl Fn(&PairKey) -> bool,
    ) {
        for minute in stats.windows.open() {
            self.add_minute(minute, &copy, &wanted);
        }
    }

    fn add_minute(
        &mut self,
        minute: &Minute,
        copy: impl Fn(&PairStats) -> PairStats,
        wanted: impl Fn(&PairKey) -> bool,
    ) {
        let pairs = self.meter.common.pairs();
        let named = named(minute, &pairs, copy, wanted);
        if self.meter.lanes.len() == 1 {
            self.minutes.extend(named.map(|(_, minute)| minute));
            return;
        }
        for (pair, part) in named {
            let last = self.minutes.len();
            let place = *self.places.entry((part.unix_s, pair)).or_insert(last);
            match self.minutes.get_mut(place) {
                Some(minute) => minute.stats.merge(&part.stats),
                None => self.minutes.push(part),
            }
        }
    }

    pub(super) fn finished(self) -> Vec<PairMinute> {
        self.minutes
    }
}

/// The pairs of a minute that have calls, by number.
pub(super) fn named<'a>(
    minute: &'a Minute,
    pairs: &'a Pairs,
    copy: impl Fn(&PairStats) -> PairStats + 'a,
    wanted: impl Fn(&PairKey) -> bool + 'a,
) -> impl Iterator<Item = (u32, PairMinute)> + 'a {
    let of_pairs = (0u32..).zip(&minute.pairs).filter(|(_, stats)| !stats.is_empty());
    let of_pairs = of_pairs.filter(move |(number, _)| wanted(pairs.key(*number)));
    of_pairs.map(move |(number, stats)| {
        let key = pairs.key(number).clone();
        (number, PairMinute { unix_s: minute.minute * 60, key, stats: copy(stats) })
    })
}

impl Meter {
    pub(super) fn minutes_of_lanes(&self) -> MinutesOfLanes<'_> {
        MinutesOfLanes { meter: self, minutes: Vec::new(), places: FxHashMap::default() }
    }

    /// Copies of the minutes that are open or not yet taken by [`Meter::take_minutes`].
    pub fn open_minutes(&self) -> Vec<PairMinute> {
        self.open_minutes_of(|_| true)
    }

    /// Like [`Meter::open_minutes`], for the matching pairs.
    pub fn open_minutes_of(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<PairMinute> {
        self.copied(pairs, PairStats::without_candidates)
    }

    /// Like [`Meter::open_minutes_of`], with only the gap distributions.
    pub fn open_gaps_of(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<PairMinute> {
        self.copied(pairs, |stats: &PairStats| PairStats {
            gap: stats.gap.clone(),
            client: stats.client.clone(),
            ..PairStats::default()
        })
    }

    fn copied(
        &self,
        pairs: impl Fn(&PairKey) -> bool,
        copy: impl Fn(&PairStats) -> PairStats,
    ) -> Vec<PairMinute> {
        let ledger = self.ledger();
        let mut minutes = self.minutes_of_lanes();
        ledger.closed.iter().for_each(|minute| minutes.add_minute(minute, &copy, &pairs));
        self.each_lane().for_each(|lane| minutes.add(&lane.stats, &copy, &pairs));
        minutes.finished()
    }

    /// Statistics since the start, by pair number.
    fn totals_by_number(&self) -> Vec<PairStats> {
        let ledger = self.ledger();
        let mut totals = ledger.totals.clone();
        for lane in self.each_lane() {
            for minute in lane.stats.windows.open() {
                if totals.len() < minute.pairs.len() {
                    totals.resize_with(minute.pairs.len(), PairStats::default);
                }
                for (total, stats) in totals.iter_mut().zip(&minute.pairs) {
                    total.merge(stats);
                }
            }
        }
        totals
    }

    /// Statistics since the start, per pair.
    pub fn totals(&self) -> Vec<(PairKey, PairStats)> {
        let totals = self.totals_by_number();
        let pairs = self.common.pairs();
        pairs.keys().iter().cloned().zip(totals).filter(|(_, stats)| !stats.is_empty()).collect()
    }

    /// Complete samples of recent calls by pair, in intervals of half a minute; without a time to live, of
    /// all calls.
    pub fn samples(&self, pairs: impl Fn(&PairKey) -> bool) -> Vec<(PairKey, Vec<Drawn>)> {
        // No interval ends meanwhile.
        let _ledger = self.ledger();
        let all = self.common.pairs();
        let keys = (0u32..).zip(all.keys()).filter(|(_, key)| pairs(key));
        let keys: Vec<(u32, PairKey)> = keys.map(|(number, key)| (number, key.clone())).collect();
        drop(all);
        let mut parts: Vec<_> = keys.iter().map(|_| Vec::with_capacity(self.lanes.len())).collect();
        for lane in self.each_lane() {
            for ((number, _), parts) in keys.iter().zip(&mut parts) {
                parts.push(lane.stats.samples.of(*number));
            }
        }
        let drawn = keys.into_iter().zip(parts).map(|((_, key), parts)| (key, drawn(parts)));
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
        let number = |key: &PairKey| self.common.pairs().keys().iter().position(|known| known == key);
        let found = pair.and_then(|(key, calls)| Some((number(key)? as u32, calls)));
        self.each_lane().for_each(|mut lane| lane.stats.samples.follow(found));
        found.is_some() || pair.is_none()
    }

    /// Current accounting of all spans.
    pub fn accounting(&self) -> Accounting {
        let mut all = Accounting::default();
        self.each_shard().for_each(|shard| all += shard.join.accounting);
        self.each_lane().for_each(|lane| all += lane.of_partitions.join.accounting);
        all
    }

    /// Gaps and client durations since the start, of at most `most` pairs from number `from` on; except for
    /// retractions, they only grow. Returns the next number, or `None` after the last pair. No minute closes
    /// meanwhile.
    pub fn durations(
        &self,
        from: u32,
        most: u32,
        mut each: impl FnMut(u32, &PairKey, &Histogram, &Histogram),
    ) -> Option<u32> {
        let ledger = self.ledger();
        let all = self.common.pairs().keys().len() as u32;
        let to = from.saturating_add(most).min(all);
        let range = from.min(to) as usize..to as usize;
        let mut durations: Vec<[Histogram; 2]> = range.clone().map(|_| Default::default()).collect();
        let mut add = |pairs: &[PairStats]| {
            for (stats, sum) in pairs.iter().take(range.end).skip(range.start).zip(&mut durations) {
                sum[0].merge(&stats.gap);
                sum[1].merge(&stats.client);
            }
        };
        add(&ledger.totals);
        for lane in self.each_lane() {
            lane.stats.windows.open().for_each(|minute| add(&minute.pairs));
        }
        let pairs = self.common.pairs();
        for (number, [gap, client]) in (from..).zip(&durations) {
            if gap.count() > 0 {
                each(number, pairs.key(number), gap, client);
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
        let ledger = self.ledger();
        let mut mate_delay = Histogram::new();
        ledger.totals.iter().for_each(|stats| mate_delay.merge(&stats.mate_delay));
        let mut sums = Sums::default();
        for lane in self.each_lane() {
            sums.add_lane(&lane);
            let open = lane.stats.windows.open().flat_map(|minute| &minute.pairs);
            open.for_each(|stats| mate_delay.merge(&stats.mate_delay));
        }
        for shard in self.each_shard() {
            sums.add(&shard);
            sums.pending_bytes += shard.join.pending().bytes() as u64;
            // One limit for all.
            sums.pending_bytes_limit = shard.join.pending().max_bytes();
        }
        let services = sums.services.counted();
        let services = services.filter_map(|(number, counts)| Some((interned.name(number)?.clone(), counts)));
        let services = services.collect();
        Overview {
            accounting: sums.accounting,
            malformed: sums.malformed,
            services,
            mate_delay,
            asks_peers: self.peers.is_some(),
            pending_bytes: sums.pending_bytes,
            pending_bytes_limit: sums.pending_bytes_limit,
            whole_bytes: sums.whole_bytes,
            whole_span_horizon_ms: sums.whole_span_horizon_ms,
            handed_over: sums.handed_over,
            calls_in_other: sums.calls.in_other,
            names_in_other: interned.fill().origins_refused + interned.fill().names_refused,
            calls_without_legs: sums.calls.without_legs,
            calls_with_one_attempt: sums.calls.with_one_attempt,
            calls_without_size: sums.calls.without_size,
            exclude_response_over: self.settings.exclude_response_over,
            minutes_dropped: ledger.minutes_dropped,
            epoch_unix_ms: ledger.unix_at_zero_ms,
            clock_steps: ledger.clock_steps,
            last_clock_steps: ledger.last_clock_steps.iter().copied().collect(),
            limits: self.limits(&interned, &sums),
        }
    }

    fn limits(&self, interned: &Interned, sums: &Sums) -> Vec<LimitFigures> {
        let (fill, limits) = (interned.fill(), interned.limits());
        let of = |name, used, limit| LimitFigures { name, used, limit, ..LimitFigures::default() };
        let common = &self.common;
        let [host_pairs, host_pairs_limit, host_pairs_forgotten, host_pairs_refused] = common.clocks.fill();
        let pairs = common.pairs();
        let of_peers = self.peers().map(|peers| LimitFigures {
            name: "halves_of_peers",
            used: peers.halves(),
            limit: peers.halves_limit(),
            forgotten: peers.given_up(),
            ..LimitFigures::default()
        });
        let of_all = [
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
                refused: pairs.refused(),
                ..of("pairs", pairs.keys().len() as u64, self.settings.pair_limits.total as u64)
            },
            LimitFigures {
                forgotten: host_pairs_forgotten,
                refused: host_pairs_refused,
                ..of("host_pairs", host_pairs, host_pairs_limit)
            },
            LimitFigures {
                forgotten: sums.accounting.evicted,
                ..of("pending_bytes", sums.pending_bytes, sums.pending_bytes_limit)
            },
            LimitFigures {
                refused: sums.whole_refused,
                ..of("whole_bytes", sums.whole_bytes, sums.whole_bytes_limit)
            },
            of("worst_candidates", common.candidates.bytes(), Candidates::MOST),
            LimitFigures {
                refused: sums.calls.worst_refused,
                ..of("worst_bytes", common.worst.bytes(), common.worst_limit)
            },
            LimitFigures {
                refused: sums.samples_refused,
                ..of("sample_bytes", common.sampled.bytes(), self.settings.sample_bytes)
            },
        ];
        of_all.into_iter().chain(of_peers).collect()
    }
}

/// Figures of all shards and lanes.
#[derive(Default)]
struct Sums {
    accounting: Accounting,
    malformed: Malformed,
    services: Services,
    calls: CallCounts,
    handed_over: u64,
    pending_bytes: u64,
    pending_bytes_limit: u64,
    whole_bytes: u64,
    whole_bytes_limit: u64,
    whole_refused: u64,
    samples_refused: u64,
    /// Of the ring that holds the shortest time.
    whole_span_horizon_ms: Option<u64>,
}

impl Sums {
    fn add(&mut self, shard: &Shard) {
        let (join, keep) = (&shard.join, shard.join.keep());
        self.accounting += join.accounting;
        self.malformed += join.malformed;
        self.services += &join.unmatched;
        self.whole_bytes += keep.written_bytes().min(keep.bytes() as u64);
        self.whole_bytes_limit += keep.bytes() as u64;
        self.whole_refused += keep.refused();
        self.whole_span_horizon_ms =
            self.whole_span_horizon_ms.into_iter().chain(shard.ring_horizon_ms()).min();
    }

    fn add_lane(&mut self, lane: &Lane) {
        self.add(&lane.of_partitions);
        self.services += &lane.stats.joined;
        self.calls += lane.stats.calls;
        self.handed_over += lane.partitions.handed_over;
        self.pending_bytes += lane.partitions.pending_bytes();
        self.samples_refused += lane.stats.samples.refused;
    }
}
