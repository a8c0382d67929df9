//! Keeps exported totals from falling. A call that turns out to have a second attempt is retracted from its
//! pair's distributions; Prometheus would take a counter that falls by one for a restart, and its whole value
//! for an increase.
//!
//! A pair has about 170 series, and ten thousand pairs produce a scrape of 190 MB, so exported pairs have
//! their own limit. The first pairs win, and the choice is never revised: a pair that moved between its own
//! series and `other` would reduce the counts of one of them.

use crate::engine::LimitFigures;
use spangap_model::pair::OTHER;
use spangap_model::{PairKey, PairStats};
use std::collections::BTreeMap;

/// The last exported figures of each pair. One instance serves all exporters of a process.
#[derive(Debug)]
pub struct Monotone {
    shown: BTreeMap<PairKey, PairStats>,
    max_pairs: usize,
    in_other: u64,
}

impl Monotone {
    /// An instance without exported pairs. It will export at most `max_pairs` pairs, and the sum of the rest
    /// as `other`.
    pub fn new(max_pairs: usize) -> Monotone {
        Monotone { shown: BTreeMap::new(), max_pairs, in_other: 0 }
    }

    /// Number of exported pairs, their limit, and the number of pairs added to `other`.
    pub fn fill(&self) -> LimitFigures {
        LimitFigures {
            name: "exported_pairs",
            used: self.shown.len().min(self.max_pairs) as u64,
            limit: self.max_pairs as u64,
            refused: self.in_other,
            ..LimitFigures::default()
        }
    }

    /// The totals to export, sorted by pair: no bucket, count or sum is lower than in any earlier call. A
    /// pair missing from `totals` retains its last figures; its worst calls come from `totals` only.
    pub fn raise(
        &mut self,
        totals: impl IntoIterator<Item = (PairKey, PairStats)>,
    ) -> Vec<(PairKey, PairStats)> {
        let mut now: BTreeMap<PairKey, PairStats> = BTreeMap::new();
        let mut new_pairs = self.max_pairs.saturating_sub(self.shown.len());
        let mut in_other = 0;
        for (key, stats) in totals {
            let is_known = self.shown.contains_key(&key) || now.contains_key(&key);
            let key = if is_known || new_pairs > 0 {
                new_pairs -= !is_known as usize;
                key
            } else {
                in_other += 1;
                PairKey { client: OTHER.into(), server: OTHER.into(), method: None }
            };
            // A service may share the name of the pair `other`; the two are one series.
            match now.get_mut(&key) {
                Some(same) => same.merge(&stats),
                None => drop(now.insert(key, stats)),
            }
        }
        self.in_other = self.in_other.max(in_other);
        for (key, stats) in &now {
            match self.shown.get_mut(key) {
                Some(shown) => raise_to(shown, stats),
                None => {
                    drop(self.shown.insert(key.clone(), PairStats { worst: Vec::new(), ..stats.clone() }))
                }
            }
        }
        let exported = self.shown.iter().map(|(key, shown)| {
            let worst = now.remove(key).map(|stats| stats.worst).unwrap_or_default();
            (key.clone(), PairStats { worst, ..shown.clone() })
        });
        exported.collect()
    }
}

fn raise_to(shown: &mut PairStats, now: &PairStats) {
    shown.gap.raise_to(&now.gap);
    shown.client.raise_to(&now.client);
    shown.server.raise_to(&now.server);
    shown.request_leg.raise_to(&now.request_leg);
    shown.response_leg.raise_to(&now.response_leg);
    shown.mate_delay.raise_to(&now.mate_delay);
    shown.leg_bound_max_ns = shown.leg_bound_max_ns.max(now.leg_bound_max_ns);
    shown.leg_bound_sum_ns = shown.leg_bound_sum_ns.max(now.leg_bound_sum_ns);
    for (status, n) in &now.negative {
        let shown = shown.negative.entry(*status).or_default();
        *shown = (*shown).max(*n);
    }
    shown.attempts_over_one = shown.attempts_over_one.max(now.attempts_over_one);
    shown.excluded_large = shown.excluded_large.max(now.excluded_large);
    shown.sized = shown.sized.max(now.sized);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spangap_model::{CallStatus, Histogram};

    fn key(server: &str) -> PairKey {
        PairKey { client: "a".into(), server: server.into(), method: None }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Call { client_ns: u64, server_ns: u64 },
        TakeBack(usize),
        Export,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u64..3_000_000, 0u64..3_000_000).prop_map(|(client_ns, server_ns)| Step::Call { client_ns, server_ns }),
            2 => (0usize..1000).prop_map(Step::TakeBack),
            1 => Just(Step::Export),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn counts(h: &Histogram) -> BTreeMap<i32, u64> {
        h.buckets().chain([(i32::MIN, h.zero_count())]).collect()
    }

    fn never_lower(before: &Histogram, after: &Histogram) -> bool {
        let after_counts = counts(after);
        counts(before).iter().all(|(i, n)| after_counts.get(i).unwrap_or(&0) >= n)
            && after.count() >= before.count()
            && after.sum_ns() >= before.sum_ns()
    }

    proptest! {
        #[test]
        fn nothing_exported_ever_falls(steps in steps()) {
            let mut monotone = Monotone::new(1);
            let mut truth = PairStats::default();
            let mut calls: Vec<(u64, u64)> = Vec::new();
            let mut last = PairStats::default();
            let mut taken_back = 0u64;
            for step in steps {
                match step {
                    Step::Call { client_ns, server_ns } => match client_ns.checked_sub(server_ns) {
                        Some(gap_ns) => {
                            truth.gap.record(gap_ns);
                            truth.client.record(client_ns);
                            calls.push((client_ns, gap_ns));
                        }
                        None => *truth.negative.entry(CallStatus::UNSET).or_default() += 1,
                    },
                    Step::TakeBack(at) if !calls.is_empty() => {
                        let (client_ns, gap_ns) = calls.swap_remove(at % calls.len());
                        truth.gap.retract(gap_ns);
                        truth.client.retract(client_ns);
                        truth.attempts_over_one += 1;
                        taken_back += 1;
                    }
                    Step::TakeBack(_) => {}
                    Step::Export => {
                        let exported = monotone.raise([(key("b"), truth.clone())]).pop().unwrap().1;
                        prop_assert!(never_lower(&last.gap, &exported.gap));
                        prop_assert!(never_lower(&last.client, &exported.client));
                        prop_assert!(exported.attempts_over_one >= last.attempts_over_one);
                        prop_assert!(exported.negative.values().sum::<u64>() >= last.negative.values().sum::<u64>());
                        // The export shows at least the truth, and exceeds it at most by the retracted calls.
                        prop_assert!(exported.gap.count() >= truth.gap.count());
                        prop_assert!(exported.gap.count() <= truth.gap.count() + taken_back);
                        let sum: u64 = exported.gap.buckets().map(|(_, n)| n).sum();
                        prop_assert_eq!(exported.gap.count(), sum + exported.gap.zero_count());
                        last = exported;
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_with_equal_names_are_one_series_and_missing_pairs_remain() {
        let mut stats = PairStats::default();
        stats.gap.record(5);
        let mut monotone = Monotone::new(2);
        let exported =
            monotone.raise([(key("other"), stats.clone()), (key("b"), stats.clone()), (key("other"), stats)]);
        let counts: Vec<_> = exported.iter().map(|(key, stats)| (&*key.server, stats.calls())).collect();
        assert_eq!(counts, [("b", 1), ("other", 2)]);
        assert_eq!(monotone.raise([]).len(), 2);
    }

    #[test]
    fn pairs_past_the_limit_are_combined_without_losing_or_moving_calls() {
        let stats = |calls: u64| {
            let mut stats = PairStats::default();
            (0..calls).for_each(|ns| stats.gap.record(ns + 1));
            stats
        };
        let mut monotone = Monotone::new(2);
        let mut raise = |totals: &[(&str, u64)]| -> Vec<(String, u64)> {
            let exported = monotone.raise(totals.iter().map(|(server, calls)| (key(server), stats(*calls))));
            let fill = monotone.fill();
            assert_eq!((fill.limit, fill.refused), (2, totals.len().saturating_sub(2) as u64));
            exported.into_iter().map(|(key, stats)| (key.server.to_string(), stats.calls())).collect()
        };
        let named = |rows: &[(&str, u64)]| rows.iter().map(|(n, c)| (n.to_string(), *c)).collect::<Vec<_>>();
        assert_eq!(raise(&[("m", 1)]), named(&[("m", 1)]));
        assert_eq!(
            raise(&[("m", 2), ("z", 3), ("a", 4), ("b", 5)]),
            named(&[("m", 2), ("z", 3), ("other", 9)])
        );
        // The assignment is stable when a small pair grows.
        assert_eq!(
            raise(&[("m", 2), ("z", 3), ("a", 40), ("b", 5), ("c", 1)]),
            named(&[("m", 2), ("z", 3), ("other", 46)])
        );
    }
}
